"""Pools whose own books do not balance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.starts import Event

At = Mapping[str, float]


def _balance(event: Event) -> int | None:
    """Free tokens less what the pool has, as the self-check prints them: above zero, more is free than exists."""
    record = event.record
    total = next((n for name in ("max_total_num_tokens", "max_total_num_token", "total_size", "token_to_kv_pool_allocator.size")
                  if isinstance(n := record.number(name), int)), None)  # fmt: skip
    if total is None:
        return None
    whole = record.number("Mem Leak Detected! total_tokens")
    if isinstance(whole, int):
        return whole - total
    available = record.number("available_size")
    if available is None:
        available = record.number("Warning available_size")
    if not isinstance(available, int):
        return None
    protected = record.number("protected_size") or 0
    evictable = record.number("evictable_size") or 0
    counted = available + int(evictable)
    return counted - total if protected == 0 else counted + int(protected) - total


def freed_twice(facts: Facts, at: At) -> Iterator[Hit]:
    """More tokens are free than the pool has: pages were freed twice."""
    for event in facts.events("pool_leak"):
        more = _balance(event)
        if more is not None and more > 0:
            page = facts.inputs.arguments.page_size
            pages = more // page if page and more % page == 0 else None
            yield Hit(event_lines([event]), {"more": more, "page": page, "pages": pages})
            return


def lost_tokens(facts: Facts, at: At) -> Iterator[Hit]:
    """Fewer tokens are free than should be when nothing runs: they were not given back."""
    for event in facts.events("pool_leak"):
        more = _balance(event)
        if more is not None and more < 0:
            total = event.record.number("max_total_num_tokens")
            yield Hit(event_lines([event]), {"lost": -more, "total": total})
            return


def unbalanced_books(facts: Facts, at: At) -> Iterator[Hit]:
    """The self-check failed and prints no figures to tell which way."""
    events = facts.events("pool_leak")
    if events and all(_balance(event) in (None, 0) for event in events):
        yield Hit(event_lines(events), {"count": len(events)})
