"""Whether the lines of an input were cut, or broken, at a column."""

from __future__ import annotations

import re

_NARROWEST = 40
_FEWEST = 2
_DIGITS = re.compile(rb"[0-9]+")


def cut_column(block: bytes) -> int:
    """The length in bytes that no line exceeds and lines of several kinds reach; 0 where there is none.

    The longest lines of an undamaged log are of one kind: lines that differ in more than their digits do not come to the
    same greatest length by chance.
    """
    lines = block.split(b"\n")[:-1] or [block]
    longest = max((len(line.rstrip(b"\r")) for line in lines), default=0)
    if longest < _NARROWEST:
        return 0
    kinds = {_DIGITS.sub(b"0", line.rstrip(b"\r")) for line in lines if len(line.rstrip(b"\r")) == longest}
    return longest if len(kinds) >= _FEWEST else 0
