"""The hierarchical cache in host memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.quantity import Interval
from kvdiag.starts import Event

At = Mapping[str, float]


def size_per_rank(facts: Facts, at: At) -> Iterator[Hit]:
    """Host memory is allocated by every rank: the size given counts once a rank."""
    events = [e for e in facts.events("host_pool") if e.record.interval("GB") is not None and "dummy" not in e.record.message]
    by_rank: dict[str, list[int]] = {}
    for position, event in enumerate(events):
        by_rank.setdefault(str(event.record.rank), []).append(position)
    if len(by_rank) < 2:
        return
    total, each = Interval.of(0, unit="bytes"), Interval.of(0, unit="bytes")
    first = next(iter(by_rank.values()))
    for position, event in enumerate(events):
        asked = event.record.interval("GB")
        assert asked is not None
        total = total + asked
        each = each + asked if position in first else each
    alike = len({tuple(_sizes(events, places)) for places in by_rank.values()}) == 1
    yield Hit(event_lines(events), {"ranks": len(by_rank), "each": each if alike else None, "total": total})


def _sizes(events: list[Event], places: list[int]) -> list[str]:
    """The sizes printed at these places, in order of size: a rank's pools may come in any order."""
    return sorted(value.text for place in places if (value := events[place].record.values.get("GB")) is not None)


def smaller_than_device(facts: Facts, at: At) -> Iterator[Hit]:
    """The host pool holds less than the device pool: what is evicted does not fit it."""
    events = facts.events("host_pool_small")
    if events:
        record = events[0].record
        yield Hit(event_lines(events[:1]), {"host": record.number("tokens"), "device": record.number("device tokens")})


def what_it_cannot(facts: Facts, at: At) -> Iterator[Hit]:
    """The hierarchical cache is on while the device pool is what binds."""
    if facts.arg("enable_hierarchical_cache") is not True and not facts.events("host_pool"):
        return
    from kvdiag.checks.binding import bindings

    if bindings(facts.activity, facts.bounds).get("kv_pool", 0) < at["share"] and not facts.activity.retractions:
        return
    yield Hit(event_lines(facts.events("host_pool")[:1]), {"hit": facts.activity.hit_rate, "tokens": facts.pool_tokens})
