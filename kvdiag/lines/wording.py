"""The wording of a message: what is left of it when numbers, paths and identifiers are taken out."""

from __future__ import annotations

import re

LONGEST = 240
"""Characters of a wording that are kept."""

MASKS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://\S+"), "<url>"),
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<id>"),
    (re.compile(r"(?:(?<=[\s('\"=])|^)(?:~|\.{1,2})?/[\w.@+~-]+(?:/[\w.@+~-]*)*"), "<path>"),
    (re.compile(r"\b\w+\.py:\d+"), "<source>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<host>"),
    (re.compile(r"\b(?:localhost|[a-z][\w-]*(?:\.[\w-]+)+):\d+\b"), "<host>"),
    (re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"), "#"),
    (re.compile(r"#(?:,\s*#){2,}"), "#, ..."),
)
"""What is taken out, in this order, and the mark in its place."""


def masked(message: str) -> str:
    """`message` with numbers, paths, hosts, addresses and identifiers replaced by marks, cut to `LONGEST` characters."""
    text = message.strip()[: 2 * LONGEST]
    for pattern, mark in MASKS:
        text = pattern.sub(mark, text)
    return text[:LONGEST]
