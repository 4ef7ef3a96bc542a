"""Limits on inputs whose size nothing tells beforehand: compressed files, pipes and devices."""

from __future__ import annotations

import io
import os
from typing import IO, Any

from kvdiag.errors import InputError

VARIABLE = "KVDIAG_MAX_INPUT_GIB"
"""The environment variable that raises the limits."""
_GIB = 1 << 30
_LARGEST = 64
_LONGEST_WITHOUT_LINE_END = _GIB
_RATIO = 200
_RATIO_FROM = 256 << 20
"""Logs compress 10 to 40 times; a ratio counts only from this many unpacked bytes on, where memory and time do."""


class Counted:
    """A stream of compressed bytes that knows how many were taken from it."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner = inner
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        """As the stream's own `read`."""
        data = self._inner.read(size)
        self.taken += len(data)
        return data

    def close(self) -> None:
        """Closes the stream."""
        self._inner.close()


class Bounded(io.RawIOBase):
    """The bytes of `inner` until it fails or a limit is passed; `error` is set then, see `failure`.

    Raising would lose the good bytes that a buffer around this had just taken.
    """

    def __init__(self, inner: Any, path: str, packed: Counted | None = None) -> None:
        super().__init__()
        self._inner = inner
        self._read = getattr(inner, "read1", inner.read)
        self._path = path
        self._packed = packed
        self._total = self._since_line_end = 0
        self.error: Exception | None = None
        self._gib = _asked_for()

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills `buffer` from the stream."""
        if self.error is not None:
            return 0
        try:
            data = self._read(len(buffer))
            self._count(data)
        except Exception as error:
            self.error = error
            return 0
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Closes what is read from, too."""
        if not self.closed:
            self._inner.close()
            if self._packed:
                self._packed.close()
        super().close()

    def _count(self, data: bytes) -> None:
        self._total += len(data)
        line_end = data.rfind(b"\n")
        self._since_line_end = self._since_line_end + len(data) if line_end < 0 else len(data) - line_end - 1
        if self._total > (self._gib or _LARGEST) * _GIB:
            raise self._fail(f"more than {self._gib or _LARGEST} GiB come out of it")
        if self._gib:
            return
        if self._since_line_end > _LONGEST_WITHOUT_LINE_END:
            raise self._fail(f"no line ends in {_LONGEST_WITHOUT_LINE_END >> 30} GiB of it")
        if self._packed and self._total > _RATIO_FROM and self._total > _RATIO * self._packed.taken:
            raise self._fail(f"it unpacks to more than {_RATIO} times its size")

    def _fail(self, what: str) -> InputError:
        return InputError(f"{self._path}: {what}, as no log does; if it is one, set {VARIABLE} to the GiB to read at most")


def failure(stream: object, after: int) -> str:
    """Why the stream gives nothing more after so many bytes, empty where it is at its end.

    Raises InputError where it was stopped at a limit.
    """
    error = getattr(getattr(stream, "raw", None), "error", None)
    if isinstance(error, InputError):
        raise error
    return f"the compressed data ends or breaks after {after} bytes: {error}" if error else ""


def _asked_for() -> int:
    """What the variable asks for, 0 where it is not set."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) == 0:
        raise InputError(f"{VARIABLE} is {text!r}; give a whole number of GiB, for example {VARIABLE}=200")
    return int(text)
