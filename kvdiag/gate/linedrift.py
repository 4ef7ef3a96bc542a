"""The line shapes of two starts held against each other: vanished, new, changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher

from kvdiag.gate.model import Drift, Shape, Snapshot
from kvdiag.gate.words import releases_differ
from kvdiag.lines.wording import LONGEST

ACCIDENTS = frozenset({"crash", "leak", "watchdog", "oom-detail", "graph-failed", "hicache-host-oom"})
"""Families whose first appearance is a failure, under whatever load."""

NO_MEMORY = frozenset({"not-enough-memory", "mamba-too-small", "memory-unbalanced"})
"""Families that end a start, unless it came up in spite of them."""

ALIKE = 0.85
"""Share of common text (difflib's ratio) from which two wordings are taken for one statement that was reworded."""

MOST_PAIRS = 2500
_VALUE = re.compile(r"\{[^{}]*\}|<\w+>")
Accepts = Callable[[str], bool]


def compare_lines(before: Snapshot, after: Snapshot, accepts: Accepts = lambda _: False) -> list[Drift]:
    """Drifts of the lines of the start-up, and of failures wherever they stand; `accepts` names shapes to pass over."""
    gone = _missing(before.shapes, after.shapes)
    new = [s for s in _missing(after.shapes, before.shapes) if not accepts(s.text)]
    reworded = list(_reworded([s for s in gone if _counts(s, after)], [s for s in new if s.stage == "start" or not s.family]))
    differ = releases_differ(before, after)
    drifts = [_changed(old, shape, differ) for old, shape in reworded]
    paired = {shape for pair in reworded for shape in pair}
    failures = [s for s in new if s not in paired and _is_failure(s, before, after)]
    drifts += [_failure(shape, after, differ) for shape in failures]
    gone = [s for s in gone if s.stage == "start" and s not in paired]
    new = [s for s in new if s.stage == "start" and s not in paired and s not in failures]
    cut = before.ready and not after.ready
    drifts += [_vanished(shape, after, cut, differ) for shape in gone]
    drifts += [_new(shape) for shape in new]
    drifts += _load_lines(before, after)
    return drifts


def _missing(these: tuple[Shape, ...], those: tuple[Shape, ...]) -> list[Shape]:
    present = {(shape.text, shape.family) for shape in those}
    return [shape for shape in these if (shape.text, shape.family) not in present]


def _counts(shape: Shape, after: Snapshot) -> bool:
    """Whether a vanished shape can have been reworded: of a line of load only where none of its family is left."""
    return shape.stage == "start" or (shape.family is not None and not any(s.family == shape.family for s in after.shapes))


def _is_failure(shape: Shape, before: Snapshot, after: Snapshot) -> bool:
    if shape.family is None:
        return shape.error
    if shape.family in NO_MEMORY and after.ready:
        return False
    return shape.family in ACCIDENTS | NO_MEMORY and not any(s.family == shape.family for s in before.shapes)


def _reworded(gone: list[Shape], new: list[Shape]) -> Iterator[tuple[Shape, Shape]]:
    """Pairs of a vanished and a new shape that are one statement: of one family, or of nearly the same text."""
    pairs: list[tuple[float, Shape, Shape]] = []
    if len(gone) * len(new) <= MOST_PAIRS:
        for old in gone:
            matcher = SequenceMatcher(None, "", _bare(old), autojunk=False)
            for shape in new:
                if old.family and shape.family and old.family != shape.family:
                    continue
                matcher.set_seq1(_bare(shape))
                if matcher.real_quick_ratio() < ALIKE or matcher.quick_ratio() < ALIKE:
                    continue
                ratio = matcher.ratio()
                if ratio >= ALIKE:
                    pairs.append((ratio, old, shape))
    else:
        families = {shape.family: shape for shape in new if shape.family}
        pairs = [(1.0, old, families[old.family]) for old in gone if old.family in families]
    used: set[Shape] = set()
    for _, old, shape in sorted(pairs, key=lambda p: (-p[0], p[1].text, p[2].text)):
        if old not in used and shape not in used:
            used |= {old, shape}
            yield old, shape


def _bare(shape: Shape) -> str:
    """The wording alone: a value that a rule names and one that none names look the same."""
    return _VALUE.sub("#", shape.text)


def _changed(old: Shape, new: Shape, differ: bool) -> Drift:
    read = old.family is not None
    reason, level = ("the release is another" if differ else ""), "warning"
    if read and new.family is None:
        reason, level = f"no rule reads the new wording: the numbers of {old.family} are no longer seen", "error"
    elif read:
        reason = f"both are lines of {old.family}, in another variant" + (", and the release is another" if differ else "")
        level = "warning" if differ else "error"
    said = f"a line changed: {_quoted(old.text)} -> {_quoted(new.text)}"
    return Drift("KD143", level, old.family or "line", said, reason, old.text, new.text, (), None, (old.line,), (new.line,))


def _quoted(text: str) -> str:
    """A wording in quotation marks; one that was cut where wordings are ends between words and shows it."""
    return repr(text if len(text) < LONGEST else text.rpartition(" ")[0] + " ...")


def _vanished(shape: Shape, after: Snapshot, cut: bool, differ: bool) -> Drift:
    still = shape.family is not None and any(s.family == shape.family for s in after.shapes)
    level = "error" if shape.family is not None and not still and not differ else "warning"
    reason, root = "", ""
    if cut:
        level, reason, root = "note", "the start did not come as far", "KD133"
    elif still:
        reason = f"this wording is gone; the log still has lines of {shape.family} in another"
    elif differ:
        reason = "the release is another"
    said = f"a line vanished: {_quoted(shape.text)}"
    return Drift("KD141", level, shape.family or "line", said, reason, shape.text, None, (), None, (shape.line,), (), root)


def _new(shape: Shape) -> Drift:
    reason = f"a line of {shape.family}" if shape.family else "no rule knows it"
    said = f"a new line: {_quoted(shape.text)}"
    return Drift("KD142", "warning", shape.family or "line", said, reason, None, shape.text, lines=(shape.line,))


def _failure(shape: Shape, after: Snapshot, differ: bool) -> Drift:
    """An accident that a rule knows is an error; what merely reads like one is a warning where the server was up with it."""
    level, reason = "error", ""
    if shape.family is None and shape.stage == "load":
        level, reason = "warning", "it came after the server was up, and may be an answer to one request"
    elif shape.family is None and shape.text.lower().startswith(("warning:", "warn:")):
        level, reason = "warning", "the server calls it a warning"
    elif shape.family is None and differ and after.ready:
        level, reason = "warning", "the release is another, and the server came up with it"
    said = f"a new line that reads like a failure: {_quoted(shape.text)}"
    return Drift("KD144", level, shape.family or "line", said, reason, None, shape.text, lines=(shape.line,))


def _load_lines(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    """Lines that come with requests are compared where both logs have some: no shape in common is another wording."""
    families = {s.family for s in before.shapes if s.family and s.stage == "load"}
    for family in sorted(f for f in families if f):
        old = [s for s in before.shapes if s.family == family]
        new = [s for s in after.shapes if s.family == family]
        if new and not {s.text for s in old} & {s.text for s in new}:
            yield _changed(old[0], new[0], releases_differ(before, after))
