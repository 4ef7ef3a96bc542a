"""Two logs side by side: what differs, and how the change of capacity splits into causes."""

from __future__ import annotations

from dataclasses import dataclass

from kvdiag.gate.budget import Budget, budget_of
from kvdiag.gate.decompose import Term, decompose, expected_change
from kvdiag.gate.model import Drift
from kvdiag.gate.observe import Observation
from kvdiag.gate.verdict import compare, weight
from kvdiag.quantity import Interval


@dataclass(frozen=True, slots=True)
class Difference:
    """The comparison of two logs; `terms` add up to `total`, which is None where a log states no capacity."""

    a: Observation
    b: Observation
    budgets: tuple[Budget | None, Budget | None]
    total: int | None
    terms: tuple[Term, ...]
    expected: Interval | None
    drifts: tuple[Drift, ...]
    noise: tuple[Drift, ...]


def difference(a: Observation, b: Observation) -> Difference:
    """What differs between the last starts of two logs, the change of capacity taken apart."""
    first, second = budget_of(a.snapshot), budget_of(b.snapshot)
    drifts = sorted(compare(a.snapshot, b.snapshot), key=weight)
    total: int | None = None
    terms: list[Term] = []
    expected: Interval | None = None
    if first is not None and second is not None:
        total = second.tokens - first.tokens
        terms = decompose(first, second, a.snapshot, b.snapshot)
        expected = expected_change(first, second)
    return Difference(
        a, b, (first, second), total, tuple(terms), expected,
        tuple(d for d in drifts if not d.noise), tuple(d for d in drifts if d.noise),
    )  # fmt: skip
