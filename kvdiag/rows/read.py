"""From logs to rows, a bounded piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvdiag.frozen import field, mutable, replace
from kvdiag.lines import Record, read_records
from kvdiag.lines.chunk import Chunk, Texts, of_records
from kvdiag.lines.columns import BATCH_FAMILIES
from kvdiag.lines.scan import Scanner
from kvdiag.reading import Input, read_lines
from kvdiag.reading.blocks import blocks_of
from kvdiag.rows.clock import Clock
from kvdiag.rows.piece import ROLES, Piece
from kvdiag.starts import Assembly
from kvdiag.starts.assemble import tells_death

STRICT_ROWS = 1 << 14
_NO_START = (*BATCH_FAMILIES, "retract")
"""Families that are many and do not bear on where a server start begins."""
_TELLING = {1: ("#bootstrap-req", "#inflight-req"), 2: ("#transfer-req",)}
"""Fields that only a prefill server and only a decode server prints."""


@mutable
class Rows:
    """Chunks of one log with what spans them: texts, the clock, and at which lines another server start begins."""

    texts: Texts
    clock: Clock = field(default_factory=Clock)
    assembly: Assembly = field(default_factory=Assembly)
    begins: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=lambda: [0])

    def start(self, chunk: Chunk, records: list[Record]) -> Any:
        """The number of the server start each row belongs to; `records` are the strict ones up to the chunk's end."""
        for record in records:
            if record.family not in _NO_START:
                self.assembly.add(record)
                if self.assembly.begun() > len(self.begins):
                    self.begins.append(record.line.number)
                    self.roles.append(0)
                if record.family == "server-args-dump":
                    mode = self.assembly.newest_arguments(record).get("disaggregation_mode")
                    self.roles[-1] = ROLES.index(mode) if mode in ROLES else 0
        return np.searchsorted(np.array(self.begins, np.int64), chunk.lines, side="right")

    def role(self, chunk: Chunk, start: Any) -> Any:
        """Of each row the place of its server's role in `ROLES`: by its arguments, else by fields that only one role prints."""
        role = np.array(self.roles, np.int8)[start]
        for place, names in _TELLING.items():
            for name in names:
                column = chunk.columns.get(name)
                if column is not None:
                    role[column.there & (role == 0)] = place
        return role


def chunks(path: str, seen: Input, progress: Callable[[int], None] | None = None) -> Iterator[tuple[Chunk, list[Record], Texts]]:
    """The rows of a log by the fast path, with the strict records between them; `progress` is told the bytes read."""
    scanner = Scanner(_bears_on_nothing, seen)
    blocks = blocks_of(path, seen)
    if blocks is None:
        yield from strict_chunks(path, seen)
        return
    for _, found in scanner.scanned(blocks):
        rows = replace(found.rows, offsets=np.full(len(found.rows), -1)) if seen.recoded else found.rows
        yield rows, found.records, scanner.texts
        if progress:
            progress(seen.bytes)
    rest = scanner.finish()
    yield rest.rows, rest.records, scanner.texts


def _bears_on_nothing(record: Record) -> bool:
    """Retractions, which are no rows, and what no rule knows: lines of their shapes need only be counted."""
    if record.family is None:
        return record.prefixed and not tells_death(record.message)
    return record.family == "retract"


def strict_chunks(path: str, seen: Input) -> Iterator[tuple[Chunk, list[Record], Texts]]:
    """As `chunks`, by the strict rules alone: what the fast path is tested against (line offsets are not known here)."""
    texts = Texts()
    held: list[Record] = []
    for record in read_records(read_lines(path, seen)):
        held.append(record)
        if len(held) >= STRICT_ROWS:
            yield of_records(held, {}, texts), held, texts
            held = []
    yield of_records(held, {}, texts), held, texts


def pieces(path: str, seen: Input, *, strict: bool = False, progress: Callable[[int], None] | None = None) -> Iterator[Piece]:
    """The timeline of one log, a piece a block."""
    rows: Rows | None = None
    for chunk, records, texts in strict_chunks(path, seen) if strict else chunks(path, seen, progress):
        rows = rows or Rows(texts)
        start = rows.start(chunk, records)
        if len(chunk):
            yield Piece(path, chunk, start, rows.role(chunk, start), *rows.clock.stamps(chunk), texts)
