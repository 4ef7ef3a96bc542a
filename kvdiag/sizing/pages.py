"""The page size a server ends up with: the attention backend and some models overrule the argument."""

from __future__ import annotations

from kvdiag.models import Geometry
from kvdiag.models.geometry import PACKED_EXPERTS
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import DSA, MINIMAX_SPARSE, listed, since

_GATED_DELTA = (
    "Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "InternS2MobiusForConditionalGeneration", "Qwen4ExpForConditionalGeneration",
)  # fmt: skip
_LATENT = {"trtllm_mla", "tokenspeed_mla"}
_FIXED = {"flashmla": 64, "cutlass_mla": 128, "ascend": 128}
_DEEPSEEK = {
    "DeepseekV3ForCausalLM": "0.5.3.post2",
    "MistralLarge3ForCausalLM": "0.5.6.post1",
    "PixtralForConditionalGeneration": "0.5.6.post1",
    "KimiK25ForConditionalGeneration": "0.5.9",
    "GlmMoeDsaForCausalLM": "0.5.9",
    "DeepseekV32ForCausalLM": "0.5.12",
    "LongcatFlashForCausalLM": "0.5.16",
    "KimiK3ForConditionalGeneration": "0.5.17",
    "Dots3NoteForCausalLM": "0.5.19",
    "Glm5NextForConditionalGeneration": "0.5.20",
    "HYV4ForCausalLM": "0.5.20",
}
"""Latent models that Blackwell runs on trtllm_mla where nothing else is named, and the first release that does."""
_TRTLLM, _FA4 = "trtllm_mha", "fa4"
_OWN_BACKENDS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "GptOssForCausalLM": (("0.5.1", _TRTLLM),),
    "Gemma4ForConditionalGeneration": (("0.5.13", _TRTLLM), ("0.5.11", None)),
    "Gemma4ForCausalLM": (("0.5.13", _TRTLLM),),
    "Gemma4UnifiedForConditionalGeneration": (("0.5.13", _TRTLLM),),
    "DiffusionGemmaForBlockDiffusion": (("0.5.21", None),),
    "EmbeddingGemma2Model": (("0.5.22", None),),
    "Olmo2ForCausalLM": (("0.5.6", _TRTLLM),),
    "Step3p5ForCausalLM": (("0.5.13", _FA4),),
    "Step3p7ForConditionalGeneration": (("0.5.13", _FA4),),
    "MiMoV2FlashForCausalLM": (("0.5.22", _FA4),),
    "MiMoV2ForCausalLM": (("0.5.22", _FA4),),
    "WhisperForConditionalGeneration": (("0.5.7", None),),
    "FalconH1ForCausalLM": (("0.5.7", None),),
    "JetNemotronForCausalLM": (("0.5.7", None),),
    "JetVLMForConditionalGeneration": (("0.5.7", None),),
    "Lfm2ForCausalLM": (("0.5.9", None),),
    "Lfm2MoeForCausalLM": (("0.5.9", None),),
}  # fmt: skip
"""Models that choose a backend of their own on Blackwell, newest choice first; None is one that pages by 1."""


def page_size(
    geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool, leaf_states: bool
) -> int:
    """``page_size`` after ``ServerArgs.__post_init__`` (0.4.4 and newer; 1 before).

    DeepSeek-V4 takes 256 (128 on an NPU) whatever is asked; models with a sparse index a page of their own; compressed QSA 64.
    `leaf_states` says that a state model keeps states at the leaves of its radix tree only,
    which takes pages of 1.
    """
    named = arguments.attention_backend
    if not since(release, "0.4.4"):
        return 1
    if geometry.compressed:
        return 128 if device.is_npu and since(release, "0.5.14") else 256
    sparse = _sparse_page(geometry, release, device)
    if sparse is not None:
        return sparse
    if geometry.compressed_keys is not None and since(release, "0.5.20"):
        return 64
    if geometry.architecture in _GATED_DELTA and device.is_blackwell and named is None and since(release, "0.5.11"):
        return 64 if _takes_trtllm(arguments) and not leaf_states else 1
    return _by_backend(geometry, arguments, release, device, is_mla=is_mla)


def _sparse_page(geometry: Geometry, release: Release, device: Device) -> int | None:
    """The page of a model with a sparse index: 64, from 0.5.22 times what it pools; 1 on AMD without AITER's own kernels.

    Intel's cards have 128 from 0.5.20; Ascend's, and Intel's before, the page of any other model.
    """
    if geometry.index is None or not listed(DSA, geometry.architecture, release) or device.is_npu:
        return None
    if device.is_xpu:
        return 128 if since(release, "0.5.20") else None
    return 1 if device.is_amd else 64 * (geometry.index.kpool if since(release, "0.5.22") else 1)


