"""Intervals for people by their two ends, in one unit that suits both."""

from __future__ import annotations

from fractions import Fraction

from kvdiag.quantity.figures import figure
from kvdiag.quantity.interval import Interval
from kvdiag.quantity.printed import GIB

_MIB = 2**20
_MOST_DECIMALS = 12


def ends(interval: Interval, more: int = 0) -> str:
    """One figure where both ends print alike, else both; `more` decimals than usual. Fractions are plain numbers."""
    scale, unit, decimals = _scale(interval)
    low, high = (_figure(end / scale, decimals, more) for end in (interval.low, interval.high))
    return f"{low if low == high else f'{low}..{high}'} {unit}".rstrip()


def apart(first: Interval, second: Interval) -> tuple[str, str]:
    """Two intervals that have no value in common, with as many decimals as it takes to see that."""
    for more in range(_MOST_DECIMALS):
        if not _rounded(first, more).meets(_rounded(second, more)):
            break
    return ends(first, more), ends(second, more)


def _rounded(interval: Interval, more: int) -> Interval:
    scale, _, decimals = _scale(interval)
    own = _decimals(max(abs(interval.low), abs(interval.high)) / scale, decimals)
    low, high = (Fraction(round(end / scale, own + more)) * scale for end in (interval.low, interval.high))
    return Interval(low, high, interval.unit)


def _scale(interval: Interval) -> tuple[int, str, int | None]:
    """The unit that suits the greater end, what it is in the interval's own, and decimals where they are fixed."""
    most = max(abs(interval.low), abs(interval.high))
    if interval.unit == "fraction":
        return 1, "", 4
    if interval.unit != "bytes":
        return 1, interval.unit, None
    if most >= Fraction(GIB, 100):
        return GIB, "GiB", 3
    if most >= _MIB and not interval.is_exact:
        return _MIB, "MiB", 1
    return 1, "bytes", None


def _decimals(value: Fraction, decimals: int | None) -> int:
    if decimals is not None:
        return decimals
    return 0 if abs(value) >= 100 or value.denominator == 1 else 2


def _figure(value: Fraction, decimals: int | None, more: int) -> str:
    return figure(value, _decimals(value, decimals) + more)
