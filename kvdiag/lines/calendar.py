"""Dates as days, without importing more than the numbers need."""

from __future__ import annotations

from functools import lru_cache

NO_TIME, DATED, UNDATED = 0, 1, 2
"""What a line's time stamp is made of; the numbers are those of kernel.c."""

DAY = 86_400_000
"""Milliseconds."""
PASSED = 3_660_000
"""Milliseconds by which a clock without dates runs back only over midnight: the end of summer time takes an hour."""
RETURN = 60_000
"""Milliseconds by which lines of several processes may stand out of order around midnight."""


class Midnights:
    """Counts the midnights between times without dates, in the order of the log."""

    def __init__(self) -> None:
        self._day = 0
        self._last: int | None = None

    def day(self, of_day: int) -> int:
        """The day, the first being 0, of the next time, which is given in milliseconds since midnight.

        A clock that runs back has passed midnight; one that then jumps to the end of a day is of the day before.
        """
        step = 0 if self._last is None else of_day - self._last
        self._day += (step < -PASSED) - (step > DAY - RETURN)
        self._last = of_day
        return self._day


@lru_cache(maxsize=64)
def days_of(date: str) -> int | None:
    """Days from 1970-01-01 to a date ``YYYY-MM-DD``, None where there is no such day."""
    import datetime

    try:
        return datetime.date.fromisoformat(date).toordinal() - datetime.date(1970, 1, 1).toordinal()
    except ValueError:
        return None
