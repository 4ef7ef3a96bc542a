"""What people believe about --mem-fraction-static, where this log's figures show it to be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from kvdiag.checks.binding import bound_by
from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit
from kvdiag.checks.levers import Lever, is_fixed, most_fraction, with_fraction
from kvdiag.quantity import GIB

At = Mapping[str, float]


def fraction_of_the_rest(facts: Facts, at: At) -> Iterator[Hit]:
    """The fraction is taken for a share of what is free after the weights."""
    fraction, available, total, pool = facts.fraction, facts.available, facts.total, facts.pool_bytes
    if fraction is None or available is None or total is None or pool is None or pool.interval is None or not facts.tokens:
        return
    if is_fixed(facts):
        return
    believed = available * Fraction(str(fraction))
    budget = available - total * (1 - Fraction(str(fraction)))
    if budget.low <= 0 or believed.low < budget.high * Fraction(str(at["apart"])):
        return
    values = {
        "fraction": fraction,
        "available": available,
        "total": total,
        "believed": believed,
        "budget": budget,
        "pool": pool.interval,
        "outside": total * (1 - Fraction(str(fraction))),
    }
    yield Hit(facts.lines(facts.number("available_gpu_memory"), pool), values)


def proportional(facts: Facts, at: At) -> Iterator[Hit]:
    """Capacity is believed to grow in proportion to the fraction."""
    lever = _other_fraction(facts)
    fraction = facts.fraction
    if lever is None or fraction is None or facts.inputs.on_shared_memory:
        return
    other = lever.change["mem_fraction_static"]
    believed = lever.now * other / fraction
    really = (lever.tokens.low + lever.tokens.high) / 2
    if max(believed, float(really)) < min(believed, float(really)) * at["apart"]:
        return
    values = {
        "fraction": fraction,
        "other": other,
        "now": lever.now,
        "believed": believed,
        "really": lever.tokens,
        "factor": lever.tokens / lever.now,
        "expected": other / fraction,
        "three": three.tokens if (three := with_fraction(facts, Fraction(str(fraction)) - Fraction(3, 100))) else None,
        "lower": float(Fraction(str(fraction)) - Fraction(3, 100)),
        "higher": three.tokens if (three := with_fraction(facts, Fraction(str(fraction)) + Fraction(3, 100))) else None,
        "above": float(Fraction(str(fraction)) + Fraction(3, 100)),
    }
    yield Hit(facts.lines(facts.number("max_total_num_tokens"), facts.number("available_gpu_memory")), values)


def _other_fraction(facts: Facts) -> Lever | None:
    """What to compare with: the largest fraction that fits, else three hundredths less."""
    lever = most_fraction(facts)
    if lever is None and facts.fraction is not None:
        lever = with_fraction(facts, Fraction(str(facts.fraction)) - Fraction(3, 100))
    return lever


def cap_limits_pool(facts: Facts, at: At) -> Iterator[Hit]:
    """The request cap is believed to limit the pool, where requests waited below the cap."""
    cap, tokens = facts.cap, facts.pool_tokens
    if not cap or tokens is None:
        return
    waiting = [b for b in facts.activity.decode if b.queued and b.running and bound_by(b, facts.bounds) == "kv_pool"]
    if not waiting or any(bound_by(b, facts.bounds) == "max_running_requests" for b in facts.activity.decode):
        return
    running = [b.running for b in waiting if b.running]
    values = {
        "cap": cap,
        "lines": len(waiting),
        "running": (min(running), max(running)),
        "queued": max(b.queued or 0 for b in waiting),
        "tokens": tokens,
    }
    yield Hit(tuple(b.line for b in waiting[:4]), values)


def cost_of_a_token(facts: Facts, at: At) -> Iterator[Hit]:
    """Memory divided by tokens is taken for the cost of a token with a factor of a thousand lost, or with other memory in it."""
    cell, pool, tokens, free = facts.cell, facts.pool_bytes, facts.tokens, facts.free_at_end
    if (
        cell is None
        or pool is None
        or pool.interval is None
        or not tokens
        or facts.inputs.on_shared_memory
        or facts.inputs.arguments.pp_size > 1
    ):
        return
    if (
        facts.geometry_is_unknown
        or cell.low < at["least"]
        or free is None
        or free.interval is None
        or facts.limits.binding == "max_total_tokens"
    ):
        return
    if pool.interval.low < at["least_gib"] * GIB:
        return
    mixed = (pool.interval + free.interval) / tokens
    yield Hit(
        facts.lines(pool, facts.number("max_total_num_tokens")),
        {
            "cell": cell,
            "pool": pool.interval,
            "tokens": tokens,
            "mixed": mixed.with_unit("bytes"),
            "both": pool.interval + free.interval,
        },
    )
