"""Standardization of columns to mean 0 and standard deviation 1, by private moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.statistics.released import Released, Spending, share_of
from tacit.central.statistics.rows import blocks, matrix, point
from tacit.privacy import errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_STEP = 2.0**-20


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Public bounds and private moments of columns."""

    lower: Reals
    upper: Reals
    mean: Reals
    deviation: Reals
    """Standard deviations; at least what noise alone could produce for a constant column."""
    count: int
    """Noisy number of records."""

    def transform(self, rows: Any) -> Reals:
        """Clip rows to the bounds and standardize them. The result is as raw as the rows."""
        array = matrix("Standardizer", rows)
        if array.shape[1] != len(self.mean):
            raise errors.InvalidData(
                f"Standardizer: rows must have {len(self.mean)} columns, got {array.shape[1]}."
            )
        clipped = np.clip(array.astype(np.float64), self.lower, self.upper)
        return np.asarray((clipped - self.mean) / self.deviation)


def standardize(
    rows: Any,
    lower: Any,
    upper: Any,
    *,
    pooled: bool = False,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[Standardizer]:
    r"""Compute means and standard deviations of columns between public bounds.

    With :math:`u \in [-1, 1]^d` the row clipped to its bounds and scaled to this range, noisy sums
    of u, of :math:`u^2 - \tfrac12` and a noisy count give

    .. math:: \tilde m = \tilde S_1 / \tilde n, \qquad
              \tilde s^2 = \tilde S_2 / \tilde n + \tfrac12 - \tilde m^2.

    Parameters
    ----------
    rows : array of shape (n, d)
        One record per row. A row with NaN or infinity is left out.
    lower, upper : float or array of shape (d,)
        Public bounds of the columns.
    pooled : bool
        Whether to use one mean and one standard deviation of u for all columns, as for pixels.

    Notes
    -----
    Privacy: three Gaussians. A row has :math:`\lVert u\rVert \le \sqrt d` and
    :math:`\lVert u^2 - \tfrac12\rVert \le \sqrt d/2`, on a grid of 2^-20, and counts once. Shares
    minimise the summed variance of both means to first order, :math:`\sum_i w_i^2/s_i` with
    :math:`w = (d, d/2, \sqrt{5d/4})`, at :math:`s_i \propto w_i`.

    Pooled, a row adds the mean of its u and of its :math:`u^2 - \tfrac12`, each in whole grid
    steps: one number each, of at most 1 and ½, as with d = 1.
    """
    spending = Spending("standardize", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("standardize", rows)
    low, high = _bounds(lower, upper, array.shape[1])
    first, second, rows_counted = _totals(array, low, high, pooled=pooled)
    width = len(first)
    shares = _shares(width)
    noisy_first = spending.add(first, norm_above(width), shares[0]) * _STEP
    noisy_second = spending.add(second, norm_above(width, half=True), shares[1]) * _STEP
    count = max(int(spending.add(np.array([rows_counted]), 1, shares[2])[0]), 1)
    about = np.clip(noisy_first / count, -1, 1)
    # Noise of both sums, to first order: a smaller variance cannot be distinguished from 0.
    doubt = _doubt(spending, shares, width, about) / count
    variance = np.clip(noisy_second / count + 0.5 - about**2, np.minimum(doubt, 1.0), 1.0)
    half = (high - low) / 2
    value = Standardizer(low, high, low + half * (about + 1), half * np.sqrt(variance), count)
    return spending.released(value)


def norm_above(dimension: int, *, half: bool = False) -> int:
    """Return √d (or half of it) in grid steps, rounded up to a whole number."""
    largest = round((0.5 if half else 1.0) / _STEP)
    return math.isqrt(dimension * largest**2 - 1) + 1


def steps_of(
    block: npt.NDArray[Any], low: Reals, high: Reals, *, pooled: bool = False
) -> tuple[Integers, Integers, int]:
    """Return each row's u and u² − ½ (or their means) in grid steps, and the number of rows."""
    with np.errstate(all="ignore"):
        real = block.astype(np.float64)
        scaled = np.clip((real - low) / (high - low), 0.0, 1.0) * 2 - 1
    finite = np.isfinite(real).all(axis=1)
    scaled = scaled[finite]
    first = np.rint(scaled / _STEP).astype(np.int64)
    second = np.rint((scaled**2 - 0.5) / _STEP).astype(np.int64)
    if pooled:
        first, second = (_row_means(one) for one in (first, second))
    return first, second, int(finite.sum())


def _row_means(steps: Integers) -> Integers:
    """Round each row's mean to a whole number, in integers, and so by that row alone."""
    columns = steps.shape[1]
    return np.asarray((2 * steps.sum(axis=1, keepdims=True) + columns) // (2 * columns))


def _totals(
    array: npt.NDArray[Any], low: Reals, high: Reals, *, pooled: bool
) -> tuple[Integers, Integers, int]:
    first = np.zeros(1 if pooled else array.shape[1], dtype=np.int64)
    second, rows_counted = first.copy(), 0
    for block in blocks(array):
        one, two, count = steps_of(block, low, high, pooled=pooled)
        first, second, rows_counted = (
            first + one.sum(axis=0),
            second + two.sum(axis=0),
            rows_counted + count,
        )
    return first, second, rows_counted


def _shares(dimension: int) -> tuple[Fraction, Fraction, Fraction]:
    weights = (dimension, dimension / 2, math.sqrt(1.25 * dimension))
    second, count = (share_of(weight / sum(weights)) for weight in weights[1:])
    return 1 - second - count, second, count


def _doubt(spending: Spending, shares: tuple[Fraction, ...], dimension: int, about: Reals) -> Reals:
    first = float(spending.sigma(norm_above(dimension), shares[0])) * _STEP
    second = float(spending.sigma(norm_above(dimension, half=True), shares[1])) * _STEP
    return np.hypot(second, 2 * about * first)


def _bounds(lower: Any, upper: Any, columns: int) -> tuple[Reals, Reals]:
    low, high = (
        point(
            "standardize", name, np.full(columns, value) if np.ndim(value) == 0 else value, columns
        )
        for name, value in (("lower", lower), ("upper", upper))
    )
    if not bool(np.all(high > low)) or not bool(np.isfinite(high - low).all()):
        errors.refuse("standardize", "upper", "above lower in every column", upper)
    return low, high
