r"""Schemas of raw rows: public bounds, public categories, and rules for values outside them.

A row is made of numbers and codes. Numbers are scaled by their public bounds,

.. math:: x \mapsto \frac{x - \text{lower}}{\text{upper} - \text{lower}} \in [0, 1],

codes count from 0 in the order of the declared categories. Errors about values that a schema does
not allow name the column and never the value, which belongs to a person.

Notes
-----
Bounds and categories are public: they are written into every artifact. Those that
`tacit.data.schema_inference` reads off in-house rows are facts about these rows, and are not
protected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.data.columns import (
    chosen,
    columns_of,
    distinct_texts,
    named,
    numeric,
    refuse_column,
    regular,
    some,
    stack,
)
from tacit.privacy import errors
from tacit.privacy.errors import InvalidData

T = TypeVar("T")
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_SHAPES = {
    "image": ("height", "width"),
    "colour": ("height", "width", "channels"),
    "signal": ("points in time", "channels"),
}
_BLOCK_CELLS = 1 << 16
_OUTSIDE, _MISSING, _UNSEEN = ("refuse", "clip"), ("refuse", "indicate"), ("refuse", "other")


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Checked rows: the only data that features and encoders see.

    Parameters
    ----------
    numbers : array of float32, (n, p)
        Within [0, 1]; NaN is a missing value, only where the schema allows one.
    codes : array of int64, (n, q)
        Categories; −1 is missing or unseen, only where the schema allows it.
    """

    numbers: Floats
    codes: Integers

    def __repr__(self) -> str:
        """Show sizes, and no value."""
        numbers, codes = self.numbers.shape[1], self.codes.shape[1]
        return f"Rows({len(self)} rows, {numbers} numbers and {codes} categories each)"

    def __len__(self) -> int:
        return int(self.numbers.shape[0])

    def __getitem__(self, chosen: slice | npt.NDArray[Any]) -> Rows:
        return Rows(self.numbers[chosen], self.codes[chosen])


