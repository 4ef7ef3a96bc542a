"""Opening logs: plain and compressed files and standard input, read by blocks with bounded memory."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import IO, cast

from kvdiag.errors import InputError
from kvdiag.frozen import replace
from kvdiag.reading.arrangement import arranged
from kvdiag.reading.column import cut_column
from kvdiag.reading.encoding import ToUtf8
from kvdiag.reading.limits import Bounded, Counted, failure
from kvdiag.reading.line import Input, Line
from kvdiag.reading.standard import standard_input
from kvdiag.reading.unwrap import Unwrapper

BLOCK = 1 << 20
LONGEST_LINE = 1 << 20
"""Bytes of one line that are kept; the rest is skipped and the line marked as cut."""

_RECORD = (b"[2", b"[1", b"[0")
"""A bare record begins with its date or time."""
JOINED = "\u23ce".encode()

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

    Raises InputError where there is no such file, it is a folder, or it is not text; reading raises it where something
    compressed, a pipe or a device gives more than a log would (see `Bounded`).
    """
    raw = _open_raw(path)
    head = _peek(raw)
    for magic, what in _KNOWN_BINARY.items():
        if head.startswith(magic):
            raise InputError(f"{path}: this is {what}, not a log; give the text that the server printed")
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            packed = Counted(raw)
            return _bounded(Bounded(_decompressed(cast("IO[bytes]", packed), kind), path, packed))
    return raw if _is_file(raw) else _bounded(Bounded(raw, path))


def _bounded(stream: Bounded) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(stream, BLOCK))


def _is_file(stream: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _open_raw(path: str) -> IO[bytes]:
    if path == "-":
        return cast("IO[bytes]", io.BufferedReader(standard_input(), BLOCK))
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: this is a folder; name the log files in it, for example {os.path.join(path, '*.log')}")
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path (a glob must match at least one file)") from None
    except PermissionError:
        raise InputError(f"{path}: cannot be read: you lack the permission; ask its owner, or copy it as one who may") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror or error}; give a file that the server printed to") from None
    except ValueError as error:
        raise InputError(f"{path!r}: no path: {error}") from None


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
    """The lines of the log at `path`, decoded, without what they were wrapped in, each once; counts go into `seen`.

    Line ends are LF, CRLF or a lone CR (progress bars); text is UTF-8 or UTF-16, and bytes that are neither become
    U+FFFD. An export that joined lines by a mark for their ends counts as these lines. A damaged compressed file gives
    the lines before the damage and says so in ``seen.truncated``.
    """
    return arranged(_lines(path, seen), path)


def _lines(path: str, seen: Input) -> Iterator[Line]:
    unwrapper = Unwrapper()
    joined = 0
    with open_log(path) as stream:
        for physical, raw, cut, full in _split(stream, seen):
            lines = lines_in(raw, physical + joined, seen, unwrapper, cut=cut, full=full)
            if len(lines) > 1 and JOINED in raw:
                lines = [replace(line, number=line.number + index) for index, line in enumerate(lines)]
                joined += len(lines) - 1
            yield from lines
    yield from unwrapper.rest(seen.lines + joined)
    seen.lines += joined


def lines_in(raw: bytes, number: int, seen: Input, unwrapper: Unwrapper, *, cut: bool = False, full: bool = False) -> list[Line]:
    """What one physical line (without its line end) holds: one line as a rule, several or none where it was wrapped."""
    text = raw.decode("utf-8", "replace")
    if "\ufffd" in text:
        seen.undecodable += 1
    if raw[:2] in _RECORD and b"\x1b" not in raw and b"\r" not in raw and b"&" not in raw and raw.isascii():
        unwrapper.bare()
        return [Line(number, text, cut=cut, full=full)]
    return list(unwrapper.lines(number, text, cut=cut, full=full))


def _split(stream: IO[bytes], seen: Input) -> Iterator[tuple[int, bytes, bool, bool]]:
    """(number, bytes without line end, cut, full) of each line, holding at most a block and one line in memory."""
    rest = b""
    skipping = False
    column = -1
    for block in _blocks(stream, seen):
        if column < 0:
            column = cut_column(block)
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            seen.lines += 1
            if skipping:
                skipping = False
                continue
            long = len(piece) > LONGEST_LINE
            seen.long_lines += long
            piece = piece[:LONGEST_LINE].rstrip(b"\r")
            if column and len(piece) >= column:
                column = column if len(piece) == column else 0
            full = bool(column) and len(piece) == column
            yield seen.lines, piece, long or full, full
        if len(rest) > LONGEST_LINE:
            if not skipping:
                seen.long_lines += 1
                yield seen.lines + 1, rest[:LONGEST_LINE], True, False
            rest, skipping = b"", True
    if rest or skipping:
        seen.lines += 1
        if not skipping:
            yield seen.lines, rest.rstrip(b"\r"), True, False


def _blocks(stream: IO[bytes], seen: Input) -> Iterator[bytes]:
    to_utf8 = ToUtf8()
    while True:
        try:
            block = stream.read(BLOCK)
        except (OSError, ValueError) as error:
            seen.truncated = f"reading stops after {seen.bytes} bytes: {error}"
            return
        seen.bytes += len(block)
        yield to_utf8(block)
        if not block:
            seen.truncated = failure(stream, seen.bytes)
            return
