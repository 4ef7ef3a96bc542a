"""Requests that went back to the queue, and allocations that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from kvdiag.checks.activity import Batch, Retraction
from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit

At = Mapping[str, float]

_WINDOW_POOL = r"Available swa(?: tokens)?: ([0-9]{1,12}) "

NEAR_SECONDS = 10.0
"""A decode line within this many seconds of a retraction tells of its moment."""
ROOM = Fraction(9, 10)
"""The share of the pool to plan with: requests that run still grow."""


def retractions(facts: Facts, at: At) -> Iterator[Hit]:
    """Running requests were sent back to the queue because the pool was full."""
    found = facts.activity.retractions
    if not found:
        return
    gained = [r.gained for r in found if r.gained is not None]
    seconds, moment = _span(found), _beside(facts, found[0])
    values: dict[str, Any] = {
        "events": len(found),
        "requests": sum(r.requests for r in found),
        "seconds": seconds if seconds else None,
        "gained": (min(gained), max(gained)) if gained else None,
        "tokens": facts.pool_tokens,
        "before": found[0].ratio_before,
        "after": found[0].ratio_after,
        "s": "s" if len(found) > 1 else "",
        "several": "" if len(found) > 1 else None,
        "one": "" if len(found) == 1 else None,
        **_largest(facts, moment),
    }
    if moment is not None:
        values |= {
            "line": moment.line,
            "earlier": "" if moment.line < found[0].line else None,
            "later": "" if moment.line > found[0].line else None,
            "running": moment.running,
            "held": moment.tokens,
            "each": (moment.tokens or 0) / (moment.running or 1),
        }
    yield Hit(tuple(r.line for r in found[:8]), values)


def _beside(facts: Facts, retraction: Retraction) -> Batch | None:
    """The last decode line of that rank before a retraction, else the first after it; None where none is near in time."""
    told = [b for b in facts.activity.decode if b.tokens and b.running and b.rank == retraction.rank]
    near = [b for b in told if _is_near(b, retraction, facts.activity.every)]
    return next((b for b in reversed(near) if b.line < retraction.line), near[0] if near else None)


def _is_near(batch: Batch, retraction: Retraction, every: int) -> bool:
    """Whether the line tells of the moment of the retraction; without times only where no line is left out."""
    if batch.second is None or retraction.second is None:
        return every == 1
    return abs(batch.second - retraction.second) <= NEAR_SECONDS


def _largest(facts: Facts, moment: Batch | None) -> dict[str, Any]:
    """The line whose requests were the largest on average, and how many of those would fit with room to spare."""
    told = [b for b in facts.activity.decode if b.tokens and b.running]
    if not told or facts.pool_tokens is None:
        return {}
    largest = max(told, key=lambda b: (b.tokens or 0) / (b.running or 1))
    most = Fraction(largest.tokens or 0, largest.running or 1)
    fits = int(facts.pool_tokens.low / most * ROOM)
    running = max(b.running or 0 for b in told) if moment is None else moment.running or 0
    return {"largest": most, "largest_line": largest.line, "fits": fits if 0 < fits < running else None}


def _span(found: list[Retraction]) -> float | None:
    times = [r.second for r in found if r.second is not None]
    return max(times) - min(times) if len(times) > 1 else None


def saw_tooth(facts: Facts, at: At) -> Iterator[Hit]:
    """new_token_ratio jumps at every retraction and decays until the next one."""
    ratios = [
        (r.ratio_before, r.ratio_after)
        for r in facts.activity.retractions
        if r.ratio_before is not None and r.ratio_after is not None
    ]
    jumps = [after - before for before, after in ratios if after > before]
    fell = [earlier[1] - later[0] for earlier, later in pairwise(ratios) if earlier[1] > later[0]]
    if len(jumps) < at["jumps"] or len(fell) < at["jumps"] - 1:
        return
    lows, highs = [before for before, _ in ratios], [after for _, after in ratios]
    values = {"jumps": len(jumps), "events": len(ratios), "low": min(lows), "high": max(highs)}
    yield Hit(tuple(r.line for r in facts.activity.retractions[:8]), values)


def retraction_failed(facts: Facts, at: At) -> Iterator[Hit]:
    """One request alone did not fit."""
    events = facts.events("retraction_failed")
    if events:
        yield Hit(event_lines(events), {"count": len(events), "tokens": facts.pool_tokens})


def slots_ran_out(facts: Facts, at: At) -> Iterator[Hit]:
    """The table of running requests had no row left."""
    events = facts.events("request_slots_exhausted")
    if events:
        record = events[0].record
        yield Hit(event_lines(events), {"free": record.number("available_size"), "asked": record.number("num_reqs")})


def allocation_failed(facts: Facts, at: At) -> Iterator[Hit]:
    """The allocator had no tokens although the scheduler had counted on them."""
    events = facts.events("token_allocation_failed")
    if events:
        record = events[0].record
        asked = record.number("Try to allocate")
        names = ("Available tokens", "Avaliable tokens", "Available full tokens")
        free = next((number for name in names if (number := record.number(name)) is not None), None)
        told = re.search(_WINDOW_POOL, record.values["other pools"].text) if "other pools" in record.values else None
        window = int(told[1]) if told and asked is not None and int(told[1]) < asked else None
        enough = free is not None and asked is not None and free >= asked and window is None
        yield Hit(event_lines(events, 3), {"asked": asked, "free": free, "window": window, "enough": "" if enough else None})
