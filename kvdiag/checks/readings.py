"""Free memory as sizing saw it, of each rank, and of the worst rank of a group that sizes together."""

from __future__ import annotations

from collections.abc import Iterable

from kvdiag.frozen import frozen
from kvdiag.quantity import Interval
from kvdiag.sizing import ServerArguments
from kvdiag.starts import Number, Start


@frozen
class Reading:
    """A rank's memory as sizing saw it: free after the last weights before the pool, and free before the first."""

    rank: str
    available: Interval
    total: Interval | None
    lines: tuple[int, ...]


def once(lines: Iterable[int]) -> tuple[int, ...]:
    """Line numbers in order, each once."""
    return tuple(sorted(set(lines)))


def own_first(own: int, others: Iterable[int]) -> tuple[int, ...]:
    """The line in which a check's number stands, then the lines of what it was recomputed from, each once."""
    return (own, *(line for line in once(others) if line != own))


def readings_of(start: Start) -> tuple[Reading, ...]:
    """The readings of every rank that states what is free after loading."""
    return tuple(reading for rank in start.ranks if (reading := _reading(start, rank)))


def _reading(start: Start, rank: str) -> Reading | None:
    pool = start.first("kv_pool_bytes", rank=rank, role="target") or start.first("memory_after_pool", rank=rank, role="target")
    after = [number for number in start.find("available_gpu_memory", rank=rank) if number.interval is not None]
    if pool is not None:
        after = [number for number in after if number.line < pool.line] or after[:1]
    if not after or after[-1].interval is None or after[0].interval is None:
        return None
    lines = [after[-1].line]
    used = start.first("weight_memory", rank=rank)
    before = _before(start, rank, after[0])
    implied = after[0].interval + used.interval if used is not None and used.interval is not None else None
    total = before.interval if before is not None else None
    if before is not None:
        lines.insert(0, before.line)
    return Reading(rank, after[-1].interval, _both(total, implied), tuple(lines))


def _before(start: Start, rank: str, loaded: Number) -> Number | None:
    """What was free before the first weights: an excerpt that begins later has only the line of the draft's loading."""
    found = (n for n in start.find("pre_model_load_memory", rank=rank) if n.path != loaded.path or n.line < loaded.line)
    return next(found, None)


def _both(stated: Interval | None, implied: Interval | None) -> Interval | None:
    """A figure stated and implied by two others lies in both; where the two do not meet, the stated one counts."""
    if stated is None or implied is None or not stated.meets(implied):
        return stated if stated is not None else implied
    return Interval(max(stated.low, implied.low), min(stated.high, implied.high), stated.unit)


def group_of(rank: str, arguments: ServerArguments) -> str:
    """The ranks that size together: all of a server, or one replica of plain data parallelism."""
    if arguments.enable_dp_attention or arguments.dp_size <= 1:
        return ""
    return next((tag for tag in rank.split() if tag.startswith("DP")), "")


def worst_of(readings: Iterable[Reading]) -> Reading | None:
    """The minimum over ranks of each reading, as the all-reduce of ``get_available_gpu_memory`` takes it."""
    whole = [reading for reading in readings if reading.total is not None]
    if not whole:
        return None
    worst = whole[0]
    for reading in whole[1:]:
        assert worst.total is not None
        assert reading.total is not None
        available = worst.available.minimum(reading.available)
        worst = Reading(worst.rank, available, worst.total.minimum(reading.total), once((*worst.lines, *reading.lines)))
    return worst
