"""The outcome of a check as SARIF 2.1.0, for code scanning services."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from kvdiag import __version__
from kvdiag.gate import Drift, Outcome
from kvdiag.gate.codes import Code, codes
from kvdiag.reports.gate_text import places
from kvdiag.reports.safe import safe

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NAME = "kvdiag"


def render(outcome: Outcome) -> str:
    """One run: a rule for each code that occurs, a result for each drift, at its line of the log."""
    used = [code for code in codes() if any(d.code == code for d in (*outcome.drifts, *outcome.suppressed))]
    results = [_result(drift, outcome.log, used) for drift in (*outcome.drifts, *outcome.suppressed)]
    run = {
        "tool": {"driver": {"name": _NAME, "version": __version__, "rules": [_rule(codes()[code]) for code in used]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "exitCode": int(outcome.failed)}],
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=1)


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.code,
        "name": "".join(word.capitalize() for word in code.title.replace("-", " ").split()),
        "shortDescription": {"text": code.title},
        "fullDescription": {"text": code.meaning},
        "help": {"text": code.advice},
    }


def _result(drift: Drift, log: str, used: list[str]) -> dict[str, Any]:
    parts = [drift.message, drift.reason, places(drift)]
    result: dict[str, Any] = {
        "ruleId": drift.code,
        "ruleIndex": used.index(drift.code),
        "level": drift.level,
        "message": {"text": safe(". ".join(part for part in parts if part))},
        "locations": [_location(log, line) for line in _lines(drift)[:1]],
        "partialFingerprints": {"kvdiag/v1": f"{drift.code}:{safe(drift.name)}:{','.join(drift.ranks)}"},
    }
    related = _lines(drift)[1:]
    if related:
        result["relatedLocations"] = [_location(log, line) for line in related]
    if drift.suppressed:
        result["suppressions"] = [{"kind": "external", "justification": safe(drift.suppressed)}]
    return result


def _lines(drift: Drift) -> list[int]:
    return [line for line in drift.lines if line > 0] or [1]


def _location(log: str, line: int) -> dict[str, Any]:
    uri = quote(log.replace("\\", "/")) if log != "-" else "stdin"
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}}
