"""The page size a server ends up with: the attention backend and some models overrule the argument."""

from __future__ import annotations

from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import DSA, MINIMAX_SPARSE, listed, since

_FIXED = {"flashmla": 64, "cutlass_mla": 128, "ascend": 128}
_DEEPSEEK = (
    "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "KimiK25ForConditionalGeneration", "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration", "GlmMoeDsaForCausalLM",
)  # fmt: skip


def page_size(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool) -> int:
    """``page_size`` after ``ServerArgs.__post_init__`` (0.4.4 and newer; 1 before).

    DeepSeek-V4 takes 256 whatever is asked; models with a sparse index 64 (1 on AMD); MiniMax-M3 128 by default.
    """
    asked = arguments.page_size
    if not since(release, "0.4.4"):
        return 1
    if geometry.compressed:
        return asked if asked is not None and asked % 128 == 0 else 256
    if geometry.index and listed(DSA, geometry.architecture, release):
        return 1 if device.is_amd else 64
    if listed(MINIMAX_SPARSE, geometry.architecture, release):
        return asked or 128
    return _by_backend(geometry, arguments, release, device, is_mla=is_mla) or asked or 1


def _by_backend(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool) -> int | None:
    chosen = (arguments.attention_backend, arguments.decode_attention_backend)
    for backend, size in _FIXED.items():
        if backend in chosen:
            return size
    default = _default_backend(geometry, arguments, release, device, is_mla=is_mla)
    backends = {*chosen, default}
    if "trtllm_mla" in backends:
        return None if arguments.page_size in (32, 64) else 64
    if "trtllm_mha" in {*backends, arguments.prefill_attention_backend}:
        return None if arguments.page_size in (16, 32, 64) else 64
    if "fa4" in {*backends, arguments.prefill_attention_backend} and not is_mla and since(release, "0.5.9"):
        return 128
    return None


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
