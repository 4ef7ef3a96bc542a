"""Progress of long work: bytes, rate and time left on a terminal, nothing elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

PATIENCE = 1.0
"""Seconds of work before progress is shown: short work stays quiet, and does not pay for loading the display."""


class Progress:
    """A progress bar on `stream` for reading the files at `paths`; silent where `stream` is no terminal."""

    def __init__(self, paths: list[str], stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._sizes = {path: os.path.getsize(path) if os.path.isfile(path) else 0 for path in paths}
        self._done: dict[str, int] = {}
        self._begin = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def of(self, path: str) -> Callable[[int], None]:
        """A function that is told how many bytes of the input at `path` have been read."""

        def told(read: int) -> None:
            self._done[path] = read
            if self._shown and (self._bar is not None or time.monotonic() - self._begin > PATIENCE):
                self._show()

        return told

    def _show(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=sum(self._sizes.values()) or None)
        done = sum(self._done.values())
        known = sum(self._sizes.values())
        self._bar.update(self._task, completed=done, total=known if done <= known else None)


class Count:
    """A progress bar for a known number of things; silent where `stream` is no terminal."""

    def __init__(self, what: str, total: int, stream: TextIO) -> None:
        self._what, self._total, self._stream = what, total, stream
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Count:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def reached(self, done: int) -> None:
        """Shows that `done` of them are finished."""
        if not self._stream.isatty():
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                BarColumn(), MofNCompleteColumn(), self._what, TimeRemainingColumn(), console=Console(file=self._stream)
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        self._bar.update(self._task, completed=done)
