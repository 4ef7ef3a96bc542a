"""Following growing files through rotation and truncation, and standard input, by whole lines."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator
from typing import IO

from kvdiag.errors import InputError
from kvdiag.frozen import frozen
from kvdiag.reading.blocks import Block

PIECE = 1 << 20
_LONGEST = 1 << 20
_REMEMBERED = 64
"""Bytes before the place read up to that must still stand there: else the file was truncated and has grown again."""


@frozen
class Place:
    """Where a follower is in a file: it is taken up again only if the file is the same and has these bytes there."""

    inode: int
    offset: int
    before: str

    def fits(self, file: int) -> bool:
        """Whether the open `file` is the one this is a place in."""
        if os.fstat(file).st_ino != self.inode:
            return False
        length = len(self.before) // 2
        return os.pread(file, length, self.offset - length).hex() == self.before


class Follower:
    """The lines of one file as they come. A rotated file is read to its end before the new one is begun."""

    def __init__(self, path: str, place: Place | None = None) -> None:
        self.path = path
        self.restarts = 0
        self._rest = b""
        self._file: int | None = None
        self._offset = 0
        self._before = b""
        self._open()
        if self._file is None:
            raise InputError(f"{path}: no such file to follow; start the server first, or check the path")
        if place is not None and place.fits(self._file):
            self._offset, self._before = place.offset, bytes.fromhex(place.before)

    def _open(self) -> None:
        try:
            mode = os.stat(self.path).st_mode
            self._file = os.open(self.path, os.O_RDONLY) if stat.S_ISREG(mode) else None
        except OSError:
            self._file, mode = None, stat.S_IFREG
        if stat.S_ISDIR(mode):
            raise InputError(f"{self.path}: this is a folder; name the log files in it that are to be followed")
        if not stat.S_ISREG(mode):
            raise InputError(f"{self.path}: no regular file (a pipe or device); give its text to standard input (kvdiag watch -)")
        self._offset = 0
        self._before = b""

    def close(self) -> None:
        """Lets go of the file."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def blocks(self) -> Iterator[Block]:
        """What has come since the last call, in blocks of whole lines; at the end of a rotated file also its last line."""
        while True:
            if self._file is None:
                self._open()
                if self._file is None:
                    return
            yield from self._grown(self._file)
            if not self._replaced(self._file):
                return
            yield from self._grown(self._file)
            if self._rest:
                yield self._block(self._rest + b"\n")
            self.close()
            self._rest = b""
            self.restarts += 1

    def _grown(self, file: int) -> Iterator[Block]:
        if self._truncated(file):
            self._offset, self._rest, self._before = 0, b"", b""
            self.restarts += 1
        while data := os.pread(file, PIECE, self._offset):
            self._offset += len(data)
            self._before = (self._before + data)[-_REMEMBERED:]
            data = self._rest + data
            end = data.rfind(b"\n") + 1
            self._rest = data[end:]
            if len(self._rest) > _LONGEST:
                data, end, self._rest = data + b"\n", len(data) + 1, b""
            if end:
                yield self._block(data[:end])

    def _block(self, data: bytes) -> Block:
        return Block(data, self._offset - len(self._rest) - len(data))

    def _truncated(self, file: int) -> bool:
        if os.fstat(file).st_size < self._offset:
            return True
        length = len(self._before)
        return os.pread(file, length, self._offset - length) != self._before

    def _replaced(self, file: int) -> bool:
        """Whether the path leads to another file that has been written to; until then the old one may still grow."""
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        here = os.fstat(file)
        return there.st_size > 0 and (there.st_ino, there.st_dev) != (here.st_ino, here.st_dev)

    @property
    def place(self) -> Place | None:
        """Where the next line begins, to take up from there another time."""
        if self._file is None:
            return None
        before = self._before[: len(self._before) - len(self._rest)] if self._rest else self._before
        return Place(os.fstat(self._file).st_ino, self._offset - len(self._rest), before.hex())


class Piped:
    """The lines of a stream as they come, until it ends; `copy` gets all its bytes."""

    def __init__(self, stream: IO[bytes], copy: IO[bytes]) -> None:
        self.path = "-"
        self.restarts = 0
        self.ended = False
        self._stream = stream
        self._copy = copy
        self._rest = b""
        self._offset = 0

    place: Place | None = None

    def close(self) -> None:
        """The stream is not ours to close."""

    def blocks(self) -> Iterator[Block]:
        """What has come since the last call, in blocks of whole lines; at the end also the last line."""
        number = self._stream.fileno()
        while not self.ended and select.select([number], [], [], 0)[0]:
            data = os.read(number, PIECE)
            self._copy.write(data)
            self.ended = not data
            whole = self._rest + (data or (b"\n" if self._rest else b""))
            end = whole.rfind(b"\n") + 1
            self._rest = whole[end:]
            if end:
                yield Block(whole[:end], self._offset)
                self._offset += end
