"""The Apple MLX backend: its own budget line, checked against itself and the fraction in force."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.budget import NO_FRACTION
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.model import Check
from kvdiag.checks.readings import own_first
from kvdiag.checks.verdict import Candidate, judge
from kvdiag.quantity import Interval
from kvdiag.starts import Number

SMALLEST_POOL = 256
_BUDGET = "min(max(mlx_limit x mem_fraction_static - mlx_used, 0), mlx_sys_available x mem_fraction_static)"
_SLOTS = "max(rest_memory // bytes_per_token, 256)"


def mlx_checks(inputs: CheckInputs, _: Arithmetic) -> Iterator[Check]:
    """``rest_memory`` and ``max_total_num_tokens`` of a pool that the MLX backend sized; nothing for other backends."""
    start = inputs.start
    for stated in start.find("rest_memory"):
        parts = [
            start.first(name, rank=stated.rank) for name in ("mlx_limit", "mlx_used", "mlx_sys_available", "bytes_per_token")
        ]
        limit, used, available, cell = parts
        if limit is None or used is None or available is None or cell is None or fits(cell).low <= 0:
            continue
        yield _budget(inputs, stated, limit, used, available)
        for capacity in start.find("max_total_num_tokens", rank=stated.rank)[:1]:
            yield _capacity(capacity, stated, cell)


def _budget(inputs: CheckInputs, stated: Number, limit: Number, used: Number, available: Number) -> Check:
    fraction = inputs.mem_fraction_static
    lines = own_first(stated.line, ())
    if fraction is None:
        lacking = (NO_FRACTION,)
        return Check("rest_memory", "unknown", stated.rank, None, fits(stated), None, _BUDGET, {}, lacking, lines)
    left = fits(limit) * fraction - fits(used)
    system = fits(available) * fraction
    result = _at_least(left, 0).minimum(system)
    terms = {
        "mlx_limit": fits(limit).to_dict(),
        "mlx_used": fits(used).to_dict(),
        "mlx_sys_available": fits(available).to_dict(),
        "mem_fraction_static": float(fraction),
        "binding": "mlx_sys_available" if system.high < left.low else "mlx_limit" if left.high < system.low else "either",
    }
    verdict, missing = judge(fits(stated), [Candidate(result, ())])
    return Check("rest_memory", verdict, stated.rank, None, fits(stated), result, _BUDGET, terms, missing, lines)


def _at_least(value: Interval, least: int) -> Interval:
    return Interval(max(value.low, Fraction(least)), max(value.high, Fraction(least)), value.unit)


def _capacity(capacity: Number, budget: Number, cell: Number) -> Check:
    slots = (fits(budget) // fits(cell)).with_unit("tokens")
    result = _at_least(slots, SMALLEST_POOL)
    terms = {"rest_memory": fits(budget).to_dict(), "bytes_per_token": fits(cell).to_dict()}
    verdict, missing = judge(fits(capacity), [Candidate(result, ())])
    lines = own_first(capacity.line, (budget.line,))
    return Check(
        "max_total_num_tokens", verdict, capacity.rank, capacity.role, fits(capacity), result, _SLOTS, terms, missing, lines
    )
