"""From a log to the snapshot of its last start."""

from __future__ import annotations

from fractions import Fraction

from kvdiag.checks import Check, Diagnosis, StartDiagnosis
from kvdiag.errors import NotSglangError
from kvdiag.frozen import frozen, replace
from kvdiag.gate.arguments import kept_arguments, last_part
from kvdiag.gate.model import Checked, Snapshot, Stated
from kvdiag.gate.shapes import Shapes
from kvdiag.lines.personal import impersonal
from kvdiag.pipeline import explain
from kvdiag.quantity import Interval
from kvdiag.starts import Number, Start

_WORST = ("disagree", "unknown", "agree")


@frozen
class Observation:
    """A log as the gate sees it: the snapshot of its last start-up, and the diagnosis it was taken from."""

    path: str
    snapshot: Snapshot
    diagnosis: Diagnosis
    start: StartDiagnosis

    @property
    def others(self) -> int:
        """Starts in the log beside the one that was taken."""
        return len(self.diagnosis.starts) - 1


def observe(path: str, *, config: str | None = None, model: str | None = None, release: str | None = None) -> Observation:
    """Reads the log at `path` and takes the snapshot of the last start in it. Raises what ``explain`` raises."""
    shapes = Shapes()
    diagnosis = explain([path], config=config, model=model, release=release, tap=shapes.add)
    if not diagnosis.starts:
        raise NotSglangError(f"{path}: no start of an SGLang server in it; give the log from the server's first line on")
    item = _last(diagnosis.starts)
    begin = _first_line(item.start) if len(diagnosis.starts) > 1 else 0
    return Observation(path, snapshot_of(item, shapes, begin), diagnosis, item)


def _last(starts: list[StartDiagnosis]) -> StartDiagnosis:
    """The last start of which the log has the start-up; a group of scheduler lines alone says nothing to compare."""
    begun = [item for item in starts if item.start.server_args or item.start.numbers]
    return begun[-1] if begun else starts[-1]


def _first_line(start: Start) -> int:
    lines = [number.line for number in start.numbers]
    if start.server_args_line:
        lines.append(start.server_args_line)
    lines += [event.record.line.number for event in start.events[:1]]
    return min(lines, default=0)


def snapshot_of(item: StartDiagnosis, shapes: Shapes, begin: int = 0) -> Snapshot:
    """The snapshot of one start; `begin` is its first line where the log holds earlier ones."""
    start = item.start
    possible = start.release.possible if start.release else None
    release = (str(possible.first), str(possible.last)) if possible and possible.first and possible.last else None
    return Snapshot(
        release=release,
        model=_model(item),
        arguments=kept_arguments(start.server_args),
        arguments_line=start.server_args_line,
        ready=bool(start.events_of("ready")),
        numbers=_stated(_final(start)),
        checks=_checked(item.checks),
        findings=tuple(sorted({finding.code for finding in item.findings if finding.level == "error"})),
        shapes=shapes.since(begin),
    )


def _model(item: StartDiagnosis) -> dict[str, str]:
    start = item.start
    found: dict[str, str] = {}
    place = start.server_args.get("model_path")
    if isinstance(place, str):
        found["name"] = impersonal(last_part(place))
    for name in ("architecture", "dtype"):
        number = start.first(name)
        if number is not None:
            found[name] = str(number.value)
    return found


def _final(start: Start) -> list[Number]:
    """The numbers of the start-up that hold to the end, as the log's own lines state them.

    Arguments and the model are compared as such; what a line says once requests came depends on the requests.
    """
    ready = next((event for event in start.events_of("ready")), None)
    final: dict[tuple[str, str | None, str], list[Number]] = {}
    for number in start.numbers:
        if number.superseded or number.name in ("architecture", "dtype") or _is_argument(number, start):
            continue
        if ready is not None and number.path == ready.path and number.line > ready.record.line.number:
            continue
        role = "target" if number.name == "kv_cache_dtype" and number.role is None else number.role
        final.setdefault((number.name, role, number.rank), []).append(replace(number, role=role))
    return [number for group in final.values() for number in _numbered(group)]


def _numbered(group: list[Number]) -> list[Number]:
    """Numbers that one rank states of several things (two pools): the largest keeps the name, the others are name[2] ..."""
    if len(group) > 1:
        group = sorted(group, key=lambda n: (n.interval is None, -n.interval.low if n.interval else 0, str(n.value)))
    return [group[0], *(number.renamed(f"{number.name}[{place}]") for place, number in enumerate(group[1:], 2))]


def _is_argument(number: Number, start: Start) -> bool:
    return bool(start.server_args_line) and (number.line, number.path) == (start.server_args_line, start.server_args_path)


def _stated(numbers: list[Number]) -> tuple[Stated, ...]:
    """Numbers that several ranks state alike become one entry; the order does not depend on who printed first."""
    groups: dict[tuple[str, str | None, Interval | str], list[Number]] = {}
    for number in numbers:
        value = _as_written(number.interval) if number.interval is not None else str(number.value)
        groups.setdefault((number.name, number.role, value), []).append(number)
    entries = [
        Stated(name, role, tuple(sorted(n.rank for n in group)), value, min(n.line for n in group))
        for (name, role, value), group in groups.items()
    ]
    return tuple(sorted(entries, key=lambda e: (e.name, e.role or "", e.ranks)))


def _as_written(value: Interval) -> Interval:
    """The interval with the ends that a baseline file can hold: else a log would differ from the baseline made of it."""
    low, high = (end if end.denominator == 1 else Fraction(str(float(end))) for end in (value.low, value.high))
    return Interval(low, high, value.unit)


def _checked(checks: list[Check]) -> tuple[Checked, ...]:
    """One entry for each number: of its ranks the worst verdict, and everything it was recomputed to."""
    merged: dict[tuple[str, str | None], Checked] = {}
    for check in checks:
        role = check.role if check.role == "draft" else None
        line = check.lines[0] if check.lines else 0
        recomputed = None if check.recomputed is None else _as_written(check.recomputed)
        new = Checked(check.name, role, check.verdict, recomputed, check.formula, line, _contradiction(check), check.missing)
        old = merged.get((check.name, role))
        if old is not None:
            worse = new if _WORST.index(new.verdict) < _WORST.index(old.verdict) else old
            new = replace(worse, recomputed=_hull(old.recomputed, new.recomputed))
        merged[check.name, role] = new
    return tuple(sorted(merged.values(), key=lambda c: (c.name, c.role or "")))


def _contradiction(check: Check) -> tuple[Interval, Interval] | None:
    if check.verdict != "disagree" or check.observed is None or check.recomputed is None:
        return None
    return check.observed, check.recomputed


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    return a.hull(b) if a is not None and b is not None and a.unit == b.unit else a or b
