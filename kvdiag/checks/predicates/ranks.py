"""Ranks that differ: in memory at start-up, in load while serving."""

from __future__ import annotations

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


def uneven_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """One rank has less memory than the others, and the smallest decides for all."""
    if facts.inputs.on_shared_memory:
        return
    for name in ("pre_model_load_memory", "available_gpu_memory", "memory_after_pool"):
        readings = _last_of_each(facts, name)
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
    """One data-parallel rank has a queue while another has room."""
    ranks = facts.activity.ranks
    if len(ranks) < 2:
        return
    by_rank: dict[str, list[Batch]] = {rank: [b for b in facts.activity.decode if b.rank == rank] for rank in ranks}
    by_rank = {rank: lines for rank, lines in by_rank.items() if len(lines) >= at["lines"]}
    if len(by_rank) < 2:
        return
    queued = {rank: sum(b.queued or 0 for b in lines) / len(lines) for rank, lines in by_rank.items()}
    running = {rank: sum(b.running or 0 for b in lines) / len(lines) for rank, lines in by_rank.items()}
    busy, idle = max(queued, key=lambda r: queued[r]), min(running, key=lambda r: running[r])
    if (
        busy == idle
        or queued[busy] < at["queued"]
        or queued[idle] >= at["queued"] / 2
        or running[idle] * at["times"] > running[busy]
    ):
        return
    values = {"busy": busy, "idle": idle, "queued": queued[busy], "busy_running": running[busy], "idle_running": running[idle]}
    yield Hit((by_rank[busy][0].line, by_rank[idle][0].line), values)
