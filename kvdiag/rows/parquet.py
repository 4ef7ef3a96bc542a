"""A timeline as parquet, by row groups as they come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kvdiag.rows.arrow import arranged, plain_schema, schema_of, table_of
from kvdiag.rows.piece import Piece, columns_of

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP = 1 << 17


def write_parquet(pieces: Iterable[Piece], path: str) -> int:
    """One file with all columns that occur; where one turns up late, what was written before is written again with it."""
    with _Parts(path) as parts:
        for group in _grouped(map(table_of, pieces)):
            parts.add(group)
        parts.close()
        if len(parts.paths) == 1:
            os.replace(parts.paths[0], path)
        else:
            with _Writer(path, plain_schema(parts.columns)) as writer:
                for table in parts.read():
                    writer.add(table)
        return parts.rows


class _Writer:
    """A parquet file whose row groups are written by a thread of their own while the next is read; two wait at most.

    Whole numbers as differences make the file smaller than a compressor does, for less than half of its time.
    """

    def __init__(self, path: str, schema: pyarrow.Schema) -> None:
        import pyarrow.parquet as pq

        texts = [item.name for item in schema if str(item.type).startswith(("dictionary", "string"))]
        whole = [item.name for item in schema if str(item.type).startswith(("int", "timestamp"))]
        options: Any = {"use_dictionary": texts, "compression": "none", "store_schema": False}
        options["column_encoding"] = dict.fromkeys(whole, "DELTA_BINARY_PACKED")
        self._writer = pq.ParquetWriter(path, schema, write_statistics=["start", "time", "line"], **options)
        self._pool = ThreadPoolExecutor(1)
        self._waiting: list[Future[None]] = []

    def add(self, table: pyarrow.Table) -> None:
        self._waiting.append(self._pool.submit(self._writer.write_table, table, table.num_rows))
        if len(self._waiting) > 2:
            self._waiting.pop(0).result()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True)
        self._writer.close()
        for future in self._waiting:
            future.result()


class _Parts:
    """Parquet files beside `path`, a new one whenever a column turns up that the one before does not have."""

    def __init__(self, path: str) -> None:
        self.paths: list[str] = []
        self.columns: list[str] = []
        self.rows = 0
        self._beside = path
        self._writer: _Writer | None = None

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for path in self.paths:
            if os.path.exists(path):
                os.unlink(path)

    def close(self) -> None:
        """Ends the part that is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.__exit__()

    def add(self, table: pyarrow.Table) -> None:
        """Writes rows."""
        columns = columns_of([*self.columns, *table.column_names])
        if self._writer is None or columns != self.columns:
            self.close()
            self.columns = columns
            self.paths.append(f"{self._beside}.{len(self.paths)}")
            self._writer = _Writer(self.paths[-1], schema_of(columns))
        self.rows += table.num_rows
        self._writer.add(arranged(table, columns))

    def read(self) -> Iterator[pyarrow.Table]:
        """The rows again, by row groups, with all columns and text as plain text."""
        import pyarrow.parquet as pq

        for path in self.paths:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                yield arranged(file.read_row_group(group), self.columns, plain=True)
            file.close()


def _grouped(tables: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    held: list[Any] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= ROW_GROUP:
            yield _joined(pa, held)
            held, rows = [], 0
    if held:
        yield _joined(pa, held)


def _joined(pa: Any, tables: list[Any]) -> Any:
    columns = columns_of([name for table in tables for name in table.column_names])
    return pa.concat_tables([arranged(table, columns) for table in tables])
