"""What stands before the records of a log and no layer of the reading room knows: learnt from the records themselves."""

from __future__ import annotations

import re

from kvdiag.lines.labels import family_of_head
from kvdiag.lines.prefix import PREFIX

_LONGEST = 100
_ENOUGH = 3
_MOST = 64
_PART = r"\d+|\s+|[A-Za-z]+|[^\dA-Za-z\s]+"
_LEVELS = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL")
_LEVEL = f"(?:{'|'.join(_LEVELS)})"
_BAR = ("%|", "it/s", "s/it", "% Completed")


class Packaging:
    """Takes off a text that stood before several records, digits and level aside, from the lines between them too.

    The last line of a traceback has no prefix of SGLang's own to be found by.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._known: list[re.Pattern[str]] = []

    def without(self, text: str) -> str:
        """The line without what is known to stand before lines of this log."""
        found = PREFIX.search(text, 0, 2 * _LONGEST) if "[" in text else None
        if found is not None and found.start():
            self._learn(text[: found.start()])
        for known in self._known:
            before = known.match(text)
            if before:
                return text[before.end() :]
        return text

    def _learn(self, before: str) -> None:
        """Progress bars and pieces of SGLang's own lines stand before records as well."""
        if len(before) > _LONGEST or before.isspace() or any(mark in before for mark in _BAR):
            return
        shape = re.sub(_PART, _generally, before)
        if shape not in self._seen and len(self._seen) >= _MOST:
            return
        count = self._seen[shape] = self._seen.get(shape, 0) + 1
        if count == _ENOUGH and not family_of_head(before):
            self._known.append(re.compile(shape))


def _generally(part: re.Match[str]) -> str:
    text = part.group()
    if text.isdigit():
        return r"\d+"
    if text.isspace():
        return r"\s+" if len(text) > 1 else re.escape(text)
    return _LEVEL if text in _LEVELS else re.escape(text)
