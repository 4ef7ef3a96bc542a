"""Where a command's result goes, and what the terminal can show."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeVar

from kvdiag.errors import InputError

if TYPE_CHECKING:
    from typing import TypedDict

    class Terminal(TypedDict):
        """Columns and colour of the place the text goes to."""

        width: int
        colour: bool


_Result = TypeVar("_Result")


def expand(patterns: list[str]) -> list[str]:
    """The paths that `patterns` name: globs are expanded in order of name, other paths stay as they are."""
    paths: list[str] = []
    for pattern in patterns:
        if any(mark in pattern for mark in "*?[") and not os.path.exists(pattern):
            import glob

            found = sorted(glob.glob(pattern, recursive=True))
            if not found:
                raise InputError(f"{pattern}: no file matches this pattern")
            paths.extend(found)
        else:
            paths.append(pattern)
    return paths


def terminal(output: str | None) -> Terminal:
    """Width and colour for text that goes to `output` (None is standard output); NO_COLOR and TERM=dumb are obeyed."""
    is_terminal = output is None and sys.stdout.isatty()
    columns = int(os.environ.get("COLUMNS", "0") or 0) if os.environ.get("COLUMNS", "").isdigit() else 0
    if not columns:
        columns = os.get_terminal_size().columns if is_terminal else 100
    return {"width": max(40, min(columns, 120)), "colour": is_terminal and _takes_colour()}


def _takes_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def masked(result: _Result, wanted: bool) -> _Result:
    """What a report is made of, with what is personal in it replaced where that is wanted."""
    if not wanted:
        return result
    from kvdiag.reports.mask import Mask

    return Mask().inside(result)


def deliver(text: str, output: str | None) -> None:
    """Writes `text` to standard output or, whole or not at all, to the file `output`.

    Raises InputError where it cannot be written (no such folder, no permission, disk full); an older file then stays
    as it was. BrokenPipeError passes through: the reader has what it wanted.
    """
    data = text.encode("utf-8", "replace")
    if output is None:
        _to_stdout(data)
        return
    from kvdiag.whole import whole

    with whole(output) as path, open(path, "wb") as file:
        file.write(data)


def _to_stdout(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise InputError(f"standard output: cannot be written: {error.strerror or error}") from None


def discard_stdout() -> None:
    """Lets what is still buffered go nowhere, so that the interpreter's own flush at exit stays silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
