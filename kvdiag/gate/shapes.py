"""Lines with their values left out, collected while a log is read."""

from __future__ import annotations

import re

from kvdiag.frozen import mutable
from kvdiag.gate.model import Shape
from kvdiag.lines import Record
from kvdiag.lines.personal import impersonal
from kvdiag.lines.wording import LONGEST, masked

LOAD_FAMILIES = frozenset(
    {
        "prefill-batch", "decode-batch", "usage-parts", "retract", "retract-abort", "oom-tokens", "queue-full", "pd-queues",
        "pd-too-long", "input-too-long", "max-tokens-clamped", "flush", "health", "weight-update", "hicache-ops", "spec",
        "swa-pool-usage", "watchdog", "crash", "leak", "oom-detail", "oom-req-slots",
    }
)  # fmt: skip
"""Families whose lines come with requests or accidents, not with the start: their presence says nothing of the build."""

MOST = 400
"""Distinct shapes kept of one log; beyond it a log is not one of a server with a few hundred statements."""

_ACCESS = ("INFO:  ", "WARNING:  ")
_EXCEPTION = re.compile(r"(?:[a-z_]\w*\.)*(?=[A-Z])\w*(?:Error|Exception|Interrupt)(?::|$)")
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|fatal|failed|failure|cannot|out of memory|oom|corrupt(?:ed)?|illegal|assert(?:ion)?|"
    r"abort(?:ed|ing)?|panic|segfault|killed|nan detected)\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"(?:ignor(?:e|ing)|skip(?:ping)?|fall(?:ing)? ?back)\b|.{0,200}\b(?:no|0) (?:errors?|failures?)\b|"
    r".{0,200}\b(?:errors?|failures?)(?: count| rate)?[ :=]+0(?:\.0*)?%?(?![\w.])",
    re.IGNORECASE,
)
"""A line that reports what was done about a failure, as a start prints it for each optional module, or that there was none."""


@mutable
class _Seen:
    shape: Shape
    last: int
    count: int = 1


class Shapes:
    """Collects the distinct shapes of the records that pass, with the lines where each stands first and last."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str | None], _Seen] = {}
        self._memo: dict[str, str] = {}
        self._batches: dict[tuple[str, tuple[int, ...], tuple[str, ...]], str] = {}
        self._ready = False

    def add(self, record: Record) -> None:
        """Takes one record in; access lines, loose lines without an exception and blank ones are passed over."""
        family = record.family
        if family == "server-ready":
            self._ready = True
        if family is not None:
            load = family in LOAD_FAMILIES
            text = self._batch(record, family) if load else shape_of(record)
            self._keep(text, family, "load" if load else "start", False, record.line.number)
            return
        message = record.message
        if record.prefixed:
            if message.startswith(_ACCESS):
                return
            text, error = self._masked(message), bool(_ERROR.search(message)) and not _HARMLESS.match(message)
        elif _EXCEPTION.match(message):
            text, error = self._masked(message), True
        else:
            return
        self._keep(text, None, "load" if self._ready else "start", error, record.line.number)

    def _batch(self, record: Record, family: str) -> str:
        """The shape of a line of load: there are many of them, so siblings of one variant and the same fields are read once."""
        key = (family, tuple(variant.number for variant in record.variants), tuple(record.values))
        known = self._batches.get(key)
        if known is None:
            known = self._batches[key] = shape_of(record)
        return known

    def _masked(self, message: str) -> str:
        known = self._memo.get(message)
        if known is None:
            known = self._memo[message] = masked(impersonal(message))
            if len(self._memo) > 4 * MOST:
                self._memo.clear()
        return known

    def _keep(self, text: str, family: str | None, stage: str, error: bool, line: int) -> None:
        key = (text, family)
        seen = self._seen.get(key)
        if seen is not None:
            seen.last = line
            seen.count += 1
        elif len(self._seen) < MOST:
            self._seen[key] = _Seen(Shape(text, family, stage, error, line), line)

    def since(self, line: int) -> tuple[Shape, ...]:
        """The shapes that occur at or after `line` (the beginning of the start in question), in order of their text."""
        kept = []
        for seen in self._seen.values():
            if seen.last >= line:
                shape = seen.shape
                at = shape.line if shape.line >= line else seen.last
                kept.append(Shape(shape.text, shape.family, shape.stage, shape.error, at))
        return tuple(sorted(kept, key=lambda shape: (shape.family or "~", shape.text)))


def shape_of(record: Record) -> str:
    """The message of a known record with each value replaced by its field's name in braces."""
    text, at, pieces = record.message, 0, []
    for name, value in record.values.items():
        found = text.find(value.text, at)
        if found < 0 or not value.text:
            continue
        pieces.append(text[at:found])
        pieces.append(f"{{{name}}}")
        at = found + len(value.text)
    pieces.append(text[at:])
    return masked_tail("".join(pieces))


def masked_tail(text: str) -> str:
    """A shape without digits that no rule names, at most `LONGEST` characters."""
    return re.sub(r"\d+", "#", impersonal(text.strip()))[:LONGEST]
