"""The SGLang symbol that a check mirrors in the releases a log may be of (``rules/checks``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.releases import Release, parse_release


def symbol_of(name: str, releases: list[Release]) -> str:
    """``file symbol`` of check `name` in the newest of `releases`; empty where no symbol is known for it."""
    if not releases:
        return ""
    newest = releases[-1]
    for text in _symbols().get(name, ()):
        ranges, _, place = text.partition(" ")
        first, _, last = ranges.partition("..")
        if parse_release(first) <= newest and (not last or newest <= parse_release(last)):
            return str(place)
    return ""


@lru_cache(maxsize=1)
def _symbols() -> dict[str, Any]:
    documents: list[dict[str, Any]] = rulebook.load("checks")
    return {name: entry for document in documents for name, entry in document.items() if isinstance(entry, list)}
