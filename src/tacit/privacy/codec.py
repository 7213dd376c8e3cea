"""Conversion of values to JSON and arrays, and back, for all stored mechanisms and models.

There are two ways. If the reader knows the type of each value, `settings` and `exact` are enough:
exact numbers are text, sequences are lists. If it does not, as for parameters that users may give
in several types, `Writer` tags what JSON has no form for, and `Reader` builds objects of a few
declared kinds and no others. Arrays are kept separately under the name of their place; `artifact`
stores both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Arrays = dict[str, npt.NDArray[Any]]
_REMEDY = "Use numbers, text, and lists or arrays of these."


def plain(value: Any) -> Any:
    """Convert a value for JSON: exact numbers and members of enumerations become text."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Fraction | Enum):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def settings(thing: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return these attributes of an object, each converted by `plain`."""
    return {name: plain(getattr(thing, name)) for name in names}


def exact(where: str, stored: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return stored settings with these converted back to exact numbers."""
    read = {name: errors.rational(where, name, stored[name]) for name in names}
    return {**stored, **read}


def nested(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Arrays:
    """Prefix the names of a part's arrays, so that `part` can find them in the whole."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def part(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Arrays:
    """Return the arrays that `nested` prefixed with this name."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}


class Writer:
    """A converter of values to JSON-ready data; arrays of numbers are kept in `arrays`.

    Parameters
    ----------
    records : dict
        Dataclasses that may be among the values, by name.
    """

    def __init__(self, records: Mapping[str, Any]) -> None:
        self.arrays: Arrays = {}
        self._records = records

    def plain(self, place: str, value: Any) -> Any:
        """Convert a value, with a tag if JSON has no such type."""
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        if isinstance(value, Fraction):
            return {"fraction": str(value)}
        if isinstance(value, list | tuple):
            return self._sequence(place, value)
        if isinstance(value, dict) or type(value).__name__ in self._records:
            return self._record(place, value)
        if hasattr(value, "__array__"):
            return self._array(place, np.asarray(value))
        errors.refuse("save", place, "finite numbers or text", type(value).__name__, _REMEDY)

    def _sequence(self, place: str, value: list[Any] | tuple[Any, ...]) -> Any:
        items = [self.plain(f"{place}.{at}", item) for at, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items

    def _record(self, place: str, value: Any) -> Any:
        fields = value
        if not isinstance(value, dict):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        inner = {key: self.plain(f"{place}.{key}", item) for key, item in fields.items()}
        return {"record": inner, "of": "dict" if fields is value else type(value).__name__}

    def _array(self, place: str, value: npt.NDArray[Any]) -> Any:
        if value.dtype.kind in "OU":
            words = [self.plain(place, item) for item in value.tolist()]
            return {"words": words, "of": "object" if value.dtype.kind == "O" else "text"}
        _must_be_numbers("save", place, value)
        # The rounding of matrix products depends on the order in memory, so the order is kept.
        column_major = value.flags.f_contiguous and not value.flags.c_contiguous
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        self.arrays[place] = native.T if column_major else native
        return {"array": place, "transposed": True} if column_major else {"array": place}


class Reader:
    """A converter of the data that `Writer` made back to values; errors name `where`."""

    def __init__(self, where: str, arrays: Arrays, records: Mapping[str, Any]) -> None:
        self._where, self._arrays, self._records = where, arrays, records

    def value(self, plain: Any) -> Any:
        """Return the value that was written; refuse unknown tags."""
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        if not isinstance(plain, dict):
            return plain
        match plain:
            case {"fraction": str(text), **rest} if not rest:
                return errors.rational(self._where, "fraction", text)
            case {"tuple": list(items), **rest} if not rest:
                return tuple(self.value(item) for item in items)
            case {"array": str(name), **rest} if rest in ({}, {"transposed": True}):
                array = _must_be_numbers(self._where, name, self._arrays[name]).copy()
                return array.T if rest else array
            case {"words": list(words), "of": "object" | "text" as kind, **rest} if not rest:
                return np.array(words, dtype=object if kind == "object" else str)
            case {"record": dict(fields), "of": str(name), **rest} if not rest:
                return self._record(name, {key: self.value(item) for key, item in fields.items()})
        errors.refuse(self._where, "values", "of a known form", sorted(plain))

    def _record(self, name: str, fields: dict[str, Any]) -> Any:
        if name == "dict":
            return fields
        known = errors.choice(self._where, "record", name, tuple(self._records))
        return self._records[known](**fields)


def _must_be_numbers(where: str, name: str, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8 or not np.isfinite(value).all():
        errors.refuse(where, name, "finite numbers of 64 bits or less", value.dtype.name)
    return value
