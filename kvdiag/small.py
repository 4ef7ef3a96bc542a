"""Small files that the user names: read whole, within bounds, and refused in a sentence that says what to give instead."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from kvdiag.errors import KvdiagError

if TYPE_CHECKING:
    from json import JSONDecodeError

_OPEN_ALREADY = ("/dev/fd/", "/proc/self/fd/")
"""Where a shell puts the pipe of ``<(command)``: its other end is open, so reading it ends when the command does."""


def small_file(path: str, largest: int, raising: type[KvdiagError], advice: str) -> bytes:
    """The bytes of the file at `path`.

    Raises `raising`, whose message ends with `advice`, where there is no such file, it has more than `largest` bytes, or it is
    no regular file: opening a named pipe that nobody writes to would wait for ever.
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise raising(f"{path}: this is a folder; {advice}")
        if not stat.S_ISREG(mode) and not path.startswith(_OPEN_ALREADY):
            raise raising(f"{path}: no regular file (a pipe, socket or device); {advice}")
        with open(path, "rb") as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        raise raising(f"{path}: no such file; {advice}") from None
    except OSError as error:
        raise raising(f"{path}: cannot be read: {error.strerror or error}; {advice}") from None
    except ValueError:
        raise raising(f"{path!r}: no path; {advice}") from None
    if len(data) > largest:
        raise raising(f"{path}: larger than {largest:,} bytes, which no such file is; {advice}")
    return data


def small_text(path: str, largest: int, raising: type[KvdiagError], advice: str) -> str:
    """As `small_file`, decoded; raises `raising` too where it is no UTF-8 text."""
    data = small_file(path, largest, raising, advice)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise raising(f"{path}: not UTF-8 text (byte {error.start}); {advice}") from None


def not_json(path: str, error: JSONDecodeError, advice: str) -> str:
    """The sentence for a text that is no JSON, with its place as editors jump to it."""
    if not error.doc.strip():
        return f"{path}: the file is empty; {advice}"
    return f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}; {advice}"
