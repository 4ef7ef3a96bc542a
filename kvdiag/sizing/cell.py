"""Bytes of KV cache for one token on one rank."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.models import Geometry
from kvdiag.sizing.arguments import ServerArguments

ELEMENT_BYTES = {
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}


def canonical_dtype(name: str) -> str:
    """A dtype as SGLang's arguments spell it: ``torch.float8_e4m3fn`` is ``fp8_e4m3``."""
    name = name.removeprefix("torch.").lower().replace("float8_", "fp8_").replace("float4_", "fp4_")
    return {"fp8_e4m3fn": "fp8_e4m3", "bf16": "bfloat16", "half": "float16"}.get(name, name)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a KV dtype. Raises CannotSizeError for dtypes with scale bytes or unknown ones."""
    try:
        return ELEMENT_BYTES[canonical_dtype(dtype)]
    except KeyError:
        raise CannotSizeError(f"cannot size KV dtype {dtype!r}: no rule for its scale bytes") from None


def kv_heads_per_rank(geometry: Geometry, arguments: ServerArguments) -> int:
    """KV heads one rank holds, never below one (``ModelConfig.get_num_kv_heads``)."""
    return max(1, geometry.num_key_value_heads // arguments.attention_tp_size)


def bytes_per_token(geometry: Geometry, arguments: ServerArguments, kv_cache_dtype: str) -> int:
    """``cell_size`` in bytes: heads x (head_dim + v_head_dim) x layers x element, or the latent for MLA.

    Mirrors ``ModelRunner.profile_max_num_token`` and, from 0.5.7, ``get_cell_size_per_token``.
    """
    element = element_bytes(kv_cache_dtype)
    if geometry.attention == "mla":
        return (geometry.kv_lora_rank + geometry.qk_rope_head_dim) * geometry.num_hidden_layers * element
    per_layer = kv_heads_per_rank(geometry, arguments) * (geometry.head_dim + geometry.v_head_dim)
    return per_layer * geometry.num_hidden_layers * element
