"""Declarations of the table's owner: bounds, keys, unit and limits, none of them read from rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.central.queries import model
from tacit.central.queries.contribution import Contribution
from tacit.central.queries.grid import FINE_BITS, Grid, bounds_of, grid_of
from tacit.central.queries.table import Column, Columns, Kind, compared, find, number
from tacit.privacy import errors
from tacit.privacy.guarantees import Guarantee

Keys = Mapping[str, tuple[model.Literal, ...]]


@dataclass(frozen=True)
class Declarations:
    """Public facts about a table, declared by its owner: none of them may come from the rows."""

    columns: Columns
    bounds: Mapping[str, tuple[float, float]]
    keys: Keys
    unit: str | None
    rows: int
    groups: int
    budget: Guarantee

    def contribution(self, cells: int) -> Contribution:
        groups = min(self.groups, cells)
        return Contribution(self.budget.adjacency, self.budget.unit, self.rows, groups, cells)

    def grid(self, name: str, bits: int = FINE_BITS, *, from_zero: bool = False) -> Grid:
        """Return the grid of a bounded column of numbers."""
        column = number(self.columns, name, "query")
        if name not in self.bounds:
            remedy = f"Pass bounds={{{name!r}: (lower, upper)}}, from public knowledge."
            errors.refuse("query", f"bounds of {name!r}", "declared", "none", remedy)
        whole = column.kind is Kind.WHOLE
        return grid_of(self.bounds[name], whole=whole, bits=bits, from_zero=from_zero)

    def keys_of(self, by: tuple[str, ...]) -> list[tuple[model.Literal, ...]]:
        """Return the declared keys of each column."""
        for name in by:
            find(self.columns, name, "by")
            if name not in self.keys:
                remedy = f"Pass keys={{{name!r}: [...]}}, from public knowledge."
                errors.refuse("query", f"keys of {name!r}", "declared", "none", remedy)
        return [self.keys[name] for name in by]


def declare(columns: Columns, bounds: Any, keys: Any, **limits: Any) -> Declarations:
    """Check what the owner declares against the columns."""
    checked_bounds = {}
    for name, pair in _mapping("bounds", bounds).items():
        number(columns, name, "bounds")
        checked_bounds[name] = bounds_of(name, pair)
    checked_keys = {
        name: _keys(find(columns, name, "keys"), values)
        for name, values in _mapping("keys", keys).items()
    }
    if limits["unit"] is not None:
        find(columns, limits["unit"], "unit")
    return Declarations(columns, checked_bounds, checked_keys, **limits)


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        errors.refuse("Curator", name, "a mapping from column names", type(value).__name__)
    return dict(value)


def _keys(column: Column, values: Any) -> tuple[model.Literal, ...]:
    where = f"keys of {column.name!r}"
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        errors.refuse(where, "keys", "a list of values", values)
    keys = tuple(values)
    if not 1 <= len(keys) <= 2**14:
        errors.refuse(where, "keys", "1 to 2^14 values", len(keys))
    read: list[Any] = [compared(column, model.literal(where, key)) for key in keys]
    if column.kind is Kind.LOOSE:  # numbers of a CSV file are compared as doubles
        read = [key if isinstance(key, str) else float(key) for key in read]
    if len({(type(key) is bool, key) for key in read}) != len(keys):
        errors.refuse(where, "keys", "different from one another", list(keys))
    if column.kind in (Kind.REAL, Kind.DECIMAL, Kind.OTHER):
        errors.refuse(where, "column", "of integers, text, Booleans or dates", column.kind)
    whole = all(isinstance(key, int) and abs(key) < 2**63 for key in keys)
    if column.kind is Kind.WHOLE and not whole:
        errors.refuse(where, "keys", "integers within 2^63", list(keys))
    if len({isinstance(key, str) for key in keys}) > 1:
        errors.refuse(where, "keys", "all text, or none of them text", list(keys))
    return keys
