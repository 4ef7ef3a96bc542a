"""The columns that batch lines are read into: the rank tags, and every field of every batch-line variant of the rules."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.lines.template import field_names, parse_template

BATCH_FAMILIES = ("decode-batch", "prefill-batch")
TAGS = ("DP", "PP", "TP", "EP", "ATTN_CP", "MOE_DP", "CP", "DCP")
"""SGLang's names of the rank tags."""
TAG_ORDER = "tag order"
"""A column of its own for the order in which a line names its tags: it changed over the releases."""
STREAM = "stream"
"""What the wrapper calls the server (container, pod, unit), where it names one."""
RENAMED = {"time": "prefill interval (s)"}
"""The log's field ``time`` (0.4.7, seconds since the last prefill line) gives way to the time stamp."""


@lru_cache(maxsize=1)
def fields() -> dict[str, str]:
    """The field columns in the order of the newest lines: name to ``whole``, ``real``, ``truth`` or ``text``."""
    found: dict[str, str] = rulebook.load("lines", compile_fields)
    return found


@lru_cache(maxsize=1)
def cells() -> dict[str, str]:
    """All columns that are read from a line, with their kinds."""
    return {**dict.fromkeys(TAGS, "whole"), TAG_ORDER: "text", STREAM: "text", **fields()}


def column_of(field: str) -> str:
    """The column of a field of the log."""
    return RENAMED.get(field, field)


def compile_fields(documents: list[dict[str, Any]]) -> dict[str, str]:
    """The field columns from the rule documents; a field that variants print in several kinds gets the kind that holds all."""
    kinds: dict[str, set[str]] = {}
    for family in BATCH_FAMILIES:
        for document in documents:
            if document["family"] == family:
                for variant in reversed(document["variant"]):
                    for name, kind in field_names(parse_template(variant["template"])):
                        kinds.setdefault(column_of(name), set()).add(_kind(kind))
    return {name: _widest(seen) for name, seen in kinds.items()}


def _kind(kind: str) -> str:
    if kind.startswith(".") or kind == "f":
        return "real"
    return {"d": "whole", "b": "truth"}.get(kind, "text")


def _widest(seen: set[str]) -> str:
    if len(seen) == 1:
        return next(iter(seen))
    return "real" if seen <= {"whole", "real"} else "text"
