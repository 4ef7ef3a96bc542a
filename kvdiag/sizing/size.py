"""The whole arithmetic for one server: cell, budget, token capacity, request slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvdiag.models import Geometry
from kvdiag.quantity import GIB
from kvdiag.releases import Release, parse_release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.cell import bytes_per_token, canonical_dtype, kv_heads_per_rank


@dataclass(frozen=True, slots=True)
class Memory:
    """Free memory of the worst rank in GiB: `available` after the weights, `total` before them."""

    available: float
    total: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """What SGLang computes at start-up; bytes and tokens, None where an input is missing or the pool does not exist."""

    release: str
    kv_heads_per_rank: int | None
    kv_cache_dtype: str
    bytes_per_token: int | float
    rest_memory_bytes: float | None = None
    max_total_num_tokens: int | None = None
    full_max_total_num_tokens: int | None = None
    swa_max_total_num_tokens: int | None = None
    max_mamba_cache_size: int | None = None
    max_running_requests: int | None = None
    formula: str = ""
    terms: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``kvdiag size``."""
        return {"schema": "kvdiag.size/1", **{name: getattr(self, name) for name in self.__slots__}}


def size(geometry: Geometry, arguments: ServerArguments, release: Release, memory: Memory | None = None) -> Sizing:
    """Sizes the pools of one rank by the arithmetic of `release`.

    `memory` is taken as exact; without it only the cell is computed. Raises CannotSizeError where no formula holds.
    """
    dtype = canonical_dtype(arguments.kv_cache_dtype if arguments.kv_cache_dtype != "auto" else _model_dtype(geometry, arguments))
    cell = bytes_per_token(geometry, arguments, dtype)
    heads = None if geometry.attention == "mla" else kv_heads_per_rank(geometry, arguments)
    terms: dict[str, Any] = {"layers": geometry.num_hidden_layers, "kv_cache_dtype": dtype}
    if geometry.attention == "mla":
        formula = "(kv_lora_rank + qk_rope_head_dim) x layers x bytes"
        terms |= {"kv_lora_rank": geometry.kv_lora_rank, "qk_rope_head_dim": geometry.qk_rope_head_dim}
    else:
        formula = "kv_heads_per_rank x (head_dim + v_head_dim) x layers x bytes"
        terms |= {"kv_heads_per_rank": heads, "head_dim": geometry.head_dim, "v_head_dim": geometry.v_head_dim}
    if memory is None or arguments.mem_fraction_static is None:
        return Sizing(str(release), heads, dtype, cell, formula=formula, terms=terms)
    rest = memory.available - memory.total * (1 - arguments.mem_fraction_static)
    profiled = int(rest * GIB) // cell
    tokens = _capacity(profiled, arguments, release)
    slots = _request_slots(profiled, tokens, geometry, arguments, release)
    return Sizing(
        str(release),
        heads,
        dtype,
        cell,
        rest_memory_bytes=rest * GIB,
        max_total_num_tokens=tokens,
        max_running_requests=slots,
        formula=formula,
        terms=terms,
    )


def _model_dtype(geometry: Geometry, arguments: ServerArguments) -> str:
    if arguments.dtype != "auto":
        return arguments.dtype
    return "float16" if canonical_dtype(geometry.dtype) == "float32" else geometry.dtype


def _capacity(profiled: int, arguments: ServerArguments, release: Release) -> int:
    """Profiled tokens, grown by drafts (0.4.4 to 0.5.6), capped by the user, floored to a page."""
    tokens = profiled
    grows = parse_release("0.4.4") <= release < parse_release("0.5.7")
    if grows and arguments.speculative_algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        requests = arguments.max_running_requests or 48
        steps = (arguments.speculative_num_steps or 0) * (arguments.speculative_eagle_topk or 0)
        tokens += requests * steps + requests * (arguments.speculative_num_draft_tokens or 0) + 100
    if arguments.max_total_tokens is not None:
        tokens = min(tokens, arguments.max_total_tokens)
    page = arguments.page_size or 1
    return tokens // page * page


def _request_slots(profiled: int, tokens: int, geometry: Geometry, arguments: ServerArguments, release: Release) -> int | None:
    """``max_running_requests`` as reported: the user's value or half the tokens, within an estimate of 2048 to 4096."""
    context = arguments.context_length or geometry.context_len
    if not context:
        return None
    replicas = arguments.dp_size if arguments.enable_dp_attention else 1
    user = arguments.max_running_requests
    basis = tokens if release >= parse_release("0.5.10rc0") else profiled
    estimate = max(2048, min(int(basis / context * 512), 4096))
    if release >= parse_release("0.5.14"):
        return min(user // replicas, tokens // 2) if user else min(estimate, tokens // 2)
    if release >= parse_release("0.5.10rc0"):
        return min(user // replicas, estimate) if user else min(estimate, tokens // 2)
    pool = user or estimate
    if parse_release("0.3.2") <= release < parse_release("0.4.6.post2"):
        pool += 1
    return min(user // replicas if user else tokens // 2, pool)
