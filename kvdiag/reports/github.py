"""The outcome of a check as GitHub workflow commands, which annotate file and line."""

from __future__ import annotations

from kvdiag.gate import Drift, Outcome
from kvdiag.gate.codes import codes
from kvdiag.reports.gate_text import places
from kvdiag.reports.safe import safe

_COMMAND = {"error": "error", "warning": "warning", "note": "notice"}


def render(outcome: Outcome) -> str:
    """A workflow command for each drift, and the verdict as a last plain line."""
    lines = [_command(drift, outcome.log) for drift in outcome.drifts]
    lines.append("kvdiag check failed" if outcome.failed else "kvdiag check passed")
    return "\n".join(lines) + "\n"


def _command(drift: Drift, log: str) -> str:
    line = next((number for number in drift.lines if number > 0), 1)
    title = f"{drift.code} {codes()[drift.code].title}"
    text = ". ".join(part for part in (drift.message, drift.reason, places(drift)) if part)
    place = f"file={property_value(safe(log))},line={line},title={property_value(title)}"
    return f"::{_COMMAND[drift.level]} {place}::{data_value(safe(text))}"


def data_value(text: str) -> str:
    """`text` as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_value(text: str) -> str:
    """`text` as the value of a property of a workflow command."""
    return data_value(text).replace(":", "%3A").replace(",", "%2C")
