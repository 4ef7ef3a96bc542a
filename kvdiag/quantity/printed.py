"""From printed digits to the set of values that print so."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from kvdiag.quantity.interval import Interval

GIB = 2**30

UNIT_OF_PRINTED: dict[str, tuple[str, Fraction]] = {
    "GiB": ("bytes", Fraction(GIB)),
    "MiB": ("bytes", Fraction(2**20)),
    "GB10": ("bytes", Fraction(10**9)),
    "bytes": ("bytes", Fraction(1)),
    "percent": ("fraction", Fraction(1, 100)),
    "ms": ("seconds", Fraction(1, 1000)),
}
"""Unit of a rule file to (unit kvdiag reports in, factor); units not named here are reported as they are."""

UNITS = (
    *UNIT_OF_PRINTED, "tokens", "requests", "slots", "rows", "count", "index", "fraction", "seconds", "tokens/s", "GB/s",
    "TFLOP/s", "text", "bool",
)  # fmt: skip
"""Every unit a rule file may give a value."""

ABBREVIATED = r"~ ?\d{1,15}|~? ?\d{1,6}(?:\.\d{1,4})? ?[kKmM]"
"""A count as people shorten it: ``825k``, ``1.2M``, ``~160k``."""
_THOUSANDS = {"": (1, 1), "k": (10**3, 2**10), "m": (10**6, 2**20)}
_NUMBER = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")


@lru_cache(maxsize=1 << 12)
def printed_interval(text: str, unit: str, *, rounded: bool = True) -> Interval:
    """The values that print as `text`, in the reported unit of `unit`.

    `rounded` says whether the digits were cut by a format such as ``%.2f`` (then half a unit of the last digit lies on
    either side) or are a whole number or a float's own ``repr`` (then they are the value). A printed minus sign before
    zero keeps the side of zero the value lay on, as Python's formatting does.

    Raises ValueError where `text` is not a plain decimal number.
    """
    found = _NUMBER.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a plain decimal number")
    sign, whole, decimals, exponent = found.groups()
    if len(text) > 400:
        raise ValueError("a number of more than 400 characters")
    decimals = decimals or ""
    scale = Fraction(10) ** (int(exponent or 0) - len(decimals))
    magnitude = int(whole + decimals)
    reported, factor = UNIT_OF_PRINTED.get(unit, (unit, Fraction(1)))
    low = high = magnitude * scale
    if rounded and (decimals or exponent):
        low, high = max(Fraction(0), low - scale / 2), high + scale / 2
    if sign == "-":
        low, high = -high, -low
    return Interval(low * factor, high * factor, reported)


def figure_of(interval: Interval) -> Fraction:
    """The figure that was printed for `interval`: its middle, and 0 where all digits were noughts and it ends or begins there."""
    if not interval.is_exact and 0 in (interval.low, interval.high):
        return Fraction(0)
    return (interval.low + interval.high) / 2


def abbreviated_interval(text: str, unit: str) -> Interval:
    """All counts that somebody may have shortened to `text` (of the form `ABBREVIATED`).

    The digits left out may have been rounded or dropped, and a k be 1000 or 1024; behind a ``~`` the noughts at the end of the
    digits count as left out too. Raises ValueError where `text` is of another form.
    """
    if not re.fullmatch(ABBREVIATED, text):
        raise ValueError(f"{text!r} is no abbreviated number")
    digits = text.strip("~ kKmM")
    small, great = _THOUSANDS[text[-1].lower() if text[-1].isalpha() else ""]
    value = Fraction(digits)
    step = Fraction(1, 10 ** len(digits.partition(".")[2]))
    if text.startswith("~"):
        while value and value % (step * 10) == 0:
            step *= 10
        return Interval(max(Fraction(0), value - step) * small, (value + step) * great, unit)
    return Interval(max(Fraction(0), value - step / 2) * small, (value + step) * great, unit)
