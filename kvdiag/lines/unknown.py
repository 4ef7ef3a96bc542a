"""Lines that no rule knows, gathered by their wording: a new release of SGLang shows itself in them."""

from __future__ import annotations

from kvdiag.frozen import mutable
from kvdiag.lines.formats import formats
from kvdiag.lines.record import Record
from kvdiag.lines.wording import masked

MOST = 1000
"""Wordings kept of one input; what comes beyond is counted only."""

_NEAREST = 10
"""Characters a line must begin alike with a known one to be called a reworded one."""

_DIGITS = str.maketrans("123456789", "000000000")


@mutable
class Unknown:
    """A wording: its first line (number and text), how many lines have it, and the family it begins like, if any."""

    template: str
    line: int
    text: str
    like: str
    count: int


class UnknownLines:
    """Collects the unknown lines of one input, with bounded memory."""

    def __init__(self) -> None:
        self.count = 0
        self._by_template: dict[str, Unknown] = {}
        self._known: dict[str, str] = {}

    def add(self, record: Record, siblings: int = 1) -> None:
        """Takes a record that no rule knows, or that many records of its wording."""
        self.count += siblings
        key = record.message[:400].translate(_DIGITS)
        template = self._known.get(key)
        if template is None:
            template = masked(record.message)
            if len(self._known) < MOST:
                self._known[key] = template
        seen = self._by_template.get(template)
        if seen is not None:
            seen.count += siblings
        elif len(self._by_template) < MOST:
            self._by_template[template] = Unknown(template, record.line.number, record.message, nearest(record.message), siblings)

    def listed(self) -> list[Unknown]:
        """The wordings: first those like a known line, which a new release has reworded, then in order of their lines."""
        return sorted(self._by_template.values(), key=lambda each: (not each.like, each.line))


def nearest(message: str) -> str:
    """The family whose lines begin most like `message`, of several the one more of whose fields it names; empty for none.

    A message without a number is like none: it may be one of the many lines that no rule needs to know.
    """
    if not any(character.isdigit() for character in message):
        return ""
    best, family = (_NEAREST, -1), ""
    known = formats()
    for head, name in known.heads(message):
        alike = next((at for at, pair in enumerate(zip(head, message, strict=False)) if pair[0] != pair[1]), len(head))
        score = (alike, sum(f"{field}=" in message or f"{field}: " in message for field in known.fields(name)))
        if score > best:
            best, family = score, name
    return family
