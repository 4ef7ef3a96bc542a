"""Findings as they arise: what is known of the running server is judged again when something has come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvdiag.lines import Record
from kvdiag.lines.columns import BATCH_FAMILIES

if TYPE_CHECKING:
    from kvdiag.checks import Finding

MOST_LINES = 4000
MOST_BATCHES = 1000
"""Lines that are kept of a server: of its start-up and its events the first, of its scheduler lines the last."""
PAUSE = 2.0
_SHARE = 10
"""Seconds between two judgements, and how many times longer a pause is than the judgement before took."""


class Arising:
    """Keeps what tells of the server that started last, and says which findings were not there before."""

    def __init__(self) -> None:
        self._lines: list[Record] = []
        self._batches: deque[Record] = deque(maxlen=MOST_BATCHES)
        self._told: set[str] = set()
        self._next = 0.0
        self._new = False

    def add(self, records: Iterable[Record]) -> None:
        """Takes the next records."""
        for record in records:
            if record.family == "server-args-dump" and self._batches:
                self._lines.clear()
                self._batches.clear()
                self._told.clear()
            if record.family in BATCH_FAMILIES:
                self._batches.append(record)
            elif record.family is not None and len(self._lines) < MOST_LINES:
                self._lines.append(record)
            self._new = True

    def found(self, *, now: bool = False) -> Iterator[Finding]:
        """The findings that have arisen since the last call, where it is time to look (or `now`)."""
        if not self._new or (time.monotonic() < self._next and not now):
            return
        begin = time.monotonic()
        findings = self._judged()
        self._new = False
        self._next = time.monotonic() + max(PAUSE, _SHARE * (time.monotonic() - begin))
        for finding in findings:
            if finding.code not in self._told:
                self._told.add(finding.code)
                yield finding

    def _judged(self) -> tuple[Finding, ...] | list[Finding]:
        from kvdiag.checks import diagnose
        from kvdiag.starts.assemble import assemble

        records = sorted([*self._lines, *self._batches], key=lambda record: record.line.number)
        starts = assemble(records)
        return diagnose(starts[-1], siblings=starts).findings if starts else []
