"""What is noticed of an input while its records pass: what no rule knows, the last exception, other engines' lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kvdiag.lines.neighbours import neighbour_of
from kvdiag.lines.record import Record
from kvdiag.lines.sample import Sample
from kvdiag.reading import Input

if TYPE_CHECKING:
    from kvdiag.lines.unknown import UnknownLines

_EXCEPTION = re.compile(r"(?:[a-z_][\w]*\.)*(?=[A-Z])\w*(?:Error|Exception|Interrupt)(?::|$)")
_FRAMES = ("/sglang/srt/", "/sglang/launch_server.py", "/sglang/cli/")
"""What a traceback's frames in SGLang have in them."""
_WORKER_FRAMES = ("/sglang/srt/managers/scheduler", "/sglang/srt/managers/tp_worker", "/sglang/srt/model_executor/")
"""Files of which nothing runs before a server has printed its arguments."""


class Passing:
    """Looks at the records of one input as they pass: counts, what no rule knows, the last exception, neighbours."""

    def __init__(self, seen: Input, tap: Callable[[Record], None] | None = None) -> None:
        self.seen = seen
        self.tap = tap
        self.unknown: UnknownLines | None = None
        self.last_exception = ""
        self.neighbours: set[str] = set()
        self.in_sglang = False
        self.in_worker = False
        self.sample = Sample()

    def count(self, record: Record, siblings: int) -> None:
        """Takes `siblings` records that are like `record` and do not come themselves."""
        if record.family:
            self.seen.matched += siblings
        elif not record.message.startswith(("INFO:", "WARNING:")):
            self._unknown(record, siblings)

    def through(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records, each looked at before it is handed on."""
        for record in records:
            if record.family and not record.damaged:
                self.seen.matched += 1
            elif (record.prefixed or record.damaged) and not record.message.startswith(("INFO:", "WARNING:")):
                self._unknown(record)
                self._neighbour(record.message)
            elif not record.prefixed:
                self._loose(record.message)
            elif not self.neighbours:
                self._neighbour(record.message)
            if self.tap is not None:
                self.tap(record)
            yield record

    def _unknown(self, record: Record, siblings: int = 1) -> None:
        if self.unknown is None:
            from kvdiag.lines.unknown import UnknownLines

            self.unknown = UnknownLines()
        self.unknown.add(record, siblings)

    def _loose(self, message: str) -> None:
        if _EXCEPTION.match(message):
            self.last_exception = message
        if 'File "' in message and any(mark in message for mark in _FRAMES):
            self.in_sglang = True
            self.in_worker |= any(mark in message for mark in _WORKER_FRAMES)
        self._neighbour(message)

    def _neighbour(self, message: str) -> None:
        name = neighbour_of(message)
        if name:
            self.neighbours.add(name)
