"""Standard input, of which can be asked whether it is long before it is read."""

from __future__ import annotations

import io
import sys
from functools import lru_cache
from typing import IO, Any

_MOST_AT_ONCE = 1 << 16


class StandardInput(io.RawIOBase):
    """The bytes of `inner`, the first of which may have been read ahead."""

    def __init__(self, inner: IO[bytes]) -> None:
        super().__init__()
        self._inner = inner
        self._ahead = bytearray()

    def holds(self, size: int) -> bool:
        """Whether so many bytes come; waits for them or for the end."""
        while len(self._ahead) < size:
            data = self._inner.read(_MOST_AT_ONCE)
            if not data:
                return False
            self._ahead += data
        return True

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills `buffer`, first from what was read ahead."""
        data = bytes(self._ahead[: len(buffer)])
        del self._ahead[: len(buffer)]
        data = data or self._inner.read(min(len(buffer), _MOST_AT_ONCE))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Leaves standard input open: it is not ours."""


def standard_input() -> StandardInput:
    """The process's standard input, always the same object while that is the same."""
    return _of(sys.stdin.buffer)


@lru_cache(maxsize=1)
def _of(inner: IO[bytes]) -> StandardInput:
    return StandardInput(inner)
