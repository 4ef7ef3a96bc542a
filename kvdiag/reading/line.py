"""The form in which text leaves the reading room."""

from __future__ import annotations

from kvdiag.frozen import frozen, mutable


@frozen
class Line:
    """One line of an input, without its wrapper and its line end.

    `number` counts physical lines of the input from 1; `stream` is what the wrapper says about the origin (container,
    pod, unit, task), empty where it says nothing; `time` is the wrapper's own time stamp as text. `cut` is set where
    text may be lost: the line was longer than the limit, the input ended within it, or all lines end at one column.
    Of those the last are `full`: what is missing can stand in the next line.
    """

    number: int
    text: str
    stream: str = ""
    time: str = ""
    cut: bool = False
    full: bool = False


@mutable
class Input:
    """What is known of an input once it has been read; counts grow while it is read.

    `recoded` is set where its text is not its bytes (UTF-16), so that places in one are none in the other.
    """

    path: str
    lines: int = 0
    bytes: int = 0
    matched: int = 0
    long_lines: int = 0
    undecodable: int = 0
    truncated: str = ""
    recoded: bool = False

    @property
    def unread(self) -> str:
        """What of the input was not read, and why; empty where all was."""
        found = [self.truncated] if self.truncated else []
        if self.long_lines:
            found.append(f"{self.long_lines:,} lines are longer than 1 MiB, and only the first MiB of each was read")
        return "; ".join(found)
