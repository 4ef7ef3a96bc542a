"""Rows as Arrow tables, over the memory they were read into; only parquet files and pandas frames need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kvdiag.lines.chunk import ranks
from kvdiag.lines.columns import BATCH_FAMILIES
from kvdiag.rows.piece import ROLES, Piece, columns_of, kinds

if TYPE_CHECKING:
    import pyarrow


def schema_of(columns: Iterable[str]) -> pyarrow.Schema:
    """The schema of tables with these columns; texts are kept as dictionaries."""
    import pyarrow as pa

    types = {**_types(), "text": pa.dictionary(pa.int32(), pa.string())}
    return pa.schema([(name, types[kinds()[name]]) for name in columns])


def plain_schema(columns: Iterable[str]) -> pyarrow.Schema:
    """As `schema_of`, with texts as plain text."""
    import pyarrow as pa

    types = {**_types(), "text": pa.string()}
    return pa.schema([(name, types[kinds()[name]]) for name in columns])


def arranged(table: pyarrow.Table, columns: list[str], *, plain: bool = False) -> pyarrow.Table:
    """The table with these columns, null where it has none of that name."""
    import pyarrow as pa

    schema = plain_schema(columns) if plain else schema_of(columns)
    if table.schema.names == columns and table.schema.equals(schema):
        return table
    there = set(table.column_names)
    arrays = [table.column(item.name) if item.name in there else pa.nulls(table.num_rows, item.type) for item in schema]
    return pa.Table.from_arrays([array.cast(item.type) for array, item in zip(arrays, schema, strict=True)], schema=schema)


def table_of(piece: Piece) -> pyarrow.Table:
    """The rows of a piece with the columns that some of them have."""
    import pyarrow as pa

    chunk, count = piece.chunk, len(piece)
    made: dict[str, Any] = {
        "log": pa.DictionaryArray.from_arrays(_array(np.zeros(count, np.int32), "small"), _strings([piece.path])),
        "start": _array(piece.start, "small"),
        "family": pa.DictionaryArray.from_arrays(_array(chunk.family, "small"), _strings(BATCH_FAMILIES)),
        "time": _array(piece.stamps, "time", piece.timed),
        "line": _array(chunk.lines, "whole"),
        "offset": _array(chunk.offsets, "whole", chunk.offsets >= 0),
    }
    rank = ranks(chunk, piece.texts)
    all_texts = _strings(piece.texts.list)
    made["rank"] = _array(rank, "text", texts=all_texts)
    for name, column in chunk.columns.items():
        if name in kinds():
            made[name] = _array(column.values, kinds()[name], column.there, all_texts)
    if piece.role.any():
        made["role"] = _array(piece.role, "text", piece.role > 0, _strings(ROLES))
    columns = columns_of(made)
    return pa.Table.from_arrays([made[name] for name in columns], schema=schema_of(columns))


def _types() -> dict[str, Any]:
    import pyarrow as pa

    return {"whole": pa.int64(), "small": pa.int32(), "real": pa.float64(), "truth": pa.bool_(), "time": pa.timestamp("ms")}


def _strings(texts: Sequence[str]) -> Any:
    """An Arrow array of texts; ``pyarrow.array`` would import pandas first, which takes longer than a small log."""
    import pyarrow as pa

    raw = [text.encode("utf-8", "replace") for text in texts]
    ends = np.concatenate([[0], np.cumsum([len(text) for text in raw])]).astype(np.int32)
    return pa.StringArray.from_buffers(len(raw), pa.py_buffer(ends), pa.py_buffer(b"".join(raw)))


def _array(values: Any, kind: str, there: Any = None, texts: Any = None) -> Any:
    """An Arrow array over the memory of `values`: making one through Arrow's own conversion looks at every value."""
    import pyarrow as pa

    stored = {"small": np.int32, "text": np.int32}.get(kind)
    packed = np.packbits(values.astype(np.bool_), bitorder="little") if kind == "truth" else values
    data = pa.py_buffer(packed if stored is None else packed.astype(stored))
    valid = None if there is None or there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    array = pa.Array.from_buffers(_types()["small" if kind == "text" else kind], len(values), [valid, data])
    return pa.DictionaryArray.from_arrays(array, texts) if kind == "text" else array
