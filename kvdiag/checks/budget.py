"""The budget and what comes of it: rest_memory, the capacity, the fraction in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.checks.arithmetic import BELOW_A_BYTE, LARGEST_BUDGET, Arithmetic
from kvdiag.checks.defaults import default_terms
from kvdiag.checks.inputs import CheckInputs, budget_excuses, fits
from kvdiag.checks.model import Check
from kvdiag.checks.readings import Reading, once
from kvdiag.checks.verdict import Candidate, candidates, hull, judge
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.quantity import GIB, Interval
from kvdiag.sizing import UNKNOWN_DEVICE
from kvdiag.sizing.resolve import resolve
from kvdiag.starts import Number

BUDGET = "available_gpu_memory - pre_model_load_memory x (1 - mem_fraction_static)"
CAPACITY = f"({BUDGET}) // bytes_per_token, capped and floored to a page"
FRACTION = "1 - (available_gpu_memory - rest_memory) / pre_model_load_memory"


def budget_of(inputs: CheckInputs, rank: str) -> tuple[Interval, Reading] | None:
    """``rest_memory`` by the readings of the ranks that size with `rank`, and these readings; None where one is missing."""
    worst = inputs.worst(rank)
    if worst is None or worst.total is None or inputs.mem_fraction_static is None:
        return None
    rest = worst.available - worst.total * (1 - inputs.mem_fraction_static)
    return rest + _reservation_shift(inputs), worst


def _reservation_shift(inputs: CheckInputs) -> Interval:
    """What the log reserves for images is less or more than the default that sizing takes off: the difference.

    Nothing where no line states it, or where the default prints so (``mm_runtime_reservation_gb``, 0.5.18 and newer).
    """
    none = Interval.of(0, unit="bytes")
    printed = next((v for e in inputs.start.events_of("pool_budget") if (v := e.record.interval("reserved")) is not None), None)
    if printed is None or inputs.geometry is None:
        return none
    try:
        settings = resolve(inputs.geometry, inputs.arguments, inputs.candidates()[-1], UNKNOWN_DEVICE, inputs.draft)
    except (CannotSizeError, ConfigError):
        return none
    default = Interval.of(settings.reserved_gib * GIB, unit="bytes")
    return none if default.meets(printed) else default - printed


def missing_for_budget(inputs: CheckInputs, rank: str) -> tuple[str, ...]:
    """The inputs of the budget that the log does not state."""
    missing = []
    if not inputs.readings:
        missing.append("avail mem after loading (the 'Load weight end' lines)")
    elif inputs.worst(rank) is None:
        missing.append("free memory before loading (the 'Load weight begin' lines)")
    if inputs.mem_fraction_static is None:
        missing.append("mem_fraction_static (the server_args line)")
    return tuple(missing)


def capacities(inputs: CheckInputs) -> list[Number]:
    """max_total_num_tokens as the scheduler of each rank states it last, else as the pool lines do."""
    start = inputs.start
    for name in ("max_total_num_tokens", "full_max_total_num_tokens", "pool_tokens"):
        stated = {number.rank: number for number in start.find(name, role="target") if number.interval is not None}
        if stated:
            return list(stated.values())
    return []


def slots_of(inputs: CheckInputs, rank: str) -> int | None:
    """The state slots that the rank's line states, None where it has none."""
    number = inputs.start.first("max_mamba_cache_size", rank=rank, role="target") or inputs.start.first("max_mamba_cache_size")
    return number.value if number is not None and isinstance(number.value, int) else None


def budget_checks(inputs: CheckInputs, arithmetic: Arithmetic) -> Iterator[Check]:
    """``max_total_num_tokens`` of every rank that states one, and the budget and the fraction these imply."""
    seen: set[object] = set()
    for capacity in capacities(inputs):
        yield _max_total_num_tokens(inputs, arithmetic, capacity)
        worst = inputs.worst(capacity.rank)
        key = (capacity.value, worst)
        if key not in seen:
            seen.add(key)
            yield from _implied(inputs, arithmetic, capacity)


