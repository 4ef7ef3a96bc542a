"""Changes that another change brings with it: reported as notes, so that one cause is one error."""

from __future__ import annotations

from fractions import Fraction

from kvdiag.frozen import frozen
from kvdiag.gate.model import Drift, Snapshot
from kvdiag.gate.pair import Change, Pair
from kvdiag.gate.words import changed_arguments
from kvdiag.quantity import Interval

_AFTER = ("memory_after_pool", "memory_before_graphs", "memory_after_graphs", "memory_after_start")
_ZERO = Interval.of(0, unit="bytes")


@frozen
class Root:
    """What a change follows from, and the sentence that says how."""

    of: str
    reason: str


_ARGUMENT_OF = {
    "max_running_requests": "max_running_requests",
    "context_len": "context_length",
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "kv_cache_dtype": "kv_cache_dtype",
}
"""Numbers the log states again after an argument."""


def told_by_argument(name: str, before: Snapshot, after: Snapshot) -> str:
    """The change of the argument that a number repeats; empty where the number has none or it did not change."""
    argument = _ARGUMENT_OF.get(name)
    return "; ".join(changed_arguments(before, after, (argument,))) if argument else ""


def follows(change: Change, pair: Pair, cell: Drift | None) -> Root | None:
    """The root of a change where another change gives its very size; None where it stands for itself."""
    values = change.intervals
    if values is None:
        return None
    if change.name in _AFTER:
        return _memory_after(change, values, pair)
    if change.name == "available_gpu_memory":
        return _available(change, values, pair)
    if change.name == "max_running_requests":
        return _requests(pair)
    if change.name in ("graph_memory", "weight_memory", "distributed_init_memory", "pre_model_load_memory", "rest_memory"):
        return None
    return _scaled(change, values, pair, cell)


def _scaled(change: Change, values: tuple[Interval, Interval], pair: Pair, cell: Drift | None) -> Root | None:
    """Pools, split pools and state slots grow with the capacity (and with the cell, where they are bytes)."""
    a, b = pair.a, pair.b
    if a is None or b is None or not a.tokens or change.name == "max_total_num_tokens":
        return None
    moved = pair.changed("max_total_num_tokens") is not None or change.name not in ("pool_tokens",)
    if not moved or (a.tokens == b.tokens and cell is None):
        return None
    if values[0].unit != "bytes":
        share, slack = Fraction(b.tokens, a.tokens), max(a.page, b.page)
        expected = Interval(values[0].low * share - slack, values[0].high * share + slack, values[0].unit)
        return Root("capacity", "it moves with the capacity") if expected.meets(values[1]) else None
    rows = Fraction(b.tokens + b.page, a.tokens + a.page)
    expected = values[0] * rows
    if cell is not None and a.cell is not None and b.cell is not None and a.cell.low > 0:
        expected = expected * (b.cell / a.cell)
    if not expected.with_unit("bytes").meets(values[1]):
        return None
    return Root("capacity", "it is the capacity times bytes_per_token")


def _requests(pair: Pair) -> Root | None:
    """Without --max-running-requests the slots come from the capacity."""
    given = "max_running_requests"
    if pair.before.arguments.get(given) is not None or pair.after.arguments.get(given) is not None:
        return None
    if pair.changed("max_total_num_tokens") is None:
        return None
    check = pair.after.check("max_running_requests")
    if check is not None and check.verdict == "disagree":
        return None
    return Root("capacity", "without --max-running-requests it follows from the capacity")


def _available(change: Change, values: tuple[Interval, Interval], pair: Pair) -> Root | None:
    """Less free before loading, or larger weights, is as much less after it."""
    rank = change.ranks[0]
    total, weights = pair.changed("pre_model_load_memory", rank), pair.changed("weight_memory", rank)
    if total is None and weights is None:
        return None
    expected = values[0] + _difference(pair, "pre_model_load_memory", rank) - _difference(pair, "weight_memory", rank)
    if not expected.meets(values[1]):
        return None
    names = [c.name for c in (total, weights) if c is not None]
    return Root(names[0], f"it follows from {' and '.join(names)}")


def _memory_after(change: Change, values: tuple[Interval, Interval], pair: Pair) -> Root | None:
    """What is left after a step moves with what was left before it, and against what the step took."""
    rank = change.ranks[0]
    earlier = pair.changed("memory_after_pool", rank) if change.name != "memory_after_pool" else None
    if earlier is not None:
        expected = values[0] + _difference(pair, "memory_after_pool", rank) - _difference(pair, "graph_memory", rank)
        return Root("memory_after_pool", "it follows from memory_after_pool") if expected.meets(values[1]) else None
    pools = _pools(pair.after, pair.ranks.get(rank, rank)) - _pools(pair.before, rank)
    same_pools = pools.low <= 0 <= pools.high and pair.changed("max_total_num_tokens") is None
    if same_pools and pair.changed("available_gpu_memory", rank) is None:
        return None
    expected = values[0] + _difference(pair, "available_gpu_memory", rank) - pools
    if not expected.meets(values[1]):
        return None
    return Root("kv_pool_bytes", "the pools and what was free before them account for it")


def _difference(pair: Pair, name: str, rank: str) -> Interval:
    """How much a number of the target moved on a rank, with what its printed digits leave open; zero where it is not stated."""
    first = _value(pair.before, name, rank)
    second = _value(pair.after, name, pair.ranks.get(rank, rank))
    return second - first if first is not None and second is not None else _ZERO


def _value(snapshot: Snapshot, name: str, rank: str) -> Interval | None:
    for number in snapshot.find(name, "target"):
        if rank in number.ranks and isinstance(number.value, Interval):
            return number.value
    return None


def _pools(snapshot: Snapshot, rank: str) -> Interval:
    total = _ZERO
    for name in ("kv_pool_bytes", "state_pool_bytes"):
        for number in snapshot.find(name):
            if isinstance(number.value, Interval) and (rank in number.ranks):
                total = total + number.value
    return total
