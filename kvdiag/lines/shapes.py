"""Line shapes: a line without its digits, read once by the strict rules, so that its siblings can be read as columns.

A shape is exact: every byte outside the digit runs is part of it, and each run's length is bounded so that the strict
rules would read a sibling in the same way. What cannot be bounded so (a value with an exponent, text with digits, rules
whose own words hold digits, two records on a line) stays with the strict rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import IntEnum
from itertools import pairwise

from kvdiag.frozen import frozen
from kvdiag.lines.columns import BATCH_FAMILIES, TAGS, cells, column_of
from kvdiag.lines.formats import formats
from kvdiag.lines.matcher import match_message
from kvdiag.lines.record import Record
from kvdiag.reading import Line

MOST_RUNS = 64
LONGEST_WHOLE = 18
"""Digits of a whole number that fit 64 bits."""
LONGEST_REAL = 15
"""Digits of a decimal number that a double holds exactly, so that one division gives what ``float()`` gives."""
_LONGEST_LINE = 4096
_RUNS = re.compile(rb"([0-9]+)")
_NUMBER = re.compile(r"([+-]?)[0-9]+(?:\.([0-9]+))?")
_JSON = re.compile(rb'[ \t]*+(?:\[[ \t]*+)?\{[ \t]*+"')
_KEY = re.compile(rb'"[^"\\]*"[ \t]*:')
_TAG = re.compile(r"(?<![A-Z_])([A-Z_]++)([0-9]++)")


class Action(IntEnum):
    """What is done with a line of a known shape; the numbers are those of kernel.c."""

    STRICT = 0
    NOISE = 1
    COLUMNS = 2


@frozen
class Run:
    """The bounds of one run of digits; `canonical` refuses a leading zero, `exact` all numbers but one (-1: none)."""

    shortest: int
    longest: int
    canonical: bool = False
    exact: int = -1

    def allows(self, digits: bytes) -> bool:
        """Whether a run of these digits is within the bounds."""
        return (
            self.shortest <= len(digits) <= self.longest
            and not (self.canonical and len(digits) > 1 and digits[:1] == b"0")
            and (self.exact < 0 or int(digits) == self.exact)
        )


@frozen
class Field:
    """A value of the line: a number made of one run (and of the run after it, as `decimals`), or a constant's text."""

    name: str
    kind: str
    run: int = -1
    decimals: int = 0
    negative: bool = False
    text: str = ""


@frozen
class Prefix:
    """Which runs hold date and time (-1 where the prefix has none), which run each rank tag's number; `count` of all."""

    date: int = -1
    time: int = -1
    milliseconds: bool = False
    tags: tuple[tuple[str, int], ...] = ()
    count: int = 0


@frozen
class Shape:
    """One shape: its literals (one more than runs; the last holds the line end), and what its siblings are.

    `message` is set where a sibling's record follows from its digits: how many runs are before the message, and how many
    bytes of the literal after them.
    """

    literals: tuple[bytes, ...]
    runs: tuple[Run, ...]
    action: Action
    record: Record
    fields: tuple[Field, ...] = ()
    prefix: Prefix = Prefix()
    message: tuple[int, int] | None = None


def learn(raw: bytes, record: Record, quiet: Callable[[Record], bool]) -> Shape | None:
    """The shape of the line `raw` (with its line end), whose only record is `record`; None where it must not have one.

    `quiet` says whether the siblings of a record that is no batch line need only be counted.
    """
    pieces = _RUNS.split(raw)
    literals, runs = tuple(pieces[0::2]), pieces[1::2]
    message = record.message.encode("utf-8", "replace")
    if message not in raw and _JSON.match(raw):
        message = json.dumps(record.message, ensure_ascii=False)[1:-1].encode("utf-8", "replace")
    at = raw.find(message)
    if (
        record.damaged
        or len(raw) > _LONGEST_LINE
        or len(runs) > MOST_RUNS
        or not raw.endswith(b"\n")
        or b"\r" in raw[:-2]
        or at < 0
    ):
        return None
    if b"\0" in raw or b"\\u" in message or raw.count(message) != 1 or b"\xef\xbf\xbd" in message:
        return None
    if _within_run(raw, at) or _within_run(raw, at + len(message)):
        return None
    head = len(_RUNS.findall(raw[:at]))
    inner = len(_RUNS.findall(message))
    prefix = _prefix(record, runs[:head])
    if prefix is None or _prefixes(literals) != record.prefixed:
        return None
    around = _around(raw, at, len(message), head - prefix.count, record.line.stream)
    if around is None:
        return None
    bounds = [around.get(index) or Run(len(run), len(run)) for index, run in enumerate(runs)]
    for _, run in prefix.tags:
        bounds[run] = Run(1, 5, canonical=True)
    for run in range(head, head + inner):
        decimals = run > head and literals[run] == b"."
        bounds[run] = Run(len(runs[run]), len(runs[run])) if decimals else Run(1, LONGEST_WHOLE)
    action, fields = Action.STRICT, None
    if not _digits_matter(record.message):
        if record.family is not None:
            fields = _fields(record.message, runs[head : head + inner], head)
        if record.family in BATCH_FAMILIES:
            action = Action.STRICT if fields is None else Action.COLUMNS
        elif quiet(record):
            action = Action.NOISE
    for value in fields or ():
        if value.decimals:
            bounds[value.run] = Run(1, LONGEST_REAL - value.decimals)
    place = None
    if fields is not None and prefix.time >= 0 and record.line == Line(record.line.number, raw[:-1].decode("utf-8", "replace")):
        place = head, at - sum(len(piece) for piece in pieces[: 2 * head])
    return Shape(literals, tuple(bounds), action, record, tuple(fields or ()), prefix, place)


