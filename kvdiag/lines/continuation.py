"""Records of several lines: the lines behind the first carry no prefix and belong to the record before them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvdiag.lines.record import Record

_DETAIL = ("oom-detail", "leak")
"""Families whose lines can stand behind the first line of another record."""
_ERROR = re.compile(r"Traceback \(|\s+File \"|(?:[A-Za-z_][\w.]*\.)?(?=[A-Z])\w*(?:Error|Exception|Interrupt)\b")


def joined(records: Iterable[Record], join: Callable[[Record, list[Record]], Record | None]) -> Iterator[Record]:
    """The records with continuation lines taken into the record they belong to; what belongs nowhere stays a record.

    `join` makes one record of a first one and those behind it, None where no template holds such a text.
    """
    held: list[Record] = []
    room = 0
    for record in records:
        if held and room and _continues(held[0], record):
            held.append(record)
            room -= 1
            continue
        if held:
            yield from _settled(held, join)
            held = []
        room = max((variant.breaks for variant in record.variants), default=0)
        if room:
            held = [record]
        else:
            yield record
    if held:
        yield from _settled(held, join)


def _continues(first: Record, record: Record) -> bool:
    if record.prefixed or record.line.stream != first.line.stream:
        return False
    return (record.family is None or record.family in _DETAIL) and not _ERROR.match(record.message)


def _settled(held: list[Record], join: Callable[[Record, list[Record]], Record | None]) -> Iterator[Record]:
    first, rest = held[0], held[1:]
    for count in range(len(rest), 0, -1):
        whole = join(first, rest[:count])
        if whole is not None:
            yield whole
            yield from rest[count:]
            return
    yield from held
