"""Time stamps: dates as they stand (naive, as SGLang prints no zone), and days counted where a log has no dates."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvdiag.lines.calendar import DAY, NO_TIME, PASSED, RETURN, UNDATED
from kvdiag.lines.chunk import Chunk


class Clock:
    """Milliseconds since 1970-01-01 for the rows of one log, chunk after chunk; a log without dates begins on that day."""

    def __init__(self) -> None:
        self._day = 0
        self._last: int | None = None

    def stamps(self, chunk: Chunk) -> tuple[Any, Any]:
        """(milliseconds, which rows have a time)."""
        loose = chunk.timed == UNDATED
        stamps = chunk.stamps
        if loose.any():
            stamps = stamps.copy()
            stamps[loose] += self._days(stamps[loose]) * DAY
        return stamps, chunk.timed != NO_TIME

    def _days(self, of_day: Any) -> Any:
        """As `Midnights`, many at a time."""
        before = np.concatenate([[of_day[0] if self._last is None else self._last], of_day[:-1]])
        step = of_day - before
        days = self._day + np.cumsum((step < -PASSED).astype(np.int64) - (step > DAY - RETURN))
        self._day, self._last = int(days[-1]), int(of_day[-1])
        return days
