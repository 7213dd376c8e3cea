"""The columns of a table, by what can be asked of them: their names and types, no rows.

What a question names is checked against them before anything is charged or read. Where an engine
would convert a value (text to a number, say) and fail on some rows only, the question is refused
here instead: an error that depends on the data tells about the data.
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
    """What a column holds."""

    WHOLE = "whole numbers"
    REAL = "real numbers"
    DECIMAL = "decimal numbers"
    TEXT = "text"
    TRUTH = "truth values"
    DATE = "dates"
    MOMENT = "points in time"
    LOOSE = "text that may hold numbers"
    """A column of a CSV file: read as what it is asked for, and as NULL where it is not that."""
    OTHER = "of a type that is not read"
    """Nested ones, and those that the engine fails to convert on some rows only."""


NUMBERS = (Kind.WHOLE, Kind.REAL, Kind.DECIMAL, Kind.LOOSE)


@dataclass(frozen=True)
class Column:
    """Name, kind, and the engine's own type."""

    name: str
    kind: Kind
    type: str


Columns = Mapping[str, Column]


def find(columns: Columns, name: str, where: str) -> Column:
    """The column of this name; case counts."""
    if name not in columns:
        known = ", ".join(sorted(columns)[:20])
        errors.refuse(where, "column", "in the table", name, f"It has: {known}.")
    found = columns[name]
    if found.kind is Kind.OTHER:
        condition = "numbers, text, truth values, dates or times in microseconds"
        errors.refuse(where, f"column {name!r}", condition, found.type, "Convert it first.")
    return found


def number(columns: Columns, name: str, where: str) -> Column:
    """A column of numbers."""
    found = find(columns, name, where)
    if found.kind not in NUMBERS:
        errors.refuse(where, f"column {name!r}", "numbers", f"{found.kind} ({found.type})")
    return found


def check_where(columns: Columns, where: model.Where | None) -> None:
    """Every column is there, and is compared with literals of its kind."""
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
    """The literal as the column's kind reads it; anything else is refused."""
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
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        _mismatch(column, value)
    if found.tzinfo is not None:  # such columns have no time zone
        _mismatch(column, value)
    return found


def _mismatch(column: Column, value: Any) -> NoReturn:
    condition = f"compared with a literal of its kind ({column.kind})"
    errors.refuse("where", f"column {column.name!r}", condition, value)
