"""The timeline as a pandas frame with Arrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvdiag.errors import MissingError, install_extra
from kvdiag.reading import Input
from kvdiag.rows.arrow import arranged, table_of
from kvdiag.rows.piece import FIXED, columns_of
from kvdiag.rows.read import pieces

if TYPE_CHECKING:
    import pandas


def frame(paths: list[str], *, strict: bool = False) -> pandas.DataFrame:
    """The scheduler lines of logs, a row a batch line; of the fields only those that some line has.

    `strict` reads every line by the strict rules (slow; for comparison). Raises MissingError without pandas and pyarrow.
    """
    try:
        import pandas as pd
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise MissingError(
            f"a timeline as a frame needs {error.name}, which is not installed; {install_extra('table')}"
        ) from None

    found = [table_of(piece) for path in paths for piece in pieces(path, Input(path), strict=strict)]
    columns = columns_of([*FIXED, "line", "offset", *(name for table in found for name in table.column_names)])
    empty = arranged(pa.table({}), columns, plain=True)
    whole = pa.concat_tables([empty, *(arranged(table, columns, plain=True) for table in found)])
    made: pd.DataFrame = whole.to_pandas(types_mapper=pd.ArrowDtype)
    return made
