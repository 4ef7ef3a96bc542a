"""DeepSeek-V4's pools: SGLang prints the bytes of a token, the budget and what is fixed, so the capacity follows from a line."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.model import Check
from kvdiag.checks.verdict import Candidate, Excuse, judge
from kvdiag.quantity import Interval
from kvdiag.starts import Number

_PAGES = (128, 256)
_FIXED = ("c128_state_fixed", "c2_state_fixed", "c4_state_fixed", "swa_fixed", "swa_ring_fixed")
_FORMULA = "(available_bytes - fixed bytes) // bytes_per_full_token, floored to a page"


def compressed_checks(inputs: CheckInputs, _: Arithmetic) -> Iterator[Check]:
    """``max_total_num_tokens`` of every ``DSV4 memory calculation`` line."""
    for cell in inputs.start.numbers:
        if cell.name != "bytes_per_full_token":
            continue
        line = {n.name: n for n in inputs.start.numbers if (n.line, n.path, n.rank) == (cell.line, cell.path, cell.rank)}
        budget, capacity = line.get("available_bytes"), line.get("full_max_total_num_tokens")
        if budget is not None and capacity is not None and fits(cell).low > 0:
            yield _check(inputs, cell, budget, capacity, [line[name] for name in _FIXED if name in line])


def _check(inputs: CheckInputs, cell: Number, budget: Number, capacity: Number, fixed: list[Number]) -> Check:
    rest = fits(budget)
    for part in fixed:
        rest = rest - fits(part)
    profiled = (rest / fits(cell)).with_unit("tokens")
    page = inputs.arguments.page_size
    pages = (page,) if page in _PAGES else _PAGES
    paged = [profiled.floor_to(page) for page in pages]
    result = paged[0]
    for other in paged[1:]:
        result = result.hull(other)
    terms = {number.name: fits(number).to_dict() for number in (budget, cell, *fixed)}
    lacking = inputs.unseen("max_total_tokens")
    excuses = [Excuse("--max-total-tokens may cap the pool, and no line states it", raises=False)] if lacking else []
    verdict, missing = judge(fits(capacity), [Candidate(_positive(result), ())], excuses)
    return Check(
        "max_total_num_tokens", verdict, capacity.rank, "target", fits(capacity), _positive(result), _FORMULA, terms, missing,
        (capacity.line,),
    )  # fmt: skip


def _positive(value: Interval) -> Interval:
    return Interval(max(value.low, value.low * 0), max(value.high, value.high * 0), value.unit)
