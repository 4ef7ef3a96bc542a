"""Pools whose own books do not balance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.lines import Record
from kvdiag.starts import Event

At = Mapping[str, float]


_STATES = "req_to_token_pool.mamba_pool.size"

_BOOKS = (
    ("max_total_num_tokens", "total_tokens"),
    ("max_total_num_tokens", "available_size", "evictable_size", "protected_size"),
    ("max_total_num_token", "available_size"),
    ("total", "available", "evictable", "protected", "session_held", "uncached"),
    ("second total", "second available", "second evictable", "second protected", "second session_held", "second uncached"),
    ("full_tokens_per_layer", "full_available_size", "full_evictable_size", "tree_cache.full_protected_size()"),
    ("token_to_kv_pool_allocator.size", "full_available_size", "full_evictable_size", "tree_cache.full_protected_size()"),
    ("swa_tokens_per_layer", "swa_available_size", "swa_evictable_size", "tree_cache.swa_protected_size()"),
    (_STATES, "mamba_available_size", "mamba_evictable_size", "tree_cache.mamba_protected_size()"),
)
"""The name of a capacity in the self-check's line, and of what must add up to it."""


_TOLD_APART = ("token_to_kv_pool_allocator.available_size()", "available_token_size")
"""Where one of these stands beside it, ``available_size`` is free and evictable tokens together."""


def _balance(event: Event) -> tuple[int, str, int] | None:
    """Of the first book that does not balance, else of the first: what is free less what the pool has, of what, and that.

    Above zero, more is free than exists. None where the line prints no book.
    """
    record, balances = event.record, []
    for total, *parts in _BOOKS:
        whole = record.number(total)
        found = [record.number(part) for part in parts]
        if isinstance(whole, int) and isinstance(found[0], int):
            if any(name in record.values for name in _TOLD_APART):
                found = [found[0], *found[2:]]
            more = sum(int(part) for part in found if part is not None) - whole
            balances.append((more, _kept_in(record, total), whole))
    return next((balance for balance in balances if balance[0]), balances[0] if balances else None)


def _kept_in(record: Record, total: str) -> str:
    """What the pool of that capacity holds."""
    named = record.values.get({"total": "pool", "second total": "second pool"}.get(total, ""))
    pool = named.text if named is not None else ""
    if total == _STATES or pool.startswith("mamba"):
        return "state slot"
    return "window-pool token" if total == "swa_tokens_per_layer" or pool.startswith("swa") else "token"


def _many(count: int, what: str) -> str:
    return what if count == 1 else what + "s"


def freed_twice(facts: Facts, at: At) -> Iterator[Hit]:
    """More is free than the pool has: pages, or states, were freed twice."""
    for event in facts.events("pool_leak"):
        balance = _balance(event)
        if balance is not None and balance[0] > 0:
            more, what, _ = balance
            page = facts.inputs.arguments.page_size if what != "state slot" else None
            pages = more // page if page and more % page == 0 else None
            yield Hit(event_lines([event]), {"more": more, "what": _many(more, what), "page": page, "pages": pages})
            return


def lost_tokens(facts: Facts, at: At) -> Iterator[Hit]:
    """Less is free than should be when nothing runs: it was not given back."""
    for event in facts.events("pool_leak"):
        balance = _balance(event)
        if balance is not None and balance[0] < 0:
            lost, what, total = balance
            yield Hit(event_lines([event]), {"lost": -lost, "what": _many(-lost, what), "all": what + "s", "total": total})
            return


def unbalanced_books(facts: Facts, at: At) -> Iterator[Hit]:
    """The self-check failed and prints no figures to tell which way."""
    events = facts.events("pool_leak")
    if events and all((_balance(event) or (0,))[0] == 0 for event in events):
        yield Hit(event_lines(events), {"count": len(events)})
