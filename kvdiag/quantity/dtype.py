"""The names of tensor types, which SGLang's lines and its arguments spell differently."""

from __future__ import annotations

_NAMES = {
    "fp8_e4m3fn": "fp8_e4m3",
    "fp8_e4m3fnuz": "fp8_e4m3",
    "fp8_e5m2fnuz": "fp8_e5m2",
    "fp4_e2m1fn_x2": "fp4_e2m1",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}


def canonical_dtype(name: str) -> str:
    """A dtype as SGLang's arguments spell it: ``torch.float8_e4m3fn`` is ``fp8_e4m3``, ``bf16`` is ``bfloat16``."""
    name = name.strip().removeprefix("torch.").lower().replace("float8_", "fp8_").replace("float4_", "fp4_")
    return _NAMES.get(name, name)
