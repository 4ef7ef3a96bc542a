"""Sparse attention over a latent (DSA): which rows its back ends store in an fp8 cache."""

from __future__ import annotations

from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import since


def stores_raw_rows(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> bool:
    """Whether an fp8 cache holds plain rows, without scales (``calculate_mla_kv_cache_dim``).

    trtllm's does on either side, from 0.5.20 on the server's own side of a disaggregated pair; tilelang's on both from
    0.5.22; on AMD those of tilelang, aiter and, from 0.5.20, triton.
    """
    prefill, decode = _backends(geometry, arguments, release, device)
    own = {"prefill": {prefill}, "decode": {decode}}.get(arguments.disaggregation_mode, {prefill, decode})
    if "trtllm" in (own if since(release, "0.5.20") else {prefill, decode}):
        return True
    if device.is_amd:
        raw = {"tilelang", "aiter", "triton"} if since(release, "0.5.20") else {"tilelang", "aiter"}
        return bool(raw & {prefill, decode})
    return {prefill, decode} == {"tilelang"} and since(release, "0.5.22")


def _backends(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> tuple[str, str]:
    """Back ends of both phases with an fp8 cache (``_dsa_split_backend_resolution``); one that is not named has a default."""
    named = (arguments.dsa_prefill_backend, arguments.dsa_decode_backend)
    if arguments.dcp_size > 1 and since(release, "0.5.22"):
        return named[0] or "trtllm", named[1] or "trtllm"
    newest = device.compute_capability is not None and device.compute_capability[0] >= 10
    default = "trtllm" if newest else "flashmla_kv"
    if device.is_amd and since(release, "0.5.20"):
        default = "triton"
    elif device.is_amd and named == (None, None):
        default = "tilelang"
    elif geometry.architecture == "GlmMoeDsaForCausalLM" and newest and not device.is_blackwell:
        default = "flashinfer_sparse_mla"
    return named[0] or default, named[1] or default
