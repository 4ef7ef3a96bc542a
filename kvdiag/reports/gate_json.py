"""The JSON of ``kvdiag check`` (``kvdiag.check/1``)."""

from __future__ import annotations

from typing import Any

from kvdiag.gate import Drift, Outcome
from kvdiag.gate.codes import LEVELS, codes
from kvdiag.quantity import Interval
from kvdiag.reports.safe import inert_json, safe


def to_dict(outcome: Outcome, baseline: str | None, policy: str | None) -> dict[str, Any]:
    """The outcome as plain data: drifts, what was noise and why, what was suppressed."""
    return {
        "schema": "kvdiag.check/1",
        "log": safe(outcome.log),
        "baseline": baseline,
        "policy": policy,
        "failed": outcome.failed,
        "fail_on": outcome.fail_on,
        "counts": {level: sum(drift.level == level for drift in outcome.drifts) for level in reversed(LEVELS)},
        "drifts": [drift_dict(drift) for drift in outcome.drifts],
        "noise": [drift_dict(drift) for drift in outcome.noise],
        "suppressed": [drift_dict(drift) for drift in outcome.suppressed],
    }


def render(outcome: Outcome, baseline: str | None, policy: str | None) -> str:
    """The JSON text."""
    return inert_json(to_dict(outcome, baseline, policy))


def drift_dict(drift: Drift) -> dict[str, Any]:
    """One drift as plain data."""
    return {
        "code": drift.code,
        "level": drift.level,
        "title": codes()[drift.code].title,
        "subject": safe(drift.subject),
        "role": drift.role,
        "ranks": [rank for rank in drift.ranks if rank],
        "message": safe(drift.message),
        "reason": safe(drift.reason) or None,
        "follows": drift.follows or None,
        "before": _value(drift.before),
        "after": _value(drift.after),
        "baseline_lines": list(drift.baseline_lines),
        "lines": list(drift.lines),
        "suppressed": drift.suppressed or None,
    }


def _value(value: Interval | str | None) -> dict[str, Any] | str | None:
    return value.to_dict() if isinstance(value, Interval) else safe(value) if value is not None else None
