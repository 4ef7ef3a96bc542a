"""The predictions of ``kvdiag whatif``, as the JSON of the contract and as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.checks.remarks import REFUSED
from kvdiag.checks.whatif import NUMBERS, Prediction
from kvdiag.quantity import GIB, Interval
from kvdiag.quantity.figures import memory
from kvdiag.reports.because import because
from kvdiag.reports.paint import Paint
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
        "now": {name: _interval(value) for name, value in prediction.now.items()},
    }


def _workload(prediction: Prediction) -> dict[str, Any] | None:
    if prediction.workload is None:
        return None
    workload, least, most = prediction.workload
    return workload.to_dict() | {"least": least.to_dict(), "most": most.to_dict()}


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    return interval.to_dict() if interval else None


def render_text(predictions: list[Prediction], width: int = 100) -> str:
    """A paragraph for each combination of changes, of at most `width` columns but for the lines of numbers."""
    paint = Paint(False, width)
    return "\n\n".join("\n".join(_paragraph(prediction, paint)) for prediction in predictions) + "\n"


def _paragraph(prediction: Prediction, paint: Paint) -> Iterator[str]:
    yield ", ".join(f"{name}={safe(str(value))}" for name, value in prediction.changes.items())
    for name in ("bytes_per_token", "rest_memory_bytes", *(name for name, _ in NUMBERS)):
        interval = prediction.numbers.get(name)
        if interval is not None:
            yield f"  {name:28} {_figure(interval)}{_beside(prediction.now.get(name), interval)}"
    said = []
    if prediction.workload is not None:
        workload, least, most = prediction.workload
        said.append(sentences(workload, least))
        if most.to_dict() | {"tokens": 0} != least.to_dict() | {"tokens": 0}:
            said.append(f"At the upper end: {sentences(workload, most)}")
    said += [_why(safe(text)) for text in prediction.missing]
    said += [f"note: {safe(text)}" for text in prediction.notes]
    for sentence in said:
        yield from paint.wrap(sentence, "  ")


def _why(text: str) -> str:
    """Why there is no capacity; that a server would not start is an answer, not something that lacks."""
    return text if text.startswith(REFUSED) else f"max_total_num_tokens is {because(text)}"


def _figure(interval: Interval) -> str:
    """A number with its unit; of large amounts of memory also in GiB."""
    told = f"{_range(interval)} {interval.unit}"
    is_large = interval.unit == "bytes" and max(abs(interval.low), abs(interval.high)) >= GIB // 10
    return f"{told} ({memory(interval)})" if is_large else told


def _beside(now: Interval | None, then: Interval) -> str:
    """What the number is in the log, where the change moves it."""
    if now is None or now == then:
        return ""
    return f", now {memory(now) if now.unit == 'bytes' and now.high >= GIB // 10 else _range(now)}"


def _range(interval: Interval) -> str:
    low, high = (f"{float(end):,.0f}" for end in (interval.low, interval.high))
    return low if low == high else f"{low} to {high}"