@dataclass(frozen=True)
class ArraySchema:
    """Rows of equally bounded numbers: images, signals, or vectors that come as one array.

    Parameters
    ----------
    width : int
        Number of numbers in a row.
    lower, upper : float
        Public bounds, the same for every number.
    image : (int, int), optional
        Height and width if a row is a grey image; their product is `width`.
    outside : {"refuse", "clip"}
        What happens to a number beyond the bounds, infinity included. NaN is always refused.
    columns : tuple of str, optional
        Names of the numbers, if rows may also be a table with one column per number.
    colour : (int, int, int), optional
        Height, width and channels if a row is an image in colour; their product is `width`.
    signal : (int, int), optional
        Points in time and channels if a row is a signal; their product is `width`.
    """

    width: int
    lower: float
    upper: float
    image: tuple[int, int] | None = None
    outside: str = "refuse"
    columns: tuple[str, ...] | None = None
    colour: tuple[int, int, int] | None = None
    signal: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        where = "ArraySchema"
        object.__setattr__(self, "width", errors.whole(where, "width", self.width, least=1))
        _set_bounds(self, where)
        errors.choice(where, "outside", self.outside, _OUTSIDE)
        self._set_shapes(where)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(map(str, self.columns)))
            _printable(where, *self.columns)
            if len(set(self.columns)) != self.width:
                errors.refuse(where, "columns", f"{self.width} distinct names", len(self.columns))

    def _set_shapes(self, where: str) -> None:
        given = [name for name in _SHAPES if getattr(self, name) is not None]
        if len(given) > 1:
            errors.refuse(where, given[1], f"None, as {given[0]} is given", getattr(self, given[1]))
        for name in given:
            shape = _shape(where, name, getattr(self, name))
            object.__setattr__(self, name, shape)
            if math.prod(shape) != self.width:
                errors.refuse(where, name, f"of {self.width} numbers in all", shape)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of an image or a signal, as arrays of rows have it; None for vectors."""
        return self.image or self.colour or self.signal

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers, as errors show them."""
        return self.columns or tuple(f"column {index}" for index in range(self.width))

    def rows(self, raw: Any, where: str = "rows") -> Rows:
        """Check and scale: an array (n, width) or (n, *shape), or a table by `columns`."""
        array = self._array(raw, where)
        scaled = np.empty(array.shape, np.float32)
        step = max(_BLOCK_CELLS // self.width, 1)
        for start in range(0, len(array), step):
            scaled[start : start + step] = self._scaled(array[start : start + step], where)
        return Rows(scaled, np.empty((len(array), 0), np.int64))

    def _array(self, raw: Any, where: str) -> npt.NDArray[Any]:
        if (table := columns_of(raw)) is not None:
            if self.columns is None:
                raise InvalidData(f"{where}: rows must be an array, got a table. Convert it first.")
            raw = stack(chosen(table, self.columns, where), where)
        array = regular(raw, where)
        if array.ndim > 2 and array.shape[1:] == self.shape:
            array = array.reshape(len(array), -1)
        if array.ndim != 2 or array.shape[1] != self.width:
            sizes = ", ".join(map(str, self.shape or ()))
            shapes = f"(n, {self.width})" + (f" or (n, {sizes})" if sizes else "")
            raise InvalidData(f"{where}: rows must be an array {shapes}, got {array.shape}.")
        some(len(array), where)
        if array.dtype.kind not in "iuf":
            kind = array.dtype.type.__name__
            raise InvalidData(f"{where}: rows must be numbers, got {kind}. Convert them first.")
        return array

    def _scaled(self, block: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
        # The extremes are NaN if any number is; masks only find the column to name.
        extremes = np.array([block.min(), block.max()])
        if np.isnan(extremes).any():
            refuse_column(where, self._first(np.isnan(block)), "finite, without NaN")
        if self.outside == "refuse" and np.isinf(extremes).any():
            refuse_column(where, self._first(np.isinf(block)), "finite, without infinity")
        if self.outside == "refuse" and _outside(extremes, self).any():
            _refuse_bounds(where, self._first(_outside(block, self)), self)
        if block.dtype == np.uint8:
            # A lookup table of all values is several times faster and gives the same numbers.
            levels = _unit(np.arange(256.0), self.lower, self.upper).astype(np.float32)
            return np.take(levels, block)
        return _unit(block.astype(np.float64), self.lower, self.upper)

    def _first(self, wrong: npt.NDArray[np.bool_]) -> str:
        index = int(np.flatnonzero(wrong.any(axis=0))[0])
        return f"column {index}" if self.columns is None else named(self.columns[index])

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready data, for `from_plain`."""
        plain = {"kind": "array", **_plain(self)}
        for name in ("colour", "signal"):
            if plain[name] is None:
                del plain[name]  # files of grey images and vectors stay as they were
        return plain


@dataclass(frozen=True)
class Continuous:
    """A column of numbers with public bounds.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : float
        Public bounds.
    missing : {"refuse", "indicate"}
        NaN (or null) is refused, or kept as NaN for features and encoders to mark.
    outside : {"refuse", "clip"}
        What happens to a number beyond the bounds, infinity included.
    """

    name: str
    lower: float
    upper: float
    missing: str = "refuse"
    outside: str = "refuse"

    def __post_init__(self) -> None:
        where = f"Continuous {self.name!r}"
        _printable(where, self.name)
        _set_bounds(self, where)
        errors.choice(where, "missing", self.missing, _MISSING)
        errors.choice(where, "outside", self.outside, _OUTSIDE)

    def read(self, column: npt.NDArray[Any], where: str) -> Floats:
        """Check and scale the column."""
        name = named(self.name)
        values = numeric(column, name, where)
        if self.outside == "refuse" and np.isinf(values).any():
            refuse_column(where, name, "finite")
        if self.missing == "refuse" and np.isnan(values).any():
            remedy = (
                "Declare missing='indicate' for it in the schema, or replace them by a constant "
                "that is chosen without looking at the rows."
            )
            refuse_column(where, name, "without missing values", remedy)
        given = column if column.dtype.kind in "iuf" else values
        if self.outside == "refuse" and _outside(given, self).any():
            _refuse_bounds(where, name, self)
        return _unit(values, self.lower, self.upper).astype(np.float32)


@dataclass(frozen=True)
class Categorical:
    """A column of text, integers or booleans with public categories.

    Parameters
    ----------
    name : str
        Name of the column.
    categories : tuple of str
        Categories in the order of their codes, as text. Integers and booleans are compared as text:
        "3", "True".
    unseen : {"refuse", "other"}
        A value that is missing or not declared is refused, or gets the code −1.
    """

    name: str
    categories: tuple[str, ...]
    unseen: str = "refuse"

    def __post_init__(self) -> None:
        where = f"Categorical {self.name!r}"
        _printable(where, self.name)
        object.__setattr__(self, "categories", tuple(map(str, self.categories)))
        if not self.categories or len(set(self.categories)) != len(self.categories):
            errors.refuse(where, "categories", "distinct, and at least one", self.categories)
        errors.choice(where, "unseen", self.unseen, _UNSEEN)

    @cached_property
    def _code(self) -> dict[str | None, int]:
        return {category: code for code, category in enumerate(self.categories)}

    def read(self, column: npt.NDArray[Any], where: str) -> Integers:
        """Check the column and return its codes."""
        name = named(self.name)
        texts, place = distinct_texts(column, name, where)
        codes = np.array([self._code.get(text, -1) for text in texts], np.int64)
        if self.unseen == "refuse" and (codes < 0).any():
            remedy = "Recode them, or declare unseen='other'."
            condition = f"one of its {len(self.categories)} declared categories"
            refuse_column(where, name, condition, remedy)
        return codes[place]


@dataclass(frozen=True)
class TableSchema:
    """Rows of named columns.

    A table's columns are chosen by name, in any order; other columns are left out.
    """

    columns: tuple[Continuous | Categorical, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns or len(set(self.names)) != len(self.columns):
            errors.refuse("TableSchema", "columns", "distinct, and at least one", self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def continuous(self) -> tuple[Continuous, ...]:
        """The columns of `Rows.numbers`, in order."""
        return tuple(column for column in self.columns if isinstance(column, Continuous))

    @property
    def categorical(self) -> tuple[Categorical, ...]:
        """The columns of `Rows.codes`, in order."""
        return tuple(column for column in self.columns if isinstance(column, Categorical))

    def rows(self, raw: Any, where: str = "rows") -> Rows:
        """Check and scale a pandas or Arrow table, or a mapping of names to arrays."""
        if (table := columns_of(raw)) is None:
            raise InvalidData(f"{where}: rows must be a table with named columns, got an array.")
        table = chosen(table, self.names, where)
        count = len(table[0][1])
        values, codes = [], []
        for (_, data), column in zip(table, self.columns, strict=True):
            if isinstance(column, Continuous):
                values.append(column.read(data, where))
            else:
                codes.append(column.read(data, where))
        return Rows(
            np.stack(values, axis=1) if values else np.empty((count, 0), np.float32),
            np.stack(codes, axis=1) if codes else np.empty((count, 0), np.int64),
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready data, for `from_plain`."""
        kinds = {Continuous: "continuous", Categorical: "categorical"}
        columns = [{"kind": kinds[type(column)], **_plain(column)} for column in self.columns]
        return {"kind": "table", "columns": columns}


Schema = ArraySchema | TableSchema


def row_blocks(given: Schema, raw: Any, where: str, size: int = 4096) -> Iterator[Rows]:
    """Yield checked rows; arrays in blocks, so that no scaled copy of all rows is made."""
    if not isinstance(raw, np.ndarray) or raw.ndim == 0 or len(raw) <= size:
        yield given.rows(raw, where)
        return
    for start in range(0, len(raw), size):
        yield given.rows(raw[start : start + size], where)


def from_plain(data: Any) -> Schema:
    """Read a schema; fields with a default may be left out, unknown fields are refused."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "array":
        return _build(ArraySchema, data)
    if kind == "table" and isinstance(data.get("columns"), list):
        if len(data) != 2:
            errors.refuse("schema.from_plain", "fields", "kind and columns", sorted(data))
        return TableSchema(tuple(_column_from_plain(column) for column in data["columns"]))
    errors.refuse("schema.from_plain", "kind", "array or table, with its fields", kind)


def _column_from_plain(data: Any) -> Continuous | Categorical:
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "continuous":
        return _build(Continuous, data)
    if kind == "categorical" and isinstance(data.get("categories"), list):
        return _build(Categorical, data)
    errors.refuse("schema.from_plain", "a column's kind", "continuous or categorical", kind)


def _unit(values: npt.NDArray[np.float64], lower: float, upper: float) -> npt.NDArray[np.float64]:
    """Scale in float64 whatever the type of the data: equal values give equal numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(upper - lower):
            values, lower, upper = values / 2, lower / 2, upper / 2
        return np.clip((values - lower) / (upper - lower), 0.0, 1.0)


def _outside(values: npt.NDArray[Any], bounds: ArraySchema | Continuous) -> npt.NDArray[np.bool_]:
    """Compare in the precision of the data: 0.1 in float32 is within [0, 0.1]."""
    with np.errstate(over="ignore"):
        return np.asarray((values < bounds.lower) | (values > bounds.upper))


def _refuse_bounds(where: str, name: str, bounds: ArraySchema | Continuous) -> NoReturn:
    remedy = "Correct the values, or declare outside='clip'."
    refuse_column(where, name, f"within [{bounds.lower:g}, {bounds.upper:g}]", remedy)


def _set_bounds(target: Any, where: str) -> None:
    for bound in ("lower", "upper"):
        number = float(errors.rational(where, bound, getattr(target, bound)))
        object.__setattr__(target, bound, number)
    if not target.lower < target.upper:
        errors.refuse(where, "upper", f"above lower = {target.lower}", target.upper)


def _printable(where: str, *names: object) -> None:
    """Refuse names that are not printable: artifacts bring them, and terminals show them."""
    if not all(isinstance(name, str) and name.isprintable() for name in names):
        errors.refuse(where, "name", "printable text", names[0])


def _shape(where: str, name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, tuple | list) or len(given) != len(_SHAPES[name]):
        errors.refuse(where, name, f"({', '.join(_SHAPES[name])})", given)
    return tuple(errors.whole(where, f"{name} size", size, least=1) for size in given)


def _plain(value: Any) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(value).items()}


def _build(kind: type[T], data: dict[str, Any]) -> T:
    every = {field.name: field.default is MISSING for field in fields(kind)}  # type: ignore[arg-type]
    given = set(data) - {"kind"}
    needed = {name for name, must in every.items() if must}
    if not needed <= given <= set(every):
        condition = f"{sorted(needed)} and optionally {sorted(set(every) - needed)}"
        errors.refuse(kind.__name__, "fields", condition, sorted(given))
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "kind"}
    return kind(**values)
