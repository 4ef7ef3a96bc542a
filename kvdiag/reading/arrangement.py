"""Logs whose lines are not each once and in order: printed twice by two handlers, exported with the newest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise

from kvdiag.errors import InputError
from kvdiag.reading.line import Line

_HEAD = 64
"""Lines that show how the others are arranged."""
_PAIRS = 6
_STEPS = 5
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def arranged(lines: Iterator[Line], path: str) -> Iterator[Line]:
    """The lines; of a log in which each stands twice, one of each two.

    Raises InputError where the newest line comes first: what belongs together cannot be told from there.
    """
    head = list(islice(lines, _HEAD))
    if _newest_first(head):
        raise InputError(
            f"{path}: the newest line comes first; kvdiag reads a log from its beginning, so give it turned round, for example "
            f"tac {path} | kvdiag explain -"
        )
    everything = chain(head, lines)
    return _one_of_two(everything) if _doubled(head) else everything


def _newest_first(head: list[Line]) -> bool:
    stamps = [found[1] for line in head if (found := _STAMP.search(line.text, 0, 200))]
    return all(first >= second for first, second in pairwise(stamps)) and len(set(stamps)) > _STEPS


def _doubled(head: list[Line]) -> bool:
    even = head[: len(head) // 2 * 2]
    pairs = list(zip(even[::2], even[1::2], strict=True))
    twice = all((first.text, first.stream) == (second.text, second.stream) for first, second in pairs)
    return twice and len({first.text for first, _ in pairs}) >= _PAIRS


def _one_of_two(lines: Iterator[Line]) -> Iterator[Line]:
    held: Line | None = None
    for line in lines:
        if held is not None and (held.text, held.stream) == (line.text, line.stream):
            yield held
            held = None
            continue
        if held is not None:
            yield held
        held = line
    if held is not None:
        yield held
