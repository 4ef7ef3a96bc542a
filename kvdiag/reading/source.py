"""Opening logs: plain and compressed files and standard input, read by blocks with bounded memory."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from kvdiag.errors import InputError
from kvdiag.reading.line import Input, Line

BLOCK = 1 << 20
LONGEST_LINE = 1 << 20
"""Bytes of one line that are kept; the rest is skipped and the line marked as cut."""

_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_KNOWN_BINARY = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip archive (or wheel)",
    b"\x7fELF": "a program",
    b"PAR1": "a parquet table",
}


def open_log(path: str) -> IO[bytes]:
    """The bytes of a log at `path` (``-`` is standard input), decompressed by what the bytes say, not by the name.

    Raises InputError where there is no such file, it is a folder, or it is not text.
    """
    raw = _open_raw(path)
    head = _peek(raw)
    for magic, what in _KNOWN_BINARY.items():
        if head.startswith(magic):
            raise InputError(f"{path}: this is {what}, not a log; give the text that the server printed")
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return _decompressed(raw, kind)
    return raw


def _open_raw(path: str) -> IO[bytes]:
    if path == "-":
        return cast("IO[bytes]", sys.stdin.buffer)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: this is a folder; name the log files in it, for example {Path(path) / '*.log'}")
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path (a glob must match at least one file)") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be opened: {error}") from None


def _peek(stream: IO[bytes]) -> bytes:
    peek = getattr(stream, "peek", None)
    return bytes(peek(8)[:8]) if peek else b""


def _decompressed(raw: IO[bytes], kind: str) -> IO[bytes]:
    if kind == "gz":
        import gzip

        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if kind == "bz2":
        import bz2

        return cast("IO[bytes]", bz2.BZ2File(raw))
    if kind == "xz":
        import lzma

        return cast("IO[bytes]", lzma.LZMAFile(raw))
    import zstandard

    return cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(raw))


def read_lines(path: str, seen: Input) -> Iterator[Line]:
    """The physical lines of the log at `path`, decoded; counts go into `seen`.

    Line ends are LF, CRLF or a lone CR (progress bars). Bytes that are no UTF-8 become U+FFFD. A damaged compressed
    file gives the lines before the damage and says so in ``seen.truncated``.
    """
    with open_log(path) as stream:
        for number, raw, cut in _split(stream, seen):
            text = raw.decode("utf-8", "replace")
            if "\ufffd" in text:
                seen.undecodable += 1
            yield Line(number, text, cut=cut)


def _split(stream: IO[bytes], seen: Input) -> Iterator[tuple[int, bytes, bool]]:
    """(number, bytes without line end, cut) of each line, holding at most a block and one line in memory."""
    rest = b""
    skipping = False
    for block in _blocks(stream, seen):
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            seen.lines += 1
            if skipping:
                skipping = False
                continue
            long = len(piece) > LONGEST_LINE
            seen.long_lines += long
            yield seen.lines, piece[:LONGEST_LINE].rstrip(b"\r"), long
        if len(rest) > LONGEST_LINE:
            if not skipping:
                seen.long_lines += 1
                yield seen.lines + 1, rest[:LONGEST_LINE], True
            rest, skipping = b"", True
    if rest or skipping:
        seen.lines += 1
        if not skipping:
            yield seen.lines, rest.rstrip(b"\r"), bool(seen.truncated)


def _blocks(stream: IO[bytes], seen: Input) -> Iterator[bytes]:
    while True:
        try:
            block = stream.read(BLOCK)
        except (EOFError, OSError, ValueError) as error:
            seen.truncated = f"the compressed data ends or breaks after {seen.bytes} bytes: {error}"
            return
        except Exception as error:
            seen.truncated = f"the compressed data is damaged after {seen.bytes} bytes: {error}"
            return
        if not block:
            return
        seen.bytes += len(block)
        yield block
