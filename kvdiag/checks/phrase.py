"""Sentences of the rules filled with the numbers of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.quantity import Interval
from kvdiag.quantity.figures import figure, memory, rounded_down, rounded_up

_SCALES: dict[str, tuple[float, int, str]] = {
    "MiB": (2**20, 0, " MiB"),
    "GB": (1e9, 2, " GB"),
    "percent": (0.01, 0, " %"),
    "ratio": (1, 2, ""),
    "f3": (1, 3, ""),
    "f4": (1, 4, ""),
    "n": (1, 0, ""),
    "n1": (1, 1, ""),
    "n2": (1, 2, ""),
    "x": (1, 1, "x"),
}
"""Format word of a template to (divisor, decimals, unit behind the figure)."""

_PLACE = r"\{(\w+)(?::(\w+))?\}"
"""A value in a template, ``{name}`` or ``{name:word}``."""

_BOUNDS = {"up3": (rounded_up, 3), "up4": (rounded_up, 4), "down4": (rounded_down, 4)}
"""Words for a number that something must be above or below: rounded to the side on which the sentence stays true."""


Sentence = str | list[str]
"""A template, or several of which the first that can be filled is said."""


def fill(sentences: Iterable[Sentence], values: Mapping[str, Any]) -> str:
    """The sentences joined by blanks; one that asks for a value the log does not have (None or absent) is left out.

    Raises KeyError for an unknown format word: the rules are at fault then.
    """
    return " ".join(filled for sentence in sentences if (filled := _sentence(sentence, values)) is not None)


def names(sentence: Sentence) -> list[str]:
    """The values a sentence asks for."""
    parts = sentence if isinstance(sentence, list) else [sentence]
    return [name for part in parts for name, _ in re.findall(_PLACE, part)]


def _sentence(sentence: Sentence, values: Mapping[str, Any]) -> str | None:
    if isinstance(sentence, list):
        return next((filled for each in sentence if (filled := _sentence(each, values)) is not None), None)
    text, *places = re.split(_PLACE, sentence)
    for name, word, after in zip(places[::3], places[1::3], places[2::3], strict=True):
        value = values.get(name)
        if value is None:
            return None
        text += show(value, word or "") + after
    return text


def show(value: Any, word: str) -> str:
    """One value under a format word; an interval whose ends print alike is one figure, a printed figure its middle.

    A pair is the least and the most of several values seen.
    """
    if not word or isinstance(value, str):
        return str(value)
    if isinstance(value, tuple):
        least, most = (show(each, word) for each in value)
        return least if least == most else f"{least} to {most}"
    if word == "GiB":
        return memory(value)
    if word in _BOUNDS:
        rounding, decimals = _BOUNDS[word]
        return rounding(value, decimals)
    divisor, decimals, unit = _SCALES[word]
    if not isinstance(value, Interval):
        return figure(float(value) / divisor, decimals) + unit
    low, high = (float(bound / Fraction(divisor)) for bound in (value.low, value.high))
    if high - low <= (5 * 10**-decimals if decimals else 0.5):
        return figure((low + high) / 2, decimals) + unit
    least, most = figure(low, decimals), figure(high, decimals)
    return f"{least}{unit}" if least == most else f"{least} to {most}{unit}"
