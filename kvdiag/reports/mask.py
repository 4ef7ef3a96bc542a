"""Paths, hosts, addresses and keys replaced, each always by the same word, so that a report can be shown to strangers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from kvdiag.frozen import is_data, replace, values_of
from kvdiag.gate.arguments import last_part
from kvdiag.lines.personal import replaced
from kvdiag.lines.unknown import Unknown
from kvdiag.lines.wording import masked

_Value = TypeVar("_Value")
_SECRET = re.compile(r"(?:^|_)(?:api_key|password|token|secret)$")
"""Names of arguments whose text is a key, however it looks."""


_MODELS = ("model_path", "speculative_draft_model_path")


def _model_places(value: Any) -> Iterator[str]:
    """Where the models of every start lie, by their arguments wherever these stand in a diagnosis."""
    if isinstance(value, dict):
        yield from (place for name in _MODELS if isinstance(place := value.get(name), str))
    for each in value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else ():
        yield from _model_places(each)
    if is_data(value):
        yield from _model_places(list(values_of(value).values()))


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
        for place in set(_model_places(value)):
            self._name(place)
        masked: _Value = self._inside(value)
        return masked

    def _name(self, place: str) -> None:
        """Keeps the name at the end of a model's path behind the word for the path: no diagnosis is without its model."""
        bare = place.rstrip("/")
        if bare and replaced(bare, lambda kind, original: kind if original == bare else original) == "path":
            named = f"{self._word('path', bare)}/{self(last_part(bare))}"
            self._words[bare] = self._words[f"{bare}/"] = named

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
