"""Regular and private labels of rows: their classes, and the codes of labels given later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import labels
from tacit.data.columns import columns_of
from tacit.privacy import errors

Integers = npt.NDArray[np.int64]

MOST = 2**16
PRIVATE = "private"
"""Name of a private label that has no name."""


@dataclass(frozen=True)
class Classes:
    """The values of the regular label and of every private label, in the order of their codes."""

    regular: tuple[Any, ...]
    private: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, where: str, regular: Any, private: Any) -> Classes:
        """Collect the values in the rows to fit on; refuse a label with a single value."""
        named = private_columns(where, private)
        return cls(
            _classes(where, "the regular label", regular),
            {name: _classes(where, f"{name} label", label) for name, label in named.items()},
        )

    def regular_codes(self, where: str, labels: Any) -> Integers:
        """Return the codes of regular labels; refuse unknown ones."""
        return _codes(where, "the regular label", labels, self.regular)

    def private_codes(self, where: str, labels: Any) -> dict[str, Integers]:
        """Return the codes of every private label."""
        named = private_columns(where, labels)
        if list(named) != list(self.private):
            wanted = ", ".join(self.private)
            raise errors.InvalidData(f"{where}: private must hold, in this order: {wanted}.")
        return {
            name: _codes(where, f"{name} label", label, self.private[name])
            for name, label in named.items()
        }


def private_columns(where: str, private: Any) -> dict[str, npt.NDArray[Any]]:
    """Return one or several private labels by name, from an array (n,) or (n, m), or a table."""
    if private is None:
        remedy = "Give the label to hide: fit(X, y, private=person)."
        errors.refuse(where, "private", "one label per row", None, remedy)
    table = columns_of(private)
    if table is not None:
        return dict(table)
    array = np.asarray(private)
    if array.ndim == 1:
        return {PRIVATE: array}
    if array.ndim != 2 or array.shape[1] == 0:
        raise errors.InvalidData(
            f"{where}: private must be one or several columns, with one value per row."
        )
    return {f"{PRIVATE} {i}": column for i, column in enumerate(array.T)}


def same_length(where: str, rows: int, **counts: int) -> None:
    """Refuse labels of another number than the rows."""
    for name, count in counts.items():
        if count != rows:
            condition = f"as long as the rows, {rows}"
            raise errors.InvalidData(f"{where}: {name} must be {condition}, got {count}.")


def _classes(where: str, what: str, column: Any) -> tuple[Any, ...]:
    values = np.unique(_present(where, what, column))
    if len(values) > MOST:
        raise errors.InvalidData(f"{where}: {what} must take at most {MOST} values.")
    if len(values) < 2:
        people = " No person can be hidden among fewer than two." if "regular" not in what else ""
        raise errors.InvalidData(f"{where}: {what} must take at least two values, got one.{people}")
    return labels.declare(where, [value.item() for value in values])


def _codes(where: str, what: str, column: Any, classes: tuple[Any, ...]) -> Integers:
    present = _present(where, what, column)
    try:
        return labels.codes(where, present, classes)
    except errors.InvalidData:
        raise errors.InvalidData(
            f"{where}: {what} must be among the {len(classes)} values it was fitted on. "
            "Leave out rows with other values, or fit on some of them."
        ) from None


def _present(where: str, what: str, labels: Any) -> npt.NDArray[Any]:
    """Return whole numbers or strings; refuse missing values."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise errors.InvalidData(f"{where}: {what} must be one column with at least one row.")
    missing = np.array([_missing(value) for value in array.tolist()])
    if missing.any():
        count = int(missing.sum())
        raise errors.InvalidData(
            f"{where}: {what} must have no missing values, got {count}. Drop those rows."
        )
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        return array.astype(str)
    if array.dtype.kind == "U":
        return array
    try:
        whole = array.astype(np.int64) if _fits(array) else None
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or not bool(np.all(whole == array)):
        raise errors.InvalidData(f"{where}: {what} must be strings or whole numbers. Recode it.")
    return whole


def _missing(value: Any) -> bool:
    """Return whether a value is None, NaN, an empty string, or pandas' missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value or value == "")


def _fits(array: npt.NDArray[Any]) -> bool:
    """Return whether numbers are small enough to be exact as int64."""
    return bool(np.all(abs(array) < 2**53 if array.dtype.kind in "fO" else array < 2**62))
