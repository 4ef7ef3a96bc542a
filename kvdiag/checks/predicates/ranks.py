"""Ranks that differ: in memory at start-up, in load while serving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kvdiag.checks.activity import Batch
from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit
from kvdiag.quantity import GIB
from kvdiag.starts import Number

At = Mapping[str, float]


def _last_of_each(facts: Facts, name: str) -> list[Number]:
    """The first reading of that name on each rank (the target's, before the draft's)."""
    found: dict[str, Number] = {}
    for number in facts.start.find(name):
        if number.rank and number.interval is not None and number.role in (None, "target"):
            found.setdefault(number.rank, number)
    return list(found.values())


def _of_one_stage(readings: list[Number]) -> list[Number]:
    """The readings of the pipeline stage that has most ranks here: stages differ by the layers they hold."""
    stages: dict[str, list[Number]] = {}
    for number in readings:
        stages.setdefault(next((tag for tag in number.rank.split() if tag.startswith("PP")), ""), []).append(number)
    return max(stages.values(), key=len, default=[])


def uneven_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """One rank has less memory than the others, and the smallest decides for all."""
    if facts.inputs.on_shared_memory:
        return
    for name in ("pre_model_load_memory", "available_gpu_memory", "memory_after_pool"):
        readings = _of_one_stage(_last_of_each(facts, name))
        if len(readings) < 2:
            continue
        least = min(readings, key=lambda n: n.interval.low if n.interval else 0)
        most = max(readings, key=lambda n: n.interval.high if n.interval else 0)
        assert least.interval is not None
        assert most.interval is not None
        gap = most.interval - least.interval
        if gap.low < at["gap_gib"] * GIB:
            continue
        values = {
            "least": least.rank,
            "most": most.rank,
            "gap": gap,
            "low": least.interval,
            "high": most.interval,
            "when": _WHEN[name],
            "other": "" if name == "pre_model_load_memory" else None,
        }
        level = "warning" if gap.low >= at["warn_gib"] * GIB else "note"
        yield Hit(facts.lines(least, most), values, level=level, stake=gap.low)
        return


_WHEN = {
    "pre_model_load_memory": "before loading",
    "available_gpu_memory": "after loading",
    "memory_after_pool": "after the pools were made",
}


def uneven_load(facts: Facts, at: At) -> Iterator[Hit]:
    """While work waits on one data-parallel rank another has room: on average, or moment by moment by turns."""
    if len(facts.activity.ranks) < 2:
        return
    latest: dict[str, Batch] = {batch.rank: batch for batch in reversed(facts.activity.decode)}
    waiting, pairs = 0, []
    for batch in facts.activity.decode:
        if (batch.queued or 0) >= at["queued"]:
            waiting += 1
            others = [b for rank, b in latest.items() if rank != batch.rank and (b.queued or 0) < at["queued"] / 2]
            idlest = min(others, key=lambda b: b.running or 0, default=None)
            if idlest is not None and (idlest.running or 0) * at["times"] <= (batch.running or 0):
                pairs.append((batch, idlest))
        latest[batch.rank] = batch
    if len(pairs) < at["lines"] or len(pairs) < waiting * at["share"]:
        return
    busy = Counter(each.rank for each, _ in pairs).most_common()
    values = {
        "busy": " and ".join(rank for rank, _ in busy[:2]),
        "idle": " and ".join(rank for rank, _ in Counter(each.rank for _, each in pairs).most_common(2)),
        "turns": "" if len(busy) > 1 else None,
        "lines": len(pairs),
        "waiting": waiting,
        "queued": sum(b.queued or 0 for b, _ in pairs) / len(pairs),
        "busy_running": sum(b.running or 0 for b, _ in pairs) / len(pairs),
        "idle_running": sum(b.running or 0 for _, b in pairs) / len(pairs),
    }
    yield Hit((pairs[0][0].line, pairs[0][1].line), values)