def _by_backend(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool) -> int:
    """The page after each attention backend in use has had its say, in SGLang's order (``_handle_page_size`` and its like)."""
    page = arguments.page_size or _own_page(geometry, arguments, release, device)
    prefill = arguments.prefill_attention_backend
    main = {arguments.attention_backend, arguments.decode_attention_backend}
    main.add(_default_backend(geometry, arguments, release, device, is_mla=is_mla))
    if arguments.kv_cache_dtype == "nvfp4" and since(release, "0.5.21"):
        main.add("trtllm_mha")
    every = {*main, prefill}
    for backend, size in _FIXED.items():
        if backend in main:
            page = size
    if (main & _LATENT or "cutedsl_mla" in every) and page not in (32, 64):
        page = 64
    taken = (16, 32, 64, 128) if since(release, "0.5.17") else (16, 32, 64)
    if "trtllm_mha" in every and page not in taken:
        page = 64
    if "hpc_ops" in every:
        page = 64
    if "intel_xpu" in (every if since(release, "0.5.20") else main):
        page = page if page in _xpu_pages(release, is_mla=is_mla) or not since(release, "0.5.4") else 128
    if device.is_npu:
        page = 128 if not since(release, "0.5.6.post2") else arguments.page_size or 128
    return 128 if not is_mla and _insists_fa4(main, arguments, release, device) else page


def _own_page(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> int:
    """The page of a model that asks for one where the user does not: MiniMax-M3, for the kernels of Hopper and Blackwell.

    With packed experts it has it on every card (0.5.23).
    """
    if not listed(MINIMAX_SPARSE, geometry.architecture, release) or not since(release, "0.5.16"):
        return 1
    if (arguments.quantization or geometry.quantization) == PACKED_EXPERTS and since(release, "0.5.23"):
        return 128
    named, phases = arguments.attention_backend, (arguments.prefill_attention_backend, arguments.decode_attention_backend)
    kernels = ("fa4", "trtllm_mha") if device.is_blackwell else ("fa3",) if device.is_hopper else ()
    return 128 if kernels and (named in kernels or (named is None and not any(phases))) else 1


def _xpu_pages(release: Release, *, is_mla: bool) -> tuple[int, ...]:
    if not since(release, "0.5.11"):
        return (32, 64, 128)
    return (16, 32, 64, 128) if is_mla else (64, 128)


def _insists_fa4(main: set[str | None], arguments: ServerArguments, release: Release, device: Device) -> bool:
    """0.5.4 to 0.5.14: FA4 for prefill; then for any phase, but not with a tree of drafts. From 0.5.10 on Blackwell only."""
    prefill = arguments.prefill_attention_backend
    if not since(release, "0.5.4") or (since(release, "0.5.10rc0") and not device.is_blackwell):
        return False
    if not since(release, "0.5.15"):
        return prefill == "fa4"
    return "fa4" in {*main, prefill} and (arguments.speculative_eagle_topk or 0) <= 1


def _default_backend(
    geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool
) -> str | None:
    """The backend chosen where none is named (``_handle_attention_backend_compatibility``), as far as it pages by more than 1.

    Blackwell cards have such defaults; Intel's and others only for some models. One named for a phase leaves the other phase
    to the default; some models choose only where none is named at all.
    """
    phases = (arguments.prefill_attention_backend, arguments.decode_attention_backend)
    if arguments.attention_backend or (phases[0] and phases[0] == phases[1]):
        return None
    if not device.is_blackwell:
        return _beyond_blackwell(geometry, release, device, unnamed=not any(phases))
    if geometry.architecture.startswith("Inkling"):
        return "fa4" if not any(phases) else None
    if listed(MINIMAX_SPARSE, geometry.architecture, release) and since(release, "0.5.16") and not any(phases):
        return "trtllm_mha" if arguments.kv_cache_dtype == "fp8_e4m3" and since(release, "0.5.17") else "fa4"
    if is_mla:
        first = _DEEPSEEK.get(geometry.architecture)
        return "trtllm_mla" if first is not None and since(release, first) and not any(phases) else None
    for first, backend in _OWN_BACKENDS.get(geometry.architecture, ()):
        if since(release, first):
            return backend
    if geometry.state is not None and geometry.architecture == "NemotronHForCausalLM":
        late = since(release, "0.5.22") and not any(phases) and (arguments.speculative_eagle_topk or 1) == 1
        return _TRTLLM if late else None
    if geometry.state is not None and (not since(release, "0.5.14") or geometry.model_type.startswith("granite")):
        return None
    if not _takes_trtllm(arguments) or not since(release, "0.5.7"):
        return None
    return _FA4 if geometry.head_dim != geometry.v_head_dim and since(release, "0.5.17") else _TRTLLM


def _beyond_blackwell(geometry: Geometry, release: Release, device: Device, *, unnamed: bool) -> str | None:
    """Llama-4 (0.5.6) and gpt-oss (0.5.11) on Intel's cards; Beam (0.5.23) on Hopper's and the RTX cards'."""
    name = geometry.architecture
    if device.is_xpu and (name.startswith("Llama4") and since(release, "0.5.6")):
        return "intel_xpu"
    if device.is_xpu and name == "GptOssForCausalLM" and unnamed and since(release, "0.5.11"):
        return "intel_xpu"
    return _TRTLLM if name == "BeamForCausalLM" and unnamed and device.generation in (9, 12) else None


def _takes_trtllm(arguments: ServerArguments) -> bool:
    """Whether drafts allow it: none, or a chain of them that the arguments state."""
    return arguments.speculative_algorithm is None or arguments.speculative_eagle_topk == 1
