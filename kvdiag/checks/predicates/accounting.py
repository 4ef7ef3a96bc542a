"""Pools whose own books do not balance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.starts import Event

At = Mapping[str, float]


_BOOKS = (
    ("max_total_num_tokens", "total_tokens"),
    ("max_total_num_tokens", "available_size", "evictable_size", "protected_size"),
    ("max_total_num_token", "available_size"),
    ("total", "available", "evictable", "protected", "session_held", "uncached"),
    ("full_tokens_per_layer", "full_available_size", "full_evictable_size", "tree_cache.full_protected_size()"),
    ("token_to_kv_pool_allocator.size", "full_available_size", "full_evictable_size", "tree_cache.full_protected_size()"),
    ("swa_tokens_per_layer", "swa_available_size", "swa_evictable_size", "tree_cache.swa_protected_size()"),
)
"""The name of a capacity in the self-check's line, and of what must add up to it."""


_TOLD_APART = ("token_to_kv_pool_allocator.available_size()", "available_token_size")
"""Where one of these stands beside it, ``available_size`` is free and evictable tokens together."""


def _balance(event: Event) -> int | None:
    """Free tokens less what the pool has, as the self-check prints them: above zero, more is free than exists."""
    record = event.record
    for total, *parts in _BOOKS:
        whole = record.number(total)
        found = [record.number(part) for part in parts]
        if isinstance(whole, int) and isinstance(found[0], int):
            if any(name in record.values for name in _TOLD_APART):
                found = [found[0], *found[2:]]
            return sum(int(part) for part in found if part is not None) - whole
    return None


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
