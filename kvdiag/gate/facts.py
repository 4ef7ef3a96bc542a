"""Release, model, arguments, verdicts and findings of two starts held against each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.checks import Finding
from kvdiag.checks.inputs import NO_CONFIG
from kvdiag.checks.verdict import repeated
from kvdiag.gate.arguments import from_shared_memory
from kvdiag.gate.budget import Budget, budget_of
from kvdiag.gate.model import Checked, Drift, Snapshot
from kvdiag.gate.words import change_of, only_in_one_release, releases_differ, shown
from kvdiag.quantity.ends import apart

_BUDGET_CHECKS = frozenset(
    {"rest_memory", "max_total_num_tokens", "mem_fraction_static", "memory_after_pool", "max_running_requests",
     "swa_max_total_num_tokens", "max_mamba_cache_size"}
)  # fmt: skip
"""Checks that need free memory: on a server without a GPU their verdict depends on which reading was printed."""


_NAMED = 8
"""Names that a sentence lists for one side."""

_DERIVED = "without a GPU it comes from the machine's memory unless it is given; the pool is capped, so it moves nothing"


def compare_facts(before: Snapshot, after: Snapshot) -> list[Drift]:
    """Drifts of everything but numbers and lines."""
    found = [*_release(before, after), *_model(before, after), *_arguments(before, after), *_ready(before, after)]
    found += _checks(before, after)
    return found


def _release(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    if releases_differ(before, after):
        first, second = _range(before), _range(after)
        yield Drift("KD123", "error", "release", f"SGLang {first} -> {second}", "", first, second)


def _range(snapshot: Snapshot) -> str:
    first, last = snapshot.release or ("?", "?")
    return first if first == last else f"{first}..{last}"


def _model(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    for key in ("name", "architecture", "dtype"):
        old, new = before.model.get(key), after.model.get(key)
        if old is not None and new is not None and old != new:
            yield Drift("KD124", "error", f"model {key}", f"model {change_of(key, old, new)}", "", old, new)


def _arguments(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    """Arguments by value; where one log states none at all there is nothing to compare."""
    a, b = before.arguments, after.arguments
    if not a or not b:
        return
    lines = ((before.arguments_line,), (after.arguments_line,))
    one_sided = []
    for name in sorted({*a, *b}):
        old, new = a.get(name), b.get(name)
        if _plain(old) == _plain(new):
            continue
        if only_in_one_release(name, before, after):
            one_sided.append(name)
            continue
        level, reason, noise = _argument(name, before, after)
        said = change_of(name, old, new) if not (isinstance(old, dict) and isinstance(new, dict)) else _leaves(name, old, new)
        yield Drift("KD121", level, name, said, reason, shown(old), shown(new), (), None, *lines, noise=noise)
    if one_sided:
        counted = "1 argument" if len(one_sided) == 1 else f"{len(one_sided)} arguments"
        sides = [[name for name in one_sided if name in own] for own in (a, b)]
        each = [f"{which} {_few(names)}" for which, names in zip(("the earlier:", "the later:"), sides, strict=True) if names]
        said = f"{counted} that only one of the two releases has: {'; '.join(each)}"
        first, second = (", ".join(names) or None for names in sides)
        yield Drift("KD122", "note", "arguments", said, "", first, second, (), None, *lines, "KD123")


def _few(names: list[str]) -> str:
    """All of a few names, the first and the count of many."""
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


def _plain(value: Any) -> Any:
    """Numbers by value, sequences as lists: ``1`` and ``1.0`` are the same, a tuple is a list once it was JSON."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _argument(name: str, before: Snapshot, after: Snapshot) -> tuple[str, str, bool]:
    """Level and reason of a changed argument, and whether it is noise."""
    a, b = budget_of(before), budget_of(after)
    shared = before.on_shared_memory and after.on_shared_memory
    if shared and name in from_shared_memory() and a is not None and b is not None and a.is_capped and b.is_capped:
        return "warning", _DERIVED, name == "mem_fraction_static" and _follows_memory(a, b)
    differ = releases_differ(before, after)
    return "error", "the release changed too, and its default may be another" if differ else "", False


