"""The switches of SGLang's environment that change sizes and stand in no server argument (``srt/environ.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kvdiag.errors import InputError
from kvdiag.frozen import frozen
from kvdiag.releases import Release, parse_ranges


@frozen
class Environment:
    """The switches that are set; None and False where SGLang's own default holds."""

    pp_layer_partition: tuple[int, ...] | None = None
    vlm_cache_size_mb: int | None = None
    mm_feature_cache_mb: int | None = None
    mamba_ssm_dtype: str | None = None
    mamba_conv_dtype: str | None = None
    mamba_skip_decode_lock: bool = False
    swa_eviction_interval: int | None = None
    dsv4_compress_state_dtype: str | None = None
    use_online_compress: bool = False
    post_capture_kv_sizing: bool | None = None
    honor_explicit_mem_fraction: bool = False
    ci_small_kv_size: int | None = None


UNSET = Environment()


@frozen
class Switch:
    """One switch: the field it sets, what its value is, the releases that read it, and what it changes."""

    field: str
    kind: str
    releases: str
    words: str


SWITCHES = {
    "SGLANG_PP_LAYER_PARTITION": Switch(
        "pp_layer_partition", "layers", "0.4.0..", "layers of each pipeline stage, as 10,12,10, instead of an even split"
    ),
    "SGLANG_VLM_CACHE_SIZE_MB": Switch(
        "vlm_cache_size_mb", "count", "0.5.18..", "MiB kept back for image embeddings of a multimodal model (default 100)"
    ),
    "SGLANG_MM_FEATURE_CACHE_MB": Switch(
        "mm_feature_cache_mb", "count", "0.5.18..", "MiB kept back for image features sent through the GPU (default 1024)"
    ),
    "SGLANG_MAMBA_SSM_DTYPE": Switch("mamba_ssm_dtype", "dtype", "0.5.2..", "dtype of the states; --mamba-ssm-dtype goes first"),
    "SGLANG_MAMBA_CONV_DTYPE": Switch("mamba_conv_dtype", "dtype", "0.5.9..", "dtype of the states' convolution inputs"),
    "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": Switch(
        "mamba_skip_decode_lock", "flag", "0.5.17..", "one state slot less for a request with the extra buffer"
    ),
    "SGLANG_SWA_EVICTION_INTERVAL": Switch(
        "swa_eviction_interval",
        "count",
        "0.5.14..",
        "tokens between evictions where requests size the window pool (default 128)",
    ),
    "SGLANG_DSV4_COMPRESS_STATE_DTYPE": Switch(
        "dsv4_compress_state_dtype", "state dtype", "0.5.14..", "float32 or bfloat16: DeepSeek-V4's compression states"
    ),
    "SGLANG_OPT_USE_ONLINE_COMPRESS": Switch(
        "use_online_compress", "flag", "0.5.12..", "DeepSeek-V4's ratio-128 state as running sums instead of a ring"
    ),
    "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": Switch(
        "post_capture_kv_sizing", "flag", "0.5.16..", "the pool sized anew by what is free after graphs are captured"
    ),
    "SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION": Switch(
        "honor_explicit_mem_fraction", "flag", "0.5.19..", "AMD: a given --mem-fraction-static is not lessened"
    ),
    "SGLANG_CI_SMALL_KV_SIZE": Switch(
        "ci_small_kv_size", "count", "0.4.3.post3..0.5.6.post2", "tokens in place of those that the memory holds"
    ),
}
_DTYPES = ("float32", "bfloat16", "float16")
_STATE_DTYPES = {"float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16"}
_TRUE, _FALSE = ("true", "1", "yes", "y"), ("false", "0", "no", "n", "")
MOST = 10**12


def switches_of(pairs: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping. Raises InputError where one has no equals sign."""
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"--env {pair}: give NAME=VALUE, as the server's environment had it")
        found[name.strip()] = value.strip()
    return found


def environment_of(switches: Mapping[str, str], release: Release | None = None) -> Environment:
    """The switches by name. Raises InputError for names no size depends on, values they do not take, and other releases."""
    return _read(tuple(sorted(switches.items())), release)


@lru_cache(maxsize=512)
def _read(switches: tuple[tuple[str, str], ...], release: Release | None) -> Environment:
    taken: dict[str, Any] = {}
    for name, text in switches:
        switch = SWITCHES.get(name)
        if switch is None:
            raise InputError(f"{name}: no rule here follows this switch; sizes follow {', '.join(SWITCHES)}")
        if release is not None and release not in parse_ranges(switch.releases):
            raise InputError(f"{name}: SGLang {release} does not read it; releases {switch.releases} do")
        taken[switch.field] = _value(name, switch.kind, text)
    return Environment(**taken)


def _value(name: str, kind: str, text: str) -> Any:
    lower = text.lower()
    if kind == "flag" and lower in (*_TRUE, *_FALSE):
        return lower in _TRUE
    if kind == "count" and text.isascii() and text.isdecimal() and int(text) <= MOST:
        return int(text)
    if kind == "dtype" and text in _DTYPES:
        return text
    if kind == "state dtype" and lower in _STATE_DTYPES:
        return _STATE_DTYPES[lower]
    layers = text.split(",")
    if kind == "layers" and all(part.strip().isascii() and part.strip().isdecimal() for part in layers) and len(text) < 1000:
        return tuple(int(part) for part in layers)
    raise InputError(f"{name}={text}: {_EXPECTED[kind]}")


_EXPECTED = {
    "flag": "true or false",
    "count": "a whole number",
    "dtype": f"one of {', '.join(_DTYPES)}",
    "state dtype": "float32 or bfloat16",
    "layers": "whole numbers with commas, one a pipeline stage",
}
