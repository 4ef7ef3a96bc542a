"""Quantities in digits for people: enough of them to mean something, and no zero that is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from kvdiag.quantity.interval import Interval
from kvdiag.quantity.printed import GIB

Real = int | float | Fraction

_SMALLER = (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
_TENTH = Fraction(1, 10)
_SHARP = Fraction(1, 100)
"""An interval narrower than this share of its greater end is told in the unit that suits it, a wider one in GiB."""


def figure(value: Real, decimals: int) -> str:
    """`value` with that many decimals: more where it would print as zero and is not, and never a negative zero."""
    number = float(value)
    if number and round(number, decimals) == 0:
        decimals = 1 - math.floor(math.log10(abs(number)))
        return f"{number:.{decimals}f}" if decimals <= 12 else f"{number:.1e}"
    return _plain(number, decimals)


def _plain(number: float, decimals: int) -> str:
    text = f"{number:,.{decimals}f}"
    return text if text.strip("-0.,") else text.lstrip("-")


def rounded_up(value: Real, decimals: int) -> str:
    """The smallest number of that many decimals that is not below `value`; of two significant digits where that is tiny."""
    return _towards(value, decimals, math.ceil)


def rounded_down(value: Real, decimals: int) -> str:
    """The largest number of that many decimals that is not above `value`; of two significant digits where that is tiny."""
    return _towards(value, decimals, math.floor)


def _towards(value: Real, decimals: int, rounding: Callable[[Fraction], int]) -> str:
    exact = Fraction(value)
    if exact and abs(exact) < Fraction(1, 10**decimals):
        decimals = 1 - math.floor(math.log10(abs(float(exact))))
    scaled = exact * 10**decimals
    return _plain(float(Fraction(rounding(scaled), 10**decimals)), decimals)


def memory(value: Interval | Real, *, wide: float = 0.05) -> str:
    """Bytes in GiB to two decimals, as logs print them; in a smaller unit where that would say nothing.

    An interval of at most `wide` GiB is told by its middle; one that begins at zero by what it is under.
    """
    interval = value if isinstance(value, Interval) else Interval.of(value, unit="bytes")
    low, high = interval.low / GIB, interval.high / GIB
    most = max(abs(low), abs(high))
    if interval.is_exact or high - low <= most * _SHARP:
        return _single((interval.low + interval.high) / 2)
    if low >= 0 and _prints_zero(low):
        return f"under {_ceiling(interval.high)}"
    if high - low <= Fraction(str(wide)):
        return f"{_plain(float((low + high) / 2), 2)} GiB"
    return f"{_plain(float(low), 2)} to {_plain(float(high), 2)} GiB"


def _prints_zero(gib: Fraction) -> bool:
    return round(float(gib), 2) == 0


def _single(size: Fraction) -> str:
    if abs(size) >= GIB * _TENTH:
        return f"{_plain(float(size / GIB), 2)} GiB"
    unit, scale = next(((unit, scale) for unit, scale in _SMALLER[1:] if abs(size) >= scale), _SMALLER[-1])
    if unit == "bytes":
        return f"{_plain(float(size), 0)} bytes"
    return f"{_plain(float(size / scale), 1)} {unit}"


def _ceiling(size: Fraction) -> str:
    if size >= Fraction(GIB, 100):
        return f"{rounded_up(size / GIB, 2)} GiB"
    unit, scale = next(((unit, scale) for unit, scale in _SMALLER if size >= scale), _SMALLER[-1])
    return f"{rounded_up(size / scale, 0 if unit == 'bytes' else 1)} {unit}"
