"""The timeline as a pandas frame with Arrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvdiag.reading import Input
from kvdiag.rows.arrow import FIXED, arranged, columns_of
from kvdiag.rows.read import tables

if TYPE_CHECKING:
    import pandas


def frame(paths: list[str], *, strict: bool = False) -> pandas.DataFrame:
    """The scheduler lines of logs, a row a batch line; of the fields only those that some line has.

    `strict` reads every line by the strict rules (slow; for comparison).
    """
    import pandas as pd
    import pyarrow as pa

    found = [table for path in paths for table in tables(path, Input(path), strict=strict)]
    columns = columns_of([*FIXED, "line", "offset", *(name for table in found for name in table.column_names)])
    empty = arranged(pa.table({}), columns, plain=True)
    whole = pa.concat_tables([empty, *(arranged(table, columns, plain=True) for table in found)])
    made: pd.DataFrame = whole.to_pandas(types_mapper=pd.ArrowDtype)
    return made
