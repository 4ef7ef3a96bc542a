"""Why something is unknown, as a sentence."""

from __future__ import annotations


def because(reason: str) -> str:
    """``unknown, because ...``; the reasons are clauses, those for which the arithmetic refuses are about kvdiag."""
    return f"unknown, because {'kvdiag ' if reason.startswith('cannot ') else ''}{reason}"
