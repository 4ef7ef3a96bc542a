"""Rows of batch lines in columns, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kvdiag.frozen import field, frozen
from kvdiag.lines.calendar import DATED, NO_TIME, UNDATED, days_of
from kvdiag.lines.columns import BATCH_FAMILIES, STREAM, TAG_ORDER, TAGS, cells, column_of
from kvdiag.lines.record import Record
from kvdiag.lines.shapes import LONGEST_WHOLE

Array = np.ndarray[Any, Any]


@frozen
class Column:
    """Values (whole numbers, doubles, or places in a list of texts), and which of them are there."""

    values: Array
    there: Array


@frozen
class Chunk:
    """Rows, and the columns that some of them may have.

    Of each row: its line number, where the line begins in the input, its family (the place in BATCH_FAMILIES), and its
    milliseconds: since 1970-01-01 where `timed` says DATED, of the day where it says UNDATED.
    """

    lines: Array
    offsets: Array
    family: Array
    stamps: Array
    timed: Array
    columns: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)


class Texts:
    """The distinct texts of one log, each held once and known by its place."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """The place of a text, a new one where it was not seen before."""
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.list)
            self.list.append(text)
        return found


def constant(text: str, kind: str, texts: Texts) -> int | float | None:
    """A printed value as its column keeps it; None where the text is no value of that kind or too long for it."""
    if kind == "text":
        return texts.place(text)
    if kind == "truth":
        return {"True": 1, "False": 0}.get(text)
    try:
        if kind == "whole":
            return int(text) if len(text.lstrip("+-")) <= LONGEST_WHOLE else None
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def empty(kind: str, count: int) -> Array:
    """Room for `count` values of a column of that kind."""
    return np.zeros(count, np.float64 if kind == "real" else np.int64)


def of_records(records: Iterable[Record], offsets: dict[int, int], texts: Texts) -> Chunk:
    """The batch records among `records`; `offsets` tells where a line begins (-1 where it does not)."""
    rows = [record for record in records if record.family in BATCH_FAMILIES]
    count = len(rows)
    kinds = cells()
    read: dict[str, dict[int, int | float]] = {}
    stamps, timed = np.zeros(count, np.int64), np.full(count, NO_TIME, np.uint8)
    for row, record in enumerate(rows):
        stamps[row], timed[row] = stamp_of(record)
        for name, value in _values(record, texts):
            read.setdefault(name, {})[row] = value
    columns = {}
    for name, found in read.items():
        values, there = empty(kinds[name], count), np.zeros(count, np.bool_)
        places = list(found)
        values[places], there[places] = list(found.values()), True
        columns[name] = Column(values, there)
    lines = np.array([record.line.number for record in rows], np.int64)
    begins = np.array([offsets.get(record.line.number, -1) for record in rows], np.int64)
    family = np.array([BATCH_FAMILIES.index(record.family or "") for record in rows], np.int8)
    return Chunk(lines, begins, family, stamps, timed, columns)


def _values(record: Record, texts: Texts) -> Iterable[tuple[str, int | float]]:
    tags = record.rank.tags
    yield TAG_ORDER, texts.place(" ".join(tags))
    if record.line.stream:
        yield STREAM, texts.place(record.line.stream)
    for tag in TAGS:
        if tag in tags:
            yield tag, tags[tag]
    kinds = cells()
    for name, value in record.values.items():
        read = constant(value.text, kinds[column_of(name)], texts)
        if read is not None:
            yield column_of(name), read


def stamp_of(record: Record) -> tuple[int, int]:
    """Milliseconds of a record's time, since 1970 or since midnight, and which of them: `NO_TIME`, `DATED` or `UNDATED`."""
    if not record.time:
        return 0, NO_TIME
    hour, minute, second, *milliseconds = (int(part) for part in record.time.replace(".", ":").split(":"))
    if hour > 23 or minute > 59 or second > 59:
        return 0, NO_TIME
    stamp = ((hour * 60 + minute) * 60 + second) * 1000 + (milliseconds[0] if milliseconds else 0)
    if not record.date:
        return stamp, UNDATED
    days = days_of(record.date)
    return (0, NO_TIME) if days is None else (days * 86_400_000 + stamp, DATED)


def merge(first: Chunk, second: Chunk) -> Chunk:
    """The rows of both in the order of their lines."""
    if not len(first) or not len(second):
        return first if len(first) else second
    order = np.argsort(np.concatenate([first.lines, second.lines]), kind="stable")

    def both(one: Array, other: Array) -> Array:
        together: Array = np.concatenate([one, other])[order]
        return together

    kinds = cells()
    columns = {}
    for name in [*first.columns, *(name for name in second.columns if name not in first.columns)]:
        parts = [c.columns.get(name) or Column(empty(kinds[name], len(c)), np.zeros(len(c), np.bool_)) for c in (first, second)]
        columns[name] = Column(both(parts[0].values, parts[1].values), both(parts[0].there, parts[1].there))
    names = ("lines", "offsets", "family", "stamps", "timed")
    lines, offsets, family, stamps, timed = (both(getattr(first, name), getattr(second, name)) for name in names)
    return Chunk(lines, offsets, family, stamps, timed, columns)


def joined(chunks: list[Chunk]) -> Chunk:
    """The rows of chunks that follow one another."""
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = merge(whole, chunk)
    return whole


def ranks(chunk: Chunk, texts: Texts) -> Array:
    """The rank's text of each row, as places in `texts`."""
    named = [name for name in (TAG_ORDER, *TAGS) if name in chunk.columns]
    parts = [np.where(chunk.columns[name].there, chunk.columns[name].values + 1, 0) for name in named]
    bases = [int(part.max(initial=0)) + 1 for part in parts]
    key = np.zeros(len(chunk), np.int64)
    for base, part in zip(bases, parts, strict=True):
        key = key * base + part
    size = int(np.prod([float(base) for base in bases]))
    if size <= 1 << 20:
        first = np.full(size, -1, np.int64)
        first[key[::-1]] = np.arange(len(key) - 1, -1, -1)
        distinct = np.flatnonzero(first >= 0)
        lookup = np.zeros(size, np.int32)
        lookup[distinct] = [texts.place(_rank(chunk, int(first[code]), texts)) for code in distinct]
        return lookup[key]
    _, at, codes = np.unique(np.stack(parts), axis=1, return_index=True, return_inverse=True)
    return np.array([texts.place(_rank(chunk, int(row), texts)) for row in at], np.int32)[codes.reshape(-1)]


def _rank(chunk: Chunk, row: int, texts: Texts) -> str:
    order = texts.list[int(chunk.columns[TAG_ORDER].values[row])].split()
    return " ".join(f"{tag}{int(chunk.columns[tag].values[row])}" for tag in order)
