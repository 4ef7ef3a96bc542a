"""The difference of two logs: the JSON of the contract (``kvdiag.diff/1``) and the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.gate import Observation
from kvdiag.gate.code import CodeChanges
from kvdiag.gate.difference import Difference
from kvdiag.gate.model import Snapshot, Stated
from kvdiag.gate.words import amount
from kvdiag.quantity import Interval
from kvdiag.reports.gate_json import drift_dict
from kvdiag.reports.gate_text import drift_lines
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import inert_json, safe
from kvdiag.source import PathStep


def to_dict(difference: Difference) -> dict[str, Any]:
    """The difference as plain data; the tokens of the terms add up to ``total_tokens``."""
    tokens = [budget.tokens if budget else None for budget in difference.budgets]
    return {
        "schema": "kvdiag.diff/1",
        "a": _side(difference.a, tokens[0]),
        "b": _side(difference.b, tokens[1]),
        "total_tokens": difference.total,
        "expected_tokens": difference.expected.to_dict() if difference.expected else None,
        "terms": [
            {
                "cause": t.cause,
                "tokens": t.tokens,
                "why": safe(t.why),
                "code": [_place(s) for s in difference.code.get(t.cause, ())],
            }
            for t in difference.terms
        ],
        "code_changes": _code_changes(difference.code_changes),
        "numbers": [
            {"name": name, "role": role, "a": _plain(x), "b": _plain(y)}
            for name, role, x, y in _rows(difference.a.snapshot, difference.b.snapshot)
        ],
        "findings": [drift_dict(drift) for drift in difference.drifts],
        "noise": [drift_dict(drift) for drift in difference.noise],
    }


def render(difference: Difference) -> str:
    """The JSON text."""
    return inert_json(to_dict(difference))


def _place(step: PathStep) -> dict[str, Any]:
    return {"file": safe(step.file), "symbol": safe(step.symbol), "line": step.line, "expression": safe(step.expression, 500)}


def _code_changes(found: CodeChanges | None) -> dict[str, Any] | None:
    if found is None:
        return None
    changes = [
        {
            "kind": change.kind,
            "step": safe(change.step),
            "when": safe(change.when),
            "sentence": safe(change.sentence, 2000),
            "before": [safe(item, 800) for item in change.before],
            "after": [safe(item, 800) for item in change.after],
        }
        for change in found.changes
    ]
    return {"older": found.older, "newer": found.newer, "changes": changes, "missing": safe(found.missing)}


def _side(observed: Observation, tokens: int | None) -> dict[str, Any]:
    snapshot = observed.snapshot
    release = snapshot.release
    return {
        "path": safe(observed.path),
        "max_total_num_tokens": tokens,
        "release": {"first": release[0], "last": release[1]} if release else None,
        "model": snapshot.model,
        "ready": snapshot.ready,
    }


def _rows(a: Snapshot, b: Snapshot) -> Iterator[tuple[str, str | None, Stated | None, Stated | None]]:
    """Each number once, with the first statement on either side."""
    keys = dict.fromkeys((n.name, n.role) for s in (a, b) for n in s.numbers)
    for name, role in sorted(keys, key=lambda key: (key[0], key[1] or "")):
        sides = [next((n for n in s.numbers if (n.name, n.role) == (name, role)), None) for s in (a, b)]
        yield name, role, sides[0], sides[1]


def _plain(number: Stated | None) -> dict[str, Any] | str | None:
    if number is None:
        return None
    return number.value.to_dict() | {"line": number.line} if isinstance(number.value, Interval) else safe(number.value)


def render_text(difference: Difference, *, width: int, colour: bool) -> str:
    """The causes of the change of capacity, the largest first, the numbers side by side, then every difference."""
    paint = Paint(colour, width)
    lines = [
        *_capacity(difference, paint),
        *_release_changes(difference, paint),
        "",
        *_table(difference, paint),
        "",
        *_differences(difference, paint),
    ]
    return "\n".join(lines) + "\n"


def _capacity(difference: Difference, paint: Paint) -> Iterator[str]:
    yield f"A  {safe(difference.a.path)}"
    yield f"B  {safe(difference.b.path)}"
    yield ""
    first, second = difference.budgets
    if difference.total is None or first is None or second is None:
        yield "One of the logs states no capacity: there is nothing to take apart."
        return
    share = f" ({difference.total / first.tokens:+.1%})" if first.tokens else ""
    yield paint.bold(f"max_total_num_tokens  {first.tokens:,} -> {second.tokens:,}  {difference.total:+,} tokens{share}")
    for term in difference.terms:
        yield f"  {term.tokens:>+14,}  {paint.colour(term.cause, 'cyan')}"
        yield from paint.wrap(safe(term.why), " " * 18, dim=True)
        for step in difference.code.get(term.cause, ()):
            yield " " * 18 + safe(f"{step.file}:{step.line} {step.symbol}")
            yield from paint.wrap(safe(step.expression, 500), " " * 20)
    if len(difference.terms) > 1:
        yield f"  {difference.total:>+14,}  in all; the shares are means over the orders in which the causes may be changed"
        allowed = difference.expected
        if allowed and allowed.high - allowed.low >= 2:
            rest = "" if difference.total in allowed else "; the rest needs another cause"
            said = (
                f"The printed digits alone leave {float(allowed.low):+,.0f} to {float(allowed.high):+,.0f} tokens of "
                f"change{rest}. The shares are figured from the middles of the printed values."
            )
            yield from paint.wrap(said, " " * 18, dim=True)


def _release_changes(difference: Difference, paint: Paint) -> Iterator[str]:
    """What the source has different; a path that only some models take is named with them."""
    found = difference.code_changes
    if found is None:
        return
    yield ""
    yield paint.bold(f"In the source of max_total_num_tokens, {found.older} -> {found.newer}")
    if found.missing:
        yield from paint.wrap("not compared: " + safe(found.missing), "  ")
    elif not found.changes:
        yield "  the same statements"
    for change in found.changes:
        yield from paint.wrap(safe(change.sentence, 2000), "  ")


def _table(difference: Difference, paint: Paint) -> Iterator[str]:
    each = max(12, min(24, (paint.width - 39) // 2))
    yield paint.bold(f"{'number':34} {'A':>{each}} {'B':>{each}}")
    for name, role, a, b in _rows(difference.a.snapshot, difference.b.snapshot):
        label = f"{name} ({role})" if role == "draft" else name
        left, right = (safe(shown_value(x)) for x in (a, b))
        same = a is not None and b is not None and _alike(a, b)
        row = f"{label:34} {left:>{each}} {right:>{each}}"
        yield paint.dim(row) if same else f"{row}  *"


def shown_value(number: Stated | None) -> str:
    """A number for the table, a dash where a side does not state it."""
    return "-" if number is None else amount(number.value)


def _alike(a: Stated, b: Stated) -> bool:
    if isinstance(a.value, Interval) and isinstance(b.value, Interval) and a.value.unit == b.value.unit:
        return a.value.meets(b.value)
    return a.value == b.value


def _differences(difference: Difference, paint: Paint) -> Iterator[str]:
    if not difference.drifts:
        yield "No difference beyond noise."
    yield from drift_lines(difference.drifts, paint, ("A line", "B line"))
    if difference.noise:
        names = ", ".join(dict.fromkeys(drift.name for drift in difference.noise))
        yield from paint.wrap(f"within noise: {safe(names)}", dim=True)
