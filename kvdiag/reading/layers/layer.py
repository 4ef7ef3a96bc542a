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
    """One kind of wrapper: the characters its lines can begin with, what they hold, and how to take it off."""

    name: str
    firsts: frozenset[str]
    needs: str
    peel: Callable[[str], list[Peeled] | None]


DIGITS = frozenset("0123456789")
MONTHS = frozenset("JFMASOND")
DAYS = frozenset("MTWFS")
"""What English names of months and of days begin with."""
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def pattern_layer(name: str, firsts: frozenset[str], needs: str, pattern: str) -> Layer:
    """A layer that is a pattern at the line's beginning; its groups ``stream`` and ``time`` are what it tells."""
    compiled = lazy(pattern)

    def peel(text: str) -> list[Peeled] | None:
        found = compiled().match(text)
        if not found or not found.end():
            return None
        told = found.groupdict()
        return [Peeled(text[found.end() :], told.get("stream") or "", told.get("time") or "")]

    return Layer(name, firsts, needs, peel)


def lazy(pattern: str) -> Callable[[], re.Pattern[str]]:
    """The pattern, compiled when first asked for: a bare log needs none of them."""
    return cache(lambda: re.compile(pattern))
