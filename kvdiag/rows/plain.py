"""A timeline as text that any program reads: CSV and JSON lines. It takes no library but numpy."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from kvdiag.lines.chunk import ranks
from kvdiag.lines.columns import BATCH_FAMILIES
from kvdiag.rows.piece import ROLES, Piece, columns_of, kinds

_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What begins a formula in a spreadsheet, and the full-width forms that some take for the same."""
_Clean = Callable[[str], str]


def values_of(piece: Piece, clean: _Clean, truths: tuple[Any, Any] = (False, True)) -> dict[str, list[Any]]:
    """The columns that some row has, in their order, as Python's values; None where a row has none.

    Texts are as `clean` gives them, truth values as `truths` has them, times ISO text.
    """
    chunk, texts = piece.chunk, piece.texts.list
    made: dict[str, list[Any]] = {
        "log": [clean(piece.path)] * len(piece),
        "start": piece.start.tolist(),
        "family": _chosen(chunk.family, BATCH_FAMILIES, clean),
        "time": _held(np.datetime_as_string(piece.stamps.astype("datetime64[ms]")).tolist(), piece.timed),
        "rank": _chosen(ranks(chunk, piece.texts), texts, clean),
        "line": chunk.lines.tolist(),
        "offset": _held(chunk.offsets.tolist(), chunk.offsets >= 0),
    }
    for name, column in chunk.columns.items():
        kind = kinds().get(name)
        if kind == "text":
            made[name] = _held(_chosen(np.where(column.there, column.values, 0), texts, clean), column.there)
        elif kind == "truth":
            made[name] = _held([truths[bool(value)] for value in column.values.tolist()], column.there)
        elif kind is not None:
            made[name] = _held(column.values.tolist(), column.there)
    if piece.role.any():
        made["role"] = _held(_chosen(piece.role, ROLES, clean), piece.role > 0)
    return {name: made[name] for name in columns_of(made)}


def _held(values: list[Any], there: Any) -> list[Any]:
    return values if there.all() else [value if held else None for value, held in zip(values, there.tolist(), strict=True)]


def _chosen(places: Any, texts: Any, clean: _Clean) -> list[str]:
    """The texts at `places`, each distinct one cleaned once."""
    distinct, codes = np.unique(places, return_inverse=True)
    known = np.array([clean(texts[place]) for place in distinct.tolist()], np.object_)
    chosen: list[str] = known[codes.reshape(-1)].tolist()
    return chosen


def _plain(text: str) -> str:
    """`text` without what is no character: the halves of pairs that a file name may have."""
    return text.encode("utf-8", "replace").decode("utf-8")


def write_csv(pieces: Iterable[Piece], path: str) -> int:
    """One table with all columns that occur; where one turns up late, what was written before is written again with it.

    Text that a spreadsheet would take for a formula gets an apostrophe before it; numbers are never text.
    """
    rows = 0
    with _Sheets(path) as sheets:
        for piece in pieces:
            values = values_of(piece, lambda text: inert_cell(_plain(text)), ("false", "true"))
            values["time"] = [time and time.replace("T", " ") for time in values["time"]]  # which spreadsheets know for a time
            sheets.add(values)
            rows += len(piece)
        sheets.join()
    return rows


class _Sheets:
    """CSV files beside `path`, a new one whenever a column turns up that the one before does not have."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._paths: list[str] = []
        self._columns: list[str] = []
        self._stack = ExitStack()
        self._file: IO[str] | None = None

    def __enter__(self) -> _Sheets:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for path in self._paths:
            if os.path.exists(path):
                os.unlink(path)

    def add(self, values: dict[str, list[Any]]) -> None:
        """Writes rows."""
        columns = columns_of([*self._columns, *values])
        if self._file is None or columns != self._columns:
            self._stack.close()
            self._columns = columns
            self._paths.append(f"{self._path}.{len(self._paths)}")
            self._file = self._stack.enter_context(_opened(self._paths[-1], "w"))
            csv.writer(self._file, lineterminator="\n").writerow(columns)
        count = len(values["line"])
        cells = (values.get(name) or [None] * count for name in columns)
        csv.writer(self._file, lineterminator="\n").writerows(zip(*cells, strict=True))

    def join(self) -> None:
        """Puts all rows into `path`."""
        self._stack.close()
        if len(self._paths) == 1:
            os.replace(self._paths[0], self._path)
            return
        with _opened(self._path, "w") as file:
            writer = csv.DictWriter(file, self._columns, lineterminator="\n")
            writer.writeheader()
            for path in self._paths:
                with _opened(path, "r") as part:
                    writer.writerows(csv.DictReader(part))


def _opened(path: str, mode: str) -> IO[str]:
    return open(path, mode, encoding="utf-8", newline="")


def inert_cell(text: str) -> str:
    """`text` as a cell that no spreadsheet calculates and no terminal obeys."""
    shown = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def write_json(pieces: Iterable[Piece], path: str) -> int:
    """An object a line, in ASCII so that no terminal obeys it; fields the line does not have are left out."""
    rows = 0
    with open(path, "w", encoding="ascii") as file:
        for piece in pieces:
            file.writelines(_objects(values_of(piece, _plain)))
            rows += len(piece)
    return rows


def _objects(values: dict[str, list[Any]]) -> Iterator[str]:
    names = list(values)
    for row in zip(*values.values(), strict=True):
        text = json.dumps({name: value for name, value in zip(names, row, strict=True) if value is not None})
        yield text.replace("\x7f", "\\u007f") + "\n"
