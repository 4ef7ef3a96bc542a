"""From a physical line to the lines a program printed: colours, carriage returns and wrappers taken off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvdiag.reading.layers import Held, Learnt, peel, seen_bare, within
from kvdiag.reading.layers.layer import Peeled
from kvdiag.reading.line import Line

_ESCAPE = r"(?:\x1b|\^\[|#033|\\x1b|\\u001b|\\033)"
_ESCAPES = re.compile(rf"{_ESCAPE}(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{{0,500}}(?:\x07|\x1b\\)|[@-Z\\-_])|\x9b[0-?]*[ -/]*[@-~]")
_MARKS = ("\x1b", "\x9b", "^[[", "#033[", "\\x1b[", "\\u001b[", "\\033[")
_COLOUR = re.compile(r"\[\d{0,3}(?:;\d{1,3}){0,4}m")
_JOINED = "\u23ce"
"""What some exports put in place of a line's end."""
_DEEPEST = 8
_ENTITY = r"(?i)&(?:(?:amp|#38);)*(?:quot|apos|gt|lt|nbsp|amp|#3[49]|#x2[27]|#6[02]|#x3[ce]|#160);"
_ESCAPED_RECORD = re.compile(r"\s*\\\[(?:\d{4}\\?-\d\d\\?-\d\d )?\d\d:\d\d:\d\d")
_MARKDOWN = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~-])")
"""What an export to Markdown puts a backslash before."""
_BLANKS = str.maketrans({"\u00a0": " ", "\u2007": " "})
_QUOTES = (("'", "\u2018\u2019\u201a\u201b"), ('"', "\u201c\u201d\u201e\u201f\u00ab\u00bb"))
"""Straight quotation marks, and what a word processor or a chat puts in their place."""


class Unwrapper:
    """Takes physical lines in order; holds the beginning of a line that its wrapper gives in parts."""

    def __init__(self) -> None:
        self._held: Held = {}
        self._learnt: Learnt = set()
        self._escaped = False
        self.cuts = False
        """Whether a wrapper was seen that cuts long lines into parts."""

    def bare(self) -> None:
        """Tells of a record with nothing around it, which needs no unwrapping."""
        seen_bare(self._learnt)

    @property
    def holds(self) -> bool:
        """Whether the beginning of a line waits for its end."""
        return bool(self._held)

    def lines(self, number: int, text: str, *, cut: bool = False, full: bool = False) -> Iterator[Line]:
        """The lines inside one physical line, none where it is only a part of one."""
        for inner in self._unfold(Peeled(text), 0):
            yield Line(number, inner.text, inner.stream, inner.time, cut, full)

    def _unfold(self, outer: Peeled, depth: int) -> Iterator[Peeled]:
        """Wrappers can stand around a joined line and around each of what was joined."""
        for peeled in peel(self._clean(outer.text), self._held, self._learnt):
            inner = within(outer, peeled)
            self.cuts = self.cuts or inner.partial is not None
            pieces = _pieces(self._clean(inner.text))
            if pieces == [inner.text] or depth >= _DEEPEST:
                yield inner
                continue
            for piece in pieces:
                yield from self._unfold(Peeled(piece, inner.stream, inner.time), depth + 1)

    def _clean(self, text: str) -> str:
        """The text as a terminal shows it; from the first record whose bracket has a backslash on, without Markdown's."""
        text = _plain(text)
        if "\\" not in text or not (self._escaped or _ESCAPED_RECORD.match(text)):
            return text
        self._escaped = True
        return _MARKDOWN.sub(r"\1", text)

    def rest(self, number: int) -> Iterator[Line]:
        """Beginnings whose end never came."""
        for held in self._held.values():
            yield Line(number, held.text, held.stream, held.time, cut=True)
        self._held.clear()


def _plain(text: str) -> str:
    """The text without colours and other terminal commands, and without a byte order mark from a joined file."""
    if any(mark in text for mark in _MARKS):
        text = _ESCAPES.sub("", text)
    if text.startswith("[") and _COLOUR.match(text):
        text = _COLOUR.sub("", text)
    if "&" in text and ";" in text:
        text = re.sub(_ENTITY, _character, text)
    return text if text.isascii() else _typed(text.lstrip("\ufeff"))


def _character(entity: re.Match[str]) -> str:
    """What an entity of HTML stands for, be its own mark escaped or not."""
    import html

    text = entity.group()
    while (plain := html.unescape(text)) != text:
        text = plain
    return text


def _typed(text: str) -> str:
    """The text with the blanks and quotation marks of a keyboard: those of a web page or a word processor stand for them."""
    text = text.translate(_BLANKS)
    for straight, others in _QUOTES:
        if straight not in text and any(mark in text for mark in others):
            text = text.translate(dict.fromkeys(map(ord, others), straight))
    return text


def _pieces(text: str) -> list[str]:
    """The lines a physical line was joined from: redrawn progress bars, and exports that mark a line's end."""
    if "\r" not in text and _JOINED not in text:
        return [text]
    pieces = re.split(rf"\r+| ?{_JOINED} ?", text)
    return [piece for piece in pieces if piece and not piece.isspace()]
