"""Memory outside the pools: what is free, what took the rest, and what was lost before sizing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.checks.levers import keep, most_fraction
from kvdiag.checks.memory import free_readings, grew_while_loading, pool_gap
from kvdiag.checks.predicates.capacity import largest_request
from kvdiag.checks.predicates.failure import progress_free
from kvdiag.checks.wanted import are_tokens_wanted
from kvdiag.quantity import GIB, Interval

At = Mapping[str, float]
HEALTHY = Fraction(8, 5)
"""What is beyond the least to keep and still healthy: of 5 to 8 GiB, the upper end."""


def lost_before_sizing(facts: Facts, at: At) -> Iterator[Hit]:
    """The pool is small although far more memory stays free than the fraction leaves outside it."""
    free, tokens = facts.free_at_end, facts.pool_tokens
    if free is None or free.interval is None or tokens is None or facts.inputs.on_shared_memory:
        return
    if facts.limits.binding == "max_total_tokens" or facts.arg("max_total_tokens") or facts.inputs.arguments.pp_size > 1:
        return
    values: dict[str, Any] = {
        "free": free.interval,
        "tokens": tokens,
        "context": facts.context,
        "largest": largest_request(facts),
    }
    total, fraction = facts.total, facts.fraction
    if total is not None and fraction is not None:
        outside = total * (1 - Fraction(str(fraction)))
        lost = free.interval - outside
        if lost.low <= at["lost_gib"] * GIB:
            return
        values |= {"outside": outside, "lost": lost, "fraction": fraction}
        yield Hit(facts.lines(free, facts.number("max_total_num_tokens")), values)
        return
    back = _given_back(facts)
    if back is not None and back.low > at["back_gib"] * GIB:
        values |= {"back": back, "draft": "" if facts.start.find("weight_memory", role="draft") else None}
        yield Hit(facts.lines(facts.number("memory_after_pool"), free), values)
        return
    context = facts.context
    small = context is not None and tokens.high < context / 2
    if small and total is None and free.interval.low > at["idle_gib"] * GIB:
        yield Hit(facts.lines(free, facts.number("max_total_num_tokens")), values)


def _given_back(facts: Facts) -> Interval | None:
    """What came free between the end of loading and the end of the target's pools, beyond what the pools took."""
    check = next((c for c in facts.checks if c.name == "memory_after_pool" and c.role != "draft"), None)
    if check is None or check.observed is None or check.recomputed is None or check.observed.low <= check.recomputed.high:
        return None
    return Interval(check.observed.low - check.recomputed.high, check.observed.high - check.recomputed.low, "bytes")


def memory_grew(facts: Facts, at: At) -> Iterator[Hit]:
    """Free memory went up while the weights were loaded: memory came back meanwhile."""
    if facts.inputs.on_shared_memory:
        return
    for rank in facts.start.ranks:
        number = grew_while_loading(facts.start, rank)
        if number is not None and number.interval is not None:
            yield Hit((number.line,), {"grew": -number.interval, "rank": f" of {rank}" if rank else ""})
            return


def unused_headroom(facts: Facts, at: At) -> Iterator[Hit]:
    """Memory that stays free after everything is in place, and what it would hold."""
    free, total = facts.free_at_end, facts.total
    if free is None or free.interval is None or facts.inputs.on_shared_memory or not _is_last(facts):
        return
    if total is None:
        if free.interval.low > at["idle_gib"] * GIB and facts.tokens:
            yield Hit(facts.lines(free), {"free": free.interval, "blind": ""}, stake=free.interval.low)
        return
    if total.low <= 0:
        return
    wanted, least = are_tokens_wanted(facts), keep(total)
    if free.interval.low <= (least + at["worth_gib"] * GIB if wanted else least * HEALTHY):
        return
    lever, used = most_fraction(facts) if wanted is not False else None, _used_after_pools(facts)
    values: dict[str, Any] = {"free": free.interval, "share": free.interval / total, "used": used}
    values["unused"] = "" if wanted is False else None
    if lever is not None:
        values |= {"raised": ""}
        values |= {"to": lever.change["mem_fraction_static"], "now": facts.fraction, "then": lever.tokens, "left": lever.left}
        values["more"] = lever.tokens - Interval.of(lever.now, unit="tokens")
    yield Hit(facts.lines(free), values, lever.to_dict() if lever else None, stake=free.interval.low)


