"""What a terminal is shown while a command reads: of a big log what its start-up part tells, then progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from kvdiag.errors import KvdiagError

LARGE = 32 << 20
"""Bytes from which a log is not read at once."""


@contextmanager
def patience(paths: list[str], stream: TextIO | None = None) -> Iterator[Callable[[str, int], None] | None]:
    """A function that is told the bytes read of a path; None where `stream` (standard error) is no terminal."""
    stream = stream or sys.stderr
    large = [path for path in paths if os.path.isfile(path) and os.path.getsize(path) >= LARGE]
    if not stream.isatty() or not large:
        yield None
        return
    from kvdiag.rows.progress import Progress

    stream.write(_early(large[0]))
    stream.flush()
    with Progress(paths, stream) as progress:
        yield lambda path, read: progress.of(path)(read)


def _early(path: str) -> str:
    """What the first lines of a log tell, empty where that is nothing."""
    from kvdiag.pipeline import explain_beginning
    from kvdiag.reports.text_report import at_a_glance

    try:
        return at_a_glance(explain_beginning(path))
    except KvdiagError:
        return ""
