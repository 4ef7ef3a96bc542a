"""Lines cut within their last number: whole to the eye, and denied by the releases that print all other lines."""

from __future__ import annotations

from kvdiag.lines import Record
from kvdiag.releases import ReleaseSet, parse_ranges
from kvdiag.starts.batches import Batches
from kvdiag.starts.evidence import Evidence
from kvdiag.starts.model import Event, Start
from kvdiag.starts.tables import NUMBERS

Key = tuple[str, ...]


class OpenEnds:
    """The lines of a start that end in a number with nothing behind it, by the variants they fit.

    Such a number is whole where a release that prints the other lines ends its line there. Where none does, but one of them
    goes on right there, the line was cut, and how many digits are missing nobody knows.
    """

    def __init__(self) -> None:
        self._lines: dict[Key, list[tuple[Record, int]]] = {}
        self._closed: set[Key] = set()

    def add(self, key: Key, record: Record, path: int, *, keep: bool) -> None:
        """Takes a line; with `keep` it is not to be found again in the start's batches."""
        if not record.open_end:
            self._closed.add(key)
        elif keep or key not in self._lines:
            self._lines.setdefault(key, []).append((record, path))

    def absorb(self, other: OpenEnds) -> None:
        """Adds the lines of another part of the same start."""
        self._closed |= other._closed
        for key, lines in other._lines.items():
            self._lines.setdefault(key, []).extend(lines)

    def settle(self, start: Start, evidence: Evidence) -> None:
        """Takes the numbers that were cut out of the start, and what their lines seemed to tell of the release."""
        candidates = {key for key, lines in self._lines.items() if key not in self._closed and lines[0][0].variants}
        for key, possible in evidence.denied(candidates).items():
            lines = self._lines[key]
            if not _goes_on(lines[0][0], possible):
                continue
            evidence.forget(key)
            for record, path in lines:
                _withdraw(start, record, path)
            _replace(start.batches, key, evidence)
            start.events = [
                Event(event.kind, event.record.without_open_end(), event.path) if evidence.key(event.record) == key else event
                for event in start.events
            ]
            evidence.line(lines[0][0].without_open_end())


def _goes_on(record: Record, possible: ReleaseSet) -> bool:
    """Whether one of the releases prints more behind the record's last number."""
    longer = record.without_open_end().variants
    return any(parse_ranges(variant.releases) & possible for variant in longer)


def _replace(batches: Batches, key: Key, evidence: Evidence) -> None:
    batches.replace(lambda record: record.without_open_end() if evidence.key(record) == key else record)


def _withdraw(start: Start, record: Record, path: int) -> None:
    lost = record.values.keys() - record.without_open_end().values.keys()
    names = {number for field, number in NUMBERS.get(record.family or "", {}).items() if field in lost}
    start.numbers = [
        number for number in start.numbers if number.name not in names or (number.line, number.path) != (record.line.number, path)
    ]
