r"""Rows on a grid, clipped in integers, and exact integer sums.

Noise is calibrated to the change of a sum by one row. In floating point a neighbouring data set
would change more than that, as adding one row changes the rounding of all the others. So every row
is first converted to integers, by a rule that sees that row alone; sums of integers are the same in
any order and any block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.mechanisms.bounding import GridBall

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

SUM_BITS = 20
"""For sums, rows are measured in steps of about the bound over 2^20."""

PRODUCT_BITS = 13
"""For products, in steps of about the bound over 2^13, since products have twice the digits."""

_BLOCK_BYTES = 2**23
_SMALLEST_BOUND, _LARGEST_BOUND = 1e-5, 1e12
_MOST_ROWS = 2**32
_MOST_COLUMNS = 2**14


class Ball:
    """Rows about a public point, ℓ2-clipped to a public bound: one record's contribution."""

    def __init__(self, where: str, bound: Any, center: Any, columns: int, bits: int) -> None:
        self.where = where
        self.bound = bound_in_range(where, bound)
        self.center = point(where, "center", center, columns)
        step = 2.0 ** (math.ceil(math.log2(self.bound)) - bits)
        self._ball = GridBall(where, self.bound, step, order=2)

    @property
    def step(self) -> float:
        """Return the size of a grid step in the units of the data."""
        return self._ball.step

    @property
    def radius(self) -> int:
        """Return the bound in grid steps, rounded down: no row is longer."""
        return self._ball.radius_steps

    def clipped(self, block: npt.NDArray[Any]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return rows in grid steps, and which of them count; the others are rows of zeros."""
        with np.errstate(all="ignore"):
            # In C order: the rounding of a norm must depend on its own row alone.
            moved = block.astype(np.float64, order="C") - self.center
        finite = np.asarray(np.isfinite(moved).all(axis=1))
        moved[~finite] = 0.0
        return (self._ball.clip(moved) if len(moved) else moved.astype(np.int64)), finite

    def kept(self, block: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the rows that count, in grid steps."""
        steps, finite = self.clipped(block)
        return steps[finite].astype(np.int32)

    @property
    def origin(self) -> npt.NDArray[np.int32]:
        """Return an array of no rows, of the right shape."""
        return np.zeros((0, len(self.center)), dtype=np.int32)

    def total(self, rows: npt.NDArray[Any]) -> tuple[Integers, int]:
        """Sum the clipped rows in grid steps, and count them."""
        total, count = np.zeros(rows.shape[1], dtype=np.int64), 0
        for block in blocks(rows):
            steps, finite = self.clipped(block)
            total += steps.sum(axis=0)
            count += int(finite.sum())
        return total, count

    def products(self, rows: npt.NDArray[Any]) -> tuple[Integers, int]:
        """Sum the outer products of the clipped rows in squared steps, and count the rows."""
        total, count = np.zeros((rows.shape[1],) * 2, dtype=np.int64), 0
        for block in blocks(rows):
            steps, finite = self.clipped(block)
            total += gram(steps, self.radius)
            count += int(finite.sum())
        return total, count


def gram(steps: Integers, radius: int) -> Integers:
    r"""Compute XᵀX of integer rows within a radius: exact in floats, as all sums are below 2^53.

    Every partial sum of an entry is at most :math:`\sum_r |x_{ri} x_{rj}| \le n R^2`.
    """
    if len(steps) * radius**2 >= errors.LARGEST_INTEGER:
        errors.refuse("gram", "rows x radius^2", "below 2^53", len(steps) * radius**2)
    real = steps.astype(np.float64)
    return (real.T @ real).astype(np.int64)


def matrix(where: str, rows: Any) -> npt.NDArray[Any]:
    """Read rows as a matrix of numbers; a refusal depends on shape and type, never on a value.

    Lists and object arrays have no type of their own: an entry that is not a number, or that no
    float can hold, is NaN, and its row is not counted.
    """
    array = _regular(where, rows)
    if array.ndim != 2 or not 1 <= array.shape[1] <= _MOST_COLUMNS:
        raise errors.InvalidData(
            f"{where}: rows must be a matrix with 1 to {_MOST_COLUMNS} columns, got shape "
            f"{('n', *array.shape[1:]) if array.ndim else ()}. One column is rows[:, None]."
        )
    return array


def column_of(where: str, column: Any) -> npt.NDArray[Any]:
    """Read one number per record."""
    array = _regular(where, column)
    if array.ndim != 1:
        raise errors.InvalidData(f"{where}: data must be one column, got {array.ndim} dimensions.")
    return array


def point(where: str, name: str, value: Any, columns: int) -> Reals:
    """Check a public point with this many coordinates; None is the origin."""
    if value is None:
        return np.zeros(columns)
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        errors.refuse(where, name, f"a point of {columns} numbers", value)
    if array.shape != (columns,) or not bool(np.isfinite(array).all()):
        errors.refuse(where, name, f"a point of {columns} finite numbers", value)
    return array


def bound_in_range(where: str, bound: Any) -> float:
    """Check a public bound of the ℓ2 norm of a row."""
    number = float(errors.positive(where, "bound", bound))
    if not _SMALLEST_BOUND <= number <= _LARGEST_BOUND:
        remedy = "Measure the rows in another unit."
        errors.refuse(where, "bound", "from 1e-5 to 1e12", bound, remedy)
    return number


def interval(where: str, lower: Any, upper: Any) -> tuple[float, float]:
    """Check public bounds of one number."""
    low, high = (
        float(errors.rational(where, name, value))
        for name, value in (("lower", lower), ("upper", upper))
    )
    if not low < high or not math.isfinite(high - low):
        errors.refuse(where, "upper", "above lower", (lower, upper))
    return low, high


def blocks(rows: npt.NDArray[Any], size: int | None = None) -> Iterator[npt.NDArray[Any]]:
    """Yield consecutive rows: blocks of this size, or of a few megabytes."""
    if size is None:
        size = _BLOCK_BYTES // (8 * math.prod(rows.shape[1:]))
    size = max(size, 1)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _regular(where: str, raw: Any) -> npt.NDArray[Any]:
    try:
        # The type of lists is fixed here: numpy's own choice would depend on single values.
        typed = isinstance(raw, np.ndarray) or hasattr(raw, "__array__")
        array = np.asarray(raw) if typed else np.asarray(raw, dtype=object)
    except (ValueError, TypeError, OverflowError):
        # `from None`: the original message may quote the data.
        raise errors.InvalidData(f"{where}: data must form a regular array.") from None
    if array.dtype == object:
        array = _reals(where, array)
    if array.dtype.kind not in "biuf":
        kind = array.dtype.type.__name__
        raise errors.InvalidData(f"{where}: data must be numbers, got {kind}. Encode them first.")
    if array.ndim and len(array) > _MOST_ROWS:
        raise errors.InvalidData(f"{where}: data must have at most 2^32 records.")
    return array


def _reals(where: str, array: npt.NDArray[Any]) -> Reals:
    """Convert each entry by itself to a float, or to NaN; refuse rows of unequal lengths."""
    entries = array.ravel()
    if any(isinstance(one, list | tuple | np.ndarray) and np.ndim(one) for one in entries):
        raise errors.InvalidData(f"{where}: data must form a regular array.")
    return np.fromiter(map(_real, entries), np.float64, entries.size).reshape(array.shape)


def _real(entry: Any) -> float:
    try:
        return float(entry)
    except Exception:  # whatever it is, it must not decide about the release
        return math.nan
