"""What turning one knob would bring: predicted capacity, what it takes from the head-room, what is left."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from kvdiag.checks.facts import Facts
from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen, replace
from kvdiag.quantity import GIB, Interval
from kvdiag.sizing import size

KEEP_BYTES = 5 * GIB
"""Free memory to leave for activations on a large card: the lower end of what SGLang's tuning guide calls healthy."""

KEEP_SHARE = Fraction(8, 100)
"""On a small card: this share of the memory free before loading."""

STEP = Fraction(1, 100)
"""Fractions are advised in hundredths."""

_FP8 = "fp8_e4m3"
_PAGE_UNKNOWN = 256


@frozen
class Lever:
    """One change: the capacity it is predicted to give, and the memory it takes from the head-room."""

    change: dict[str, Any]
    tokens: Interval
    now: int
    taken: Interval
    left: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """The ``gain`` of a finding."""
        return {
            "change": self.change,
            "max_total_num_tokens": self.tokens.to_dict(),
            "max_total_num_tokens_now": self.now,
            "headroom_taken": self.taken.to_dict(),
            "headroom_left": self.left.to_dict() if self.left else None,
        }


def cost_of_token(facts: Facts) -> Interval | None:
    """Bytes of the budget that one more token costs; None where the pools do not grow in proportion to the budget.

    A draft's pool is part of the budget from 0.5.14 on. State pools and pools with fixed parts are not proportional.
    """
    if not _is_proportional(facts):
        return None
    pool, tokens, page = facts.pool_bytes, facts.tokens, facts.inputs.arguments.page_size
    if pool is None or pool.interval is None or not tokens:
        return None if facts.inputs.arguments.speculative_algorithm else facts.cell
    held = pool.interval
    draft = facts.number("kv_pool_bytes", role="draft")
    draft_inside = facts.since("0.5.14")
    if draft is not None and draft.interval is not None and draft.role == "draft" and draft_inside is not False:
        held = held + draft.interval if draft_inside else held.hull(held + draft.interval)
    rows = Interval.of(tokens + (page or 1), tokens + (page or _PAGE_UNKNOWN), "bytes")
    seen = held / rows
    if (
        held is pool.interval
        and facts.cell is not None
        and facts.cell.with_unit("bytes").meets(seen)
        and not facts.whole("swa_max_total_num_tokens")
    ):
        return facts.cell
    return seen


def _predicted(facts: Facts, change: dict[str, Any]) -> Interval | None:
    """What ``kvdiag whatif`` predicts for the change; None where the model's config is not at hand or something is missing."""
    from kvdiag.checks.whatif import predict

    return None if facts.inputs.geometry is None else predict(facts.inputs, change).max_total_num_tokens


def with_fraction(facts: Facts, fraction: Fraction) -> Lever | None:
    """The capacity under another --mem-fraction-static, from this log's own capacity and the memory before loading.

    The same figure as whatif's; without a config the pool's own bytes for a token give it.
    """
    now, cost, total, tokens = facts.fraction, cost_of_token(facts), facts.total, facts.tokens
    if now is None or cost is None or cost.low <= 0 or total is None or not tokens or is_fixed(facts):
        return None
    page = facts.inputs.arguments.page_size or 1
    taken = total * (fraction - Fraction(str(now)))
    more = (taken / cost).with_unit("tokens")
    low = (tokens + more.low) // page * page
    below = tokens + page + more.high  # the budget of now may hold all but one page more than the tokens say
    high = (math.ceil(below) - 1) // page * page
    if low <= 0:
        return None
    free = facts.free_at_end.interval if facts.free_at_end else None
    change: dict[str, Any] = {"mem_fraction_static": float(fraction)}
    predicted = _predicted(facts, change) or Interval(Fraction(low), Fraction(high), "tokens")
    return Lever(change, predicted, tokens, taken, free - taken if free else None)


def most_fraction(facts: Facts) -> Lever | None:
    """The largest fraction, in hundredths, that leaves the memory to keep; None where there is nothing to gain.

    None with AMD's attention too: it makes the fraction less than what is given, and the log prints only the result.
    """
    now, total, free = facts.fraction, facts.total, facts.free_at_end
    if facts.ran_out:
        return None
    if now is None or total is None or free is None or free.interval is None or facts.inputs.on_shared_memory:
        return None
    room = free.interval.low - keep(total)
    best = (Fraction(str(now)) + room / total.high) // STEP * STEP
    if best <= Fraction(str(now)) or best >= 1 or facts.inputs.arguments.attention_backend == "aiter":
        return None
    return with_fraction(facts, best)


