"""What a change of free memory follows from: each reading is an earlier one less what was taken between the two."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.frozen import frozen
from kvdiag.gate.model import Snapshot
from kvdiag.gate.pair import Change, Pair
from kvdiag.gate.words import SPECULATION, changed_arguments, gib, releases_differ
from kvdiag.quantity import Interval
from kvdiag.quantity.figures import memory

_ZERO = Interval.of(0, unit="bytes")
_WEIGHTS = (("weight_memory", "target"),)
_DRAFT_WEIGHTS = (("weight_memory", "draft"),)
_POOLS = (("kv_pool_bytes", None), ("state_pool_bytes", None))
_OWN_POOLS = (("kv_pool_bytes", "target"), ("state_pool_bytes", None))
_DRAFT_POOL = (("kv_pool_bytes", "draft"),)
_GRAPHS = (("graph_memory", None),)

Taken = tuple[tuple[str, str | None], ...]
"""Numbers by name and role (None: of every role) that were taken between two readings; all of them together count."""

_ROUTES: dict[str, tuple[tuple[str, Taken], ...]] = {
    "available_gpu_memory": (("pre_model_load_memory", _WEIGHTS),),
    "memory_after_pool": (("available_gpu_memory", _POOLS), ("available_gpu_memory", _OWN_POOLS)),
    "memory_before_graphs": (
        ("memory_after_pool", ()),
        ("memory_after_pool", _DRAFT_POOL + _DRAFT_WEIGHTS),
        ("available_gpu_memory", _POOLS),
    ),
    "memory_after_graphs": (
        ("memory_before_graphs", _GRAPHS),
        ("memory_after_pool", _GRAPHS),
        ("memory_after_pool", _DRAFT_POOL + _DRAFT_WEIGHTS + _GRAPHS),
        ("available_gpu_memory", _POOLS + _GRAPHS),
    ),
    "memory_after_start": (
        ("memory_after_graphs", ()),
        ("memory_before_graphs", _GRAPHS),
        ("memory_after_pool", _GRAPHS),
        ("memory_after_pool", _DRAFT_POOL + _DRAFT_WEIGHTS + _GRAPHS),
        ("available_gpu_memory", _POOLS + _GRAPHS),
        ("available_gpu_memory", _POOLS + _DRAFT_WEIGHTS + _GRAPHS),
    ),
}
"""Reading to the earlier readings of the target that it may follow from, the nearest first, each with what came between.

