"""KV cache dtypes: their element size, and what ``auto`` resolves to."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen
from kvdiag.models import Geometry
from kvdiag.models.geometry import PACKED_EXPERTS
from kvdiag.quantity.dtype import canonical_dtype
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import DSA, listed, since

ELEMENT_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "mxfp8": 1,
    "fp4_e2m1": 1,
    "nvfp4": 1,
    "fp4_mx_block16": 1,
}
_FP4 = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")
_LEARNED_SINKS = ("HYV4ForCausalLM", "HYV4ForCausalLMNextN")
_AUTO_FP8_SINCE = "0.5.3rc0"


@frozen
class KvDtype:
    """A resolved KV dtype; `size` is what torch reports for one element (1 for two packed FP4 values).

    `scale_layouts` is how many copies of NVFP4's scales the attention backends need (0 where not known), `workspace` whether
    one layer is dequantised for prefill; both matter from 0.5.21.
    """

    name: str
    size: int
    scale_layouts: int = 1
    workspace: bool = False

    @property
    def is_fp4(self) -> bool:
        """Whether two values share a byte and scales lie beside them."""
        return self.name in _FP4


def plain_element_bytes(name: str) -> int | None:
    """Bytes of one element of a KV dtype, None where the dtype is not known or has scales beside its elements."""
    name = canonical_dtype(name)
    return None if name == "mxfp8" or name in _FP4 else ELEMENT_BYTES.get(name)


def kv_dtype(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> KvDtype:
    """The dtype of the pool (``configure_kv_cache_dtype``; defaults of DSA and DeepSeek-V4 models come from argument hooks).

    Raises CannotSizeError for dtypes without a rule, and where ``auto`` depends on a GPU that is not known.
    """
    name = canonical_dtype(arguments.kv_cache_dtype)
    if since(release, "0.5.23") and "tokenspeed_mla" in (arguments.attention_backend, arguments.decode_attention_backend):
        name = "fp8_e4m3"
    if geometry.compressed and device.is_npu and since(release, "0.5.14"):
        name = "bfloat16"
    if name == "auto":
        name = _auto(geometry, arguments, release, device)
    if name not in ELEMENT_BYTES:
        raise CannotSizeError(f"cannot size KV dtype {arguments.kv_cache_dtype!r}: no rule for its elements and scales")
    if name == "nvfp4" and since(release, "0.5.21"):
        return _nvfp4(arguments, device)
    return KvDtype(name, ELEMENT_BYTES[name])


def draft_element_bytes(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, draft: Geometry) -> int:
    """Bytes of an element of a DFLASH draft's cache: the dtype asked for, or the target's class insists on, else the draft's.

    FA4 reads only the draft's own dtype; Blackwell's default backend falls back to it in 0.5.23.
    """
    own = ELEMENT_BYTES[model_dtype(draft, arguments)]
    target = arguments.prefill_attention_backend or arguments.attention_backend
    backend, asked = arguments.speculative_draft_attention_backend or target, arguments.speculative_draft_kv_cache_dtype
    if backend == "fa4" or (backend in (None, "trtllm_mha") and device.is_blackwell and since(release, "0.5.23")):
        return own
    if asked is not None:
        return own if asked == "auto" else ELEMENT_BYTES.get(canonical_dtype(asked), own)
    hooked = geometry.compressed or (geometry.index and listed(DSA, geometry.architecture, release))
    if hooked or canonical_dtype(arguments.kv_cache_dtype) != "auto":
        return kv_dtype(geometry, arguments, release, device).size
    return own


def _nvfp4(arguments: ServerArguments, device: Device) -> KvDtype:
    """NVFP4 and its scales (``handle_nvfp4_prefill_kv_dequant_dtype``): native where prefill reads FP4, which Blackwell's does.

    SM100 keeps the scales as its kernels want them, others row by row; prefill in FP8 needs rows and a workspace as well.
    """
    capability, asked = device.compute_capability, arguments.prefill_kv_cache_dequant_dtype
    if capability is None:
        return KvDtype("nvfp4", 1, 0)
    backend = arguments.prefill_attention_backend or arguments.attention_backend
    chosen = backend == "trtllm_mha" or (backend is None and device.is_blackwell)
    native = chosen if asked == "auto" else asked == "nvfp4"
    return KvDtype("nvfp4", 1, int(not native or not device.is_blackwell) + int(device.is_blackwell), not native)


def _auto(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> str:
    if geometry.compressed or geometry.architecture == "MuseSparkForConditionalGeneration":
        return "fp8_e4m3"
    if packs_sparse(geometry, arguments, release, device):
        return "fp8_e4m3"
    if geometry.index and listed(DSA, geometry.architecture, release) and not device.is_npu:
        if device.is_xpu:
            return "bfloat16" if since(release, "0.5.20") else model_dtype(geometry, arguments)
        if device.compute_capability is None:
            raise CannotSizeError(
                "the KV dtype of this model's sparse attention is bfloat16 or fp8_e4m3 by the GPU; give the GPU or kv_cache_dtype"
            )
        return "fp8_e4m3" if device.compute_capability[0] >= 10 and geometry.architecture not in _LEARNED_SINKS else "bfloat16"
    if geometry.kv_cache_quant_algo == "FP8" and since(release, _AUTO_FP8_SINCE):
        return "fp8_e4m3"
    return model_dtype(geometry, arguments)


def packs_sparse(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> bool:
    """Whether MiniMax's sparse layers are packed in NVFP4 (``uses_minimax_m3_nvfp4_native_stack``, 0.5.23 and newer).

    Such a checkpoint is on Blackwell cards. Raises CannotSizeError where the card is not known.
    """
    if not geometry.sparse or not device.is_cuda or not since(release, "0.5.23"):
        return False
    if (arguments.quantization or geometry.quantization) != PACKED_EXPERTS:
        return False
    if device.compute_capability is None:
        raise CannotSizeError(
            "the cache of this NVFP4 checkpoint is packed by the GPU; give --gpu NAME or --compute-capability X.Y"
        )
    return device.generation in (10, 12)


def model_dtype(geometry: Geometry, arguments: ServerArguments) -> str:
    """The dtype of the weights' activations (``_get_and_verify_dtype``)."""
    if arguments.dtype != "auto":
        return canonical_dtype(arguments.dtype)
    return geometry.dtype
