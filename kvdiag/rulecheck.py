"""Checking rule documents: what is wrong is told with file, line and column, as an editor can jump to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from kvdiag.errors import ReleaseError, RuleError
from kvdiag.frozen import frozen, replace
from kvdiag.releases import parse_ranges

_RELEASE = r"[0-9]+\.[0-9]+(?:\.[0-9]+)?(?:rc[0-9]+)?(?:\.?post[0-9]+)?"
_RANGE = re.compile(rf"(?:{_RELEASE})?\.\.(?:{_RELEASE})?|{_RELEASE}")
Shape = Mapping[str, tuple[type, str]]
"""Key to the type its value must have and that type's name in words."""


@frozen
class Place:
    """A line of a rule file; checks raise RuleError that names it."""

    path: str
    line: int = 1

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Place:
        """The first line of the file that `document` was read from."""
        return cls(str(document.get("_path", "rule")))

    def section(self, header: str, number: int) -> Place:
        """The `number`-th (from 0) ``[[header]]`` of the file."""
        found = [line for line, text in enumerate(_text(self.path), 1) if text.strip() == f"[[{header}]]"]
        return replace(self, line=found[number]) if number < len(found) else self

    def at(self, key: str) -> Place:
        """The line at or after this one that defines `key`, this one where none does."""
        pattern = re.compile(rf"""\s*(?:\[\[?)?["']?{re.escape(key)}["']?\s*(?:=|\]|\.)""")
        for line, text in enumerate(_text(self.path)[self.line - 1 :], self.line):
            if pattern.match(text):
                return replace(self, line=line)
        return self

    def error(self, message: str, column: int = 0) -> RuleError:
        """The error to raise; `column` counts within the value that stands on this line."""
        lines = _text(self.path)
        value = re.match(r"""\s*[^=]*=\s*["']*""", lines[self.line - 1]) if column and self.line <= len(lines) else None
        return RuleError(f"{self.path}:{self.line}:{column + (len(value.group()) if value else 0) or 1}: {message}")

    def table(self, value: Any) -> Mapping[str, Any]:
        """`value`, which must be a table."""
        if not isinstance(value, Mapping):
            raise self.error(f"needs a table, not {value!r}")
        return value

    def keys(self, table: Mapping[str, Any], shape: Shape, required: Collection[str]) -> None:
        """Only the keys of `shape`, each of its type, and all of `required`."""
        for key, value in table.items():
            if key.startswith("_"):
                continue
            if key not in shape:
                from difflib import get_close_matches

                near = get_close_matches(key, shape, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(shape)}"
                raise self.at(key).error(f"unknown key {key!r}{hint}")
            if not isinstance(value, shape[key][0]):
                raise self.at(key).error(f"{key!r} must be {shape[key][1]}, not {value!r}"[:300])
        for key in required:
            if key not in table:
                raise self.error(f"the key {key!r} is missing")

    def texts(self, values: Iterable[Any]) -> None:
        """Each of `values` must be a text."""
        for value in values:
            if not isinstance(value, str):
                raise self.error(f"needs a text in quotes, not {value!r}"[:300])

    def ranges(self, text: str) -> None:
        """`text` must name releases."""
        wrong = next((part for part in text.split(",") if not _RANGE.fullmatch(part.strip())), None)
        if wrong is not None:
            raise self.error(f"{wrong.strip()!r} names no releases; a range is written first..last, an open end is left out")
        try:
            known = parse_ranges(text)
        except ReleaseError as error:
            raise self.error(f"{error}; a range is written first..last") from None
        if not known:
            raise self.error(f"no published release lies in {text!r}")


@lru_cache(maxsize=8)
def _text(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split("\n")
    except (OSError, UnicodeDecodeError):
        return []
