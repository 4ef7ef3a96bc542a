"""From logs to a file of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from kvdiag.errors import NotSglangError
from kvdiag.reading import Input
from kvdiag.rows.progress import Progress
from kvdiag.rows.read import tables
from kvdiag.rows.write import write


def export(paths: list[str], output: str, *, strict: bool = False) -> list[Input]:
    """Writes the timeline of the logs at `paths` to `output`; gives what was read of each.

    Raises NotSglangError, and writes nothing, where no line of any log is a scheduler line.
    """
    inputs = [Input(path) for path in paths]

    def each() -> Iterator[Any]:
        rows = 0
        with Progress(paths, sys.stderr) as progress:
            for seen in inputs:
                for table in tables(seen.path, seen, strict=strict, progress=progress.of(seen.path)):
                    rows += table.num_rows
                    yield table
        if not rows:
            lines = sum(seen.lines for seen in inputs)
            raise NotSglangError(f"{paths[0]}: no scheduler line in {lines:,} lines; is it the server's log?")

    write(each(), output)
    return inputs
