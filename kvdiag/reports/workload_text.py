"""What a pool does with a workload, in sentences."""

from __future__ import annotations

from kvdiag.checks.planning import LeverPlan, Planned
from kvdiag.checks.workload import Plan, Workload


def sentences(workload: Workload, plan: Plan) -> str:
    """The plan of one replica in words; an estimated workload is said to be one."""
    kind = "cached on average" if workload.estimated else "shared by all"
    shared = f" ({workload.shared_prefix:,} of them {kind})" if workload.shared_prefix else ""
    who = f"Conversations of {workload.prompt:,} prompt tokens{shared} and {workload.output:,} answer tokens"
    if plan.answer == 0:
        why = "the prompt is longer than the longest it takes (the smaller of context and pool, less six tokens)"
        return f"{who}{_apart(workload, plan)}: the server refuses them, because {why}."
    parts = [
        f"{who}{_apart(workload, plan)}:",
        f"the pool of {plan.tokens:,} tokens holds {plan.holds:,} of them at full length.",
    ]
    if plan.seen is not None:
        own = "" if workload.estimated else " (of its own load)"
        parts.append(
            f"In this log at most {plan.seen:,} ran while others waited{own}, with the pool below full: fewer than the known "
            "rule of admission would let run, so that what it gives is left out."
        )
    elif plan.admitted_at_opening is None:
        parts.append("How many are admitted is unknown, because the releases in question do not share one admission rule.")
    else:
        parts.append(
            f"The scheduler lets {plan.admitted_at_opening:,} run at its opening reserve, "
            f"{plan.admitted_at_lowest:,} at its lowest."
        )
    if plan.capped_by is not None:
        parts.append(f"max_running_requests {plan.capped_by:,} is reached first.")
    if plan.waits:
        parts.append(f"Of {_share(workload)} at once {plan.waits:,} wait.")
    elif plan.waits == 0:
        parts.append(f"All {_share(workload)} run at once.")
    if plan.retracts_after is not None:
        written = max(0, plan.retracts_after)
        parts.append(
            f"With {plan.running:,} running the pool is full, and retraction starts, once each has written {written:,} tokens."
        )
    return " ".join(parts)


def _share(workload: Workload) -> str:
    """How many come at once, as a replica's share of all where there are several."""
    told = f"{workload.concurrency:,}"
    return f"the {told} that come to this replica" if workload.replicas > 1 else told


def _apart(workload: Workload, plan: Plan) -> str:
    """Where the workload is from, and what is otherwise than asked for: a shorter answer, no sharing, one replica of several."""
    told = [f"estimated from {workload.estimated}, not given"] if workload.estimated else []
    if 0 < plan.answer < workload.output:
        told.append(f"answers are cut at {plan.answer:,} tokens, because prompt and answer together must fit context and pool")
    if workload.unshared:
        told.append(f"the prefix cache is off, so that the {workload.unshared:,} common tokens are held by each of them")
    if workload.replicas > 1:
        told.append(f"for one of {workload.replicas} data-parallel replicas")
    return f" ({'; '.join(told)})" if told else ""


def users(planned: Planned | None, unplanned: str = "") -> list[str]:
    """What the pool does with a workload, and with one that was given, what each lever does to that; or why that is open."""
    if planned is None:
        return [unplanned] if unplanned else []
    levers = () if planned.workload.estimated else [each for each in planned.levers if each.most.answer]
    return [sentences(planned.workload, planned.plan), *(lever_sentence(lever, planned.plan) for lever in levers)]


def lever_sentence(lever: LeverPlan, now: Plan) -> str:
    """What one change does to the workload, beside what holds now: only what it changes."""
    changes = ", ".join(_spelled(name, value) for name, value in lever.change.items())
    least, most = lever.least, lever.most
    figures = (
        (least.holds, most.holds, now.holds, "held at full length"),
        (least.admitted_at_opening, most.admitted_at_opening, now.admitted_at_opening, "run at the opening reserve"),
        (least.admitted_at_lowest, most.admitted_at_lowest, now.admitted_at_lowest, "run at the lowest"),
        (most.waits, least.waits, now.waits, "wait"),
    )
    parts = [
        f"{_between(low, high)} {words} instead of {was:,}"
        for low, high, was, words in figures
        if was is not None and (low, high) != (was, was)
    ]
    if least.retracts_after == now.retracts_after:
        pass
    elif least.retracts_after is not None:
        parts.append(f"retraction from {max(0, least.retracts_after):,} written tokens each")
    elif now.retracts_after is not None:
        parts.append("no retraction")
    return f"{changes}: {', '.join(parts) or 'nothing changes'}."


def _spelled(name: str, value: object) -> str:
    flag = "--" + name.replace("_", "-")
    return f"without {flag}" if value is None else f"{flag} {value}"


def _between(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "unknown"
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
