"""A limit in words: one number, or the interval that the log leaves."""

from __future__ import annotations

from kvdiag.checks.model import Bound
from kvdiag.quantity.figures import figure


def bound(limit: Bound) -> str:
    """The limit with thousands separated; whole numbers whole, others with two decimals."""
    if isinstance(limit, dict):
        return f"{_figure(limit['low'])} to {_figure(limit['high'])}"
    return _figure(limit) if limit is not None else "unknown"


def _figure(number: float) -> str:
    return figure(number, 0 if number == int(number) or abs(number) >= 1000 else 2)
