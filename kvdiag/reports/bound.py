"""A limit in words: one number, or the interval that the log leaves."""

from __future__ import annotations

from typing import Any

from kvdiag.checks.model import Bound
from kvdiag.quantity.figures import figure


def bound(limit: Bound) -> str:
    """The limit with thousands separated; whole numbers whole, others with two decimals."""
    if isinstance(limit, dict):
        return f"{_figure(limit['low'])} to {_figure(limit['high'])}"
    return _figure(limit) if limit is not None else "unknown"


WORDS = {
    "arrivals": "nothing waited",
    "max_running_requests": "the request cap",
    "kv_pool": "the KV pool",
    "swa_pool": "the sliding-window pool",
    "state_slots": "the state slots",
    "admission_reserve": "the admission reserve",
    "prefill": "prefill",
    "transfer": "transfer between prefill and decode",
    "unknown": "not told by the lines",
}
"""What bound, as a person is told it."""


def over_time(told: dict[str, Any] | None) -> str:
    """What bound by the scheduler lines, in a sentence; empty where there are none."""
    if not told:
        return ""
    shares = ", ".join(f"{WORDS.get(name, name)} {figure(share * 100, 0)} %" for name, share in told["shares"].items())
    lines = "line" if told["lines"] == 1 else "lines"
    return f"While serving ({told['lines']:,} {told['kind']} {lines}): {shares}."


def _figure(number: float) -> str:
    return figure(number, 0 if number == int(number) or abs(number) >= 1000 else 2)
