"""The names of tensor types, which SGLang's lines and its arguments spell differently."""

from __future__ import annotations

_NAMES = {
    "fp8_e4m3fn": "fp8_e4m3",
    "fp4_e2m1fn_x2": "fp4_e2m1",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}
_SAME_ELEMENT = {"fp8_e4m3fnuz": "fp8_e4m3", "fp8_e5m2fnuz": "fp8_e5m2"}
"""AMD's variants: other bits, arguments and sizes are the same."""


def spelled_dtype(name: str) -> str:
    """A dtype in the spelling of SGLang's arguments: ``torch.float8_e4m3fn`` is ``fp8_e4m3``, ``bf16`` is ``bfloat16``."""
    name = name.strip().removeprefix("torch.").lower().replace("float8_", "fp8_").replace("float4_", "fp4_")
    return _NAMES.get(name, name)


def canonical_dtype(name: str) -> str:
    """The argument that a dtype comes from: as `spelled_dtype`, variants of one element type under one name."""
    name = spelled_dtype(name)
    return _SAME_ELEMENT.get(name, name)