def _is_last(facts: Facts) -> bool:
    """Whether the reading stands at the end of start-up: after graphs, or in the capacity line, of a start that lives."""
    free = facts.free_at_end
    return (
        free is not None
        and free.name in ("memory_after_start", "memory_after_graphs")
        and not facts.events("crash", "graph_capture_failed")
    )


def _used_after_pools(facts: Facts) -> Interval | None:
    """What start-up took after the pools (graphs, workspaces): the least head-room this log shows to be needed."""
    rank = facts.free_at_end.rank if facts.free_at_end else None
    if rank is None:
        return None
    readings = free_readings(facts.start, rank)
    after = [n for n in readings if n.name == "memory_after_pool"]
    if not after or after[-1].interval is None or readings[-1].interval is None or after[-1] is readings[-1]:
        return None
    return after[-1].interval - readings[-1].interval


def little_headroom(facts: Facts, at: At) -> Iterator[Hit]:
    """So little memory is left after start-up that a larger batch may not fit."""
    free = facts.free_at_end
    if free is None or free.interval is None or facts.inputs.on_shared_memory or facts.events("crash"):
        return
    if free.name not in ("memory_after_start", "memory_after_graphs") and not (facts.captures or facts.events("ready")):
        return
    left = free.interval
    for event in facts.captures:
        printed = progress_free(event.record.message)
        if printed is not None and printed.low < left.low:
            left = printed
    if left.high < at["least_gib"] * GIB:
        progress = event_lines(facts.captures[-1:]) if left is not free.interval else ()
        yield Hit(tuple(dict.fromkeys((*facts.lines(free), *progress))), {"free": left, "fraction": facts.fraction})


def request_table(facts: Facts, at: At) -> Iterator[Hit]:
    """The request table takes a visible part of the memory outside the budget."""
    table, after = facts.request_table, facts.number("memory_after_pool", role="target")
    if table is None or table.low < at["least_gib"] * GIB or facts.inputs.on_shared_memory:
        return
    gap = pool_gap(facts.inputs, after.rank) if after is not None else None
    holds_it = gap is not None and gap.high >= table.low
    values: dict[str, Any] = {"table": table, "context": facts.context, "rows": facts.cap, "gap": gap if holds_it else None}
    level = (
        "warning"
        if table.low >= at["warn_gib"] * GIB
        and facts.arg("max_running_requests") is None
        and (facts.total is None or table.low > facts.total.high / 50)
        else "note"
    )
    lines = facts.lines(after, facts.number("context_len"), facts.number("max_running_requests"))
    yield Hit(lines, values, level=level, stake=table.low)


def unexplained_gap(facts: Facts, at: At) -> Iterator[Hit]:
    """Memory went between loading and the end of the pools that no pool, state or table explains."""
    if facts.inputs.on_shared_memory:
        return
    for after in facts.start.find("memory_after_pool", role="target")[:1]:
        pool = facts.start.first("kv_pool_bytes", rank=after.rank, role="target")
        gap = pool_gap(facts.inputs, after.rank)
        if gap is None or facts.start.find("max_mamba_cache_size"):
            return
        table = facts.request_table
        rest = gap - table if table is not None else gap
        if table is None and facts.context is None and rest.low > at["gap_gib"] * GIB:
            yield Hit(facts.lines(pool, after), {"gap": gap}, stake=gap.low)
        elif rest.low > at["gap_gib"] * GIB:
            yield Hit(facts.lines(pool, after), {"gap": gap, "rest": rest, "table": table}, stake=rest.low)


def print_resolution(facts: Facts, at: At) -> Iterator[Hit]:
    """The pool is so small that its printed size is 0.00."""
    pool = facts.pool_bytes
    if pool is None or pool.interval is None or pool.interval.low > 0 or facts.inputs.on_shared_memory:
        return
    free = facts.free_at_end.interval if facts.free_at_end else None
    values = {"tokens": facts.pool_tokens, "most": pool.interval, "free": free, "cap": facts.arg("max_total_tokens")}
    yield Hit(facts.lines(pool), values)