def _follows_memory(a: Budget, b: Budget) -> bool:
    """Whether the fraction moved the way free memory did, as the one that SGLang derives from it does."""
    if a.fraction is None or b.fraction is None or a.total is None or b.total is None:
        return False
    return b.total.low > a.total.high if b.fraction > a.fraction else b.total.high < a.total.low


def _leaves(name: str, old: Any, new: Any) -> str:
    """The parts of a nested argument that differ."""
    parts = []
    for key in sorted({*old, *new}):
        x, y = old.get(key), new.get(key)
        if _plain(x) == _plain(y):
            continue
        tell = _leaves if isinstance(x, dict) and isinstance(y, dict) else change_of
        parts.append(tell(f"{name}.{key}", x, y))
    return ", ".join(parts)


def _ready(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    if before.ready and not after.ready:
        yield Drift("KD133", "error", "start", "the baseline's server came up, this one did not", "", "ready", "not ready")
    elif after.ready and not before.ready:
        yield Drift("KD133", "note", "start", "the server came up; the baseline's did not", "", "not ready", "ready")
    elif before.failed and after.failed:
        reason = "the start failed in both logs, and what would have come later could not be compared"
        yield Drift("KD133", "note", "start", "neither server came up", reason, "not ready", "not ready", noise=True)


def _checks(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    old = {(c.name, c.role): c for c in before.checks}
    shared = before.on_shared_memory and after.on_shared_memory
    for check in after.checks:
        was = old.get((check.name, check.role))
        if check.verdict == "disagree" and (was is None or was.verdict != "disagree"):
            yield disagreement(check, after, was)
        elif check.verdict == "unknown" and was is not None and was.verdict == "agree":
            if shared and check.name in _BUDGET_CHECKS:
                continue
            said = f"{check.name} agreed with the arithmetic in the baseline and cannot be checked in this log"
            reason = _lacking(check)
            yield Drift(
                "KD132", "warning", check.name, said, reason, "agree", "unknown", (), check.role, (was.line,), (check.line,)
            )


def _lacking(check: Checked) -> str:
    """What a check lacks; of a config that was given for the baseline and not now, that it is to be given."""
    if NO_CONFIG in check.missing:
        return "the model's config was known for the baseline and is not now: give --config PATH or --model NAME here too"
    return f"it is unknown, because {'; '.join(check.missing)}" if check.missing else ""


def disagreement(check: Checked, snapshot: Snapshot, was: Checked | None = None) -> Drift:
    """A number that the arithmetic contradicts, with both values; a note where it only repeats another's contradiction."""
    root = repeated(check.name, {c.name for c in snapshot.checks if c.verdict == "disagree" and c.role == check.role})
    values = ": the log has {}, recomputed {}".format(*apart(*check.contradiction)) if check.contradiction else ""
    said = f"{check.name} disagrees with the arithmetic{values} ({check.formula})"
    return Drift(
        "KD131", "note" if root else "error", check.name, said, f"it follows from {root}, which disagrees" if root else "",
        was.verdict if was else None, "disagree", (), check.role, (was.line,) if was else (), (check.line,), root,
    )  # fmt: skip


def finding_drifts(findings: list[Finding], before: Snapshot | None) -> list[Drift]:
    """A drift for each finding the baseline does not have; with a baseline only errors, as the others come with the load.

    KV101, a number that disagrees, is left out: it is KD131 here.
    """
    known = set(before.findings) if before is not None else set()
    found = []
    for finding in findings:
        if finding.code in known or finding.code == "KV101" or (before is not None and finding.level != "error"):
            continue
        said = f"{finding.code}: {finding.title}. {finding.message}"
        found.append(Drift("KD134", finding.level, finding.code, said, finding.advice, None, finding.code, lines=finding.lines))
    return found
