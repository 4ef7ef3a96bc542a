"""Paths, hosts, addresses and keys replaced, each always by the same word, so that a report can be shown to strangers."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from kvdiag.frozen import is_data, replace, values_of
from kvdiag.lines.personal import replaced
from kvdiag.lines.unknown import Unknown
from kvdiag.lines.wording import masked

_Value = TypeVar("_Value")
_SECRET = re.compile(r"(?:^|_)(?:api_key|password|token|secret)$")
"""Names of arguments whose text is a key, however it looks."""


class Mask:
    """Replaces what is personal in any number of texts; equal originals get equal words."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._seen: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """`text` with ``<path1>``, ``<host1>``, ``<address1>``, ``<mail1>`` and ``<key1>`` in place of the originals."""
        known = self._seen.get(text)
        if known is None:
            known = self._seen[text] = replaced(text, self._word)
        return known

    def inside(self, value: _Value) -> _Value:
        """The same value with every text in it masked, through data classes, lists, tuples and dicts.

        A report cuts and wraps texts and escapes what is in them, after which half a key looks like none: so what a
        report is made of is masked, not the report.
        """
        masked: _Value = self._inside(value)
        return masked

    def _inside(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list | tuple):
            return type(value)(self._inside(each) for each in value)
        if isinstance(value, dict):
            return {self._inside(key): self._entry(key, each) for key, each in value.items()}
        if not is_data(value):
            return value
        if isinstance(value, Unknown):
            text = self(value.text)
            return replace(value, text=text, template=masked(text))
        changes = {name: new for name, old in values_of(value).items() if (new := self._inside(old)) is not old and new != old}
        return replace(value, **changes) if changes else value

    def _entry(self, name: Any, value: Any) -> Any:
        if isinstance(name, str) and isinstance(value, str) and value and _SECRET.search(name):
            return self._word("key", value)
        return self._inside(value)

    def _word(self, kind: str, original: str) -> str:
        word = self._words.get(original)
        if word is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            word = self._words[original] = f"<{kind}{self._counts[kind]}>"
        return word
