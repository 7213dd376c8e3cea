"""Arrow tables with the columns of a schema, checked and in its order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import tables
from tacit.data.datasets.base import Integers
from tacit.data.schema import Continuous, Schema, TableSchema
from tacit.privacy import errors


def arrow() -> Any:
    """Import pyarrow, which tables need."""
    try:
        import pyarrow
    except ImportError:
        raise errors.TacitError(
            "datasets: tables need the pyarrow package. pip install 'tacit[collect]'."
        ) from None
    return pyarrow


def read_table(path: Path, given: Schema | None = None, words: str | None = None) -> Any:
    """Read all rows of a CSV or Parquet file."""
    return arrow().Table.from_batches(tables.batches(path, given, words=words))


def select(table: Any, schema: TableSchema, where: str) -> Any:
    """Check every value, and return the schema's columns as numbers and text."""
    pa = arrow()
    if missing := [name for name in schema.names if name not in table.column_names]:
        raise errors.InvalidData(f"{where}: it must have a column {missing[0]!r}.")
    columns = {}
    for column in schema.columns:
        kind = pa.float64() if isinstance(column, Continuous) else pa.string()
        try:
            columns[column.name] = table[column.name].cast(kind).combine_chunks()
        except pa.ArrowException:
            is_number = isinstance(column, Continuous)
            needed = "numbers" if is_number else "text, integers or booleans"
            raise errors.InvalidData(f"{where}: column {column.name!r} must be {needed}.") from None
    rows = pa.table(columns)
    schema.rows(rows, where)
    return rows


def label_codes(values: Sequence[Any], classes: Sequence[Any], where: str) -> Integers:
    """Return the codes of labels; refuse a label that is not a class, without quoting it."""
    code = {value: index for index, value in enumerate(classes)}
    codes = np.array([code.get(value, -1) for value in values], np.int64)
    if (codes < 0).any():
        known = ", ".join(map(str, classes))
        raise errors.InvalidData(f"{where}: every label must be one of {known}.")
    return codes