def _max_total_num_tokens(inputs: CheckInputs, arithmetic: Arithmetic, capacity: Number) -> Check:
    name, budget = "max_total_num_tokens", budget_of(inputs, capacity.rank)
    missing = missing_for_budget(inputs, capacity.rank)
    terms: dict[str, Any] = {}
    found: list[Candidate] = []
    lines: tuple[int, ...] = (capacity.line,)
    if budget is not None:
        rest, worst = budget
        lines = (*worst.lines, capacity.line)
        terms = _terms(inputs, worst) | {"rest_memory": rest.to_dict()}
        found = candidates(
            arithmetic.groups(_middle(rest)),
            lambda release: arithmetic.capacity(release, rest, lambda s: s.max_total_num_tokens, "tokens"),
        )
    if not found:
        missing += arithmetic.why_not()
        missing = missing or (arithmetic.refused,)
        return Check(
            name, "unknown", capacity.rank, capacity.role, capacity.interval, None, CAPACITY, terms, missing, once(lines)
        )
    sized = arithmetic.sized(found[-1].releases[-1])
    if sized is not None:
        terms["bytes_per_token"] = sized.bytes_per_token
    verdict, lacking = judge(fits(capacity), found, budget_excuses(inputs))
    return Check(
        name, verdict, capacity.rank, capacity.role, capacity.interval, hull(found), CAPACITY, terms, lacking, once(lines)
    )


def _middle(budget: Interval) -> int:
    return max(0, int((budget.low + budget.high) / 2))


def _terms(inputs: CheckInputs, worst: Reading) -> dict[str, Any]:
    assert worst.total is not None
    assert inputs.mem_fraction_static is not None
    return {
        "available_gpu_memory": worst.available.to_dict(),
        "pre_model_load_memory": worst.total.to_dict(),
        "mem_fraction_static": float(inputs.mem_fraction_static),
    }


def _implied(inputs: CheckInputs, arithmetic: Arithmetic, capacity: Number) -> Iterator[Check]:
    """The log seldom prints rest_memory: it is implied by a capacity that no cap lowered, and so is the fraction."""
    if inputs.geometry is None or not isinstance(capacity.value, int) or inputs.start.first("rest_memory") is not None:
        return
    tokens, slots = capacity.value, slots_of(inputs, capacity.rank)
    budget = budget_of(inputs, capacity.rank)
    lines: tuple[int, ...] = (capacity.line,)
    if budget is None:
        missing = missing_for_budget(inputs, capacity.rank)
        yield Check("rest_memory", "unknown", capacity.rank, None, None, None, BUDGET, {}, missing, lines)
        return
    rest, worst = budget
    terms, lines = _terms(inputs, worst), once((*worst.lines, capacity.line))
    implied = candidates(arithmetic.groups(_middle(rest)), lambda release: arithmetic.budgets(release, tokens, slots))
    if not implied:
        return
    if hull(implied).high >= LARGEST_BUDGET:
        why = f"--max-total-tokens {inputs.arguments.max_total_tokens} lowered the capacity, so it does not tell the budget"
        yield Check("rest_memory", "unknown", capacity.rank, None, None, rest, BUDGET, terms, (why,), lines)
        return
    implied = [Candidate(candidate.value + BELOW_A_BYTE, candidate.releases) for candidate in implied]
    excuses = budget_excuses(inputs)
    verdict, missing = judge(rest, implied, excuses)
    yield Check("rest_memory", verdict, capacity.rank, None, hull(implied), rest, BUDGET, terms, missing, lines)
    if worst.total is not None and worst.total.low > 0:
        yield _fraction(inputs, capacity, worst, implied)


def _fraction(inputs: CheckInputs, capacity: Number, worst: Reading, implied: list[Candidate]) -> Check:
    """The fraction in force, as the capacity implies it, against the one the log states."""
    assert worst.total is not None
    assert inputs.mem_fraction_static is not None
    total = worst.total
    found = [
        Candidate(Interval.of(1, unit="fraction") - ((worst.available - c.value) / total).with_unit("fraction"), c.releases)
        for c in implied
    ]
    told = Interval.of(inputs.mem_fraction_static, unit="fraction")
    verdict, missing = judge(told, found, budget_excuses(inputs))
    lines, terms = once((*worst.lines, capacity.line)), _terms(inputs, worst) | default_terms(inputs, worst)
    return Check("mem_fraction_static", verdict, capacity.rank, None, told, hull(found), FRACTION, terms, missing, lines)
