"""The server arguments that sizing depends on, from a server_args dump, the command line or a dict."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.errors import KvdiagError
from kvdiag.frozen import frozen, types_of
from kvdiag.releases import Release, parse_ranges
from kvdiag.sizing.environment import UNSET, Environment

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "int | None": (int,),
    "float": (float, int),
    "float | None": (float, int),
    "bool": (bool,),
    "bool | None": (bool,),
    "str | None": (str,),
    "str": (str,),
}
ALIASES = {
    "tp": "tp_size", "tensor_parallel_size": "tp_size", "dp": "dp_size", "data_parallel_size": "dp_size", "pp": "pp_size",
    "pipeline_parallel_size": "pp_size", "ep": "ep_size", "dcp": "dcp_size", "nsa_prefill_backend": "dsa_prefill_backend",
    "nsa_decode_backend": "dsa_decode_backend", "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "mamba_radix_cache_strategy": "mamba_scheduler_strategy", "cuda_graph_max_bs_prefill": "piecewise_cuda_graph_max_tokens",
    "disable_decode_cuda_graph": "disable_cuda_graph", "disable_prefill_cuda_graph": "disable_piecewise_cuda_graph",
    "enable_gdn_replayssm_spec": "enable_linear_replayssm_spec",
}  # fmt: skip
_ATTENTION_BACKENDS = (
    "triton", "torch_native", "flex_attention", "nsa", "dsa", "qsa", "dsv4", "compressed", "cutlass_mla", "fa3", "fa4",
    "flashinfer", "flashmla", "trtllm_mla", "tokenspeed_mla", "cutedsl_mla", "trtllm_mha", "hpc_ops", "dual_chunk_flash_attn",
    "hybrid_linear_attn", "minicpm_flashattn", "minicpm_flashinfer", "llada2_cfg_flashinfer", "aiter", "wave", "intel_amx",
    "ascend", "intel_xpu", "flashinfer_mla", "double_sparsity",
)  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "kv_cache_dtype": (
        "auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "float16", "half", "fp4_e2m1", "nvfp4", "fp4_mx_block16", "mxfp8",
    ),
    "attention_backend": _ATTENTION_BACKENDS,
    "prefill_attention_backend": _ATTENTION_BACKENDS,
    "decode_attention_backend": _ATTENTION_BACKENDS,
    "dtype": ("auto", "half", "float16", "bfloat16", "bf16", "float", "float32"),
    "speculative_algorithm": ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "FROZEN_KV_MTP"),
    "mamba_scheduler_strategy": ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
    "mamba_ssm_dtype": ("float32", "bfloat16", "float16"),
    "disaggregation_mode": ("null", "prefill", "decode"),
}  # fmt: skip
_EXTRA = ("backend", "mlx_used_gib", "draft_config", "speculative_draft_config")


class ArgumentError(KvdiagError):
    """A server argument has a name or a value that this release does not take."""


@frozen
class ServerArguments:
    """SGLang's own names and defaults (``srt/server_args.py``); None where SGLang would decide.

    `environment` is no argument: it holds the switches that the server's environment had.
    """

    model_path: str | None = None
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    attn_cp_size: int = 1
    dcp_size: int = 1
    enable_dp_attention: bool = False
    page_size: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    mem_fraction_static: float | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    schedule_conservativeness: float = 1.0
    context_length: int | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    cuda_graph_max_bs: int | None = None
    disable_cuda_graph: bool = False
    piecewise_cuda_graph_max_tokens: int | None = None
    enable_piecewise_cuda_graph: bool = False
    disable_piecewise_cuda_graph: bool = False
    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    dsa_prefill_backend: str | None = None
    dsa_decode_backend: str | None = None
    linear_attn_backend: str = "triton"
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    disaggregation_mode: str = "null"
    disaggregation_decode_extra_slots: int | None = None
    moe_a2a_backend: str = "none"
    enable_mla: bool = False
    disable_mla: bool = False
    enable_multimodal: bool | None = None
    language_only: bool = False
    language_model_only: bool = False
    swa_full_tokens_ratio: float | None = None
    swa_prefix_tails: int | None = None
    hybrid_kvcache_ratio: float | None = None
    disable_hybrid_swa_memory: bool = False
    enable_hierarchical_cache: bool = False
    mamba_ssm_dtype: str | None = None
    mamba_full_memory_ratio: float = 0.9
    max_mamba_cache_size: int | None = None
    mamba_scheduler_strategy: str = "auto"
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_draft_model_path: str | None = None
    speculative_draft_attention_backend: str | None = None
    mm_feature_transport: str | None = None
    mm_preprocess_cache_size_mb: int | None = None
    nnodes: int = 1
    quantization: str | None = None
    enable_hisparse: bool = False
    enable_unified_memory: bool = False
    enable_kv_cache_sharding: bool = False
    enable_dsa_cache_layer_split: bool = False
    enable_encoder_swa_bounded_replay: bool = False
    enable_linear_replayssm_spec: bool = False
    linear_replayssm_cache_len: int = 16
    dsv4_attn_backend: str | None = None
    qsa_indexer_dtype: str = "auto"
    speculative_draft_kv_cache_dtype: str | None = None
    prefill_kv_cache_dequant_dtype: str = "auto"
    device: str = "cuda"
    environment: Environment = UNSET

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ServerArguments:
        """The known arguments of `arguments`; unknown names, None and values of another type keep the default."""
        taken: dict[str, Any] = {}
        for name, value in arguments.items():
            field = _fields().get(ALIASES.get(name, name))
            if field is not None and value is not None and _is(value, field):
                taken[ALIASES.get(name, name)] = value
        return cls(**taken)

    @property
    def attention_dp_size(self) -> int:
        """Replicas of attention inside one server: dp_size under DP attention, else one."""
        return max(1, self.dp_size) if self.enable_dp_attention else 1

    @property
    def attention_tp_size(self) -> int:
        """Ranks that share the KV heads (``compute_dp_attention_world_info``): tp // (dp x cp)."""
        return max(1, self.tp_size // (self.attention_dp_size * max(1, self.attn_cp_size)))


def strict_arguments(arguments: Mapping[str, Any], release: Release) -> ServerArguments:
    """As ``ServerArguments.of``, but ArgumentError says which name or value `release` does not take, and what it takes.

    Names of arguments that no size depends on are accepted as long as the release has them.
    """
    taken: dict[str, Any] = {}
    for name, value in arguments.items():
        _check_name(name, release)
        own = ALIASES.get(name, name)
        field = _fields().get(own)
        if field is None or value is None:
            continue
        if not _is(value, field):
            raise ArgumentError(f"{name} = {value!r}: not {field.removesuffix(' | None')}")
        _check_choice(name, own, value, release)
        _check_range(name, own, value)
        if taken.setdefault(own, value) != value:
            raise ArgumentError(f"{name} = {value!r}: {own} is given twice, also as {taken[own]!r}")
    return ServerArguments(**taken)


@lru_cache(maxsize=4096)
def _check_name(name: str, release: Release) -> None:
    known = _known_names()
    if name in _EXTRA or (ALIASES.get(name) in known and name not in known):
        return
    ranges = known.get(name)
    if ranges is None:
        from difflib import get_close_matches

        close = get_close_matches(name, [*known, *ALIASES], 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ArgumentError(f"{name}: no release of SGLang has this server argument{hint}")
    own = ALIASES.get(name, name)
    spellings = {name, own, *(other for other, same in ALIASES.items() if same == own)}
    if not any(other in known and release in parse_ranges(known[other]) for other in spellings):
        raise ArgumentError(f"{name}: SGLang {release} has no such argument; releases {ranges} have it")


def is_argument(name: str) -> bool:
    """Whether some release of SGLang has a server argument of that name, whether or not sizes depend on it."""
    return name in _known_names() or name in ALIASES


_VALUE_RELEASES: dict[str, dict[str, str]] = {
    "kv_cache_dtype": {
        "fp8_e4m3": "0.4.1.post6..", "bf16": "0.5.4..", "bfloat16": "0.5.4..", "fp4_e2m1": "0.5.4.post3..0.5.20",
        "mxfp8": "0.5.16..", "nvfp4": "0.5.16..", "fp4_mx_block16": "0.5.16..",
    },
    "speculative_algorithm": {
        "EAGLE": "0.4.1.post4..", "NEXTN": "0.4.3.post1..", "EAGLE3": "0.4.4.post2..", "STANDALONE": "0.5.2..",
        "NGRAM": "0.5.3rc2..", "DFLASH": "0.5.11..", "FROZEN_KV_MTP": "0.5.12..", "DSPARK": "0.5.16..",
    },
}  # fmt: skip
"""The releases whose choices hold a value; a little wider where the very release that changed them is not known."""


def _taken(own: str, value: str, release: Release) -> bool:
    ranges = _VALUE_RELEASES.get(own, {}).get(value)
    return ranges is None or release in parse_ranges(ranges)


@lru_cache(maxsize=4096)
def _check_choice(name: str, own: str, value: Any, release: Release) -> None:
    choices = _CHOICES.get(own)
    if choices is None:
        return
    if value not in choices:
        raise ArgumentError(f"{name} = {value!r}: not one of {', '.join(c for c in choices if _taken(own, c, release))}")
    if not _taken(own, value, release):
        ranges = _VALUE_RELEASES[own][value]
        raise ArgumentError(f"{name} = {value!r}: SGLang {release} has no such value; releases {ranges} have it")


_POSITIVE = ("tp_size", "dp_size", "pp_size", "page_size", "context_length", "attn_cp_size", "dcp_size")


def _check_range(name: str, own: str, value: Any) -> None:
    if own in _POSITIVE and value < 1:
        raise ArgumentError(f"{name} = {value!r}: must be 1 or more")
    if own == "swa_full_tokens_ratio" and not 0 < value <= 1:
        raise ArgumentError(f"{name} = {value!r}: must be above 0 and at most 1")
    if own == "mem_fraction_static" and not 0 < value < 1:
        raise ArgumentError(f"{name} = {value!r}: must lie between 0 and 1")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**12:
        raise ArgumentError(f"{name} = {value!r}: larger than any server could use")


def _is(value: Any, kind: str) -> bool:
    allowed = _TYPES.get(kind, ())
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, allowed) and value == value and value not in (float("inf"), float("-inf"))


@lru_cache(maxsize=1)
def _fields() -> dict[str, str]:
    return types_of(ServerArguments)


@lru_cache(maxsize=1)
def _known_names() -> dict[str, str]:
    documents = rulebook.load("arguments")
    return {name: ranges for document in documents for name, ranges in document["fields"].items()}
