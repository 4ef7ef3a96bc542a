"""Big logs as records in bounded memory and time: all but the scheduler lines, and of these an even sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kvdiag.frozen import mutable
from kvdiag.lines.read import read_records
from kvdiag.lines.record import Record
from kvdiag.reading import Input, read_lines

if TYPE_CHECKING:
    from kvdiag.lines.chunk import Chunk, Texts
    from kvdiag.lines.scan import Scanned, Scanner
    from kvdiag.reading.blocks import Block

    TakesRows = Callable[[Chunk, Texts], None]

BIG = 1 << 20
"""Bytes from which a log is worth loading numpy for."""
WANTED = 1 << 10
"""Scheduler lines that are looked at one by one (an eighth for a fleet): so many, up to twice as many."""
_ROW_BYTES = 200
_AT_FIRST = 4
"""One line in so many is looked at where nothing tells how long the log is."""
_TURN = 0x9E3779B1
_WHOLE_TURN = 1 << 32
_PIECE = 1 << 12
_UNPACKS_TO = 8
_TELLING = ("SIGQUIT", "sigquit", "Killed", "out of memory", "OutOfMemory", "Error", "Exception", "avail_mem=", "Capturing")


@mutable
class Sample:
    """How many scheduler lines there are, and that about one in `every` was looked at: `kept` of them; see `chosen`."""

    rows: int = 0
    every: int = 1
    kept: int = 0


def chosen(numbers: Any, every: int) -> Any:
    """Whether the lines with these numbers (or that number) are among the one in `every` that is looked at.

    Turning by the golden section spreads them evenly over any stretch and over ranks that print in turn; what is chosen for
    twice the `every` is chosen for this one, too.
    """
    return (numbers * _TURN & (_WHOLE_TURN - 1)) < _WHOLE_TURN // every


def is_big(path: str) -> bool:
    """Whether the log at `path` has more than a few thousand lines; of a pipe nothing tells."""
    if path == "-":
        from kvdiag.reading.standard import standard_input

        return standard_input().holds(BIG)
    return _size(path) >= BIG or (os.path.exists(path) and not os.path.isfile(path))


def _size(path: str) -> int:
    if path == "-" or not os.path.isfile(path):
        return _AT_FIRST * WANTED * _ROW_BYTES
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

    Of its scheduler lines only the `chosen` ones come (and the first of each shape; `thin` takes an eighth), and of
    messages that no rule knows the first of each shape; `count` is told how many lines like a record do not come (-1
    takes one of them back), and `rows` gets all scheduler lines as columns.
    """
    from kvdiag.lines.scan import Scanner
    from kvdiag.reading.blocks import blocks_of

    wanted = WANTED >> 3 if thin else WANTED
    sample.every = 1 << max(0, (_size(path) // _ROW_BYTES // wanted).bit_length() - 1)
    kinds: set[tuple[object, ...]] = set()
    scanner = Scanner(_of_no_account, seen)
    blocks = blocks_of(path, seen)
    if blocks is None:
        yield from strict_records(path, seen, rows)
        return
    for block, found in scanner.scanned(blocks):
        while sample.kept + len(found.rows) // sample.every > 4 * wanted:
            sample.every, sample.kept = 2 * sample.every, sample.kept // 2
        if rows is not None:
            rows(found.rows, scanner.texts)
        for record, siblings in found.counted:
            count(record, siblings)
        sampled, dropped = _sampled(found, block, scanner, sample, kinds)
        for record in dropped:
            count(record, 1)
        for record in sampled:
            count(record, -1)
        gone = {id(record) for record in dropped}
        kept = [record for record in found.records if id(record) not in gone]
        yield from sorted([*kept, *sampled], key=lambda record: record.line.number)
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


def _sampled(
    found: Scanned, block: Block, scanner: Scanner, sample: Sample, kinds: set[tuple[object, ...]]
) -> tuple[list[Record], list[Record]]:
    """The sampled rows of a block (and its last) that were not read strictly anyway, and what must not count of those that were.

    A stretch of the log in which many shapes are new would weigh more than the rest: of its scheduler lines only the
    sampled ones count, those that are damaged, and the first of each kind.
    """
    from kvdiag.lines.columns import BATCH_FAMILIES

    rows = found.rows
    wanted = [*chosen(rows.lines, sample.every).nonzero()[0].tolist(), *range(max(0, len(rows) - 1), len(rows))]
    sample.rows += len(rows)
    sample.kept += len(wanted)
    places = {int(rows.lines[row]): int(rows.offsets[row]) for row in wanted}
    dropped = []
    for record in found.records:
        if record.family not in BATCH_FAMILIES:
            continue
        kind = (*((variant.family, variant.number) for variant in record.variants), record.rank.text, *record.values)
        if record.line.number not in places and not record.damaged and kind in kinds:
            dropped.append(record)
        kinds.add(kind)
    strict = {record.line.number for record in found.records}
    return scanner.strictly(block, [place for place in places.items() if place[0] not in strict]), dropped