def keep(total: Interval) -> Fraction:
    """Bytes to leave free after start-up on a device with `total` free before loading."""
    return min(Fraction(KEEP_BYTES), total.high * KEEP_SHARE)


def with_fp8(facts: Facts) -> Lever | None:
    """The capacity with an FP8 KV cache in the same budget; None where the cache is FP8 already or cannot be sized."""
    inputs, tokens = facts.inputs, facts.tokens
    if inputs.geometry is None or not tokens or is_fixed(facts) or not _is_proportional(facts):
        return None
    try:
        costs = [
            (
                size(inputs.geometry, inputs.arguments, release),
                size(inputs.geometry, replace(inputs.arguments, kv_cache_dtype=_FP8), release),
            )
            for release in inputs.candidates()
        ]
    except CannotSizeError:
        return None
    ratios = [Fraction(now.bytes_per_token) / Fraction(then.bytes_per_token) for now, then in costs]
    if not ratios or min(ratios) <= 1:
        return None
    page = inputs.arguments.page_size or 1
    low = tokens * min(ratios) // page * page
    high = (tokens + page) * max(ratios) // page * page
    nothing = Interval.of(0, unit="bytes")
    free = facts.free_at_end.interval if facts.free_at_end else None
    change: dict[str, Any] = {"kv_cache_dtype": _FP8}
    predicted = _predicted(facts, change) or Interval(Fraction(low), Fraction(high), "tokens")
    return Lever(change, predicted, tokens, nothing, free)


def ways_to_more_tokens(facts: Facts) -> str:
    """What would enlarge this pool, in words: the cap where one decides it, else what memory and dtype leave to do."""
    if facts.limits.binding == "max_total_tokens":
        cap = facts.arg("max_total_tokens") or facts.tokens
        return f"a larger --max-total-tokens than {cap:,}, or none; no memory setting changes the pool while it caps it"
    lever, tight = most_fraction(facts), _is_tight(facts)
    ways = [f"--mem-fraction-static up to {lever.change['mem_fraction_static']}"] if lever is not None else []
    if lever is None and not tight:
        ways.append("a larger --mem-fraction-static where head-room is left")
    if not _is_narrow(facts) and not facts.inputs.on_shared_memory:
        ways.append("an FP8 KV cache")
    ways.append("more memory" if facts.inputs.on_shared_memory else "more or larger GPUs")
    return ", ".join(ways) + (" (no head-room is left for a larger --mem-fraction-static)" if tight else "")


def _is_tight(facts: Facts) -> bool:
    """Whether the log shows that no larger fraction would leave the memory to keep."""
    free, total = facts.free_at_end, facts.total
    if facts.ran_out:
        return True
    if free is None or free.interval is None or total is None or facts.inputs.on_shared_memory:
        return False
    return free.interval.low - keep(total) < total.high * STEP


def _is_narrow(facts: Facts) -> bool:
    """Whether an element of the cache takes a byte or less already."""
    stated = facts.start.first("kv_cache_dtype", role="target")
    name = str(stated.value if stated is not None else facts.inputs.arguments.kv_cache_dtype)
    return any(mark in name for mark in ("fp8", "fp4", "int8", "int4"))


def _is_proportional(facts: Facts) -> bool:
    """Whether pools grow with the budget in one proportion: no state slots, no fixed parts, no stages of other layers."""
    if facts.inputs.arguments.pp_size > 1:
        return False
    return not (facts.start.find("max_mamba_cache_size") or facts.start.find("state_pool_bytes") or facts.events("dsv4_pool"))


_BUDGET_CHECKS = ("bytes_per_token", "max_total_num_tokens", "rest_memory", "mem_fraction_static")


def is_fixed(facts: Facts) -> bool:
    """Whether something other than the budget decides the capacity, or may: a cap not shown, or a check that disagrees."""
    return (
        facts.limits.binding == "max_total_tokens"
        or facts.inputs.on_shared_memory
        or bool(facts.inputs.unseen("max_total_tokens"))
        or any(check.verdict == "disagree" for check in facts.checks if check.name in _BUDGET_CHECKS)
    )
