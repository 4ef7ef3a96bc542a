"""One HTML file that opens offline: memory, chain of numbers, findings, and the timeline with zoom and a shared cursor.

It is made from the same data as the JSON, so that their numbers cannot differ.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvdiag.postmortem import Postmortem
from kvdiag.quantity import Interval
from kvdiag.quantity.figures import memory
from kvdiag.reports import postmortem_json
from kvdiag.reports.because import because
from kvdiag.reports.bound import bound, over_time
from kvdiag.reports.safe import safe
from kvdiag.reports.sides import sides
from kvdiag.reports.workload_text import users

_PAGE = Path(__file__).parent / "page"
_CHARTS = (
    ("Usage of the pools", ("usage", "swa_usage", "state_usage")),
    ("Running and queued requests", ("running", "queued")),
    ("Generated tokens a second", ("throughput",)),
)
_MIDDLE = 160
_ROOM = 640


def render(postmortem: Postmortem) -> str:
    """The page as text."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_PAGE), autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["shown"] = lambda value: "-" if value is None else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"
    style, script = ((_PAGE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    data = postmortem_json.to_dict(postmortem)
    curves = [review.curve if review else {} for review in postmortem.reviews]
    starts = [
        _start(start, curve) | {"users": users(item.workload, item.unplanned)}
        for start, curve, item in zip(data["starts"], curves, postmortem.diagnosis.starts, strict=True)
    ]
    return environment.get_template("report.html").render(
        starts=starts,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _start(start: dict[str, Any], curve: dict[str, list[Any]]) -> dict[str, Any]:
    release = start["release"]
    told = release["first"] if release["first"] == release["last"] else f"{release['first']}..{release['last']}"
    model = start["model"]
    sizes = ", ".join(
        f"{key} {start['server_args'][key]}" for key in ("tp_size", "dp_size", "pp_size") if key in start["server_args"]
    )
    drawn = {**curve, "phases": _seconds(start["phases"], curve)} if curve else {}
    return {
        "title": safe(f"SGLang {told}: {model.get('name') or 'model not named'}"),
        "subtitle": safe("; ".join(part for part in (str(model.get("attention") or model.get("unsized") or ""), sizes) if part)),
        "memory": list(_memory(start["memory"])),
        "checks": [_check(check) for check in start["checks"]],
        "findings": [_finding(finding) for finding in start["findings"]],
        "limits": _limits(start["limits"]),
        "rows": f"{start['timeline']['rows']:,}",
        "begin": start["timeline"]["from"],
        "end": start["timeline"]["to"],
        "phases": start["phases"],
        "curve": drawn,
        "charts": [{"title": title, "series": known} for title, names in _CHARTS if (known := [n for n in names if n in curve])],
    }


def _finding(finding: dict[str, Any]) -> dict[str, str]:
    texts = {key: safe(str(finding[key] or "")) for key in ("code", "level", "title", "message", "advice", "risk")}
    return texts | {"lines": _lines(finding)}


def _seconds(phases: list[dict[str, Any]], curve: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Phases with their ends in seconds from the origin of the curve."""
    from datetime import datetime

    origin = curve["origin"][0]
    if not origin:
        return []
    zero = datetime.fromisoformat(origin)
    ends = [[(datetime.fromisoformat(phase[key]) - zero).total_seconds() for key in ("from", "to")] for phase in phases]
    return [{"from": begin, "to": end, "kind": phase["kind"]} for phase, (begin, end) in zip(phases, ends, strict=True)]


def _lines(item: dict[str, Any]) -> str:
    lines = [str(line) for line in item["lines"]]
    return ", ".join(lines[:8]) + (f" and {len(lines) - 8} more" if len(lines) > 8 else "")


def _check(check: dict[str, Any]) -> dict[str, Any]:
    observed, recomputed = sides(check["verdict"], _interval(check["observed"]), _interval(check["recomputed"]))
    return {
        "name": check["name"] + (f" ({check['role']})" if check["role"] else ""),
        "rank": check["rank"] or "",
        "verdict": check["verdict"],
        "observed": f"implied: {observed}" if observed and check["implied"] else observed,
        "observed_exact": _exact(check["observed"]),
        "recomputed": recomputed,
        "recomputed_exact": _exact(check["recomputed"]),
        "formula": check["formula"],
        "missing": [because(safe(reason)) for reason in check["missing"]],
        "lines": _lines(check),
    }


def _interval(interval: dict[str, Any] | None) -> Interval | None:
    return None if interval is None else Interval.of(interval["low"], interval["high"], interval["unit"])


def _exact(interval: dict[str, Any] | None) -> str:
    """An interval of the JSON with all its digits, to be seen under the pointer."""
    if interval is None:
        return ""
    low, high = interval["low"], interval["high"]
    return f"{low:,} {interval['unit']}" if low == high else f"{low:,} .. {high:,} {interval['unit']}"


def _limits(limits: dict[str, Any] | None) -> str:
    if not limits:
        return "unknown"
    parts = [f"{limits['binding']}: {limits.get('why') or ''}".rstrip(": ")]
    for key, words in (("max_total_num_tokens", "tokens in the pool"), ("max_running_requests", "requests at once")):
        if limits.get(key) is not None:
            parts.append(f"{bound(limits[key])} {words}")
    if limits.get("largest_request_tokens") is not None:
        parts.append(f"longest request {bound(limits['largest_request_tokens'])} tokens")
    if limits.get("over_time"):
        parts.append(over_time(limits["over_time"]))
    return safe("; ".join(parts))


def _memory(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A waterfall for each rank; ranks whose figures are the same share one."""
    alike: dict[str, list[str]] = {}
    drawn: dict[str, list[dict[str, Any]]] = {}
    for rank in dict.fromkeys(part["rank"] for part in parts):
        rows = _waterfall([part for part in parts if part["rank"] == rank])
        alike.setdefault(repr(rows), []).append(rank or "the only rank")
        drawn[repr(rows)] = rows
    for key, ranks in alike.items():
        yield {"rank": ", ".join(ranks), "rows": drawn[key]}


def _waterfall(mine: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each part begins where the one before ended, by the middle of its interval."""
    middles = [max(0.0, (part["low"] + part["high"]) / 2) for part in mine]
    whole = sum(middles) or 1.0
    rows, begin = [], 0.0
    for part, middle in zip(mine, middles, strict=True):
        x, width = _MIDDLE + begin / whole * _ROOM, max(1.0, middle / whole * _ROOM)
        rows.append(
            {
                "part": part["part"],
                "x": round(x, 1),
                "width": round(width, 1),
                "label_x": round(x + width + 6, 1),
                "anchor": "start",
                "label": memory(Interval.of(part["low"], part["high"], "bytes")),
                "low": f"{part['low']:,}",
                "high": f"{part['high']:,}",
            }
        )
        begin += middle
    return rows
