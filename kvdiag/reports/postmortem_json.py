"""The JSON of the contract (``kvdiag.postmortem/1``): that of ``explain`` with a timeline and phases for each start."""

from __future__ import annotations

from typing import Any

from kvdiag.postmortem import Postmortem
from kvdiag.reports import json_report
from kvdiag.reports.safe import inert_json


def to_dict(postmortem: Postmortem) -> dict[str, Any]:
    """The postmortem as plain data."""
    whole = json_report.to_dict(postmortem.diagnosis)
    whole["schema"] = "kvdiag.postmortem/1"
    for start, review in zip(whole["starts"], postmortem.reviews, strict=True):
        start |= review.to_dict() if review else {"timeline": {"rows": 0, "from": None, "to": None}, "phases": []}
    return whole


def render(postmortem: Postmortem) -> str:
    """The JSON text."""
    return inert_json(to_dict(postmortem))
