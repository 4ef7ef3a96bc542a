"""Paths, hosts, addresses and keys replaced, each always by the same word, so that a report can be shown to strangers."""

from __future__ import annotations

import re
from functools import partial

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("key", re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|AKIA|xox[abp]-)[A-Za-z0-9_-]{8,200}")),
    (
        "key",
        re.compile(r"(?<=api_key['\"]: ['\"])[^'\"]{1,200}|(?<=api_key=['\"])[^'\"]{1,200}|(?<=Bearer )[A-Za-z0-9._-]{8,400}"),
    ),
    ("key", re.compile(r"(?<=://)[^/\s@'\"]{1,300}(?=@)")),
    ("mail", re.compile(r"\b[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}\b")),
    ("host", re.compile(r"(?:(?<=://)|(?<=>@))[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?(?=[/\s'\",]|$)")),
    ("address", re.compile(r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])")),
    ("address", re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])")),
    ("path", re.compile(r"(?<![A-Za-z0-9_.:<>/-])~?/(?:[A-Za-z0-9_.+@-]{1,255}/){1,40}[A-Za-z0-9_.+@-]{0,255}")),
)
_OPEN = {"0.0.0.0", "127.0.0.1"}


class Mask:
    """Replaces what is personal in any number of texts; equal originals get equal words."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        """`text` with ``<path1>``, ``<host1>``, ``<address1>``, ``<mail1>`` and ``<key1>`` in place of the originals."""
        for kind, pattern in _KINDS:
            text = pattern.sub(partial(self._replaced, kind), text)
        return text

    def _replaced(self, kind: str, found: re.Match[str]) -> str:
        original = found.group()
        if original in _OPEN:
            return original
        word = self._words.get(original)
        if word is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            word = self._words[original] = f"<{kind}{self._counts[kind]}>"
        return word
