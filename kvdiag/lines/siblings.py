"""Records of lines whose shape is known, put together from the digits: what the strict rules give, without matching again."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvdiag.lines.prefix import rank_of
from kvdiag.lines.record import Record, Value
from kvdiag.lines.shapes import Field, Prefix, Shape
from kvdiag.reading import Line

_RUNS = re.compile(rb"([0-9]+)")


class Siblings:
    """Knows the shapes whose records can be put together: of bare lines, with every run of digits in a value."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._by_literals: dict[tuple[bytes, ...], list[Shape]] = {}
        for shape in shapes:
            if shape.message is not None:
                self._by_literals.setdefault(shape.literals, []).append(shape)

    def record(self, raw: bytes, number: int) -> Record | None:
        """The record of the line `raw` (with its line end) with that number; None where its shape is not known."""
        pieces = _RUNS.split(raw)
        runs = pieces[1::2]
        for shape in self._by_literals.get(tuple(pieces[0::2]), ()):
            if shape.message is not None and all(run.allows(digits) for run, digits in zip(shape.runs, runs, strict=True)):
                head, rest = shape.message
                at = sum(len(piece) for piece in pieces[: 2 * head]) + rest
                return _made(shape, raw, at, [digits.decode() for digits in runs], number)
        return None


def _made(shape: Shape, raw: bytes, at: int, runs: list[str], number: int) -> Record:
    first = shape.record
    date, time = _clock(shape.prefix, runs)
    rank = rank_of(" ".join(f"{tag}{runs[run]}" for tag, run in shape.prefix.tags))
    values = {field.name: Value(_text(field, runs), field.kind, first.values[field.name].unit) for field in shape.fields}
    line = Line(number, raw[:-1].decode("utf-8"))
    message = raw[at:-1].decode("utf-8")
    return Record(line, message, date, time, rank, True, first.family, first.variants, values)


def _clock(prefix: Prefix, runs: list[str]) -> tuple[str, str]:
    date = "-".join(runs[prefix.date : prefix.date + 3]) if prefix.date >= 0 else ""
    time = ":".join(runs[prefix.time : prefix.time + 3])
    return date, f"{time}.{runs[prefix.time + 3]}" if prefix.milliseconds else time


def _text(field: Field, runs: list[str]) -> str:
    if field.run < 0:
        return field.text
    sign = "-" if field.negative else ""
    return f"{sign}{runs[field.run]}.{runs[field.run + 1]}" if field.decimals else f"{sign}{runs[field.run]}"
