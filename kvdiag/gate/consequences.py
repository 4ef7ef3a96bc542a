"""Changes that another change brings with it: reported as notes, so that one cause is one error."""

from __future__ import annotations

from fractions import Fraction

from kvdiag.frozen import frozen
from kvdiag.gate.free import explained, is_reading, left_over
from kvdiag.gate.model import Drift, Snapshot
from kvdiag.gate.pair import Change, Pair
from kvdiag.gate.words import changed_arguments
from kvdiag.quantity import Interval


@frozen
class Root:
    """What a change follows from, and the sentence that says how.

    `left` is what the change has beyond that; None where it follows in full. `judged`: the root itself is in one log only, so
    that nothing else tells of the loss.
    """

    of: str
    reason: str
    left: Interval | None = None
    judged: bool = False


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
    """The root of a change where another change gives its size, or a part of it; None where it stands for itself."""
    values = change.intervals
    if values is None:
        return None
    if is_reading(change.name):
        return _reading(change, pair)
    if change.name == "max_running_requests":
        return _requests(values, pair)
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


def _requests(values: tuple[Interval, Interval], pair: Pair) -> Root | None:
    """Without --max-running-requests the slots come from the capacity: by its share, or by less where a bound holds them.

    Where the arithmetic agrees with them they may have moved by more (a context length that is another, say).
    """
    given = "max_running_requests"
    if pair.before.arguments.get(given) is not None or pair.after.arguments.get(given) is not None:
        return None
    if pair.changed("max_total_num_tokens") is None:
        return None
    check = pair.after.check("max_running_requests")
    if check is not None and check.verdict == "disagree":
        return None
    agreed = check is not None and check.verdict == "agree"
    if not agreed and pair.a is not None and pair.b is not None and pair.a.tokens > 0:
        share = Fraction(pair.b.tokens, pair.a.tokens)
        one = Fraction(1)
        least, most = values[0].low * min(share, one) - 1, values[0].high * max(share, one) + 1
        if not Interval(least, most, values[0].unit).meets(values[1]):
            return None
    return Root("capacity", "without --max-running-requests it follows from the capacity")


def _reading(change: Change, pair: Pair) -> Root | None:
    """A reading of free memory follows from an earlier one and from what was taken between the two, in full or in part."""
    found = explained(change, pair)
    if found is None:
        return None
    if found.left is not None:
        return Root(found.of, left_over(found), found.left)
    only = f"; only one of the two logs states {found.untold}" if found.untold else ""
    return Root(found.of, f"it follows from {found.why}{only}", judged=bool(only))
