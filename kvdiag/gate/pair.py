"""Two starts side by side, and the numbers that differ: what the reasons for a change are found in."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.gate.budget import Budget
from kvdiag.gate.model import Snapshot, Stated
from kvdiag.quantity import Interval


@frozen
class Change:
    """A number that some ranks state otherwise in the second log."""

    name: str
    role: str | None
    ranks: tuple[str, ...]
    before: Stated
    after: Stated

    @property
    def intervals(self) -> tuple[Interval, Interval] | None:
        """Both values where both are numbers of one unit."""
        a, b = self.before.value, self.after.value
        return (a, b) if isinstance(a, Interval) and isinstance(b, Interval) and a.unit == b.unit else None


@frozen
class Pair:
    """Two snapshots with their budgets and all their changes: what the reasons are found in."""

    before: Snapshot
    after: Snapshot
    a: Budget | None
    b: Budget | None
    changes: tuple[Change, ...]
    ranks: dict[str, str]

    def changed(self, name: str, rank: str | None = None) -> Change | None:
        """The change of a number of the target on a rank (any rank by default)."""
        for change in self.changes:
            if change.name == name and change.role != "draft" and (rank is None or rank in change.ranks):
                return change
        return None
