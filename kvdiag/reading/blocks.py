"""Logs by blocks of whole lines, for readers that look at many lines at once."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import IO, Any, cast

from kvdiag.frozen import frozen
from kvdiag.reading.column import cut_column
from kvdiag.reading.encoding import ToUtf8
from kvdiag.reading.limits import failure
from kvdiag.reading.line import Input, Line
from kvdiag.reading.source import BLOCK, JOINED, LONGEST_LINE, lines_in, open_log
from kvdiag.reading.unwrap import Unwrapper

_HEAD = 4096
FIRST = 1 << 18
LARGEST = 1 << 21
"""Bytes of the first block and of the largest: blocks double, so that the start-up part of a big log is there soon."""

AHEAD = 2
"""Blocks that are read before they are asked for."""


@frozen
class Block:
    """Whole lines, each with its line end, and where the first begins in the (unpacked) input.

    `cut` is set on a block of one line of which only the beginning is there.
    """

    data: bytes
    offset: int
    cut: bool = False


def read_blocks(path: str, seen: Input) -> Iterator[Block]:
    """The log at `path` in blocks of whole lines; bytes and damage go into `seen`, its lines are for the caller to count.

    The last line gets the line end it may lack. Of a line longer than what is kept of one, the beginning comes alone.
    Memory is bounded by a few blocks.
    """
    with _as_utf8(open_log(path)) as stream:
        seen.recoded = isinstance(getattr(stream, "raw", None), _Recoded)
        offset, want = 0, FIRST
        while data := _read(stream, want, seen):
            begin, offset, tail = offset, offset + len(data), b""
            if not data.endswith(b"\n"):
                tail = _read(stream, LONGEST_LINE, seen, line=True)
                data, offset = data + tail, offset + len(tail)
            if len(tail) == LONGEST_LINE and not tail.endswith(b"\n"):
                yield from _around_cut_line(data, begin)
                offset += _skip_line(stream, seen)
            elif not data.endswith(b"\n"):
                yield from _around_cut_line(data, begin)
            else:
                yield Block(data, begin)
            want = min(want * 2, LARGEST)


def blocks_of(path: str, seen: Input) -> Iterator[Block] | None:
    """As `read_blocks`, a few blocks ahead; None (and nothing in `seen`) for a log that must be read line by line.

    Where all lines end at one column, a number at a line's end may be cut, which shapes cannot tell; where an export
    joined lines, line numbers are not those of the file.
    """
    if os.path.isfile(path):
        first = next(read_blocks(path, Input(path)), None)
        if first is not None and (JOINED in first.data or cut_column(first.data)):
            return None
    return _read_ahead(path, seen)


def _read_ahead(path: str, seen: Input) -> Iterator[Block]:
    """The blocks; those of a file are read (and unpacked) by a thread of its own while those before are looked at."""
    blocks = read_blocks(path, seen)
    if not os.path.isfile(path):
        yield from blocks
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        waiting = [pool.submit(next, blocks, None) for _ in range(AHEAD)]
        try:
            while (block := waiting.pop(0).result()) is not None:
                waiting.append(pool.submit(next, blocks, None))
                yield block
        finally:
            for future in waiting:
                future.cancel()


def _around_cut_line(data: bytes, begin: int) -> Iterator[Block]:
    """The whole lines of `data`, and the line it ends in, which is too long or lacks its line end."""
    whole = data.rfind(b"\n") + 1
    if whole:
        yield Block(data[:whole], begin)
    yield Block(data[whole : whole + LONGEST_LINE] + b"\n", begin + whole, cut=True)


class _Recoded(io.RawIOBase):
    """A log in UTF-16, or one that begins with NULs, as UTF-8."""

    def __init__(self, inner: IO[bytes]) -> None:
        super().__init__()
        self._inner = inner
        self._to_utf8 = ToUtf8()
        self._rest = b""
        self.taken = 0

    @property
    def error(self) -> object:
        """What ended a compressed input, see `failure`."""
        return getattr(getattr(self._inner, "raw", None), "error", None)

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills `buffer` from the stream."""
        while not self._rest:
            data = self._inner.read(BLOCK)
            self.taken += len(data)
            self._rest = self._to_utf8(data)
            if not data:
                break
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        """Closes what is read from, too."""
        self._inner.close()
        super().close()


def _as_utf8(stream: IO[bytes]) -> IO[bytes]:
    head = stream.peek(_HEAD)[:_HEAD] if isinstance(stream, io.BufferedReader) else b""
    if b"\0" not in head:
        return stream
    return cast("IO[bytes]", io.BufferedReader(_Recoded(stream), BLOCK))


def _skip_line(stream: IO[bytes], seen: Input) -> int:
    """Reads to the end of a line; the bytes passed over."""
    skipped = 0
    while tail := _read(stream, LONGEST_LINE, seen, line=True):
        skipped += len(tail)
        if tail.endswith(b"\n"):
            break
    return skipped


def _read(stream: IO[bytes], size: int, seen: Input, *, line: bool = False) -> bytes:
    """The next bytes, of one line only where asked for; nothing where the input ends or is damaged."""
    try:
        data = stream.readline(size) if line else stream.read(size)
    except (OSError, ValueError) as error:
        seen.truncated = f"reading stops after {seen.bytes} bytes: {error}"
        return b""
    if not data:
        seen.truncated = failure(stream, seen.bytes)
    recoded = getattr(stream, "raw", None)
    seen.bytes = recoded.taken if isinstance(recoded, _Recoded) else seen.bytes + len(data)
    return data


def lines_of(raw: bytes, number: int, seen: Input, unwrapper: Unwrapper, *, cut: bool = False) -> list[Line]:
    """The lines in one physical line of a block (its line end may be there), as `read_lines` gives them."""
    bare = raw.removesuffix(b"\n")
    if b"\0" in bare:
        bare = bare.translate(None, b"\0")
    long = len(bare) > LONGEST_LINE or (cut and len(bare) == LONGEST_LINE)
    seen.long_lines += long
    return lines_in(bare[:LONGEST_LINE].rstrip(b"\r"), number, seen, unwrapper, cut=cut or long)
