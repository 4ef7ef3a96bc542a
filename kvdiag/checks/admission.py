"""What a change of arguments does to admission: the plan for a workload, and the numbers that no such change moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvdiag.checks.budget import capacities
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.memory import context_length
from kvdiag.checks.workload import Plan, Workload, in_force, longest_request, per_replica, plan, reserve_ratios, without_sharing
from kvdiag.frozen import replace
from kvdiag.quantity import Interval
from kvdiag.sizing import ServerArguments

ADMISSION = frozenset({"schedule_conservativeness"})
"""Arguments that move no memory: they decide how many of the requests in the queue are let in."""


def with_admission(changed: ServerArguments, changes: Mapping[str, Any]) -> ServerArguments:
    """`changed` with the conservativeness in force, as a log would state it, where `changes` give one."""
    if "schedule_conservativeness" not in changes:
        return changed
    given = in_force(changed.schedule_conservativeness, changed.attention_dp_size > 1)
    return replace(changed, schedule_conservativeness=given)


def own_numbers(inputs: CheckInputs) -> dict[str, Interval]:
    """The capacity (of the smallest rank) and the request cap that the log itself states."""
    stated = min((fits(number) for number in capacities(inputs)), key=lambda value: value.low, default=None)
    slots = inputs.start.first("max_running_requests")
    found = {"max_total_num_tokens": stated, "max_running_requests": slots.interval if slots is not None else None}
    return {name: value for name, value in found.items() if value is not None}


def admission_notes(changes: Mapping[str, Any], workload: Workload | None) -> tuple[str, ...]:
    """What an argument of admission does not change, and where its effect is to be seen."""
    if not ADMISSION & set(changes):
        return ()
    where = "" if workload else "; how many it lets in: give --workload prompt=N,output=N,concurrency=N"
    return (f"--schedule-conservativeness moves no memory and no capacity, only admission{where}",)


def planned(
    inputs: CheckInputs, changed: ServerArguments, numbers: Mapping[str, Interval], workload: Workload, page: int
) -> tuple[Workload, Plan, Plan] | None:
    """The workload's share of one replica and the plans for both ends of the predicted capacity."""
    tokens, cap = numbers.get("max_total_num_tokens"), numbers.get("max_running_requests")
    if tokens is None:
        return None
    told = per_replica(workload, changed.dp_size)
    told = without_sharing(told, inputs.start.server_args.get("disable_radix_cache") is True)
    context = changed.context_length or context_length(inputs)
    ratios = reserve_ratios(inputs.candidates(), changed.schedule_conservativeness)
    caps = (None, None) if cap is None else (int(cap.low), int(cap.high))
    least, most = (
        plan(told, int(end), page=page, cap=limit, ratios=ratios, longest=longest_request(int(end), context))
        for end, limit in zip((tokens.low, tokens.high), caps, strict=True)
    )
    return told, least, most
