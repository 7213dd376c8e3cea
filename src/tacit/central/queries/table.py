"""Names and kinds of the columns of a table, without its rows.

The columns and literals of a query are checked against them before anything is charged or read. If
an engine would convert a value (for example text to a number) and fail on some rows only, the query
is refused here instead: an error that depends on the data would reveal it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, NoReturn

from tacit.central.queries import model
from tacit.privacy import errors


class Kind(StrEnum):
    """Kind of the values in a column."""

    WHOLE = "integers"
    REAL = "real numbers"
    DECIMAL = "decimal numbers"
    TEXT = "text"
    TRUTH = "Booleans"
    DATE = "dates"
    MOMENT = "points in time"
    LOOSE = "text that may hold numbers"
    """A column of a CSV file: read as text or as numbers, and as NULL where it is not a number."""
    OTHER = "of a type that is not read"
    """Nested types, and types whose conversion fails on some rows."""


NUMBERS = (Kind.WHOLE, Kind.REAL, Kind.DECIMAL, Kind.LOOSE)


@dataclass(frozen=True)
class Column:
    """A column: its name, its kind and the engine's name of its type."""

    name: str
    kind: Kind
    type: str


Columns = Mapping[str, Column]


def find(columns: Columns, name: str, where: str) -> Column:
    """Return the column of this name, case-sensitively."""
    if name not in columns:
        known = ", ".join(sorted(columns)[:20])
        errors.refuse(where, "column", "in the table", name, f"It has: {known}.")
    column = columns[name]
    if column.kind is Kind.OTHER:
        condition = "numbers, text, Booleans, dates or times in microseconds"
        errors.refuse(where, f"column {name!r}", condition, column.type, "Convert it first.")
    return column


def number(columns: Columns, name: str, where: str) -> Column:
    """Return the column of this name, which must hold numbers."""
    column = find(columns, name, where)
    if column.kind not in NUMBERS:
        errors.refuse(where, f"column {name!r}", "numbers", f"{column.kind} ({column.type})")
    return column


def check_where(columns: Columns, where: model.Where | None) -> None:
    """Check that every column exists and is compared with literals of its kind."""
    if where is None:
        return
    for part in model.parts_of(where):
        match part:
            case model.Compare(column=name, value=value):
                compared(find(columns, name, "where"), value)
                if find(columns, name, "where").kind is Kind.TRUTH:
                    errors.choice("where", f"operator on {name!r}", part.operator, ("=", "<>"))
            case model.OneOf(column=name, values=values):
                for value in values:
                    compared(find(columns, name, "where"), value)
            case model.Between(column=name, lower=lower, upper=upper):
                for value in (lower, upper):
                    compared(find(columns, name, "where"), value)
            case model.IsNull(column=name):
                find(columns, name, "where")


def compared(column: Column, value: model.Literal) -> model.Literal:
    """Return the literal as the column's kind reads it; refuse a literal of another kind."""
    truth = isinstance(value, bool)
    is_number = isinstance(value, int | float) and not truth
    match column.kind:
        case Kind.WHOLE | Kind.REAL | Kind.DECIMAL if is_number:
            return value
        case Kind.TEXT if isinstance(value, str):
            return value
        case Kind.TRUTH if truth:
            return value
        case Kind.LOOSE if is_number or isinstance(value, str):
            return value
        case Kind.DATE if not truth and not is_number:
            return _date(column, value)
        case Kind.MOMENT if not truth and not is_number:
            return _moment(column, value)
    _mismatch(column, value)


def _date(column: Column, value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        _mismatch(column, value)


def _moment(column: Column, value: Any) -> datetime:
    try:
        if isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        _mismatch(column, value)
    if moment.tzinfo is not None:  # these columns have no time zone
        _mismatch(column, value)
    return moment


def _mismatch(column: Column, value: Any) -> NoReturn:
    condition = f"compared with a literal of its kind ({column.kind})"
    errors.refuse("where", f"column {column.name!r}", condition, value)
