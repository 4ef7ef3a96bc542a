"""Walking a message along a parsed template: in linear time for every template that `parse_template` accepts.

Each value is scanned once from where it stands. A choice that failed at a position is remembered, and a text that found
no end from one position finds none from a later one, so that no part of the work is done twice.
"""

from __future__ import annotations

import re

from kvdiag.lines.template import DECIMALS, Item, Sequence

Found = list[tuple[str, str, str]]
"""(name, kind, printed text) of each value, in the order of the line."""

_WORD = re.compile(r"[^\s,;:'\"()\[\]]*[^\s,;:'\"()\[\].]")
_FLOAT = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|nan|inf)")
_SCAN = {
    "d": re.compile(r"[+-]?[0-9]++(?!\.[0-9])"),
    "f": _FLOAT,
    "b": re.compile(r"True|False|None"),
    "w": _WORD,
    "v": _WORD,
}
_Rest = tuple[Sequence, int, "_Rest"] | None


def match_template(sequence: Sequence, message: str) -> Found | None:
    """The values of a message that is wholly of that template, None where it is not; blanks at the end do not count."""
    walk = _Walk(message)
    if not walk.go(sequence, 0, 0, None):
        return None
    text = walk.text
    return [(name, kind, text[start:end]) for name, kind, start, end in walk.found]


def match_beginning(sequence: Sequence, message: str) -> tuple[Found, bool] | None:
    """The values of a message that is the beginning of that template, None where it is not.

    The second is whether the last value reaches to the end of the message, so that more of it may have been cut off.
    """
    walk = _Walk(message, partial=True)
    if not walk.go(sequence, 0, 0, None):
        return None
    text = walk.text
    reaches = bool(walk.found) and walk.found[-1][3] >= walk.stop
    return [(name, kind, text[start:end]) for name, kind, start, end in walk.found], reaches


class _Walk:
    """One attempt: the text (with one blank at its end, which a template's own last blank may take) and what was found.

    With `partial` the text may end before the template does.
    """

    __slots__ = ("failed", "found", "hopeless", "line", "partial", "stop", "text")

    def __init__(self, message: str, *, partial: bool = False) -> None:
        self.partial = partial
        stripped = message.rstrip()
        self.text = stripped + " "
        self.stop = len(stripped)
        self.found: list[tuple[str, str, int, int]] = []
        self.failed: set[tuple[int, int]] = set()
        self.hopeless: dict[tuple[int, int], int] = {}
        self.line = (0, -1)

    def go(self, sequence: Sequence, index: int, at: int, rest: _Rest) -> bool:
        """Whether the text from `at` on is `sequence` from `index` on and then `rest`."""
        text = self.text
        while True:
            if index == len(sequence):
                if rest is None:
                    return at >= self.stop
                sequence, index, rest = rest
                continue
            item = sequence[index]
            index += 1
            if isinstance(item, str):
                if not text.startswith(item, at):
                    return self._ends_within(item, at)
                at += len(item)
            elif item[0] == "f":
                end = _scan(item[2], text, at)
                if end < 0:
                    return self._ends_within("", at)
                self.found.append((item[1], item[2], at, end))
                at = end
            elif item[0] == "t":
                return self._text(item, sequence, index, at, rest)
            else:
                return self._choice(item, at, (sequence, index, rest))

    def _choice(self, item: Item, at: int, rest: _Rest) -> bool:
        key = (id(item), at)
        if key in self.failed:
            return False
        mark = len(self.found)
        for branch in item[1:]:
            if branch and isinstance(branch[0], str) and not self._begins(branch[0], at):
                continue
            if self.go(branch, 0, at, rest):
                return True
            del self.found[mark:]
        self.failed.add(key)
        return False

    def _text(self, item: Item, sequence: Sequence, index: int, at: int, rest: _Rest) -> bool:
        _, name, ends, kind = item
        limit = self.stop if kind == "m" else self._line_end(at)
        key = (id(item), limit)
        lowest = self.hopeless.get(key)
        if lowest is not None and at >= lowest:
            return False
        mark = len(self.found)
        following = {literal: self._next(literal, at, limit) for literal in ends}
        while True:
            end = min(following.values())
            if end > limit or end > self.stop:
                break
            self.found.append((name, kind, at, end))
            if self.go(sequence, index, end, rest):
                return True
            del self.found[mark:]
            for literal in [literal for literal, place in following.items() if place == end]:
                following[literal] = self._next(literal, end + 1, limit)
        self.hopeless[key] = at
        if self.partial and "\n" not in self.text[at : self.stop]:
            self.found.append((name, kind, at, self.stop))
            return True
        return False

    def _begins(self, literal: str, at: int) -> bool:
        return self.text.startswith(literal, at) or self._ends_within(literal, at)

    def _ends_within(self, literal: str, at: int) -> bool:
        """Whether the text ends before `literal` does and is the same until there."""
        return self.partial and literal.startswith(self.text[at : self.stop]) if literal else self.partial and at >= self.stop

    def _line_end(self, at: int) -> int:
        first, end = self.line
        if not first <= at <= end:
            end = self._next("\n", at, self.stop)
            self.line = (at, end)
        return end

    def _next(self, literal: str, at: int, limit: int) -> int:
        """Where `literal` begins from `at` on and not behind `limit`; an empty one is the end; `limit` + 1 for nowhere."""
        if not literal:
            return self.stop if at <= self.stop <= limit else limit + 1
        place = self.text.find(literal, at, limit + len(literal))
        return place if place >= 0 else limit + 1


def _scan(kind: str, text: str, at: int) -> int:
    """Where a value of that kind ends that begins at `at`, -1 where there is none."""
    pattern = _SCAN.get(kind)
    if pattern is not None:
        found = pattern.match(text, at)
        return found.end() if found else -1
    decimals = DECIMALS.fullmatch(kind)
    if decimals is None:
        return next((at + len(one) for one in kind.split("|") if text.startswith(one, at)), -1)
    found = _FLOAT.match(text, at)
    if not found:
        return -1
    printed = found.group()
    if printed[-3:] not in ("nan", "inf") and len(printed.partition(".")[2]) != int(decimals.group(1)):
        return -1
    return found.end()
