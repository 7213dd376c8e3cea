r"""Arithmetic of rows in which a row's result has the same bits wherever it stands, beside whom.

A guarantee that says what one row can change rests on this: where the last bit of a row depends on
its place, taking out one row moves all the others a little, and a comparison turns a little into a
lot. Matrix products of libraries do not give it: they choose kernels by shape and place.

Two things give it, on any machine:

- elementwise operations (+, −, ×, /, √, rounding, comparisons): IEEE 754 fixes every bit of them,
  so it fixes that of anything made of them in an order that depends on shapes alone;
- whole numbers: a product of matrices whose partial sums are all whole multiples of one step, and
  fewer than 2^53 of them, is exact, so that no order, block or fused operation can change it.

Exponentials, logarithms and cosines are neither: a library may compute them otherwise at the end of
an array than in its middle. Where one is needed, it is looked up in a table.
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
    """The sum along the last axis, in an order that its length alone fixes: halves are added."""
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
    """Euclidean norms along the last axis, each by itself."""
    return np.asarray(np.sqrt(total(x * x)))


@dataclass(frozen=True)
class Steps:
    """Numbers as whole multiples of a step, a power of two, and none beyond a limit."""

    step: float
    limit: float

    def __call__(self, x: Any) -> Reals:
        """Each number by itself; what is none becomes 0."""
        whole = np.rint(np.asarray(x, np.float64) * (1 / self.step)) * self.step
        np.clip(whole, -self.limit, self.limit, out=whole)
        return np.nan_to_num(whole, copy=False, nan=0.0)


def exactly(matrix: Any, limit: float, axis: int = 0) -> tuple[Reals, Steps]:
    r"""A public matrix M on a grid, and the grid that rows x must be on for x M to be exact.

    Every partial sum of an entry is at most :math:`X \max_j \sum_i |M_{ij}|`, with X the limit
    rounded up to a power of two, and a multiple of the product of both steps. The steps are
    the smallest that keep fewer than 2^53 of these, and equally fine: for M beside its largest
    entry, for x beside X.

    Parameters
    ----------
    matrix : array
        M, known without the rows.
    limit : float
        What no entry of x is beyond; the grid's function holds them to it.
    axis : int
        That which is summed over: 0 for x M, 1 for M x.
    """
    wide = np.asarray(matrix, np.float64)
    largest = _exponent(float(np.abs(wide).max(initial=0.0)))
    # Rounding adds half a step an entry, which is less than the largest entry.
    summed = float(np.abs(wide).sum(axis=axis).max(initial=0.0)) + 2.0**largest
    digits = _DIGITS - (_exponent(summed) - largest)
    # A step finer than 2^-30 of the largest would not be seen, and sums need their room.
    fine = min(digits // 2, 30)
    step = 2.0 ** (largest - fine)
    if wide.shape[axis] > 2 ** (fine + 1):
        errors.refuse("exactly", "matrix", "of at most 2^18 entries a sum", wide.shape)
    reach = _exponent(limit)
    grid = Steps(2.0 ** (reach - (digits - fine)), 2.0**reach)
    return np.ascontiguousarray(np.rint(wide / step) * step), grid


@dataclass(frozen=True, eq=False)
class Product:
    """Rows times a public matrix, exact for what rows are on a grid: a row's bits are its own."""

    matrix: Reals
    grid: Steps

    @classmethod
    def of(cls, matrix: Any, limit: float) -> Product:
        """For rows of which no entry is beyond the limit: others are held to it."""
        return cls(*exactly(matrix, limit))

    def __call__(self, rows: Any) -> Reals:
        return np.asarray(self.grid(rows) @ self.matrix)


def exp_below(x: npt.NDArray[Any]) -> Reals:
    r"""e^x for x ≤ 0, to 20 binary digits, and 0 below −40.

    .. math:: e^{-q / 2^{20}} = T_{q \,\mathrm{div}\, 2^{13}}\; t_{q \bmod 2^{13}}

    with q whole: two values from tables and their product.
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
    """The cosine of so many turns, to 18 binary digits, from a table."""
    places = np.floor((turns - np.floor(turns)) * _TURN).astype(np.int64)
    return np.asarray(_cosines()[places % _TURN])


@cache
def _cosines() -> Reals:
    return np.asarray(np.cos((np.arange(_TURN) + 0.5) * (2 * np.pi / _TURN)))


def _exponent(number: float) -> int:
    """The least power of two that is no smaller; 0 has that of 2^-1000."""
    if not number > 2.0**-1000:
        return -1000
    mantissa, exponent = math.frexp(number)
    return exponent - (mantissa == 0.5)
