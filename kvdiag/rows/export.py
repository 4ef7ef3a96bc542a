"""From logs to a file of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kvdiag.errors import NotSglangError
from kvdiag.reading import Input
from kvdiag.rows.piece import Piece
from kvdiag.rows.progress import Progress
from kvdiag.rows.read import pieces
from kvdiag.rows.write import write


def export(paths: list[str], output: str, *, strict: bool = False) -> list[Input]:
    """Writes the timeline of the logs at `paths` to `output`; gives what was read of each.

    Raises NotSglangError, and writes nothing, where no line of any log is a scheduler line.
    """
    inputs = [Input(path) for path in paths]

    def each() -> Iterator[Piece]:
        rows = 0
        with Progress(paths, sys.stderr) as progress:
            for seen in inputs:
                for piece in pieces(seen.path, seen, strict=strict, progress=progress.of(seen.path)):
                    rows += len(piece)
                    yield piece
        if not rows:
            lines = sum(seen.lines for seen in inputs)
            raise NotSglangError(f"{paths[0]}: no scheduler line in {lines:,} lines; is it the server's log?")

    write(each(), output)
    return inputs
