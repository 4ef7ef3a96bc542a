"""Radix cache, extra buffer and overlap schedule of a server whose model keeps state."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import MAMBA_EXTRA_BUFFER, listed, since
from kvdiag.sizing.speculative import Speculation

_MAMBA2 = ("falcon_h1", "nemotron_h")
"""Models whose radix cache ``ModelRunner.initialize`` switches off up to 0.5.6."""


def radix_cache(
    geometry: Geometry, arguments: ServerArguments, release: Release, spec: Speculation | None, device: Device
) -> tuple[bool, bool, bool]:
    """Radix cache, extra buffer and overlap schedule of a state model (``_handle_mamba_radix_cache`` and what preceded it).

    Raises CannotSizeError where the server takes an extra buffer that it refuses on its platform.
    """
    radix = not arguments.disable_radix_cache and arguments.disaggregation_mode != "decode"
    radix = radix and not geometry.dual_chunk
    extra = arguments.mamba_scheduler_strategy.startswith("extra_buffer")
    wished = not arguments.disable_overlap_schedule
    overlap = wished and _keeps_overlap(arguments, release, spec)
    name = geometry.architecture
    if geometry.state is None:
        return radix, False, overlap
    if geometry.model_type in _MAMBA2 and since(release, "0.5.3.post2") and not since(release, "0.5.6.post1"):
        return False, extra, overlap
    if name == "KimiLinearForCausalLM" and not since(release, "0.5.14"):
        return False, extra, overlap
    if name == "BailingMoeV2_5ForCausalLM" and not since(release, "0.5.13"):
        return False, extra, overlap
    if since(release, "0.5.14"):
        if not radix:
            return radix, extra, overlap
        if arguments.mamba_scheduler_strategy == "auto" and geometry.state.family == "sconv":
            extra = True
        elif arguments.mamba_scheduler_strategy == "auto":
            wants = wished or (arguments.page_size or 1) > 1
            known = listed(MAMBA_EXTRA_BUFFER, name, release) and arguments.linear_attn_backend == "triton"
            extra = wants and known and not (device.is_xpu and since(release, "0.5.20"))
        if extra:
            _refuse_extra(name, release, device)
        return radix, extra, overlap and extra
    if spec is not None and not extra and since(release, "0.5.8") and not since(release, "0.5.10rc0"):
        radix = radix and not (name == "NemotronHForCausalLM" or since(release, "0.5.9"))
    return radix, extra, overlap


def _refuse_extra(name: str, release: Release, device: Device) -> None:
    first = "0.5.16" if device.is_amd else "0.5.18" if device.is_xpu else None
    if first is not None and not since(release, first):
        raise CannotSizeError(
            f"the server would not start: SGLang {release} takes the extra_buffer strategy for {name}, which this "
            f"platform has from {first} only; give --mamba-scheduler-strategy no_buffer"
        )


def _keeps_overlap(arguments: ServerArguments, release: Release, spec: Speculation | None) -> bool:
    """Pipeline stages rule the overlap schedule out; drafts did up to 0.5.10, some kinds of them up to 0.5.13."""
    if arguments.pp_size > 1:
        return False
    if spec is None or since(release, "0.5.14"):
        return True
    if not since(release, "0.5.11") or spec.algorithm in ("NGRAM", "DFLASH", "FROZEN_KV_MTP"):
        return False
    return since(release, "0.5.13") or (spec.eagle_topk or 1) == 1
