"""Columns of scheduler lines kept while logs are read, and those of one start picked out of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvdiag.frozen import frozen
from kvdiag.starts.build import BATCHES

if TYPE_CHECKING:
    from kvdiag.lines.chunk import Chunk, Texts
    from kvdiag.rows.clock import Clock
    from kvdiag.starts.model import Span

SOURCES = {
    "running": ("#running-req", "#running_req"),
    "queued": ("#queue-req", "#remaining_req"),
    "tokens": ("#token", "#full token", "#gpu token"),
    "usage": ("token usage", "full token usage", "gpu token usage"),
    "swa_usage": ("swa token usage",),
    "state_usage": ("mamba usage",),
    "throughput": ("gen throughput (token/s)",),
    "new_seq": ("#new-seq", "#seq"),
    "new_tokens": ("#new-token", "#new_token"),
    "cached": ("#cached-token", "#cached_token"),
    "transferring": ("#transfer-req", "#transferring-req", "#inflight-req"),
}
"""The columns a review needs, and what releases called them."""


@frozen
class Rows:
    """Scheduler lines: which are decode lines, their milliseconds (where `timed`), and the values some of them have.

    A value is NaN where the line does not have it; a column that no line has is not there. Whole numbers are kept in half
    the bytes where that loses nothing: what is not is to be computed with as doubles.
    """

    decode: Any
    stamps: Any
    timed: Any
    values: dict[str, Any]

    def __len__(self) -> int:
        return len(self.decode)


@frozen
class _Piece:
    rows: Rows
    lines: Any
    streams: Any


class Gatherer:
    """Takes the chunks of logs as they are read; one log is finished before the next begins."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[_Piece]] = {}
        self._clocks: dict[int, Clock] = {}
        self._texts: dict[int, Texts] = {}

    def add(self, path: int, chunk: Chunk, texts: Texts) -> None:
        """Takes the next rows of the input with the index `path`."""
        from kvdiag.lines.columns import BATCH_FAMILIES, STREAM
        from kvdiag.rows.clock import Clock

        self._texts[path] = texts
        stamps, timed = self._clocks.setdefault(path, Clock()).stamps(chunk)
        values = {name: found for name, columns in SOURCES.items() if (found := _first_of(chunk, columns)) is not None}
        allocating = _first_of(chunk, ("#prealloc-req",))
        if allocating is not None:  # a decode server queues what still lacks tokens apart from its queue
            values["queued"] = _sum(values.get("queued"), allocating)
        stream = chunk.columns.get(STREAM)
        streams = None if stream is None else _filled(stream.values.astype("float64"), stream.there)
        rows = Rows(chunk.family == BATCH_FAMILIES.index("decode-batch"), stamps, timed, values)
        self._pieces.setdefault(path, []).append(_Piece(rows, chunk.lines, streams))

    def of(self, spans: list[Span]) -> Rows:
        """The rows in `spans`, input after input."""
        paths = dict.fromkeys(span.path for span in spans)
        found = [self._in(piece, path, spans) for path in paths for piece in self._pieces.get(path, ())]
        return _joined([rows for rows in found if len(rows)])

    def moment(self, path: int, line: int, of_day: int) -> int | None:
        """Milliseconds since 1970 of a time without a date in that line, by the scheduler line before it; None without one.

        `of_day` is in milliseconds since midnight.
        """
        from kvdiag.lines.calendar import DAY

        pieces = self._pieces.get(path, ())
        piece = next((piece for piece in reversed(pieces) if len(piece.lines) and piece.lines[0] <= line), None)
        if piece is None:
            return None
        row = int(piece.lines.searchsorted(line, side="right")) - 1
        if not piece.rows.timed[row]:
            return None
        return of_day + round((int(piece.rows.stamps[row]) - of_day) / DAY) * DAY

    def _in(self, piece: _Piece, path: int, spans: list[Span]) -> Rows:
        import numpy as np

        near = [span for span in spans if span.path == path and _meets(span, piece.lines)]
        if piece.streams is None and {span.family for span in near if _holds(span, piece.lines)} == set(BATCHES):
            return piece.rows
        wanted = np.zeros(len(piece.rows), np.bool_)
        for span in near:
            family = piece.rows.decode if span.family.startswith("decode") else ~piece.rows.decode
            inside = piece.lines >= span.begin
            if span.end is not None:
                inside &= piece.lines < span.end
            wanted |= family & inside & self._of_stream(piece, path, span.stream)
        rows = piece.rows
        values = {name: column[wanted] for name, column in rows.values.items()}
        return Rows(rows.decode[wanted], rows.stamps[wanted], rows.timed[wanted], values)

    def _of_stream(self, piece: _Piece, path: int, stream: str) -> Any:
        import numpy as np

        if piece.streams is None:
            return np.full(len(piece.rows), not stream)
        if not stream:
            return np.isnan(piece.streams)
        return piece.streams == self._texts[path].place(stream)


def _meets(span: Span, lines: Any) -> bool:
    return len(lines) > 0 and bool(lines[-1] >= span.begin) and (span.end is None or bool(lines[0] < span.end))


def _holds(span: Span, lines: Any) -> bool:
    return not span.stream and bool(lines[0] >= span.begin) and (span.end is None or bool(lines[-1] < span.end))


_EXACT = 1 << 23
"""Whole numbers below this, and sums of two of them, are exact in 32 bits."""


def _first_of(chunk: Chunk, columns: Iterable[str]) -> Any:
    """The value of the first of `columns` that a row has; None where no row has any."""
    import numpy as np

    found: Any = None
    for name in columns:
        column = chunk.columns.get(name)
        if column is None:
            continue
        whole = column.values.dtype.kind == "i" and np.abs(column.values[column.there]).max(initial=0) < _EXACT
        values = _filled(column.values.astype(np.float32 if whole else np.float64), column.there)
        found = values if found is None else _or(found, values)
    return found


def _sum(first: Any, second: Any) -> Any:
    """Both added up, NaN only where neither is there."""
    import numpy as np

    if first is None:
        return second
    return np.where(np.isnan(first), second, first + np.nan_to_num(second))


def _or(first: Any, second: Any) -> Any:
    import numpy as np

    return np.where(np.isnan(first), second, first)


def _filled(values: Any, there: Any) -> Any:
    values[~there] = float("nan")
    return values


def _joined(pieces: list[Rows]) -> Rows:
    import numpy as np

    names = {name for rows in pieces for name in rows.values}
    values = {}
    for name in SOURCES:
        if name in names:
            values[name] = np.concatenate([rows.values.get(name, np.full(len(rows), np.nan, np.float32)) for rows in pieces])
    if not pieces:
        return Rows(np.zeros(0, np.bool_), np.zeros(0, np.int64), np.zeros(0, np.bool_), {})
    decode, stamps, timed = (np.concatenate([getattr(rows, name) for rows in pieces]) for name in ("decode", "stamps", "timed"))
    return Rows(decode, stamps, timed, values)
