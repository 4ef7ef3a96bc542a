"""No line can make matching slow: the time grows with the length of the line, whatever the line is built from."""

from __future__ import annotations

import random
import re
from time import process_time

import pytest

from kvdiag.lines import match_message, read_records, walk
from kvdiag.lines.families import families
from kvdiag.lines.template import parse_template
from kvdiag.reading import Line
from tests.test_line_formats import filled

SHORT, LONG = 2_000, 20_000


def literals(sequence: list) -> list[str]:
    found = []
    for item in sequence:
        if isinstance(item, str):
            found.append(item)
        elif item[0] == "a":
            for branch in item[1:]:
                found += literals(branch)
    return found


def hostile(sequence: list, length: int) -> list[str]:
    """Lines of about that length made of the template's own words, that nearly match it again and again."""
    words = literals(sequence)
    head = words[0] if words else ""
    whole, _ = filled(sequence, random.Random(1))
    lines = [
        head + word * (length // max(1, len(word)))
        for word in dict.fromkeys([*words, *(word[:2] for word in words), "1", "1.5", "a", "a ", ", ", "1, "])
    ]
    lines.append((whole + " ") * (length // (len(whole) + 1)))
    lines.append(whole[:-1] + "".join(words) * (length // max(1, sum(map(len, words)))))
    return lines


class Counted(walk._Walk):
    """A walk that counts the characters it looks at: the same on every machine, unlike its time."""

    __slots__ = ("looked",)

    def __init__(self, message):
        super().__init__(message)
        self.looked = 0

    def go(self, sequence, index, at, rest):
        self.looked += 1
        return super().go(sequence, index, at, rest)

    def _next(self, literal, at, limit):
        place = super()._next(literal, at, limit)
        self.looked += 1 + max(0, min(place, limit) - at)
        return place


WORD = re.compile(r"[^\s,;:'\"()\[\]]*")


@pytest.fixture
def looked(monkeypatch):
    """Characters looked at while a line is matched with a template."""
    scan = walk._scan
    scanned = [0]

    def counted_scan(kind, text, at):
        scanned[0] += 1 + WORD.match(text, at).end() - at
        return scan(kind, text, at)

    def run(sequence, line):
        scanned[0] = 0
        counted = Counted(line)
        counted.go(sequence, 0, 0, None)
        return counted.looked + scanned[0]

    monkeypatch.setattr(walk, "_scan", counted_scan)
    return run


def assert_linear(looked, sequence, short, long):
    assert looked(sequence, long) <= max(13 * looked(sequence, short), 500), long[:200]


@pytest.mark.parametrize("family", families().values(), ids=lambda family: family.name)
def test_ten_times_the_line_is_at_most_thirteen_times_the_work(family, looked):
    for variant in family.variants:
        sequence = parse_template(variant.template)
        for short, long in zip(hostile(sequence, SHORT), hostile(sequence, LONG), strict=True):
            assert_linear(looked, sequence, short, long)


LAZY = "⟦{a:t}, {b:t}| {c:w}⟧ = {d:t}; ⟦{e:t} -> {f:m}⟧ ({g:v})"


@pytest.mark.parametrize("unit", [", ", " = ", "; ", " -> ", "a, b = c; ", " (", "x -> y; ", "a, b = c; d\n"])
def test_nested_choices_of_free_text_stay_linear(unit, looked):
    short, long = (unit * (length // len(unit)) for length in (SHORT, LONG))
    assert_linear(looked, parse_template(LAZY), short, long)


def seconds(run, *arguments) -> float:
    begin = process_time()
    run(*arguments)
    return process_time() - begin


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "1",
        "[",
        "[2025-01-15 10:22:41",
        "Decode batch, #running-req: 1, ",
        "server_args=",
        "KV Cache is allocated. ",
        "{'",
        "\u0660",
    ],
)
def test_a_line_of_a_megabyte_is_read_at_once(unit):
    line = Line(1, unit * (1_000_000 // len(unit)))
    assert seconds(lambda: list(read_records([line]))) < 1.0
    assert seconds(match_message, line.text) < 0.5
