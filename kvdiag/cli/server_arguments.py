"""SGLang's server arguments on kvdiag's command lines: one set of names, spellings and words for ``size`` and ``whatif``."""

from __future__ import annotations

import argparse
from typing import Any

from kvdiag.errors import InputError

PREFIX = "server_"
_PARALLEL = ("tp_size", "dp_size", "pp_size", "attn_cp_size", "dcp_size")
_WORDS = {
    "model_path": "the model's path or id, as far as SGLang goes by its name",
    "tp_size": "ranks of tensor parallelism",
    "dp_size": "data-parallel replicas; they share KV heads only with --enable-dp-attention",
    "pp_size": "pipeline stages",
    "attn_cp_size": "ranks of context parallelism in attention",
    "dcp_size": "ranks of decode context parallelism",
    "enable_dp_attention": "attention in data-parallel replicas",
    "page_size": "tokens a page",
    "kv_cache_dtype": "dtype of the KV cache: auto, bfloat16, fp8_e4m3, fp8_e5m2, fp4_e2m1, nvfp4, ...",
    "dtype": "dtype of the weights' activations",
    "mem_fraction_static": "part of the GPU's memory for weights and pools",
    "max_total_tokens": "most tokens of the pool",
    "max_running_requests": "most requests that run at once",
    "schedule_conservativeness": "factor of what admission keeps back for answers; moves no memory, so give --workload",
    "context_length": "longest request in tokens",
    "chunked_prefill_size": "tokens of a prefill chunk; -1 for none",
    "max_prefill_tokens": "most tokens of a prefill batch",
    "cuda_graph_max_bs": "largest batch captured as a graph",
    "disable_cuda_graph": "no graphs",
    "piecewise_cuda_graph_max_tokens": "most tokens of a captured prefill",
    "enable_piecewise_cuda_graph": "prefill captured piecewise (to 0.5.9)",
    "disable_piecewise_cuda_graph": "no captured prefill",
    "attention_backend": "attention kernels: flashinfer, fa3, trtllm_mha, flashmla, ...",
    "prefill_attention_backend": "attention kernels of prefill",
    "decode_attention_backend": "attention kernels of decode",
    "dsa_prefill_backend": "sparse attention's kernels of prefill",
    "dsa_decode_backend": "sparse attention's kernels of decode",
    "linear_attn_backend": "linear attention's kernels",
    "disable_radix_cache": "no prefix cache",
    "disable_overlap_schedule": "no overlap of scheduling and forward",
    "disaggregation_mode": "null, prefill or decode",
    "disaggregation_decode_extra_slots": "request slots a decode server keeps for arrivals",
    "moe_a2a_backend": "experts' all-to-all: none, deepep, ...",
    "enable_mla": "latent attention (0.3.0, 0.3.1)",
    "disable_mla": "a latent model as plain attention (to 0.4)",
    "enable_multimodal": "serve images",
    "language_only": "the language model of a split encoder",
    "language_model_only": "serve an image model as text",
    "swa_full_tokens_ratio": "window pool's tokens for one of the full pool",
    "swa_prefix_tails": "cached prefixes whose window stays (DeepSeek-V4)",
    "hybrid_kvcache_ratio": "Llama-4's share of window layers (0.4.9 to 0.5.7)",
    "disable_hybrid_swa_memory": "one pool for window and full layers",
    "enable_hierarchical_cache": "a second tier of the cache in host memory",
    "mamba_ssm_dtype": "dtype of the states",
    "mamba_full_memory_ratio": "states' memory for one of the KV pool",
    "max_mamba_cache_size": "slots of the state pool",
    "mamba_scheduler_strategy": "auto, no_buffer, extra_buffer, extra_buffer_lazy",
    "speculative_algorithm": "EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH, DSPARK",
    "speculative_num_steps": "draft steps",
    "speculative_eagle_topk": "branches a draft step",
    "speculative_num_draft_tokens": "draft tokens a step",
    "speculative_draft_model_path": "the draft's path; its shape is read from --draft-config",
    "speculative_draft_attention_backend": "the draft's attention kernels",
    "mm_feature_transport": "how image features reach the scheduler: cuda_ipc, ...",
    "mm_preprocess_cache_size_mb": "MiB for preprocessed images",
    "nnodes": "machines",
    "quantization": "method of the weights",
    "enable_hisparse": "sparse attention with host memory",
    "enable_unified_memory": "one buffer for several pools",
    "enable_kv_cache_sharding": "pages spread over ranks",
    "enable_dsa_cache_layer_split": "sparse attention's layers spread over ranks",
    "enable_encoder_swa_bounded_replay": "windows replayed instead of kept",
    "enable_linear_replayssm_spec": "states replayed under speculation",
    "linear_replayssm_cache_len": "records a replayed state keeps",
    "dsv4_attn_backend": "DeepSeek-V4's kernels",
    "qsa_indexer_dtype": "dtype of compressed keys",
    "speculative_draft_kv_cache_dtype": "dtype of the draft's KV cache",
    "prefill_kv_cache_dequant_dtype": "what prefill reads of an NVFP4 cache",
    "device": "cuda, npu, cpu, ...",
}


