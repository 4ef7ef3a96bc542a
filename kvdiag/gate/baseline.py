"""The baseline file: a snapshot as JSON of one entry a line, read back exactly."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from typing import Any

from kvdiag.errors import BaselineError, ReleaseError
from kvdiag.gate.model import Checked, Shape, Snapshot, Stated
from kvdiag.quantity import Interval
from kvdiag.releases import parse_release
from kvdiag.small import not_json, small_text

SCHEMA = "kvdiag.baseline/1"
LARGEST = 8 << 20
"""Bytes of a baseline file that are read: the largest real one is a hundred times smaller."""


def to_dict(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as plain data, in an order that depends on its content alone."""
    release = snapshot.release
    return {
        "schema": SCHEMA,
        "release": {"first": release[0], "last": release[1]} if release else None,
        "model": snapshot.model,
        "ready": snapshot.ready,
        "arguments_line": snapshot.arguments_line,
        "arguments": snapshot.arguments,
        "numbers": [_number(n) for n in snapshot.numbers],
        "checks": [_check(c) for c in snapshot.checks],
        "findings": list(snapshot.findings),
        "shapes": [_shape(s) for s in snapshot.shapes],
    }


def write_baseline(snapshot: Snapshot) -> str:
    """The text of the baseline file: one entry a line, so that a change of one number is a change of one line."""
    parts = []
    for key, value in to_dict(snapshot).items():
        if isinstance(value, list) and value:
            inner = ",\n  ".join(_compact(item) for item in value)
            parts.append(f' "{key}": [\n  {inner}\n ]')
        elif isinstance(value, dict) and key == "arguments" and value:
            inner = ",\n  ".join(f"{json.dumps(name)}: {_compact(item)}" for name, item in value.items())
            parts.append(f' "{key}": {{\n  {inner}\n }}')
        else:
            parts.append(f' "{key}": {_compact(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=False)


def _value(value: Interval | str) -> dict[str, Any]:
    return {"text": value} if isinstance(value, str) else value.to_dict()


def _number(n: Stated) -> dict[str, Any]:
    head: dict[str, Any] = {"name": n.name}
    if n.role:
        head["role"] = n.role
    if any(n.ranks):
        head["ranks"] = list(n.ranks)
    return head | _value(n.value) | {"line": n.line}


def _check(c: Checked) -> dict[str, Any]:
    head: dict[str, Any] = {"name": c.name}
    if c.role:
        head["role"] = c.role
    head["verdict"] = c.verdict
    if c.recomputed is not None:
        head["recomputed"] = c.recomputed.to_dict()
    return head | {"formula": c.formula, "line": c.line}


def _shape(s: Shape) -> dict[str, Any]:
    head: dict[str, Any] = {"text": s.text, "family": s.family, "stage": s.stage, "line": s.line}
    return head | ({"error": True} if s.error else {})


def read_baseline(path: str) -> Snapshot:
    """The snapshot in the baseline file at `path`. Raises BaselineError with the place of what is wrong."""
    return parse_baseline(small_text(path, LARGEST, BaselineError, _advice(path)), path)


def _advice(path: str) -> str:
    """What to do for a baseline: a path at which there is something else is never proposed to be written to."""
    where = "FILE" if os.path.lexists(path) else path
    return f"write one with: kvdiag baseline LOG -o {where}"


def parse_baseline(text: str, path: str) -> Snapshot:
    """As `read_baseline`, from the file's text."""
    try:
        data = json.loads(text, parse_float=_decimal, parse_constant=_refuse, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise BaselineError(not_json(path, error, _advice(path))) from None
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path}: not a baseline: {error}; {_advice(path)}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BaselineError(f"{path}: {_what_else(data)}; {_advice(path)}")
    try:
        return _snapshot(data)
    except (KeyError, TypeError, ValueError, AttributeError, ReleaseError) as error:
        what = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise BaselineError(f"{path}: not a whole baseline: {what}; {_advice(path)}") from None


def _what_else(data: Any) -> str:
    """What a JSON text that is no baseline is, as far as it tells."""
    if not isinstance(data, dict):
        return "no baseline of kvdiag: its JSON is no object"
    if "schema" not in data:
        return f"no baseline of kvdiag: it lacks the key schema, which is {SCHEMA!r} in one"
    return f"no baseline of kvdiag: its schema is {str(data['schema'])[:60]!r}, not {SCHEMA!r}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys all stand once: of two with one name JSON keeps the last, and a reader sees the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _decimal(text: str) -> Fraction:
    """A JSON number as the exact decimal it is; one with a huge exponent would take all memory, and is refused."""
    exponent = text.lower().partition("e")[2].lstrip("+-")
    if len(text) > 60 or len(exponent) > 2:
        raise ValueError(f"the number {text[:60]} is not one that kvdiag writes")
    return Fraction(text)


def _snapshot(data: dict[str, Any]) -> Snapshot:
    release = data["release"]
    if release and parse_release(str(release["first"])) > parse_release(str(release["last"])):
        raise ValueError(f"the releases {release['first']} to {release['last']} are no range")
    return Snapshot(
        release=(str(release["first"]), str(release["last"])) if release else None,
        model={str(k): str(v) for k, v in data["model"].items()},
        arguments={str(k): _native(v) for k, v in data["arguments"].items()},
        arguments_line=int(data["arguments_line"]),
        ready=bool(data["ready"]),
        numbers=tuple(_read_number(n) for n in data["numbers"]),
        checks=tuple(_read_check(c) for c in data["checks"]),
        findings=tuple(str(code) for code in data["findings"]),
        shapes=tuple(
            Shape(str(s["text"]), s["family"] and str(s["family"]), str(s["stage"]), bool(s.get("error")), int(s["line"]))
            for s in data["shapes"]
        ),
    )


def _native(value: Any) -> Any:
    """Arguments are compared as what the log's own literals are: floats, not exact fractions."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, list):
        return [_native(item) for item in value]
    if isinstance(value, dict):
        return {key: _native(item) for key, item in value.items()}
    return value


def _interval(entry: dict[str, Any]) -> Interval:
    return Interval(_exact(entry["low"]), _exact(entry["high"]), str(entry["unit"]))


def _exact(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise ValueError(f"{value!r} is no number")
    return Fraction(value)


def _read_number(entry: dict[str, Any]) -> Stated:
    value = str(entry["text"]) if "text" in entry else _interval(entry)
    ranks = tuple(str(rank) for rank in entry.get("ranks", [""]))
    return Stated(str(entry["name"]), entry.get("role"), ranks, value, int(entry["line"]))


def _read_check(entry: dict[str, Any]) -> Checked:
    recomputed = _interval(entry["recomputed"]) if "recomputed" in entry else None
    verdict = str(entry["verdict"])
    if verdict not in ("agree", "disagree", "unknown"):
        raise ValueError(f"the verdict {verdict!r} is none of agree, disagree, unknown")
    return Checked(str(entry["name"]), entry.get("role"), verdict, recomputed, str(entry["formula"]), int(entry["line"]))
