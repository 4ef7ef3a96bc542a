"""Closed intervals of exact rationals: the only arithmetic kvdiag does on measured numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvdiag.frozen import frozen

Exact = int | Fraction


def _exact(value: int | float | Fraction) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(value)


@frozen
class Interval:
    """All values from `low` to `high`, both included, in `unit`.

    Units are ``bytes``, ``tokens``, ``requests``, ``slots``, ``seconds`` and ``fraction``; sums and differences
    demand the same unit on both sides, products and quotients leave the naming of the result to the caller.
    """

    low: Fraction
    high: Fraction
    unit: str

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"interval with low {self.low} above high {self.high}")

    @classmethod
    def of(cls, low: int | float | Fraction, high: int | float | Fraction | None = None, unit: str = "") -> Interval:
        """The interval from `low` to `high` (a single value when `high` is left out); floats are taken exactly."""
        return cls(_exact(low), _exact(low if high is None else high), unit)

    @property
    def is_exact(self) -> bool:
        """Whether exactly one value remains."""
        return self.low == self.high

    def with_unit(self, unit: str) -> Interval:
        """The same bounds read in another unit (no conversion)."""
        return Interval(self.low, self.high, unit)

    def _same_unit(self, other: Interval) -> None:
        if self.unit != other.unit:
            raise ValueError(f"{self.unit} and {other.unit} cannot be added")

    def __add__(self, other: Interval) -> Interval:
        self._same_unit(other)
        return Interval(self.low + other.low, self.high + other.high, self.unit)

    def __sub__(self, other: Interval) -> Interval:
        self._same_unit(other)
        return Interval(self.low - other.high, self.high - other.low, self.unit)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, self.unit)

    def __mul__(self, other: Interval | int | float | Fraction) -> Interval:
        if not isinstance(other, Interval):
            factor = _exact(other)
            low, high = sorted((self.low * factor, self.high * factor))
            return Interval(low, high, self.unit)
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(products), max(products), self.unit)

    def __truediv__(self, other: Interval | int | float | Fraction) -> Interval:
        divisor = other if isinstance(other, Interval) else Interval.of(other)
        if divisor.low <= 0 <= divisor.high:
            raise ZeroDivisionError("the divisor's interval holds zero")
        quotients = [a / b for a in (self.low, self.high) for b in (divisor.low, divisor.high)]
        return Interval(min(quotients), max(quotients), self.unit)

    def __floordiv__(self, other: Interval | int | float | Fraction) -> Interval:
        quotient = self / other
        return Interval(Fraction(quotient.low // 1), Fraction(quotient.high // 1), quotient.unit)

    def floor_to(self, multiple: int) -> Interval:
        """Every member rounded down to a multiple of `multiple` (a page of tokens)."""
        return Interval(Fraction(self.low // multiple * multiple), Fraction(self.high // multiple * multiple), self.unit)

    def meets(self, other: Interval) -> bool:
        """Whether some value lies in both: the only sense in which two printed numbers agree."""
        self._same_unit(other)
        return self.low <= other.high and other.low <= self.high

    def __contains__(self, value: int | float | Fraction) -> bool:
        return self.low <= value <= self.high

    def minimum(self, other: Interval) -> Interval:
        """The interval of ``min(a, b)`` for a in this and b in the other."""
        self._same_unit(other)
        return Interval(min(self.low, other.low), min(self.high, other.high), self.unit)

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        self._same_unit(other)
        return Interval(min(self.low, other.low), max(self.high, other.high), self.unit)

    def to_dict(self) -> dict[str, Any]:
        """JSON form: ``low``, ``high`` (integers where they are whole) and ``unit``."""
        return {"low": plain(self.low), "high": plain(self.high), "unit": self.unit}


def plain(value: Fraction) -> int | float:
    """An exact rational as the int it is, or the nearest float."""
    return int(value) if value.denominator == 1 else float(value)
