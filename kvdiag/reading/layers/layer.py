"""The form of a layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from kvdiag.frozen import frozen


class Peeled(NamedTuple):
    """What was inside a wrapper: the text, the server's name and the time the wrapper gave.

    `partial` is None for wrappers that never cut a line; for those that do it says whether the text goes on in the
    wrapper's next line.
    """

    text: str
    stream: str = ""
    time: str = ""
    partial: bool | None = None


@frozen
class Layer:
    """One kind of wrapper: the characters its lines can begin with, what they hold, and how to take it off.

    `loose` is set where `peel` knows the wrapper only by the record behind it: it takes the wrapper off other lines, in a log
    in which the same stands before records.
    """

    name: str
    firsts: frozenset[str]
    needs: str
    peel: Callable[[str], list[Peeled] | None]
    loose: Callable[[str], Peeled | None] | None = None


DIGITS = frozenset("0123456789")
MONTHS = frozenset("JFMASOND")
DAYS = frozenset("MTWFS")
"""What English names of months and of days begin with."""
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def pattern_layer(name: str, firsts: frozenset[str], needs: str, pattern: str, *, ahead: str = "") -> Layer:
    """A layer that is a pattern at the line's beginning; its groups ``stream`` and ``time`` are what it tells.

    `ahead` is the pattern of what must stand behind a wrapper that is known by that alone.
    """
    compiled = lazy(f"{pattern}(?={ahead})" if ahead else pattern)
    bare = lazy(pattern)

    def peel(text: str) -> list[Peeled] | None:
        inner = _without(compiled(), text)
        return None if inner is None else [inner]

    return Layer(name, firsts, needs, peel, (lambda text: _without(bare(), text)) if ahead else None)


def _without(pattern: re.Pattern[str], text: str) -> Peeled | None:
    found = pattern.match(text)
    if not found or not found.end():
        return None
    told = found.groupdict()
    return Peeled(text[found.end() :], told.get("stream") or "", told.get("time") or "")


def lazy(pattern: str) -> Callable[[], re.Pattern[str]]:
    """The pattern, compiled when first asked for: a bare log needs none of them."""
    return cache(lambda: re.compile(pattern))
