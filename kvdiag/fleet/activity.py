"""What the scheduler lines of a log add up to: sums and counts, so that logs add up as well."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvdiag.frozen import field, mutable, names_of
from kvdiag.lines.chunk import Chunk
from kvdiag.lines.columns import BATCH_FAMILIES

_USAGE = ("token usage", "full token usage", "gpu token usage")
_DECODE = BATCH_FAMILIES.index("decode-batch")


@mutable
class Activity:
    """Sums over scheduler lines. `usage` counts decode lines by printed usage in hundredths (the last: above 1).

    `free_while_waiting` is the sum, over decode lines with requests in the queue, of the free hundredths of the pool.
    """

    prefill_lines: int = 0
    decode_lines: int = 0
    waiting_lines: int = 0
    free_while_waiting: int = 0
    usage: list[int] = field(default_factory=lambda: [0] * 102)
    running: int = 0
    throughput: float = 0.0
    new_tokens: int = 0
    cached_tokens: int = 0

    def add(self, chunk: Chunk) -> None:
        """Takes the rows of a chunk."""
        decode = chunk.family == _DECODE
        self.decode_lines += int(decode.sum())
        self.prefill_lines += int((~decode).sum())
        self.new_tokens += int(_sum(chunk, "#new-token", ~decode))
        self.cached_tokens += int(_sum(chunk, "#cached-token", ~decode))
        self.running += int(_sum(chunk, "#running-req", decode))
        self.throughput += float(_sum(chunk, "gen throughput (token/s)", decode))
        usage, known = _usage(chunk)
        hundredths = np.rint(np.clip(usage, 0.0, 1.01) * 100).astype(np.int64)
        counts = np.bincount(hundredths[known & decode], minlength=102).tolist()
        self.usage = [a + b for a, b in zip(self.usage, counts, strict=True)]
        queue = chunk.columns.get("#queue-req")
        if queue is not None:
            waiting = decode & known & queue.there & (queue.values > 0)
            self.waiting_lines += int(waiting.sum())
            self.free_while_waiting += int(np.maximum(100 - hundredths[waiting], 0).sum())

    def percentile(self, share: float) -> float | None:
        """The usage that `share` of the decode lines do not exceed."""
        total, seen = sum(self.usage), 0
        for hundredth, count in enumerate(self.usage):
            seen += count
            if total and seen >= share * total:
                return hundredth / 100
        return None

    def merge(self, other: dict[str, Any]) -> None:
        """Adds the sums of another log."""
        for name in names_of(self):
            value = other[name]
            own = getattr(self, name)
            setattr(self, name, [a + b for a, b in zip(own, value, strict=True)] if name == "usage" else own + value)


def _sum(chunk: Chunk, name: str, rows: Any) -> Any:
    column = chunk.columns.get(name)
    return 0 if column is None else column.values[column.there & rows].sum()


def _usage(chunk: Chunk) -> tuple[Any, Any]:
    usage, known = np.zeros(len(chunk)), np.zeros(len(chunk), np.bool_)
    for name in _USAGE:
        column = chunk.columns.get(name)
        if column is not None:
            new = column.there & ~known & np.isfinite(column.values)
            usage[new], known[new] = column.values[new], True
    return usage, known