A draft model is loaded before the target's pool in some releases and after it in others, so both are tried.
"""
_DRAFT_ROUTES: dict[str, tuple[tuple[str, Taken], ...]] = {
    "available_gpu_memory": (("memory_after_pool", _DRAFT_WEIGHTS), ("available_gpu_memory", _DRAFT_WEIGHTS)),
    "memory_after_pool": (
        ("memory_after_pool", _DRAFT_POOL),
        ("memory_after_pool", _DRAFT_POOL + _DRAFT_WEIGHTS),
        ("available_gpu_memory", _POOLS),
        ("available_gpu_memory", _POOLS + _DRAFT_WEIGHTS),
    ),
}
_WORDS = {"kv_pool_bytes": "the pools", "state_pool_bytes": "the pools", "graph_memory": "the graphs"}
_OF = {"the pools": "kv_pool_bytes", "the graphs": "graph_memory"}


@frozen
class Explained:
    """How far a reading follows from others: `of` is the nearest that changed, `why` names them with how much each moved.

    `left` is what the reading changed beyond that, by the printed digits; None where nothing is left over. `untold` names what
    was taken by the words of one log alone: nothing else of it is compared.
    """

    of: str
    why: str
    expected: Interval
    left: Interval | None
    untold: str = ""


def explained(change: Change, pair: Pair) -> Explained | None:
    """What a change of a reading of free memory follows from; None where nothing it could follow from is known to have moved.

    Ranks that state the same reading may differ in what was taken: the one that is explained least tells for all.
    """
    worst: Explained | None = None
    for rank in change.ranks:
        found = _of_rank(change, pair, rank)
        if found is None:
            return None
        if worst is None or _weight(found) > _weight(worst):
            worst = found
    return worst


def _of_rank(change: Change, pair: Pair, rank: str) -> Explained | None:
    """In full by any route before in part by another, and by what both logs state before the rest; in part by the least left."""
    return min(_by_routes(change, pair, rank), key=_weight, default=None)


def _weight(found: Explained) -> tuple[float, bool]:
    return _size(found.left), bool(found.untold)


def is_reading(name: str) -> bool:
    """Whether a number is a reading of free memory that others can explain."""
    return name in _ROUTES


def _by_routes(change: Change, pair: Pair, rank: str) -> Iterator[Explained]:
    values = change.intervals
    if values is None:
        return
    routes = _DRAFT_ROUTES.get(change.name, ()) if change.role == "draft" else ()
    for earlier, taken in routes or _ROUTES[change.name]:
        moved = _moved(pair, earlier, rank)
        parts = [(word, _taken(pair, pieces, rank)) for word, pieces in _by_word(taken).items()]
        expected = values[0] + moved
        for _, part in parts:
            expected = expected - part
        causes = list(_causes(pair, earlier, rank, moved, parts))
        if not causes:
            continue
        left = None if expected.meets(values[1]) else values[1] - expected
        if left is None or _stated_alike(pair, earlier, taken, rank):
            yield Explained(causes[0][0], " and ".join(said for _, said in causes), expected, left, _untold(pair, taken, rank))


def _causes(pair: Pair, earlier: str, rank: str, moved: Interval, parts: list[tuple[str, Interval]]) -> Iterator[tuple[str, str]]:
    """The numbers of a route that changed for certain, each with how much it moved."""
    if pair.changed(earlier, rank) is not None:
        yield earlier, f"{earlier}, of which {_amount(moved)} {'more' if moved.low >= 0 else 'less'} is free"
    for word, part in parts:
        of = _OF.get(word, "weight_memory")
        if not part.low <= 0 <= part.high:
            yield of, f"{word}, which took {_amount(part)} {'more' if part.low > 0 else 'less'}"
        elif word == "the pools" and pair.changed("max_total_num_tokens") is not None:
            yield of, f"{word}, which hold another number of tokens"


def _amount(moved: Interval) -> str:
    return memory(moved if moved.low >= 0 else -moved)


def _by_word(taken: Taken) -> dict[str, Taken]:
    """What was taken, by the word for it: a pool of tokens and a pool of states are told as one sum."""
    found: dict[str, Taken] = {}
    for name, role in taken:
        word = _WORDS.get(name) or ("the draft's weights" if role == "draft" else "the weights")
        found[word] = (*found.get(word, ()), (name, role))
    return found


def _moved(pair: Pair, name: str, rank: str) -> Interval:
    """How much more a reading of the target is, with what its digits leave open; zero where a side does not state it."""
    first, second = _value(pair.before, name, rank), _value(pair.after, name, pair.ranks.get(rank, rank))
    return second - first if first is not None and second is not None else _ZERO


def _value(snapshot: Snapshot, name: str, rank: str) -> Interval | None:
    for number in snapshot.find(name, "target"):
        if rank in number.ranks and isinstance(number.value, Interval):
            return number.value
    return None


def _taken(pair: Pair, taken: Taken, rank: str) -> Interval:
    return _sum(pair.after, taken, pair.ranks.get(rank, rank)) - _sum(pair.before, taken, rank)


def _sum(snapshot: Snapshot, taken: Taken, rank: str) -> Interval:
    total = _ZERO
    for name, role in taken:
        for value in _values(snapshot, name, role, rank):
            total = total + value
    return total


def _values(snapshot: Snapshot, name: str, role: str | None, rank: str) -> list[Interval]:
    found = [n for n in snapshot.find(name, role) if rank in n.ranks and (role != "draft" or n.role == "draft")]
    return [n.value for n in found if isinstance(n.value, Interval)]


def _stated_alike(pair: Pair, earlier: str, taken: Taken, rank: str) -> bool:
    """Whether both logs state the same of a route: only then is what they leave over more than a line that is missing."""
    other = pair.ranks.get(rank, rank)
    if _value(pair.before, earlier, rank) is None or _value(pair.after, earlier, other) is None:
        return False
    return not _unlike(pair, taken, rank)


def _unlike(pair: Pair, taken: Taken, rank: str) -> Taken:
    """Those numbers of a route that one log states more often than the other."""
    other = pair.ranks.get(rank, rank)
    return tuple(
        (name, role)
        for name, role in taken
        if len(_values(pair.before, name, role, rank)) != len(_values(pair.after, name, role, other))
    )


def _untold(pair: Pair, taken: Taken, rank: str) -> str:
    """What one log alone states to have been taken, unless the release or an argument that makes it is another."""
    if releases_differ(pair.before, pair.after):
        return ""
    words = _by_word(_unlike(pair, taken, rank))
    names = {*pair.before.arguments, *pair.after.arguments}
    if changed_arguments(pair.before, pair.after, SPECULATION):
        words.pop("the draft's weights", None)
        words.pop("the pools", None)
    if changed_arguments(pair.before, pair.after, sorted(name for name in names if "cuda_graph" in name)):
        words.pop("the graphs", None)
    return " and ".join(words)


def _size(left: Interval | None) -> float:
    return 0.0 if left is None else float(max(left.low, -left.high))


def left_over(found: Explained) -> str:
    """The sentence on what a reading changed beyond what it follows from."""
    assert found.left is not None
    more = found.left.low > 0
    least = Interval.of(found.left.low if more else -found.left.high, unit="bytes")
    said = f"from {found.why}, {memory(found.expected)} would follow; "
    return f"{said}at least {gib(least)} {'more' if more else 'less'} is free than that, and nothing in the logs says why"
