"""Records broken over several lines: by a terminal's width, by a mail program, or by another rank writing in between."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import replace
from kvdiag.lines.formats import formats
from kvdiag.lines.labels import FAMILIES, family_of_head
from kvdiag.lines.literal import parse_arguments
from kvdiag.lines.matcher import FOREWORD

if TYPE_CHECKING:
    from kvdiag.lines.record import Record

Remake = Callable[["Record", str], "Record | None"]
"""Makes the record again with another message, None where no rule knows that message whole."""

_MOST_LINES = 400
_SOFT_LINES = 4
_PATIENCE = 16
"""Records within which the rest of a torn one comes."""


def mended(records: Iterable[Record], remake: Remake, recover: Callable[[Record], Record]) -> Iterator[Record]:
    """The records with those that were broken joined where a rule knows the whole; `recover` reads what stays broken."""
    return _untorn(_rejoined(records, remake, recover), remake, recover)


def _rejoined(records: Iterable[Record], remake: Remake, recover: Callable[[Record], Record]) -> Iterator[Record]:
    held: list[Record] = []
    behind = 0
    for record in records:
        if held:
            if _goes_on(held, record):
                held.append(record)
                continue
            yield from _settled(held, remake, recover)
            held = []
        if _broken(record) and not (record.family in FAMILIES and behind == record.line.number and not record.line.full):
            held = [record]
        else:
            yield record
        behind = record.line.number if record.torn else 0
    if held:
        yield from _settled(held, remake, recover)


def _broken(record: Record) -> bool:
    """Whether the rest of the record may stand in the next line."""
    if record.torn:
        return False
    if record.line.full:
        return True
    if record.family == "server-args-dump":
        return not _whole(record)
    if record.family in FAMILIES:
        return record.message[-1:].isdigit()
    return record.family is None and (_begins_a_line(record) or _breaks_off(record))


def _breaks_off(record: Record) -> bool:
    """Whether a known line may end here at a comma: of those whose own words begin with a value, no beginning tells more."""
    return record.message.rstrip().endswith(",") and any(formats().starting(record.message))


def _seam(first: Record, second: Record) -> bool:
    """Whether a number may go on from one piece to the next: digits there, and then nothing or another field."""
    return first.message[-1:].isdigit() and re.match(r"[0-9]{1,12}(?:$|, [#a-z])", second.line.text) is not None


def _begins_a_line(record: Record) -> bool:
    name = FOREWORD.match(record.message)
    return bool(family_of_head(record.message[name.end() :] if name else record.message))


def _goes_on(held: list[Record], record: Record) -> bool:
    last = held[-1]
    if record.prefixed or record.line.stream != last.line.stream or record.line.number > last.line.number + 1:
        return False
    if held[0].family in FAMILIES and len(held) == 1 and not last.line.full and not _seam(last, record):
        return False
    if held[0].line.full:
        return last.line.full and len(held) < _MOST_LINES
    return record.family is None and not _begins_a_line(record) and len(held) < _SOFT_LINES


def _settled(held: list[Record], remake: Remake, recover: Callable[[Record], Record]) -> Iterator[Record]:
    """The held lines as one record and what follows it, or each by itself."""
    first = held[0]
    for count in range(2, len(held) + 1):
        pieces = held[:count]
        if count < len(held) and (pieces[-1].line.full or _seam(pieces[-1], held[count])):
            continue
        whole = _join(pieces, remake)
        if whole is not None:
            yield whole
            yield from _rejoined(held[count:], remake, recover)
            return
    if len(held) > 1 and first.family in FAMILIES and _seam(*held[:2]):
        yield recover(replace(first, family=None, variants=(), values={}, torn=True))
        yield from map(recover, held[1:])
        return
    if len(held) > 1 and first.message.rstrip().endswith(","):
        apart, together = recover(first), recover(_soft(held[:2]))
        if len(together.values) > len(apart.values):
            yield together
            yield from map(recover, held[2:])
            return
    yield from map(recover, held)


def _soft(pieces: list[Record]) -> Record:
    """The pieces as a mail program broke them, at a blank."""
    return replace(pieces[0], message=" ".join(piece.message.strip() for piece in pieces))


def _join(pieces: list[Record], remake: Remake) -> Record | None:
    hard = "".join(piece.line.text if index else piece.message for index, piece in enumerate(pieces))
    soft = _soft(pieces).message
    for message in (hard, soft) if pieces[0].line.full else (hard,) if _seam(*pieces[:2]) else (soft,):
        made = remake(pieces[0], message)
        if made is not None and pieces[0].family in FAMILIES and len(made.values) <= len(pieces[0].values):
            continue
        if made is not None and (made.family != "server-args-dump" or _whole(made)):
            return made
    return None


def _whole(record: Record) -> bool:
    value = record.values.get("server_args")
    return value is not None and parse_arguments(value.text)[1]


def _untorn(records: Iterable[Record], remake: Remake, recover: Callable[[Record], Record]) -> Iterator[Record]:
    """A record torn by another on the same line is whole again with the loose end that comes soon after it.

    Only where one record is torn at a time, and not within a number: whose the digits are would be a guess.
    """
    torn: list[Record] = []
    age = 0
    for record in records:
        if record.torn and record.family is None and _begins_a_line(record):
            torn.append(record)
            age = 0
            continue
        age += 1
        if torn and len(torn) == 1 and not record.prefixed and record.family is None:
            head = torn[0].message
            seam = head[-1:].isdigit() and record.message[:1].isdigit()
            made = None if seam else remake(torn[0], head + record.message)
            if made is not None:
                torn = []
                yield made
                continue
        if torn and age > _PATIENCE:
            yield from map(recover, torn)
            torn = []
        yield record
    yield from map(recover, torn)
