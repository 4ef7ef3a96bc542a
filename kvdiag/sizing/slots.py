"""Request slots: ``max_running_requests`` as the server reports it, and the request table's bytes."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.releases import Release
from kvdiag.sizing.history import since

MOST, LEAST = 4096, 2048
EXTRA_CONTEXT = 4


@frozen
class SlotDemand:
    """`asked` is the server's max_running_requests after its own defaults; `state_cap` the requests the state pool serves."""

    asked: int | None
    dp: int
    context: int
    state_cap: int | None
    plain_dp: int


def estimated_slots(tokens: int, context: int, release: Release) -> int:
    """Slots by capacity: 512 for every full context, between 2048 and 4096 (0.3.0: 5120)."""
    most = MOST if since(release, "0.3.1") else 5120
    return max(min(int(tokens / max(1, context) * 512), most), LEAST)


def pool_slots(tokens: int, demand: SlotDemand, release: Release) -> int:
    """``max_num_reqs`` of the request pool up to 0.5.9, from the tokens it is estimated by."""
    slots = demand.asked if demand.asked is not None else estimated_slots(tokens, demand.context, release)
    return slots if demand.state_cap is None else min(slots, demand.state_cap)


def reported_slots(profiled: int, tokens: int, demand: SlotDemand, release: Release, *, speculative_dp: bool) -> int:
    """``max_running_requests`` of ``TpModelWorker`` up to 0.5.9, of ``_resolve_max_num_reqs`` and its like from 0.5.10rc0.

    The older takes the lesser of the pool and the user's value or half the tokens. The pool is estimated by the tokens of the
    profile before caps and splits, up to 0.4.1.post3 by those after; 0.3.0 reports one less than it holds.
    `speculative_dp` says that speculation runs under DP attention, where 0.5.8 and 0.5.9 cap state models by the user's value.
    """
    dp = demand.dp
    if since(release, "0.5.10rc0"):
        return _resolved(tokens, demand, release)
    pool = pool_slots(profiled if since(release, "0.4.1.post4") else tokens, demand, release)
    if speculative_dp and demand.state_cap is not None and since(release, "0.5.8"):
        pool = min(pool, (demand.asked or pool) // dp)
    if not since(release, "0.3.1"):
        pool -= 1
    elif since(release, "0.3.1.post2") and not since(release, "0.4.7"):
        pool += 1
    if demand.asked is None:
        return min(tokens // 2, pool)
    return min(demand.asked // dp if since(release, "0.4.1.post7") else demand.asked, pool)


def _resolved(tokens: int, demand: SlotDemand, release: Release) -> int:
    estimate = estimated_slots(tokens, demand.context, release)
    asked = demand.asked
    if asked is None:
        slots = min(estimate, tokens // 2)
    else:
        each = asked // demand.plain_dp
        if since(release, "0.5.23"):
            each = max(1, each)
        slots = min(each, tokens // 2 if since(release, "0.5.14") else estimate)
    return slots if demand.state_cap is None else min(slots, demand.state_cap)


def request_table_bytes(slots: int, context: int, draft_tokens: int) -> int:
    """``ReqToTokenPool``: one int32 for every position a request may reach, with a few to spare."""
    return slots * (context + EXTRA_CONTEXT + draft_tokens) * 4
