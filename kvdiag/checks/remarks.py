"""What to say beside a prediction: what decides it, what it assumes, and why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.budget import missing_for_budget, reservation
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.leftover import notes_on_rest
from kvdiag.quantity import Interval
from kvdiag.quantity.figures import rounded_up
from kvdiag.releases import Release, only
from kvdiag.sizing.startable import serves_none, would_not_start

REFUSED = ("the server would not start", "the server may not start")
"""How a reason for no capacity begins that is about the server, not about what the log lacks."""
_WEIGHTS = ("tp_size", "pp_size", "ep_size", "enable_dp_attention", "dp_size")


def moves_weights(inputs: CheckInputs, changes: Mapping[str, Any]) -> bool:
    """Whether the changes spread the weights over the ranks otherwise."""
    return any(name in changes and changes[name] != getattr(inputs.arguments, name, None) for name in _WEIGHTS)


def why_no_capacity(
    inputs: CheckInputs, before: Arithmetic, after: Arithmetic, rank: str, budgets: Mapping[Release, Interval]
) -> tuple[str, ...]:
    """Why no capacity is predicted: what no line states, or that the server would not start or may not."""
    if inputs.geometry is None:
        return (inputs.unsized,)
    if not budgets:
        return missing_for_budget(inputs, rank) or (before.refused or "no budget gives the capacity that the log states",)
    for release, budget in budgets.items():
        if budget.high > 0 and after.sized(release, math.floor(budget.high)) is not None:
            return (
                "the server may not start: whether the weights leave memory for the KV cache is unknown, because "
                "rest_memory_bytes may be anywhere between its two ends",
            )
    least = _least_fraction(inputs, rank)
    if least is not None and all(budget.high <= 0 for budget in budgets.values()):
        return (
            "the server would not start: the weights leave no budget for the pool; "
            f"there is one from --mem-fraction-static {least} on",
        )
    return (after.refused or "the formula names nothing that the log has",)


def _least_fraction(inputs: CheckInputs, rank: str) -> str | None:
    """The fraction from which on the log's readings leave a budget: 1 - what is free after loading / before it."""
    worst = inputs.worst(rank)
    if worst is None or worst.total is None or worst.total.low <= 0:
        return None
    least = 1 - (worst.available.low - reservation(inputs).high) / worst.total.high
    return rounded_up(least, 3) if 0 < least < Fraction(999, 1000) else None


def notes_on(
    inputs: CheckInputs, changes: Mapping[str, Any], rests: list[Interval], after: Arithmetic, numbers: Mapping[str, Interval]
) -> tuple[str, ...]:
    """What a prediction of `numbers` takes for granted, and what else the changes do; `rests` are the budgets of now."""
    notes = [*_of_another_release(inputs)]
    notes += would_not_start(inputs.geometry, after.arguments, changes) if inputs.geometry is not None else ()
    slots = numbers.get("max_running_requests")
    notes += serves_none(float(slots.high)) if slots is not None else ()
    if moves_weights(inputs, changes):
        notes.append(
            "the log does not say how much of a rank's weights is split over the ranks, so the ends assume that all of them and "
            "that none are split anew; free memory before loading is taken as it was"
        )
    if inputs.ranks_missing:
        notes.append(f"{inputs.ranks_missing} ranks are not in the log; the smallest free memory decides")
    if rests and "max_total_num_tokens" in numbers and not moves_weights(inputs, changes):
        notes += notes_on_rest(inputs, changes, reduce(Interval.hull, rests), numbers, after)
    return tuple(notes)


def _of_another_release(inputs: CheckInputs) -> tuple[str, ...]:
    """That the release asked for is not the log's: what it takes before sizing is as the log has it."""
    evidence, stated = inputs.start.release, inputs.stated
    if evidence is None or stated is None or not evidence.evidence or evidence.possible & only(stated):
        return ()
    return (
        f"the log is of SGLang {evidence.possible}; this is the arithmetic of {stated}, as asked, on what the log's release left "
        "free: what another release loads or keeps back before it sizes the pools is not in it",
    )


def note_on_cap(capped: Interval | None, uncapped: Interval | None, cap: int | None) -> tuple[str, ...]:
    """That a cap decides the capacity, where the budget alone would give more."""
    if cap is None or capped is None or uncapped is None or uncapped.low <= capped.high:
        return ()
    low, high = (f"{int(end):,}" for end in (uncapped.low, uncapped.high))
    alone = low if low == high else f"{low} to {high}"
    return (f"--max-total-tokens {cap:,} decides: the budget alone would hold {alone} tokens",)