def _around(raw: bytes, at: int, length: int, before: int, stream: str) -> dict[int, Run] | None:
    """Bounds for runs of the wrapper whose digits tell something: the server's name, keys and numbers of a JSON record.

    The message is at `at`, `before` runs are before SGLang's prefix. None where it cannot be told which runs those are.
    """
    is_json = _JSON.match(raw)
    if not is_json and not stream:
        return {}
    runs = [(found.start(), found.end()) for found in _RUNS.finditer(raw)]
    outside = raw[:at] + b"\n" * length + raw[at + length :]
    first_after = sum(1 for begin, _ in runs if begin < at + length)
    wrapper = [*range(before), *range(first_after, len(runs))]
    named = _places_of(stream, outside)
    if named is None:
        return None
    bounds: dict[int, Run] = {}
    if is_json:
        if b"\\u" in outside or b'\\"' in outside:
            return None
        named += [found.span() for found in _KEY.finditer(outside)]
        quoted = [outside[: runs[index][0]].count(b'"') % 2 for index in wrapper]
        bounds = {
            index: Run(_length(runs[index]), _length(runs[index]), canonical=True)
            for index, inside in zip(wrapper, quoted, strict=True)
            if not inside
        }
    for index in wrapper:
        begin, end = runs[index]
        if any(low < end and begin < high for low, high in named):
            if end - begin > LONGEST_WHOLE:
                return None
            bounds[index] = Run(end - begin, end - begin, exact=int(raw[begin:end]))
    return bounds


def _length(run: tuple[int, int]) -> int:
    return run[1] - run[0]


def _places_of(stream: str, outside: bytes) -> list[tuple[int, int]] | None:
    """Where the parts of the server's name stand that have digits; None where one does not."""
    whole = stream.encode()
    places: list[tuple[int, int]] = []
    for name in [whole] if whole in outside else whole.split(b"/"):
        if _RUNS.search(name):
            found = [match.span() for match in re.finditer(rb"(?<![0-9A-Za-z])" + re.escape(name) + rb"(?![0-9A-Za-z])", outside)]
            if not found:
                return None
            places += found
    return places


def _within_run(raw: bytes, at: int) -> bool:
    return raw[at - 1 : at].isdigit() and raw[at : at + 1].isdigit()


def _prefixes(literals: tuple[bytes, ...]) -> int:
    """How many places of the line could begin SGLang's prefix, whatever the digits are."""
    return sum(before.endswith(b"[") and after[:1] in (b"-", b":") for before, after in pairwise(literals))


def _prefix(record: Record, runs: list[bytes]) -> Prefix | None:
    """The places of date, time and tags among the runs before the message; None where they are not the last of them."""
    if not record.prefixed:
        return Prefix()
    date, time = re.findall("[0-9]+", record.date), re.findall("[0-9]+", record.time)
    tags = _TAG.findall(record.rank.text)
    expected = [*date, *time, *(number for _, number in tags)]
    first = len(runs) - len(expected)
    if first < 0 or [run.decode() for run in runs[first:]] != expected:
        return None
    at_time = first + len(date)
    at_tags = at_time + len(time)
    numbered = tuple((name, at_tags + index) for index, (name, _) in enumerate(tags))
    if any(tag not in TAGS for tag, _ in tags):
        return None
    return Prefix(first if date else -1, at_time, len(time) == 4, numbered, len(expected))


def _fields(message: str, runs: list[bytes], first: int) -> list[Field] | None:
    """The values of a line as runs; every run of the message must belong to one. None where one cannot be bound."""
    match = match_message(message)
    if match is None:
        return None
    fields: list[Field] = []
    kinds = cells()
    at = 0
    for name, kind, text in match.values:
        inside = _RUNS.findall(text.encode())
        if inside != runs[at : at + len(inside)]:
            return None
        number = _NUMBER.fullmatch(text)
        decimals = len(number.group(2) or "") if number else 0
        if not inside:
            fields.append(Field(name, kind, text=text))
        elif (
            number is None or not _is_number(kind) or kinds.get(column_of(name)) in ("text", "truth") or decimals >= LONGEST_REAL
        ):
            return None
        else:
            fields.append(Field(name, kind, first + at, decimals, number.group(1) == "-"))
        at += len(inside)
    return fields if at == len(runs) else None


def _is_number(kind: str) -> bool:
    return kind in ("d", "f") or kind.startswith(".")


def _digits_matter(message: str) -> bool:
    """Whether a rule that was looked at for this message has digits among its own words."""
    return any(variant.digits for variant in formats().candidates(message.rstrip()))
