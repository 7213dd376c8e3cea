"""Tabular input as named columns or one array, without importing the library it comes from.

Errors name the column, never the value, which belongs to a person.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tacit.privacy.errors import InvalidData

Columns = list[tuple[str, npt.NDArray[Any]]]

_SHOWN = 5
_EXACT = 2.0**53
_TEXTS = (str, int, np.integer, np.bool_)


class IgnoredColumnsWarning(UserWarning):
    """A table has columns that the schema does not have."""


def columns_of(raw: Any) -> Columns | None:
    """Return names and arrays of tabular data, without importing its library; None for arrays."""
    if isinstance(raw, Mapping):
        return [(str(name), _entries(data)) for name, data in raw.items()]
    if hasattr(raw, "iloc") and hasattr(raw, "columns"):
        return [(str(name), np.asarray(raw.iloc[:, i])) for i, name in enumerate(raw.columns)]
    if hasattr(raw, "schema") and hasattr(raw, "column"):
        return [(str(name), _arrow(raw.column(i))) for i, name in enumerate(raw.schema.names)]
    return None


def _entries(data: Any) -> npt.NDArray[Any]:
    """Convert one column; entries of a list stay as they are.

    numpy would choose one type for all of them, so that one row, such as NaN among booleans, would
    change what the others are.
    """
    if isinstance(data, np.ndarray) or hasattr(data, "__array__"):
        return regular(data, "rows")
    return np.asarray(data, dtype=object)


def _arrow(column: Any) -> npt.NDArray[Any]:
    """Decode dictionaries first: converted directly, nulls in chunks become the last category."""
    dictionary = str(column.type).startswith("dictionary")
    return np.asarray(column.cast(column.type.value_type) if dictionary else column)


def chosen(table: Columns, names: tuple[str, ...], where: str) -> Columns:
    """Select the named columns, in the order of the names; ignore all others, with a warning.

    Errors do not show the names in the data: without a header, they are a person's values. The
    warning does, as every declared column was found: then there is a header. It depends on names
    alone.
    """
    selected: Columns = []
    for name in names:
        same = [column for column in table if column[0] == name]
        if len(same) != 1:
            remedy = f"The columns are: {', '.join(names)}."
            shown = remedy if len(remedy) <= 300 else f"{remedy[:299]}…"
            problem = "occur only once" if same else "be present"
            raise InvalidData(f"{where}: {named(name)} must {problem}. {shown}")
        selected += same
    same_length(selected, where)
    if others := [name for name, _ in table if name not in names]:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        warnings.warn(
            f"{where}: columns that are not in the schema are ignored: "
            f"{', '.join(others[:_SHOWN])}{more}.",
            IgnoredColumnsWarning,
            stacklevel=4,
        )
    return selected


def same_length(table: Columns, where: str) -> int:
    """Return the number of rows; refuse columns of different lengths."""
    if not table:
        raise InvalidData(f"{where}: rows must have at least one column.")
    count = table[0][1].shape[0] if table[0][1].ndim == 1 else -1
    for name, data in table:
        if data.ndim != 1 or len(data) != count:
            raise InvalidData(f"{where}: {named(name)} must have one value per row.")
    some(count, where)
    return count


def regular(raw: Any, where: str) -> npt.NDArray[Any]:
    """Convert to an array; an error quotes no value."""
    try:
        return np.asarray(raw)
    except (ValueError, TypeError, OverflowError):
        # `from None`: the original message may quote the data.
        raise InvalidData(f"{where}: rows must form a regular array.") from None


def some(count: int, where: str) -> None:
    """Refuse data without rows."""
    if count == 0:
        raise InvalidData(f"{where}: rows must not be empty.")


def numeric(column: npt.NDArray[Any], name: str, where: str) -> npt.NDArray[np.float64]:
    """Convert a column to float64, with NaN for missing values."""
    if column.dtype.kind in "iuf":
        return column.astype(np.float64)
    if column.dtype.kind == "O" and all_numbers(column):
        try:
            return np.array([np.nan if _is_missing(v) else float(v) for v in column], np.float64)
        except OverflowError:
            raise InvalidData(f"{where}: {name} must be numbers that a float can hold.") from None
    kind = column.dtype.type.__name__
    raise InvalidData(f"{where}: {name} must be numbers, got {kind}. Convert it first.")


def stack(table: Columns, where: str) -> npt.NDArray[np.float64]:
    """Stack all columns into one array of numbers."""
    return np.stack([numeric(data, named(name), where) for name, data in table], axis=1)


def distinct_texts(
    column: npt.NDArray[Any], name: str, where: str
) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """Return the distinct texts of a column (None if missing) and the index of each row's text."""
    if column.dtype.kind in "biuU":
        distinct, place = np.unique(column, return_inverse=True)
        return [str(value) for value in distinct], place
    if column.dtype.kind == "f":
        # Most readers turn integers with missing values into floats.
        distinct, place = np.unique(column, return_inverse=True)
        if all(np.isnan(v) or _is_whole(v) for v in distinct):
            return [None if np.isnan(v) else _text(v) for v in distinct], place
    elif column.dtype.kind == "O":
        values = [None if _is_missing(value) else value for value in column]
        if all(v is None or isinstance(v, _TEXTS) or _is_whole(v) for v in values):
            code: dict[str | None, int] = {}
            texts = (None if value is None else _text(value) for value in values)
            rows = np.array([code.setdefault(text, len(code)) for text in texts], np.int64)
            return list(code), rows
    kind = column.dtype.type.__name__
    raise InvalidData(f"{where}: {name} must be text, integers or booleans, got {kind}.")


def _is_whole(value: Any) -> bool:
    """Test for a float that stands for one whole number, and for no other."""
    if not isinstance(value, float | np.floating):
        return False
    number = float(value)
    return abs(number) < _EXACT and number == round(number)


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float | np.floating) else str(value)


def _is_missing(value: Any) -> bool:
    """Test for None, NaN, and the two missing values of pandas, which do not compare."""
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def all_numbers(column: npt.NDArray[Any]) -> bool:
    """Test whether an object column holds only numbers and missing values."""
    return all(
        _is_missing(value) or (isinstance(value, numbers.Real) and not isinstance(value, bool))
        for value in column
    )


def named(name: str) -> str:
    """Return the name of a column as errors show it."""
    return f"column {name!r}"


def refuse_column(where: str, name: str, condition: str, remedy: str = "") -> NoReturn:
    """Raise an error that names the column."""
    raise InvalidData(f"{where}: {name} must be {condition}. {remedy}".rstrip())
