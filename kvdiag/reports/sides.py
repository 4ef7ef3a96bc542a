"""The two sides of a check as every report shows them."""

from __future__ import annotations

from kvdiag.quantity import Interval
from kvdiag.quantity.ends import apart, ends


def sides(verdict: str, observed: Interval | None, recomputed: Interval | None) -> tuple[str, str]:
    """What the log has and what was recomputed, empty where there is none; where they disagree, so that it is seen."""
    if verdict == "disagree" and observed is not None and recomputed is not None:
        return apart(observed, recomputed)
    return ends(observed) if observed else "", ends(recomputed) if recomputed else ""
