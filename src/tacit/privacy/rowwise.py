r"""Row-wise arithmetic: a row's result has the same bits whatever its position and other rows.

A guarantee about what one row can change depends on this: if the last bit of a row depends on its
position, removing one row moves all the others slightly, and a comparison can amplify that. Matrix
products of libraries do not have this property: they choose kernels by shape and position.

Two kinds of operations have it, on any machine:

- elementwise operations (+, −, ×, /, √, rounding, comparisons): IEEE 754 determines every bit of
  their results, and so of anything computed from them in an order that depends only on shapes;
- whole numbers: a product of matrices whose partial sums are all whole multiples of one step, and
  fewer than 2^53 of them, is exact, so no order, block or fused operation can change it.

Exponentials, logarithms and cosines do not: a library may compute them differently at the end of an
array than in its middle. Where one is needed, it is read from a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Reals = npt.NDArray[np.float64]

_DIGITS = 52
_FARTHEST = 40
_TURN = 2**20


def total(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sum along the last axis by adding halves, in an order that depends only on its length."""
    if not x.shape[-1]:
        return np.zeros(x.shape[:-1], x.dtype)
    while (width := x.shape[-1]) > 1:
        half = width // 2
        folded = x[..., :half] + x[..., half : 2 * half]
        if width % 2:
            folded[..., 0] += x[..., -1]
        x = folded
    return x[..., 0]


def lengths(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Euclidean norms along the last axis, each by itself."""
    return np.asarray(np.sqrt(total(x * x)))


@dataclass(frozen=True)
class Steps:
    """A grid: whole multiples of a step, which is a power of two, up to a limit."""

    step: float
    limit: float

    def __call__(self, x: Any) -> Reals:
        """Round each number by itself; NaN becomes 0."""
        whole = np.rint(np.asarray(x, np.float64) * (1 / self.step)) * self.step
        np.clip(whole, -self.limit, self.limit, out=whole)
        return np.nan_to_num(whole, copy=False, nan=0.0)


def exactly(matrix: Any, limit: float, axis: int = 0) -> tuple[Reals, Steps]:
    r"""Put a public matrix M on a grid; return it and the grid of x on which x M is exact.

    Every partial sum of an entry is at most :math:`X \max_j \sum_i |M_{ij}|`, with X the limit
    rounded up to a power of two, and a multiple of the product of both steps. The steps are the
    smallest that keep fewer than 2^53 of these multiples, and equally fine: for M relative to its
    largest entry, for x relative to X.

    Parameters
    ----------
    matrix : array
        M, chosen without the rows.
    limit : float
        Limit on the entries of x; the grid clips them to it.
    axis : int
        The axis that is summed over: 0 for x M, 1 for M x.
    """
    wide = np.asarray(matrix, np.float64)
    largest = _exponent(float(np.abs(wide).max(initial=0.0)))
    # Rounding adds half a step per entry, which is less than the largest entry.
    summed = float(np.abs(wide).sum(axis=axis).max(initial=0.0)) + 2.0**largest
    digits = _DIGITS - (_exponent(summed) - largest)
    # A step finer than 2^-30 of the largest entry would have no effect, and sums need the room.
    fine = min(digits // 2, 30)
    step = 2.0 ** (largest - fine)
    if wide.shape[axis] > 2 ** (fine + 1):
        errors.refuse("exactly", "matrix", "of at most 2^18 entries a sum", wide.shape)
    reach = _exponent(limit)
    grid = Steps(2.0 ** (reach - (digits - fine)), 2.0**reach)
    return np.ascontiguousarray(np.rint(wide / step) * step), grid


@dataclass(frozen=True, eq=False)
class Product:
    """Product of rows with a public matrix, exact for rows on a grid, and so row by row."""

    matrix: Reals
    grid: Steps

    @classmethod
    def of(cls, matrix: Any, limit: float) -> Product:
        """Build the product for entries up to the limit; larger ones are clipped to it."""
        return cls(*exactly(matrix, limit))

    def __call__(self, rows: Any) -> Reals:
        return np.asarray(self.grid(rows) @ self.matrix)


def exp_below(x: npt.NDArray[Any]) -> Reals:
    r"""Compute e^x for x ≤ 0, to 20 binary digits, and 0 below −40.

    .. math:: e^{-q / 2^{20}} = T_{q \,\mathrm{div}\, 2^{13}}\; t_{q \bmod 2^{13}}

    with q whole: the product of two table entries.
    """
    whole = np.rint(np.clip(np.nan_to_num(x, nan=-_FARTHEST), -_FARTHEST, 0.0) * -(2.0**20))
    high, low = np.divmod(whole.astype(np.int64), 2**13)
    coarse, fine = _exponentials()
    return np.asarray(coarse[high] * fine[low])


@cache
def _exponentials() -> tuple[Reals, Reals]:
    coarse = np.exp(-np.arange(_FARTHEST * 2**7 + 1) / 2**7)
    coarse[-1] = 0.0
    return coarse, np.exp(-np.arange(2**13) / 2**20)


def cosine(turns: Reals) -> Reals:
    """Compute the cosine of angles in turns, to 18 binary digits, from a table."""
    places = np.floor((turns - np.floor(turns)) * _TURN).astype(np.int64)
    return np.asarray(_cosines()[places % _TURN])


@cache
def _cosines() -> Reals:
    return np.asarray(np.cos((np.arange(_TURN) + 0.5) * (2 * np.pi / _TURN)))


def _exponent(number: float) -> int:
    """Return the exponent of the smallest power of two that is at least the number; −1000 for 0."""
    if not number > 2.0**-1000:
        return -1000
    mantissa, exponent = math.frexp(number)
    return exponent - (mantissa == 0.5)
