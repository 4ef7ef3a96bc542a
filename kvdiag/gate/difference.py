"""Two logs side by side: what differs, and how the change of capacity splits into causes."""

from __future__ import annotations

from collections.abc import Mapping

from kvdiag.frozen import field, frozen
from kvdiag.gate.budget import Budget, budget_of
from kvdiag.gate.code import CodeChanges, changes_between, code_of
from kvdiag.gate.decompose import Term, decompose, expected_change
from kvdiag.gate.model import Drift
from kvdiag.gate.observe import Observation
from kvdiag.gate.verdict import compare, weight
from kvdiag.quantity import Interval
from kvdiag.source import PathStep, SourceTree


@frozen
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
    code: Mapping[str, tuple[PathStep, ...]] = field(default_factory=dict)
    """Cause to the statements in which it acts, where a tree was given."""
    code_changes: CodeChanges | None = None
    """What the two releases have different there, where a tree was given and the releases differ."""


def difference(a: Observation, b: Observation, tree: SourceTree | None = None) -> Difference:
    """What differs between the last starts of two logs, the change of capacity taken apart; with `tree` where it acts."""
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
        code_of(terms, tree) if tree is not None else {},
        changes_between(a.snapshot, b.snapshot, tree) if tree is not None else None,
    )  # fmt: skip
