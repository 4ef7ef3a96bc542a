"""Timelines into files, in the format that the file's ending names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module

from kvdiag.errors import InputError
from kvdiag.rows.piece import Piece
from kvdiag.rows.plain import write_csv, write_json
from kvdiag.whole import whole


def write(pieces: Iterable[Piece], path: str) -> int:
    """Writes pieces to `path`, whole or not at all; gives the number of rows.

    Raises InputError where the ending is none of .parquet, .csv, .json or .jsonl, or the file cannot be written.
    """
    writers = {".parquet": _parquet, ".csv": write_csv, ".json": write_json, ".jsonl": write_json}
    writer = writers.get(os.path.splitext(path)[1].lower())
    if writer is None:
        raise InputError(f"{path}: the ending names the format; use one of {', '.join(writers)}")
    with whole(path) as temporary:
        return writer(pieces, temporary)


def _parquet(pieces: Iterable[Piece], path: str) -> int:
    import_module("pyarrow")  # before the logs are read: it is of an extra

    from kvdiag.rows.parquet import write_parquet

    return write_parquet(pieces, path)
