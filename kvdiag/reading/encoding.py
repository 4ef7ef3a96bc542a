"""Text that is not UTF-8: Windows tools write UTF-16."""

from __future__ import annotations

import codecs

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def utf16_of(head: bytes) -> str:
    """The UTF-16 variant that `head` (a file's first bytes) is written in, empty for none.

    Without a byte order mark, ASCII text shows itself by a NUL in every other byte.
    """
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    even, odd = head[0:200:2], head[1:200:2]
    if len(odd) >= 8:
        if not any(odd) and all(even):
            return "utf-16-le"
        if not any(even) and all(odd):
            return "utf-16-be"
    return ""


class ToUtf8:
    """Blocks of text as UTF-8 bytes without NULs (which a log truncated under its writer begins with)."""

    def __init__(self) -> None:
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False

    def __call__(self, block: bytes) -> bytes:
        """The next block; an empty one is the end."""
        if not self._begun:
            self._begun = True
            encoding = utf16_of(block)
            if encoding:
                self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        if self._decoder is not None:
            block = self._decoder.decode(block, final=not block).encode("utf-8", "replace")
        return block.translate(None, b"\0") if b"\0" in block else block
