"""What a pool does with a workload, in sentences."""

from __future__ import annotations

from kvdiag.checks.workload import Plan, Workload


def sentences(workload: Workload, plan: Plan) -> str:
    """The plan of one replica in words; an estimated workload is said to be one."""
    shared = f", {workload.shared_prefix:,} of them shared" if workload.shared_prefix else ""
    origin = f" (estimated from {workload.estimated}, not given)" if workload.estimated else ""
    parts = [
        f"Conversations of {workload.prompt:,} prompt tokens{shared} and {workload.output:,} answer tokens{origin}:",
        f"the pool of {plan.tokens:,} tokens holds {plan.holds:,} of them at full length.",
    ]
    if plan.admitted_at_opening is None:
        parts.append("How many are admitted is unknown, because the releases in question do not share one admission rule.")
    else:
        parts.append(
            f"The scheduler lets {plan.admitted_at_opening:,} run at its opening reserve, "
            f"{plan.admitted_at_lowest:,} at its lowest."
        )
    if plan.capped_by is not None:
        parts.append(f"max_running_requests {plan.capped_by:,} is reached first.")
    if plan.waits:
        parts.append(f"Of {workload.concurrency:,} at once {plan.waits:,} wait.")
    if plan.retracts_after is not None:
        written = max(0, plan.retracts_after)
        parts.append(f"With that many running the pool is full, and retraction starts, once each has written {written:,} tokens.")
    return " ".join(parts)
