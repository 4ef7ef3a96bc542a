"""The predictions of ``kvdiag whatif``, as the JSON of the contract and as text."""

from __future__ import annotations

from typing import Any

from kvdiag.checks.whatif import NUMBERS, Prediction
from kvdiag.quantity import Interval
from kvdiag.reports.safe import inert_json, safe
from kvdiag.reports.workload_text import sentences


def to_list(predictions: list[Prediction]) -> list[dict[str, Any]]:
    """One object a combination of changes, with the keys of ``kvdiag size`` and intervals for values."""
    return [_item(prediction) for prediction in predictions]


def render_json(predictions: list[Prediction]) -> str:
    """The JSON text."""
    return inert_json(to_list(predictions))


def _item(prediction: Prediction) -> dict[str, Any]:
    numbers = {name: _interval(prediction.numbers.get(name)) for name, _ in NUMBERS}
    releases = prediction.releases
    return {
        "schema": "kvdiag.size/1",
        "release": str(releases[0]) if len(releases) == 1 else f"{releases[0]}..{releases[-1]}",
        "changes": prediction.changes,
        "kv_heads_per_rank": (prediction.terms or {}).get("kv_heads_per_rank"),
        "bytes_per_token": _interval(prediction.numbers.get("bytes_per_token")),
        "rest_memory_bytes": _interval(prediction.numbers.get("rest_memory_bytes")),
        **numbers,
        "formula": prediction.formula,
        "terms": prediction.terms or {},
        "notes": list(prediction.notes),
        "missing": list(prediction.missing),
        "workload": _workload(prediction),
    }


def _workload(prediction: Prediction) -> dict[str, Any] | None:
    if prediction.workload is None:
        return None
    workload, least, most = prediction.workload
    return workload.to_dict() | {"least": least.to_dict(), "most": most.to_dict()}


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    return interval.to_dict() if interval else None


def render_text(predictions: list[Prediction]) -> str:
    """A paragraph for each combination of changes."""
    return "\n\n".join(_paragraph(prediction) for prediction in predictions) + "\n"


def _paragraph(prediction: Prediction) -> str:
    lines = [", ".join(f"{name}={safe(str(value))}" for name, value in prediction.changes.items())]
    for name in ("bytes_per_token", "rest_memory_bytes", *(name for name, _ in NUMBERS)):
        interval = prediction.numbers.get(name)
        if interval is not None:
            lines.append(f"  {name:28} {_range(interval)} {interval.unit}")
    if prediction.workload is not None:
        workload, least, most = prediction.workload
        lines.append(f"  {sentences(workload, least)}")
        if most.to_dict() | {"tokens": 0} != least.to_dict() | {"tokens": 0}:
            lines.append(f"  At the upper end: {sentences(workload, most)}")
    lines += [f"  missing: {safe(text)}" for text in prediction.missing]
    lines += [f"  note: {safe(text)}" for text in prediction.notes]
    return "\n".join(lines)


def _range(interval: Interval) -> str:
    low, high = (f"{float(end):,.0f}" for end in (interval.low, interval.high))
    return low if low == high else f"{low} to {high}"
