"""The scheduler lines of a start: all of them, or an even sample where there are more than a report looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvdiag.lines import Record
from kvdiag.lines.sample import chosen

MOST = 1 << 14
"""Lines that are kept; when there are more, every second one is dropped."""


class Batches:
    """Records of batch lines in the order of the log, every `every`-th of the `seen` ones that were added."""

    def __init__(self) -> None:
        self.seen = 0
        self.every = 1
        self._kept: list[Record] = []

    def append(self, record: Record) -> None:
        """Takes the next line."""
        if self.seen % self.every == 0:
            self._kept.append(record)
        self.seen += 1
        if len(self._kept) > MOST:
            self._kept = self._kept[::2]
            self.every *= 2

    def replace(self, make: Callable[[Record], Record]) -> None:
        """Puts what `make` gives in the place of each line."""
        self._kept = [make(record) for record in self._kept]

    def thin(self, every: int) -> None:
        """Keeps of the lines that were chosen from all those that one in `every` would have, too."""
        self._kept = [record for record in self._kept if chosen(record.line.number, every)]

    def __iadd__(self, other: Batches) -> Batches:
        self.seen += other.seen
        self.every = max(self.every, other.every)
        self._kept += other._kept
        return self

    def __iter__(self) -> Iterator[Record]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
