"""What a start's pool does with a workload, and what each lever does to that."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from kvdiag.checks.facts import Facts
from kvdiag.checks.levers import most_fraction, with_fp8
from kvdiag.checks.workload import (
    Plan,
    Workload,
    as_seen,
    disproved,
    estimate,
    longest_request,
    mixed_by_retractions,
    per_replica,
    plan,
    reserve_ratios,
    without_sharing,
)
from kvdiag.frozen import frozen

_LOWER, _HIGHER = 0.7, 1.3
"""--schedule-conservativeness to compare with 1: what SGLang's tuning guide tries, either way."""


@frozen
class LeverPlan:
    """The plan after one change, for the least and for the most capacity that the change is predicted to give."""

    change: dict[str, Any]
    least: Plan
    most: Plan


@frozen
class Planned:
    """A workload, what the pool does with it, and what it would do after each change that applies."""

    workload: Workload
    plan: Plan
    levers: tuple[LeverPlan, ...] = ()


def unplanned(facts: Facts) -> str:
    """Why the scheduler lines suggest no workload though there are many of them; empty where nothing is to be said."""
    if not facts.tokens or not mixed_by_retractions(facts.activity):
        return ""
    return (
        "The length of a conversation cannot be estimated from this log, because retracted requests come back as prompts that "
        "have their answers so far, and too few requests ended before the first retraction; give --workload "
        "prompt=N,output=N,concurrency=N."
    )


def plan_for(facts: Facts, workload: Workload | None) -> Planned | None:
    """The plan of this start's pool for a workload, or for the one its scheduler lines suggest; None without either."""
    told = workload or estimate(facts.activity, facts.whole("chunked_prefill_size"))
    if told is None or not facts.tokens:
        return None
    arguments = facts.inputs.arguments
    told = per_replica(told, arguments.dp_size)
    told = without_sharing(told, facts.arg("disable_radix_cache") is True)
    ratios = _ratios(facts, arguments.schedule_conservativeness)
    page, longest = arguments.page_size or 1, _longest(facts)
    now = plan(told, facts.tokens, page=page, cap=facts.cap, ratios=ratios, longest=longest)
    seen = _seen(facts, now if workload is None else None)
    levers = [_as_seen(lever, seen) for lever in _levers(facts, told, now)]
    now = as_seen(now, seen)
    return Planned(told, now, tuple(lever for lever in levers if not seen or (lever.least, lever.most) != (now, now)))


def _seen(facts: Facts, own: Plan | None) -> int | None:
    """The most that ran with a queue where the log disproves the rule of admission for its own load, whatever is asked for."""
    if own is None:
        planned = plan_for(facts, None)
        return planned.plan.seen if planned is not None else None
    return disproved(own, facts.activity)


def _as_seen(lever: LeverPlan, seen: int | None) -> LeverPlan:
    return LeverPlan(lever.change, as_seen(lever.least, seen), as_seen(lever.most, seen))


def _longest(facts: Facts, tokens: int | None = None) -> int:
    return longest_request(tokens or facts.tokens or 0, facts.context)


def _ratios(facts: Facts, conservativeness: float) -> tuple[Fraction, Fraction] | None:
    return reserve_ratios(facts.inputs.candidates(), conservativeness)


def _levers(facts: Facts, workload: Workload, now: Plan) -> Iterator[LeverPlan]:
    """Each change that does something to this workload, with its plan."""
    arguments, cap = facts.inputs.arguments, facts.cap
    page, ratios = arguments.page_size or 1, _ratios(facts, arguments.schedule_conservativeness)
    for lever in (most_fraction(facts), with_fp8(facts)):
        if lever is not None:
            least, most = (
                plan(workload, int(end), page=page, cap=cap, ratios=ratios, longest=_longest(facts, int(end)))
                for end in (lever.tokens.low, lever.tokens.high)
            )
            yield LeverPlan(lever.change, least, most)
    if now.capped_by is not None:
        free = plan(workload, now.tokens, page=page, cap=None, ratios=ratios, longest=_longest(facts))
        yield LeverPlan({"max_running_requests": None}, free, free)
    for other in (_LOWER, _HIGHER):
        changed = plan(workload, now.tokens, page=page, cap=cap, ratios=_ratios(facts, other), longest=_longest(facts))
        if arguments.schedule_conservativeness == 1 and changed.admitted_at_lowest != now.admitted_at_lowest:
            yield LeverPlan({"schedule_conservativeness": other}, changed, changed)
