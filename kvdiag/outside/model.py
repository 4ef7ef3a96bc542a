"""The form in which another source's figures leave this room, and reading its file within bounds."""

from __future__ import annotations

from kvdiag.errors import InputError
from kvdiag.frozen import frozen
from kvdiag.quantity import Interval
from kvdiag.small import small_file

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


def read_text(path: str, advice: str) -> str:
    """The text of a small file; raises InputError, which ends with `advice`, where it is none, or too large."""
    return small_file(path, LARGEST, InputError, advice).decode("utf-8", "replace")
