"""The outcome of a check as GitHub workflow commands, which annotate file and line."""

from __future__ import annotations

from kvdiag.gate import Drift, Outcome
from kvdiag.gate.codes import codes
from kvdiag.reports.gate_text import places
from kvdiag.reports.safe import safe

_COMMAND = {"error": "error", "warning": "warning", "note": "notice"}


def render(outcome: Outcome) -> str:
    """A workflow command for each drift, and the verdict as a last plain line."""
    lines = [_command(drift, outcome) for drift in outcome.drifts]
    verdict = "accepted" if outcome.accepted else "failed" if outcome.failed else "passed"
    lines.append(f"kvdiag check {verdict}")
    return "\n".join(lines) + "\n"


def _command(drift: Drift, outcome: Outcome) -> str:
    line = next((number for number in drift.lines if number > 0), 1)
    title = f"{drift.code} {codes()[drift.code].title}"
    text = ". ".join(part for part in (drift.message, drift.reason, places(drift)) if part)
    place = f"file={property_value(safe(outcome.log))},line={line},title={property_value(title)}"
    command = "notice" if outcome.accepted else _COMMAND[drift.level]
    return f"::{command} {place}::{data_value(safe(text))}"


def data_value(text: str) -> str:
    """`text` as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_value(text: str) -> str:
    """`text` as the value of a property of a workflow command."""
    return data_value(text).replace(":", "%3A").replace(",", "%2C")
