"""The page size a server ends up with: the attention backend and some models overrule the argument."""

from __future__ import annotations

from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import DSA, MINIMAX_SPARSE, listed, since

_LATENT = {"trtllm_mla", "tokenspeed_mla"}
_FIXED = {"flashmla": 64, "cutlass_mla": 128, "ascend": 128}
_DEEPSEEK = (
    "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "KimiK25ForConditionalGeneration", "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration", "GlmMoeDsaForCausalLM",
)  # fmt: skip


def page_size(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool) -> int:
    """``page_size`` after ``ServerArgs.__post_init__`` (0.4.4 and newer; 1 before).

    DeepSeek-V4 takes 256 (128 on an NPU) whatever is asked; models with a sparse index 64 (1 on AMD); MiniMax-M3 128 by default.
    """
    asked = arguments.page_size
    if not since(release, "0.4.4"):
        return 1
    if geometry.compressed:
        return 128 if arguments.device == "npu" else 256
    if geometry.index and listed(DSA, geometry.architecture, release):
        return 1 if device.is_amd else 64
    if listed(MINIMAX_SPARSE, geometry.architecture, release):
        return asked or 128
    return _by_backend(geometry, arguments, release, device, is_mla=is_mla) or asked or 1


def _by_backend(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool) -> int | None:
    """The page an attention backend insists on, None where it takes the one asked for (``_handle_page_size`` and its like)."""
    asked, prefill = arguments.page_size, arguments.prefill_attention_backend
    main = {arguments.attention_backend, arguments.decode_attention_backend}
    main.add(_default_backend(geometry, arguments, release, device, is_mla=is_mla))
    for backend, size in _FIXED.items():
        if backend in main:
            return size
    if main & _LATENT or "cutedsl_mla" in {*main, prefill}:
        return None if asked in (32, 64) else 64
    if "trtllm_mha" in {*main, prefill}:
        taken = (16, 32, 64, 128) if since(release, "0.5.17") else (16, 32, 64)
        return None if asked in taken else 64
    if "hpc_ops" in {*main, prefill}:
        return 64
    return 128 if not is_mla and _insists_fa4(main, arguments, release, device) else None


def _insists_fa4(main: set[str | None], arguments: ServerArguments, release: Release, device: Device) -> bool:
    """0.5.9 to 0.5.14: FA4 for prefill; then for any phase, but not with a tree of drafts. From 0.5.10 on Blackwell only."""
    prefill = arguments.prefill_attention_backend
    if not since(release, "0.5.9") or (since(release, "0.5.10rc0") and not device.is_blackwell):
        return False
    if not since(release, "0.5.15"):
        return prefill == "fa4"
    return "fa4" in {*main, prefill} and (arguments.speculative_eagle_topk or 0) <= 1


def _default_backend(
    geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool
) -> str | None:
    """The backend of Blackwell cards where none is named (``_handle_attention_backend_compatibility``); others page by 1."""
    named = (arguments.attention_backend, arguments.prefill_attention_backend, arguments.decode_attention_backend)
    if not device.is_blackwell or any(named):
        return None
    if is_mla:
        known = geometry.architecture in _DEEPSEEK and since(release, "0.5.3")
        return "trtllm_mla" if known else None
    if geometry.state is not None:
        return None
    if geometry.architecture == "GptOssForCausalLM":
        return "trtllm_mha" if since(release, "0.5.1") else None
    if arguments.speculative_algorithm is not None and (arguments.speculative_eagle_topk or 0) > 1:
        return None
    return "trtllm_mha" if since(release, "0.5.7") else None
