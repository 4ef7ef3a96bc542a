"""When a change of capacity is only what free memory does from run to run, and when it is not."""

from __future__ import annotations

from kvdiag.gate.budget import Budget
from kvdiag.gate.decompose import capacity_interval, expected_change
from kvdiag.gate.model import Snapshot
from kvdiag.gate.words import models_differ, releases_differ, span
from kvdiag.quantity import Interval

SHARED = "free memory on a server without a GPU is the machine's; other programs change it from one reading to the next"


def noise_of(change: int, a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    """Why a change of that many tokens is noise; empty where it is not.

    It is noise where nothing that decides the capacity differs and the change lies within what the printed digits of
    free memory leave open: two runs can print the same 21.71 GB and differ by 0.01. On a server without a GPU the
    readings that are printed are not those that sizing used, and the change must lie within how far the readings of the
    two logs lie apart.
    """
    if not _alike(a, b, before, after) or not _pools_moved_alike(change, a, b):
        return ""
    if before.on_shared_memory and after.on_shared_memory:
        return _wobble(change, a, before, after)
    if a.available is None or b.available is None or a.total is None or b.total is None:
        return ""
    if not (a.available.meets(b.available) and a.total.meets(b.total)):
        return ""
    allowed = expected_change(a, b)
    if allowed is None or change not in allowed:
        return ""
    return (
        f"free memory is printed alike in both logs and only to 0.01 GB: that leaves {float(allowed.low):+,.0f} to "
        f"{float(allowed.high):+,.0f} tokens open"
    )


def _alike(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> bool:
    """Whether everything but free memory is the same: then only memory can have moved the capacity."""
    if a.is_capped or b.is_capped or models_differ(before, after) or releases_differ(before, after):
        return False
    if (a.fraction, a.cap, a.page, a.dtype) != (b.fraction, b.cap, b.page, b.dtype):
        return False
    return a.cell is not None and b.cell is not None and a.cell.meets(b.cell)


def _pools_moved_alike(change: int, a: Budget, b: Budget) -> bool:
    """Free memory moves the capacity and the pool's own line together; one without the other is no matter of memory."""
    return a.pool_tokens is None or b.pool_tokens is None or b.pool_tokens - a.pool_tokens == change


def _wobble(change: int, a: Budget, before: Snapshot, after: Snapshot) -> str:
    """The change against the distance of all readings of free memory of the same moment in both logs."""
    total = _hull([v for s in (before, after) for v in _values(s, "pre_model_load_memory")])
    available = _hull([v for s in (before, after) for v in _free_before_pool(s)])
    if total is None or available is None or a.fraction is None:
        return ""
    possible = capacity_interval(a, available - total * (1 - a.fraction) - a.state)
    if possible is None or abs(change) > possible.high - possible.low:
        return ""
    return (
        f"{SHARED}: before loading the two logs read {_range(total)}, before the pool {_range(available)}, which moves the "
        f"capacity by up to {float(possible.high - possible.low):,.0f} tokens"
    )


def _values(snapshot: Snapshot, name: str) -> list[Interval]:
    return [n.value for n in snapshot.find(name) if isinstance(n.value, Interval)]


def _free_before_pool(snapshot: Snapshot) -> list[Interval]:
    """Readings after loading, and readings after the pool with the pool given back."""
    found = _values(snapshot, "available_gpu_memory")
    pools = {rank: n.value for n in snapshot.find("kv_pool_bytes", "target") for rank in n.ranks}
    for name in ("memory_after_pool", "memory_after_start"):
        for number in snapshot.find(name, "target"):
            for rank in number.ranks:
                pool = pools.get(rank)
                if isinstance(number.value, Interval) and isinstance(pool, Interval):
                    found.append(number.value + pool)
    return found


def _hull(values: list[Interval]) -> Interval | None:
    whole: Interval | None = None
    for value in values:
        whole = value if whole is None else whole.hull(value)
    return whole


def _range(value: Interval) -> str:
    return f"{span(Interval(value.low, value.low, value.unit))} to {span(Interval(value.high, value.high, value.unit))}"
