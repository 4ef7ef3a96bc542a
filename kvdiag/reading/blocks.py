"""Logs by blocks of whole lines, for readers that look at many lines at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from kvdiag.frozen import frozen
from kvdiag.reading.limits import failure
from kvdiag.reading.line import Input, Line
from kvdiag.reading.source import LONGEST_LINE, lines_in, open_log
from kvdiag.reading.unwrap import Unwrapper

FIRST = 1 << 18
LARGEST = 1 << 22
"""Bytes of the first block and of the largest: blocks double, so that the start-up part of a big log is there soon."""


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
    with open_log(path) as stream:
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


def _around_cut_line(data: bytes, begin: int) -> Iterator[Block]:
    """The whole lines of `data`, and the line it ends in, which is too long or lacks its line end."""
    whole = data.rfind(b"\n") + 1
    if whole:
        yield Block(data[:whole], begin)
    yield Block(data[whole : whole + LONGEST_LINE] + b"\n", begin + whole, cut=True)


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
    seen.bytes += len(data)
    return data


def lines_of(raw: bytes, number: int, seen: Input, unwrapper: Unwrapper, *, cut: bool = False) -> list[Line]:
    """The lines in one physical line of a block (its line end may be there), as `read_lines` gives them."""
    bare = raw.removesuffix(b"\n")
    long = len(bare) > LONGEST_LINE or (cut and len(bare) == LONGEST_LINE)
    seen.long_lines += long
    return lines_in(bare[:LONGEST_LINE].rstrip(b"\r"), number, seen, unwrapper, cut=cut or long)
