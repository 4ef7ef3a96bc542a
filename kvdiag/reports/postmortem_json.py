"""The JSON of the contract (``kvdiag.postmortem/1``): that of ``explain`` with a timeline and phases for each start."""

from __future__ import annotations

import json
from typing import Any

from kvdiag.postmortem import Postmortem
from kvdiag.reports import json_report


def to_dict(postmortem: Postmortem) -> dict[str, Any]:
    """The postmortem as plain data."""
    whole = json_report.to_dict(postmortem.diagnosis)
    whole["schema"] = "kvdiag.postmortem/1"
    for start, review in zip(whole["starts"], postmortem.reviews, strict=True):
        start |= review.to_dict() if review else {"timeline": {"rows": 0, "from": None, "to": None}, "phases": []}
    return whole


def render(postmortem: Postmortem) -> str:
    """The JSON text."""
    return json.dumps(to_dict(postmortem), ensure_ascii=False, indent=1)
