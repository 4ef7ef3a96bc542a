"""One event that every rank prints, told apart from several that are worded alike."""

from __future__ import annotations

from kvdiag.lines import Record

MOST = 4096
"""Wordings remembered: the other ranks print an event within moments of the first."""


class Repeats:
    """Knows which lines of a start tell again what another rank's line told.

    All ranks of a data-parallel replica print the same events, but an excerpt may have some lines of one rank and some of
    another. So of each wording there are as many events as the rank with the most lines of it prints; of lines whose words
    are not whole those of the replica's first rank count.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[int | None, str], dict[str, int]] = {}
        self._ranks: dict[int | None, str] = {}

    def first(self, record: Record) -> bool:
        """Whether the line, taken in the order of the log, tells an event that no line before it told."""
        replica, rank = record.rank.get("DP"), str(record.rank)
        leading = self._ranks.setdefault(replica, rank)
        if record.damaged:
            return rank == leading
        counts = self._counts.setdefault((replica, record.message), {})
        if len(self._counts) > MOST:
            del self._counts[next(iter(self._counts))]
        most = max((count for other, count in counts.items() if other != rank), default=0)
        counts[rank] = counts.get(rank, 0) + 1
        return counts[rank] > most
