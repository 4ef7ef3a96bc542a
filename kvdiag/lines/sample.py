"""Big logs as records in bounded memory and time: all but the scheduler lines, and of these an even sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import mutable
from kvdiag.lines.record import Record, read_records
from kvdiag.reading import Input, read_lines

if TYPE_CHECKING:
    from kvdiag.lines.chunk import Chunk, Texts
    from kvdiag.lines.scan import Scanned, Scanner
    from kvdiag.reading.blocks import Block

    TakesRows = Callable[[Chunk, Texts], None]

BIG = 1 << 20
"""Bytes from which a log is worth loading numpy for."""
WANTED = 1 << 10
"""Scheduler lines that are looked at one by one (an eighth for a fleet), up to twice as many."""
_ROW_BYTES = 160
_PIECE = 1 << 12
_UNPACKS_TO = 8
_TELLING = ("SIGQUIT", "sigquit", "Killed", "out of memory", "OutOfMemory", "Error", "Exception", "avail_mem=", "Capturing")


@mutable
class Sample:
    """How many scheduler lines there are, and that every `every`-th of them was looked at."""

    rows: int = 0
    every: int = 1


def is_big(path: str) -> bool:
    """Whether the log at `path` is a file of more than a few thousand lines."""
    return _size(path) >= BIG


def _size(path: str) -> int:
    if path == "-" or not os.path.isfile(path):
        return 0
    packed = path.endswith((".gz", ".bz2", ".xz", ".zst"))
    return os.path.getsize(path) * (_UNPACKS_TO if packed else 1)


def sampled_records(
    path: str,
    seen: Input,
    sample: Sample,
    count: Callable[[Record, int], None],
    rows: TakesRows | None = None,
    *,
    thin: bool = False,
) -> Iterator[Record]:
    """The records of the log at `path` in the order of their lines.

    Of its scheduler lines only every so many-th comes (and the first of each shape; `thin` takes an eighth), and of
    messages that no rule knows the first of each shape; `count` is told how many lines like a record do not come (-1
    takes one of them back), and `rows` gets all scheduler lines as columns.
    """
    from kvdiag.lines.scan import Scanner
    from kvdiag.reading.blocks import blocks_of

    wanted = WANTED >> 3 if thin else WANTED
    sample.every = 1 << max(0, (_size(path) // _ROW_BYTES // wanted).bit_length() - 1)
    scanner = Scanner(_of_no_account, seen)
    blocks = blocks_of(path, seen)
    if blocks is None:
        yield from strict_records(path, seen, rows)
        return
    for block, found in scanner.scanned(blocks):
        if rows is not None:
            rows(found.rows, scanner.texts)
        for record, siblings in found.counted:
            count(record, siblings)
        sampled = _sampled(found, block, scanner, sample)
        for record in sampled:
            count(record, -1)
        yield from sorted([*found.records, *sampled], key=lambda record: record.line.number)
    rest = scanner.finish()
    if rows is not None:
        rows(rest.rows, scanner.texts)
    yield from rest.records


def strict_records(path: str, seen: Input, rows: TakesRows | None) -> Iterator[Record]:
    """All records by the strict rules, in pieces of which `rows` gets the columns."""
    from itertools import islice

    from kvdiag.lines.chunk import Texts, of_records

    texts = Texts()
    records = read_records(read_lines(path, seen))
    while piece := list(islice(records, _PIECE)):
        if rows is not None:
            rows(of_records(piece, {}, texts), texts)
        yield from piece


def _of_no_account(record: Record) -> bool:
    return record.family is None and record.prefixed and not any(word in record.message for word in _TELLING)


def _sampled(found: Scanned, block: Block, scanner: Scanner, sample: Sample) -> list[Record]:
    """The sampled rows of a block, and its last one, less those that were read strictly anyway."""
    rows = found.rows
    strict = {record.line.number for record in found.records}
    wanted = {*range(-sample.rows % sample.every, len(rows), sample.every), *range(max(0, len(rows) - 1), len(rows))}
    sample.rows += len(rows)
    places = [(int(rows.lines[row]), int(rows.offsets[row])) for row in sorted(wanted)]
    return scanner.strictly(block, [place for place in places if place[0] not in strict])
