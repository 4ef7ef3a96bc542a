"""The JSON of the contract (``kvdiag.explain/1``)."""

from __future__ import annotations

import re
from typing import Any

from kvdiag.checks import Check, Diagnosis, Finding, StartDiagnosis
from kvdiag.checks.memory import Ledger
from kvdiag.frozen import names_of
from kvdiag.quantity import Interval
from kvdiag.reports.safe import inert_json, safe
from kvdiag.starts import Number

HIDDEN = "<hidden>"
"""Stands for a secret among the server arguments, in every report and whether or not the rest is masked."""
_SECRET = re.compile(r"(?:^|_)(?:api_key|password|hf_token|secret)$")


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain data; bytes, tokens, seconds and fractions only."""
    return {
        "schema": "kvdiag.explain/1",
        "inputs": [
            {"path": safe(i.path), "lines": i.lines, "bytes": i.bytes, "matched": i.matched, "truncated": i.unread or None}
            for i in diagnosis.inputs
        ],
        "starts": [_start(start) for start in diagnosis.starts],
        "unmatched": {
            "count": diagnosis.unmatched,
            "samples": [
                {
                    "line": each.line,
                    "text": safe(each.text, 500),
                    "template": safe(each.template, 500),
                    "count": each.count,
                    "like": each.like or None,
                }
                for each in diagnosis.unmatched_samples
            ],
        },
    }


def render(diagnosis: Diagnosis) -> str:
    """The JSON text."""
    return inert_json(to_dict(diagnosis))


def _start(item: StartDiagnosis) -> dict[str, Any]:
    start = item.start
    release = start.release
    return {
        "engine": start.engine,
        "stream": safe(start.stream) or None,
        "notes": list(start.notes),
        "release": {
            "stated": str(release.stated) if release and release.stated else None,
            "first": str(release.possible.first) if release and release.possible.first else None,
            "last": str(release.possible.last) if release and release.possible.last else None,
            "evidence": list(release.evidence) if release else [],
            "contradiction": (release.contradiction or None) if release else None,
        },
        "server_args": {name: HIDDEN if value and _SECRET.search(name) else value for name, value in start.server_args.items()},
        "model": _model(item),
        "numbers": [_number(number) for number in start.numbers],
        "checks": [_check(check) for check in item.checks],
        "limits": _limits(item),
        "memory": [part for ledger in item.memory for part in _memory(ledger)],
        "workload": _workload(item),
        "findings": [_finding(finding) for finding in item.findings],
    }


def _model(item: StartDiagnosis) -> dict[str, Any]:
    model: dict[str, Any] = {
        "name": item.start.server_args.get("served_model_name") or item.start.server_args.get("model_path"),
        "found_in": item.config.found_in if item.config else None,
        "place": item.config.place if item.config else None,
        "attention": None,
        "unsized": item.unsized or None,
    }
    if item.geometry is not None:
        model |= item.geometry.to_dict()
    return model


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    return interval.to_dict() if interval else None


def _number(number: Number) -> dict[str, Any]:
    bounds = number.interval.to_dict() if number.interval else {"low": None, "high": None, "unit": number.unit}
    return {
        "name": number.name,
        "value": number.value,
        **bounds,
        "rank": number.rank or None,
        "role": number.role,
        "line": number.line,
        "path": number.path,
        "superseded": number.superseded,
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "verdict": check.verdict,
        "rank": check.rank or None,
        "role": check.role,
        "observed": _interval(check.observed),
        "implied": check.implied,
        "recomputed": _interval(check.recomputed),
        "formula": check.formula,
        "terms": check.terms,
        "missing": list(check.missing),
        "lines": list(check.lines),
        "code": _code(check),
    }


def _code(check: Check) -> list[dict[str, Any]]:
    """The statements of the tree at hand; without a tree the symbol alone, whose line is not known."""
    if check.code:
        return [{name: getattr(step, name) for name in names_of(step)} for step in check.code]
    file, _, name = check.symbol.partition(" ")
    return [{"file": f"python/sglang/{file}", "symbol": name, "line": None}] if name else []


def _limits(item: StartDiagnosis) -> dict[str, Any] | None:
    limits = item.limits
    if limits is None:
        return None
    return {name: getattr(limits, name) for name in names_of(limits)}


def _memory(ledger: Ledger) -> list[dict[str, Any]]:
    """The parts of one rank's memory: they add up to what was free before loading."""
    return [{"part": part.part, **part.interval.to_dict(), "rank": ledger.rank or None} for part in ledger.parts]


def _workload(item: StartDiagnosis) -> dict[str, Any] | None:
    """The workload and what the pool does with it; None where neither is known."""
    if item.workload is None:
        return None
    levers = [
        {"change": each.change, "least": each.least.to_dict(), "most": each.most.to_dict()} for each in item.workload.levers
    ]
    return item.workload.workload.to_dict() | {"plan": item.workload.plan.to_dict(), "levers": levers}


def _finding(finding: Finding) -> dict[str, Any]:
    return {name: list(value) if isinstance(value := getattr(finding, name), tuple) else value for name in names_of(finding)}
