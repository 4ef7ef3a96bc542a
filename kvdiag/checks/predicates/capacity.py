"""What the pool holds, and what caps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.checks.levers import most_fraction, with_fp8
from kvdiag.checks.limits import MARGIN
from kvdiag.checks.predicates.startup import pool_below_context_line
from kvdiag.quantity import Interval

At = Mapping[str, float]


def largest_request(facts: Facts) -> Interval | None:
    """The longest request that can run, prompt and answer together."""
    found = facts.limits.largest_request_tokens
    if isinstance(found, dict):
        return Interval.of(found["low"], found["high"], "tokens")
    return Interval.of(found, unit="tokens") if found is not None else None


def _kept(tokens: Interval, largest: Interval | None) -> int | None:
    """Tokens of the pool that a request must leave, where the pool and not its window part sets the longest request."""
    kept = int(tokens.low - largest.low) if largest is not None and tokens.is_exact and largest.is_exact else 0
    return kept if 0 < kept <= MARGIN else None


def _deciding_window(facts: Facts, largest: Interval | None) -> int | None:
    """Tokens of the window pool, where they and not the full layers' set the longest request (0.5.7 to 0.5.10)."""
    window = facts.number("swa_max_total_num_tokens")
    if window is None or not isinstance(window.value, int) or largest is None or not largest.is_exact:
        return None
    return window.value if 0 < window.value - largest.low <= MARGIN else None


def below_context(facts: Facts, at: At) -> Iterator[Hit]:
    """One request of the full context length cannot fit the pool."""
    tokens, context, event = facts.pool_tokens, facts.context, pool_below_context_line(facts)
    if tokens is None or not context or tokens.high >= context or _is_refused(facts):
        return
    capacity = facts.number("max_total_num_tokens") or facts.number("pool_tokens")
    needed = facts.cell * context if facts.cell is not None else None
    largest = largest_request(facts)
    lines = facts.lines(capacity, facts.number("context_len")) + (event_lines([event]) if event else ())
    values = {
        "tokens": tokens,
        "context": context,
        "largest": largest,
        "kept": _kept(tokens, largest),
        "window": _deciding_window(facts, largest),
        "share": tokens / context,
        "needed": needed.with_unit("bytes") if needed else None,
    }
    gain = most_fraction(facts)
    fits = gain is not None and gain.tokens.low >= context
    if gain is not None and fits:
        values["to"] = gain.change["mem_fraction_static"]
        values["then"] = gain.tokens
    yield Hit(tuple(dict.fromkeys(lines)), values, gain.to_dict() if gain and fits else None)


def _is_refused(facts: Facts) -> bool:
    return any(event.record.number("max_req_input_len") is not None for event in facts.events("input_too_long"))


def input_refused(facts: Facts, at: At) -> Iterator[Hit]:
    """A request was refused because the pool, not the context, is too small for it."""
    for event in facts.events("input_too_long"):
        limit, asked = event.record.number("max_req_input_len"), event.record.number("len")
        if not isinstance(limit, int) or facts.pool_tokens is None:
            continue
        pool, context = facts.pool_tokens, facts.context
        if context is not None and context <= pool.low:
            continue
        cell = facts.cell or facts.recomputed_cell
        values = {
            "asked": asked,
            "limit": limit,
            "pool": pool,
            "context": context,
            "share": pool / context if context else None,
            "pool_bytes": (pool * cell).with_unit("bytes") if cell else None,
            "needed": (cell * (asked + 6)).with_unit("bytes") if cell and asked else None,
            "count": len(facts.events("input_too_long")),
        }
        yield Hit(event_lines(facts.events("input_too_long"), 3), values)
        return


