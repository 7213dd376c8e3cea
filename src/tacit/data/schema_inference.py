"""Schemas that are read off in-house rows, where nobody has declared one.

Bounds and categories that are found this way are facts about these rows: they enter the artifact
without noise. Only those of bytes are not, as the type gives them (`of_bytes`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.columns import (
    all_numbers,
    columns_of,
    distinct_texts,
    named,
    numeric,
    refuse_column,
    regular,
    same_length,
    some,
    stack,
)
from tacit.data.schema import ArraySchema, Categorical, Continuous, Schema, TableSchema
from tacit.privacy import errors
from tacit.privacy.errors import InvalidData

MOST_CATEGORIES = 1024
"""A column with more distinct texts than this is assumed to hold names or identifiers."""

FEW_CATEGORIES, ROWS_PER_CATEGORY = 50, 2
"""So is one with more than the first and, on average, fewer rows of each: few rows have few names.
"""

_FAR, _TINY, _HUGE = 1000.0, 1e-300, 1e300


def infer(
    raw: Any,
    image: tuple[int, ...] | None = None,
    where: str = "infer",
    signal: tuple[int, int] | None = None,
) -> Schema:
    """Read bounds and categories off in-house rows.

    Whatever lies beyond them later is clipped, counts as "other", or, where these rows have
    missing values, is marked as missing. Whole arrays of uint8 are bounded by 0 and 255 instead.
    Infinity is beyond all bounds. So are numbers of a table's column that are very far from the
    others (1,000 times the distance between its first and last per cent): they would leave no
    resolution to the others.
    A table of images or signals (`image` or `signal` given) has one column per number. Arrays
    (n, height, width) and (n, height, width, channels) are images, the first unless `signal` is
    given; where they may be signals (no bytes, and not square or with negative numbers), `image`
    or `signal` must be given. Numeric columns are continuous, also
    where their numbers are codes: declare a `TableSchema` to say otherwise.

    Notes
    -----
    These properties of the rows enter the artifact without noise.
    """
    table = columns_of(raw)
    if table is None:
        return _infer_array(regular(raw, where), image, None, where, signal)
    same_length(table, where)
    if image is None and signal is None:
        return TableSchema(tuple(_infer_column(name, data, where) for name, data in table))
    names = tuple(name for name, _ in table)
    return _infer_array(stack(table, where), image, names, where, signal)


def of_bytes(raw: Any, image: tuple[int, ...] | None = None, where: str = "of_bytes") -> Schema:
    """Return the schema of an array of uint8, whose type gives the bounds: no value is read."""
    table = columns_of(raw)
    array = regular(raw, where) if table is None else None
    if table is not None and image is not None and all(d.dtype == np.uint8 for _, d in table):
        names = tuple(name for name, _ in table)
        return ArraySchema(len(table), 0.0, 255.0, columns=names, **_shaped(image, None))
    if array is None or array.dtype != np.uint8:
        remedy = "Declare bounds and categories: what is read off the rows is not private."
        errors.refuse(where, "schema", "given, unless rows are an array of uint8", None, remedy)
    return _infer_array(array, image, None, where)


def may_be_missing(given: Schema) -> Schema:
    """Return the schema in which every number of a table may be missing.

    People must not be refused because no in-house row lacked a value.
    """
    if isinstance(given, ArraySchema):
        return given
    columns = [
        replace(column, missing="indicate") if isinstance(column, Continuous) else column
        for column in given.columns
    ]
    return TableSchema(tuple(columns))


def _infer_array(
    array: npt.NDArray[Any],
    image: tuple[int, ...] | None,
    names: tuple[str, ...] | None,
    where: str,
    signal: tuple[int, int] | None = None,
) -> ArraySchema:
    some(array.size, where)
    if array.ndim not in (2, 3, 4) or array.dtype.kind not in "iuf":
        raise InvalidData(f"{where}: rows must be an array of numbers, (n, width) or images.")
    if array.ndim > 2 and signal is None:
        if image is None:
            _must_look_like_images(array, where)
        image = array.shape[1:]
    width = array[0].size
    shaped = _shaped(image, signal)
    if array.dtype == np.uint8:
        return ArraySchema(width, 0.0, 255.0, columns=names, **shaped)
    # The extremes are NaN if any number is; a mask of the whole array could exhaust memory.
    low, high = float(array.min()), float(array.max())
    if np.isinf([low, high]).any():
        finite = array[np.isfinite(array)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    if np.isnan([low, high]).any():
        raise InvalidData(f"{where}: rows must be finite, without NaN.")
    low, high = max(low, -_HUGE), min(high, _HUGE)
    upper = high if high > low else low + 1.0
    return ArraySchema(width, low, upper, outside="clip", columns=names, **shaped)


def _must_look_like_images(array: npt.NDArray[Any], where: str) -> None:
    """Refuse windows of signals, which have the shape of grey images, unless they are called so."""
    _, height, width, *colour = array.shape
    if colour or array.dtype == np.uint8 or (height == width and not array.min() < 0):
        return
    raise InvalidData(
        f"{where}: rows must be images or signals, got an array (n, {height}, {width}), which may "
        f"be either. If they are windows of a signal, pass signal=({height}, {width}) to a "
        f"Collection: points in time, channels. If they are grey images, pass "
        f"image=({height}, {width})."
    )


def _shaped(image: tuple[int, ...] | None, signal: tuple[int, int] | None) -> dict[str, Any]:
    """Return the field of a schema that says what shape rows have."""
    if signal is not None:
        return {"signal": signal}
    return {"colour" if image is not None and len(image) == 3 else "image": image}


def _infer_column(name: str, data: npt.NDArray[Any], where: str) -> Continuous | Categorical:
    if data.dtype.kind in "iuf" or (data.dtype.kind == "O" and all_numbers(data)):
        values = numeric(data, named(name), where)
        present = values[~np.isnan(values)]
        finite = present[np.isfinite(present)]
        if finite.size == 0:
            refuse_column(where, named(name), "finite and not missing in some row")
        low, high = _bounds(finite)
        missing = "indicate" if present.size < values.size else "refuse"
        return Continuous(name, low, high if high > low else low + 1.0, missing, "clip")
    if data.dtype.kind in "mM":
        remedy = "Drop it, or convert it to numbers, such as days."
        refuse_column(where, named(name), "of numbers or categories, got dates or times", remedy)
    texts, place = distinct_texts(data, named(name), where)
    categories = sorted({text for text in texts if text is not None})
    most = min(MOST_CATEGORIES, max(FEW_CATEGORIES, len(place) // ROWS_PER_CATEGORY))
    if not 0 < len(categories) <= most:
        remedy = "Drop it if it holds names, identifiers or dates; else declare its categories."
        refuse_column(where, named(name), f"of 1 to {most} categories", remedy)
    return Categorical(name, tuple(categories), "other")


def _bounds(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the extremes, without those that are very far from all other values."""
    first = float(np.quantile(values, 0.01, method="higher"))
    last = float(np.quantile(values, 0.99, method="lower"))
    low, high = float(values.min()), float(values.max())
    if last > first:
        reach = _FAR * (last - first)
        low, high = max(low, first - reach), min(high, last + reach)
    # Bounds that a schema can hold.
    low, high = (0.0 if abs(end) < _TINY else min(max(end, -_HUGE), _HUGE) for end in (low, high))
    return low, high
