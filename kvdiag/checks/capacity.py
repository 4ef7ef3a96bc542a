"""The capacity: max_total_num_tokens recomputed from the budget, and what it implies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.between import rope_excuses
from kvdiag.checks.budget import budget_formula, budget_of, budget_terms, capacities, missing_for_budget
from kvdiag.checks.excuses import budget_excuses
from kvdiag.checks.implied import implied_checks
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.model import Check
from kvdiag.checks.readings import own_first
from kvdiag.checks.verdict import Candidate, Excuse, candidates, hull, judge
from kvdiag.quantity import Interval
from kvdiag.sizing import UNKNOWN_DEVICE, Sizing
from kvdiag.starts import Number

CAPACITY = "({budget}) // bytes_per_token"
LATER = "; then "
"""Between the quotient and what a start's arguments make of it: other starts of the same release may have other steps."""


def capacity_checks(inputs: CheckInputs, arithmetic: Arithmetic) -> Iterator[Check]:
    """``max_total_num_tokens`` of every rank that states one, and the budget and the fraction these imply."""
    seen: set[object] = set()
    for capacity in capacities(inputs):
        yield _max_total_num_tokens(inputs, arithmetic, capacity)
        worst = inputs.worst(capacity.rank)
        key = (capacity.value, worst)
        if key not in seen:
            seen.add(key)
            yield from implied_checks(inputs, arithmetic, capacity)


def _max_total_num_tokens(inputs: CheckInputs, arithmetic: Arithmetic, capacity: Number) -> Check:
    name, budget = "max_total_num_tokens", budget_of(inputs, capacity.rank)
    missing, formula = missing_for_budget(inputs, capacity.rank), _formula(inputs)
    terms: dict[str, Any] = {}
    found: list[Candidate] = []
    lines = own_first(capacity.line, ())
    if budget is not None:
        rest, worst = budget
        lines = own_first(capacity.line, worst.lines)
        terms = budget_terms(inputs, worst) | {"rest_memory": rest.to_dict()}
        found = candidates(
            arithmetic.groups(_middle(rest)),
            lambda release: arithmetic.capacity(release, rest, lambda s: s.max_total_num_tokens, "tokens"),
        )
    if not found:
        missing += arithmetic.why_not()
        missing = missing or (arithmetic.refused,)
        return Check(name, "unknown", capacity.rank, capacity.role, capacity.interval, None, formula, terms, missing, lines)
    sized = arithmetic.sized(found[-1].releases[-1])
    if sized is not None:
        terms["bytes_per_token"] = max([sized.bytes_per_token, *(stage["bytes_per_token"] for stage in sized.stages)])
        terms["page_size"] = sized.page_size
        if inputs.arguments.max_total_tokens is not None:
            terms["max_total_tokens"] = inputs.arguments.max_total_tokens
        formula = _formula(inputs, sized)
    excuses = budget_excuses(inputs) + _other_card(inputs, capacity, found) + _lengthened(inputs, arithmetic, capacity)
    verdict, lacking = judge(fits(capacity), found, excuses)
    return Check(name, verdict, capacity.rank, capacity.role, capacity.interval, hull(found), formula, terms, lacking, lines)


def _formula(inputs: CheckInputs, sized: Sizing | None = None) -> str:
    """How the capacity follows, with the steps that this start's arguments and model add to the quotient."""
    budget = budget_formula(inputs)
    if sized is None:
        return CAPACITY.format(budget=budget)
    later = []
    if sized.mamba_cache_per_req is not None:
        budget += " - what the state slots take"
    if len(sized.stages) > 1:
        later.append("the least of the pipeline stages")
    if inputs.arguments.max_total_tokens is not None:
        later.append("at most max_total_tokens")
    if sized.page_size > 1:
        later.append("floored to page_size")
    if inputs.start.first("swa_max_total_num_tokens") is not None:
        later.append("split into a full and a window pool")
    return CAPACITY.format(budget=budget) + (LATER + ", ".join(later) if later else "")


def _middle(budget: Interval) -> int:
    return max(0, int((budget.low + budget.high) / 2))


def _other_card(inputs: CheckInputs, capacity: Number, found: list[Candidate]) -> list[Excuse]:
    """Where the card was told from its free memory only: an excuse if the arithmetic of another fits."""
    budget = budget_of(inputs, capacity.rank)
    if inputs.device is UNKNOWN_DEVICE or budget is None or any(c.value.meets(fits(capacity)) for c in found):
        return []
    other = Arithmetic(inputs, device=UNKNOWN_DEVICE)
    release = inputs.candidates()[-1]
    value = other.capacity(release, budget[0], lambda s: s.max_total_num_tokens, "tokens")
    fitting = value is not None and value.meets(fits(capacity))
    return [Excuse("no line names the card: free memory points to one, the capacity fits another")] if fitting else []


def _lengthened(inputs: CheckInputs, arithmetic: Arithmetic, capacity: Number) -> list[Excuse]:
    """Where the capacity is what the budget gives once the RoPE cache has grown."""
    budget, release = budget_of(inputs, capacity.rank), inputs.candidates()[-1]
    if budget is None:
        return []

    def explained(shift: Interval) -> bool:
        value = arithmetic.capacity(release, budget[0] + shift, lambda s: s.max_total_num_tokens, "tokens")
        return value is not None and value.meets(fits(capacity))

    return rope_excuses(inputs, explained)