def context_refused(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests were refused or cut at the context length, which the pool could hold."""
    events = facts.events("input_too_long")
    for event in events:
        limit = event.record.number("context_len") or event.record.number("max_req_input_len")
        if not isinstance(limit, int):
            continue
        pool_decides = facts.pool_tokens is not None and facts.context is not None and facts.pool_tokens.high < facts.context
        if pool_decides or (event.record.number("context_len") is None and facts.pool_tokens is None):
            continue
        if event.record.number("context_len") is None and facts.context is None:
            continue
        yield Hit(event_lines(events, 3), {"limit": limit, "count": len(events)})
        return


def full_requests(facts: Facts, at: At) -> Iterator[Hit]:
    """What the capacity means in requests, where the request cap cannot be filled with long ones."""
    tokens, context, cap = facts.tokens, facts.context, facts.cap
    if not tokens or not context or not cap or tokens < context or cap * context <= tokens or cap > at["most_cap"]:
        return
    free = facts.free_at_end
    values = {
        "tokens": tokens,
        "context": context,
        "cap": cap,
        "full": tokens / context,
        "mean": tokens // cap,
        "asked": cap * context,
        "free": free.interval if free and free.name == "memory_after_start" else None,
    }
    yield Hit(facts.lines(facts.number("max_total_num_tokens"), facts.number("max_running_requests")), values)


def never_filled(facts: Facts, at: At) -> Iterator[Hit]:
    """So few requests are allowed that part of the pool can never be in use."""
    tokens, context, cap = facts.tokens, facts.context, facts.cap
    if not tokens or not context or not cap:
        return
    live = cap * context
    if live >= tokens * at["share"]:
        return
    radix = not facts.arg("disable_radix_cache") if facts.start.server_args else None
    cell = facts.cell
    values = {
        "tokens": tokens,
        "context": context,
        "cap": cap,
        "live": live,
        "share": live / tokens,
        "never": (cell * (tokens - live)).with_unit("bytes") if cell else None,
        "off": "" if radix is False else None,
        "on": "" if radix else None,
        "unknown": "" if radix is None else None,
    }
    lines = facts.lines(facts.number("max_total_num_tokens"), facts.number("max_running_requests"))
    yield Hit(lines, values, level="warning" if radix is False else "note")


def user_cap(facts: Facts, at: At) -> Iterator[Hit]:
    """--max-total-tokens, not memory, decides the capacity."""
    if facts.limits.binding != "max_total_tokens" or facts.tokens is None:
        return
    cap = facts.arg("max_total_tokens")
    sized = [n for n in facts.start.numbers if n.name == "full_max_total_num_tokens"]
    profiled = [n.value for n in sized if isinstance(n.value, int)]
    larger = max(profiled) if profiled and max(profiled) > facts.tokens else None
    page = facts.inputs.arguments.page_size
    apart = isinstance(cap, int) and cap != facts.tokens
    rounded = cap - facts.tokens if apart and cap > facts.tokens else None
    free = facts.free_at_end.interval if facts.free_at_end and not facts.inputs.on_shared_memory else None
    values = {
        "tokens": facts.tokens,
        "cap": cap if apart else None,
        "split": "" if apart and cap < facts.tokens else None,
        "profiled": larger,
        "rounded": rounded,
        "page": page if rounded else None,
        "free": free,
    }
    lines = facts.lines(facts.number("max_total_num_tokens") or facts.number("pool_tokens"), *sized[-1:], *sized[:1])
    yield Hit(lines, values)


def cap_has_no_effect(facts: Facts, at: At) -> Iterator[Hit]:
    """--max-total-tokens is above what memory allows."""
    for event in facts.events("max_total_tokens_clamped"):
        profiled, asked = event.record.number("profiled value"), event.record.number("max_total_tokens")
        if isinstance(profiled, int) and profiled > 0:
            yield Hit(event_lines([event]), {"profiled": profiled, "asked": asked})
            return


def small_pool(facts: Facts, at: At) -> Iterator[Hit]:
    """A pool of debug size, as usage shows it."""
    tokens = facts.pool_tokens
    if tokens is None or tokens.high >= at["tokens"] or facts.events("crash") or facts.start.server_args:
        return
    if facts.context is not None or not facts.activity.decode:
        return
    held = facts.activity.tokens_per_request
    values = {
        "tokens": tokens,
        "running": max((b.running or 0 for b in facts.activity.decode), default=None),
        "each": max(held) if held else None,
    }
    yield Hit(facts.activity.capacity_lines, values)


def cap_reduced(facts: Facts, at: At) -> Iterator[Hit]:
    """Fewer requests may run than were asked for, and only one line or none says so."""
    for event in facts.events("max_running_requests_reduced"):
        asked, given = event.record.number("max_running_requests requested"), event.record.number("max_running_requests")
        if asked is not None and given is not None:
            yield Hit(event_lines([event]), {"asked": asked, "given": given})
            return
    asked, given = facts.arg("max_running_requests"), facts.limits.max_running_requests
    replicas = facts.inputs.arguments.dp_size if facts.inputs.arguments.enable_dp_attention else 1
    if isinstance(asked, int) and given is not None and given < asked // replicas:
        yield Hit(facts.lines(facts.number("max_running_requests")), {"asked": asked // replicas, "given": given})


def cap_by_speculation(facts: Facts, at: At) -> Iterator[Hit]:
    """Speculative decoding set the request cap to its own default."""
    for event in facts.events("max_running_requests_reduced"):
        if "speculative decoding" in event.record.message:
            yield Hit(event_lines([event]), {"cap": facts.cap})
            return


def page_rounding(facts: Facts, at: At) -> Iterator[Hit]:
    """Pages so large that rounding takes a visible part of a small pool or of short requests."""
    page, tokens = facts.inputs.arguments.page_size, facts.tokens
    held = facts.activity.tokens_per_request
    if not page or page < at["page"] or not tokens:
        return
    mean = sum(held) / len(held) if held else None
    if mean is None or mean >= page * at["pages"]:
        return
    yield Hit(facts.lines(facts.number("max_total_num_tokens")), {"page": page, "mean": mean, "waste": page // 2})


def replicas_on_one_card(facts: Facts, at: At) -> Iterator[Hit]:
    """Pools of different sizes follow each other where one server makes one."""
    if not facts.siblings or facts.start is not facts.siblings[0]:
        return
    bare = [start for start in facts.siblings if not start.server_args and start.first("pool_tokens")]
    found = [number for start in bare if (number := start.first("pool_tokens")) is not None]
    if len(found) >= at["pools"] and len({number.value for number in found}) >= at["pools"]:
        yield Hit(
            facts.lines(*found),
            {
                "count": len(found),
                "sizes": ", ".join(f"{n.value:,}" if isinstance(n.value, int) else str(n.value) for n in found),
            },
        )


def fp8_cache(facts: Facts, at: At) -> Iterator[Hit]:
    """What an FP8 KV cache would hold, where the pool binds."""
    if not _pool_binds(facts):
        return
    lever = with_fp8(facts)
    if lever is not None:
        values = {"now": lever.now, "then": lever.tokens, "factor": lever.tokens / lever.now}
        yield Hit(facts.lines(facts.number("max_total_num_tokens")), values, lever.to_dict())


def _pool_binds(facts: Facts) -> bool:
    """Whether the scheduler lines show the pool as the limit, or the pool is below one context."""
    if facts.activity.retractions:
        return True
    from kvdiag.checks.binding import bindings

    return bindings(facts.activity, facts.bounds).get("kv_pool", 0) >= 0.1
