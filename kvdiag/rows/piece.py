"""A piece of a timeline: rows of one log with what spans them, and the columns that rows have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from kvdiag.frozen import frozen
from kvdiag.lines.chunk import Chunk, Texts
from kvdiag.lines.columns import STREAM, TAGS, fields

FIXED = {"log": "text", "start": "small", "family": "text", "time": "time", "rank": "text"}
"""Columns every row has, with their kinds.

The role (of a server of a disaggregated pair), the stream (where a wrapper names one) and the rank's tags follow, then
``line`` and ``offset``, then the fields.
"""
ROLES = ("", "prefill", "decode")
"""What a server of a disaggregated pair does; the first of a server that does both."""


@lru_cache(maxsize=1)
def kinds() -> dict[str, str]:
    """All columns there can be, in their order, with their kinds."""
    return (
        FIXED | {"role": "text", STREAM: "text"} | dict.fromkeys(TAGS, "small") | {"line": "whole", "offset": "whole"} | fields()
    )


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns in their order, each once."""
    wanted = set(names)
    return [name for name in kinds() if name in wanted]


@frozen
class Piece:
    """Rows of one log: of each its server start, the place of its role in `ROLES`, and its time.

    `stamps` are milliseconds since 1970-01-01 where `timed` says that the row has a time.
    """

    path: str
    chunk: Chunk
    start: Any
    role: Any
    stamps: Any
    timed: Any
    texts: Texts

    def __len__(self) -> int:
        return len(self.chunk)
