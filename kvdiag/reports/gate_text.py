"""The outcome of a check for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvdiag.gate import Drift, Outcome
from kvdiag.gate.codes import LEVELS, codes
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe

_COLOUR = {"error": "red", "warning": "yellow", "note": "cyan"}
SIDES = ("baseline line", "log line")
MOST_OF_A_CODE = 6
"""Warnings and notes of one code that are spelled out; the rest is counted."""


def render(outcome: Outcome, *, width: int, colour: bool) -> str:
    """The drifts, errors first, each with its reason and lines; then what was passed over, and the verdict."""
    paint = Paint(colour, width)
    return "\n".join([*drift_lines(outcome.drifts, paint), *_end(outcome, paint)]) + "\n"


def drift_lines(drifts: Iterable[Drift], paint: Paint, sides: tuple[str, str] = SIDES) -> Iterator[str]:
    """Each drift with its reason and lines; of many warnings or notes of one code the first few and a count.

    `sides` are the words for a line of either side. Where there is a drift, the last line says where codes are explained.
    """
    drifts = list(drifts)
    shown: dict[tuple[str, str], int] = {}
    for drift in drifts:
        key = (drift.level, drift.code)
        shown[key] = shown.get(key, 0) + 1
        if drift.level != "error" and shown[key] > MOST_OF_A_CODE:
            continue
        yield from _drift(drift, paint, sides)
    for (level, code), count in shown.items():
        if level != "error" and count > MOST_OF_A_CODE:
            more = f"{count - MOST_OF_A_CODE} more of {code} ({codes()[code].title}); --format json has every one"
            yield f"{paint.colour(f'{level:7}', _COLOUR[level])} {more}"
    if drifts:
        yield paint.dim(f"what a code means: kvdiag rules show {drifts[0].code}")


def _drift(drift: Drift, paint: Paint, sides: tuple[str, str]) -> Iterator[str]:
    head = f"{paint.colour(f'{drift.level:7}', _COLOUR[drift.level])} {drift.code} "
    text = list(Paint(False, paint.width - 14).wrap(safe(drift.message)))
    yield head + (text[0] if text else "")
    for line in text[1:]:
        yield " " * 14 + line
    if drift.reason:
        yield from paint.wrap(safe(drift.reason), " " * 14, dim=True)
    where = places(drift, sides)
    if where:
        yield " " * 14 + paint.dim(where)


def places(drift: Drift, sides: tuple[str, str] = SIDES) -> str:
    """The lines of both sides, as a short text."""
    parts = []
    if drift.baseline_lines and any(drift.baseline_lines):
        parts.append(f"{sides[0]} {', '.join(map(str, drift.baseline_lines))}")
    if drift.lines and any(drift.lines):
        parts.append(f"{sides[1]} {', '.join(map(str, drift.lines))}")
    return "; ".join(parts)


def _end(outcome: Outcome, paint: Paint) -> Iterator[str]:
    for drift in outcome.suppressed:
        yield from paint.wrap(f"suppressed {drift.code} {safe(drift.name)}: {safe(drift.suppressed)}", dim=True)
    if outcome.noise:
        names = ", ".join(dict.fromkeys(drift.name for drift in outcome.noise))
        reasons = list(dict.fromkeys(drift.reason for drift in outcome.noise))
        yield from paint.wrap(f"within noise: {safe(names)} ({safe('; '.join(reasons[:2]))})", dim=True)
    counts = ", ".join(
        f"{n} {level}{'s' if n != 1 else ''}"
        for level in reversed(LEVELS)
        if (n := sum(d.level == level for d in outcome.drifts))
    )
    if outcome.accepted and counts:
        yield paint.colour(f"accepted into the baseline: {counts}", "green")
    elif outcome.failed:
        yield paint.colour(f"failed: {counts}", "red")
    else:
        yield paint.colour(f"passed: {counts or 'no drift'}", "green")