def add_server_arguments(group: Any, *, repeat: bool) -> None:
    """Every argument that sizing knows, under each name SGLang gave it; with `repeat` each may be given several values."""
    from kvdiag.frozen import types_of
    from kvdiag.sizing.arguments import ALIASES, ServerArguments

    readers: dict[str, Any] = {"int": _number, "float": _float, "str": str}
    for field, written in types_of(ServerArguments).items():
        if field not in _WORDS:
            continue
        kind = written.partition(" ")[0]
        for name in (field, *(other for other, own in ALIASES.items() if own == field)):
            words = _WORDS[field] if name == field else f"same as --{field.replace('_', '-')}"
            options: dict[str, Any] = {"dest": PREFIX + (field if repeat else name), "help": words, "default": None}
            if kind == "bool":
                options["action"] = argparse.BooleanOptionalAction if repeat else "store_true"
            else:
                word = repeat and written == "str | None"
                options |= {"type": _word if word else readers[kind], "metavar": kind.upper()}
                if repeat:
                    options["action"] = "append"
            group.add_argument("--" + name.replace("_", "-"), **options)


def given_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """The server arguments on the command line, by SGLang's names."""
    every = vars(arguments).items()
    return {name.removeprefix(PREFIX): value for name, value in every if name.startswith(PREFIX) and value is not None}


def unsized(option: str) -> str:
    """What to say of an option that SGLang has and kvdiag does not, because no size follows from it; empty for others."""
    from kvdiag.sizing.arguments import is_argument

    if not is_argument(option.lstrip("-").replace("-", "_")):
        return ""
    return f"{option} is SGLang's, but nothing that is computed here depends on it; leave it out"


def check_ranges(given: dict[str, list[Any]]) -> None:
    """InputError for a value that no server runs with."""
    for fraction in given.get("mem_fraction_static", []):
        if not 0 < fraction < 1:
            raise InputError(f"--mem-fraction-static {fraction}: a fraction lies between 0 and 1")
    for name in _PARALLEL:
        for size in given.get(name, []):
            if size < 1:
                raise InputError(f"--{name.replace('_', '-')} {size}: a size of parallelism is at least 1")


def _number(text: str) -> int:
    return int(_within(text, int, "whole number", -1, 10**12))


def _float(text: str) -> float:
    return float(_within(text, float, "number", 0, 10**6))


def _within(text: str, kind: type[int] | type[float], words: str, least: int, most: int) -> float:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no {words}") from None
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most:,}, so no server takes it")
    return value


def _word(text: str) -> str | None:
    """The value of an argument that SGLang may decide itself, of which ``none`` takes a given one back."""
    return None if text.lower() == "none" else text
