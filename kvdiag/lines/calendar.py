"""Dates as days, without importing more than the numbers need."""

from __future__ import annotations

from functools import lru_cache

NO_TIME, DATED, UNDATED = 0, 1, 2
"""What a line's time stamp is made of; the numbers are those of kernel.c."""


@lru_cache(maxsize=64)
def days_of(date: str) -> int | None:
    """Days from 1970-01-01 to a date ``YYYY-MM-DD``, None where there is no such day."""
    import datetime

    try:
        return datetime.date.fromisoformat(date).toordinal() - datetime.date(1970, 1, 1).toordinal()
    except ValueError:
        return None
