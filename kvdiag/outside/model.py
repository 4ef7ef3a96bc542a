"""The form in which another source's figures leave this room, and reading its file within bounds."""

from __future__ import annotations

import os
import stat

from kvdiag.errors import InputError
from kvdiag.frozen import frozen
from kvdiag.quantity import Interval

LARGEST = 16 << 20
"""Bytes of the largest file of these kinds that is read."""


@frozen
class Outside:
    """A number of the server as another source states it.

    `value` is bytes, tokens, requests or a fraction as an interval, or the text of a server argument, whose `name` then
    begins with ``argument``. `source` names the input for people.
    """

    source: str
    name: str
    value: Interval | str


def read_text(path: str) -> str:
    """The text of a small file; raises InputError where it is none, or too large."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: not a regular file; save the output to a file first")
        if status.st_size > LARGEST:
            raise InputError(f"{path}: {status.st_size:,} bytes are more than such a file has ({LARGEST:,} at most)")
        with open(path, "rb") as file:
            return file.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
