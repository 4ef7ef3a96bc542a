"""What a capacity says of the budget and the fraction it was made of."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.checks.arithmetic import BELOW_A_BYTE, LARGEST_BUDGET, Arithmetic
from kvdiag.checks.between import rope_excuses
from kvdiag.checks.budget import NO_FRACTION, budget_formula, budget_of, budget_terms, missing_for_budget, reservation, slots_of
from kvdiag.checks.defaults import default_terms
from kvdiag.checks.excuses import budget_excuses
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.model import Check
from kvdiag.checks.readings import Reading, own_first
from kvdiag.checks.verdict import Candidate, candidates, hull, judge, turned
from kvdiag.quantity import Interval
from kvdiag.starts import Number

FRACTION = "1 - (available_gpu_memory - rest_memory) / pre_model_load_memory"


def implied_checks(inputs: CheckInputs, arithmetic: Arithmetic, capacity: Number) -> Iterator[Check]:
    """``rest_memory`` and ``mem_fraction_static``: the log seldom prints the one and may not state the other.

    A capacity that no cap lowered gives both; where the log has no reading or fraction to hold them against, the verdict
    is ``unknown`` and the implied value is still told.
    """
    if inputs.geometry is None or not isinstance(capacity.value, int) or inputs.start.first("rest_memory") is not None:
        return
    found = _implied(inputs, arithmetic, capacity, capacity.value)
    if not found:
        if slots_of(inputs, capacity.rank) is None and any(arithmetic.keeps_state(r) for r in inputs.candidates()):
            why = "no line states max_mamba_cache_size, the state slots, which share the budget"
            formula = budget_formula(inputs)
            yield Check("rest_memory", "unknown", capacity.rank, None, None, None, formula, {}, (why,), (capacity.line,))
        return
    if hull(found).high >= LARGEST_BUDGET or inputs.unseen("max_total_tokens"):
        yield _capped(inputs, capacity)
        return
    found = [Candidate(candidate.value + BELOW_A_BYTE, candidate.releases) for candidate in found]
    yield _rest_memory(inputs, capacity, found)
    worst = inputs.worst(capacity.rank)
    if worst is not None and worst.total is not None and worst.total.low > 0:
        yield _fraction(inputs, capacity, worst, found)


def _implied(inputs: CheckInputs, arithmetic: Arithmetic, capacity: Number, tokens: int) -> list[Candidate]:
    budget, slots = budget_of(inputs, capacity.rank), slots_of(inputs, capacity.rank)
    near = int(budget[0].high) if budget is not None else _near(arithmetic, tokens)
    return candidates(arithmetic.groups(max(0, near)), lambda release: arithmetic.budgets(release, tokens, slots))


def _near(arithmetic: Arithmetic, tokens: int) -> int:
    cells = candidates(arithmetic.cells(), arithmetic.cell)
    return int(hull(cells).high * tokens) if cells else 0


def _capped(inputs: CheckInputs, capacity: Number) -> Check:
    budget = budget_of(inputs, capacity.rank)
    rest, lines = (budget[0], budget[1].lines) if budget is not None else (None, ())
    cap = inputs.arguments.max_total_tokens
    why = f"--max-total-tokens {cap} lowered the capacity, so it does not tell the budget"
    if cap is None:
        why = "--max-total-tokens may cap the pool (the log has no whole server_args line)"
    terms = budget_terms(inputs, budget[1]) if budget is not None else {}
    formula, lines = budget_formula(inputs), own_first(capacity.line, lines)
    return Check("rest_memory", "unknown", capacity.rank, None, None, rest, formula, terms, (why,), lines)


def _rest_memory(inputs: CheckInputs, capacity: Number, found: list[Candidate]) -> Check:
    budget, formula = budget_of(inputs, capacity.rank), budget_formula(inputs)
    if budget is None:
        missing = missing_for_budget(inputs, capacity.rank)
        return Check(
            "rest_memory", "unknown", capacity.rank, None, hull(found), None, formula, {}, missing, (capacity.line,), implied=True
        )
    rest, worst = budget
    excuses = rope_excuses(inputs, lambda shift: (rest + shift).meets(hull(found)))
    verdict, missing = judge(rest, found, turned(budget_excuses(inputs) + excuses))
    lines, terms = own_first(capacity.line, worst.lines), budget_terms(inputs, worst)
    return Check("rest_memory", verdict, capacity.rank, None, hull(found), rest, formula, terms, missing, lines, implied=True)


def _fraction(inputs: CheckInputs, capacity: Number, worst: Reading, budgets: list[Candidate]) -> Check:
    """The fraction in force, as the capacity implies it, against the one the log states."""
    assert worst.total is not None
    total, one, kept = worst.total, Interval.of(1, unit="fraction"), reservation(inputs)

    def given(shift: Interval) -> list[Candidate]:
        free = worst.available + shift - kept
        return [Candidate(one - ((free - budget.value) / total).with_unit("fraction"), budget.releases) for budget in budgets]

    found = given(Interval.of(0, unit="bytes"))
    formula = FRACTION.replace("rest_memory", "rest_memory - mm_runtime_reservation") if kept.high else FRACTION
    others, terms = (*worst.lines, capacity.line), budget_terms(inputs, worst) | default_terms(inputs, worst)
    lines = own_first(inputs.fraction_line or capacity.line, others)
    name, rank = "mem_fraction_static", capacity.rank
    if inputs.mem_fraction_static is None:
        missing = (NO_FRACTION,)
        return Check(name, "unknown", rank, None, None, hull(found), formula, terms, missing, lines)
    told = Interval.of(inputs.mem_fraction_static, unit="fraction")
    excuses = rope_excuses(inputs, lambda shift: told.meets(hull(given(shift))))
    verdict, lacking = judge(told, found, turned(budget_excuses(inputs) + excuses))
    return Check(name, verdict, rank, None, told, hull(found), formula, terms, lacking, lines)
