"""Normalisation with one mean and standard deviation for all silos, from private moments of each.

Everything here is post-processing of noisy statistics, so it costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Reals = npt.NDArray[np.float64]
Bounds = tuple[float, float]

EVERYTHING: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class SiloMoments:
    """Moments that a silo released: means, means of squares, and its noisy number of rows.

    Parameters
    ----------
    mean, second : array of shape (d,)
        Means and means of squares of every column; of shape (1,) if all columns share one.
    count : int
        Weight relative to other silos' moments.
    """

    mean: Reals
    second: Reals
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _vector("mean", self.mean))
        object.__setattr__(self, "second", _vector("second", self.second))
        object.__setattr__(self, "count", errors.whole("SiloMoments", "count", self.count, least=1))
        fits = self.mean.shape == self.second.shape
        # A variance near the precision of floats is only rounding error.
        if not fits or not bool(np.all(self.variance > 1e-12 * self.second)):
            raise errors.InvalidData("SiloMoments: means of squares must be above squared means.")

    @property
    def variance(self) -> Reals:
        return np.asarray(self.second - self.mean**2)

    def within(self, bounds: Bounds) -> bool:
        """Return whether rows within these bounds can have such moments."""
        low, high = bounds
        inside = bool(np.all((self.mean >= low) & (self.mean <= high)))
        if not inside or math.isinf(low) or math.isinf(high):
            return inside
        # No distribution within bounds has a larger variance than a fair coin between them.
        return bool(np.all(self.variance <= (1 + 1e-9) * ((high - low) / 2) ** 2))


@dataclass(frozen=True, eq=False)
class Normalisation:
    """A map of rows: clip to public bounds, subtract the mean, divide by the standard deviation.

    Examples
    --------
    >>> Normalisation([2.0], [4.0], (0, 10)).apply(np.array([[2.0, 6.0, 99.0]]))
    array([[0., 1., 2.]], dtype=float32)
    """

    mean: Reals
    deviation: Reals
    bounds: Bounds = EVERYTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _vector("mean", self.mean))
        object.__setattr__(self, "deviation", _vector("deviation", self.deviation))
        fits = self.mean.shape == self.deviation.shape
        if not fits or not bool(np.all(self.deviation > 0)):
            raise errors.InvalidData(
                "Normalisation: standard deviations must be above 0, one per mean."
            )
        object.__setattr__(self, "bounds", bounds_of("Normalisation", self.bounds))

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Normalise each row on its own. The result is as raw as the rows."""
        shape = rows.shape[1:]
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        if len(self.mean) not in (1, flat.shape[1]):
            sizes = f"{len(self.mean)} means for {flat.shape[1]} columns"
            raise errors.InvalidData(
                f"Normalisation: mean must have one value per column, got {sizes}."
            )
        with np.errstate(all="ignore"):
            held = (np.clip(flat, *self.bounds) - self.mean) / self.deviation
            return held.astype(np.float32).reshape(len(rows), *shape)


def combine(moments: Sequence[SiloMoments], bounds: Bounds = EVERYTHING) -> Normalisation:
    r"""Combine the moments of silos into mean and standard deviation of all rows together.

    .. math:: m = \frac{\sum_k n_k m_k}{\sum_k n_k}, \qquad
              s^2 = \frac{\sum_k n_k q_k}{\sum_k n_k} - m^2

    Parameters
    ----------
    moments : sequence of SiloMoments
        Moments that silos sent. Those that rows within the bounds cannot have are left out.
    bounds : (float, float)
        Public bounds to which rows are clipped.

    Examples
    --------
    >>> one, two = SiloMoments([0.0], [1.0], 10), SiloMoments([1.0], [2.0], 10)
    >>> both = combine([one, two])
    >>> both.mean.tolist(), (both.deviation**2).round(3).tolist()
    ([0.5], [1.25])
    """
    bounds = bounds_of("combine", bounds)
    fitting = [one for one in moments if one.within(bounds)]
    if not fitting or len({one.mean.shape for one in fitting}) > 1:
        raise errors.InvalidData(
            "combine: moments must have one shape and be possible within the bounds."
        )
    counts = np.array([one.count for one in fitting], dtype=np.float64)
    weights = (counts / counts.sum())[:, None]
    mean = (weights * np.stack([one.mean for one in fitting])).sum(axis=0)
    # As the sum of the variances within and between silos, so that nothing cancels.
    between = np.stack([(one.mean - mean) ** 2 + one.variance for one in fitting])
    return Normalisation(mean, np.sqrt((weights * between).sum(axis=0)), bounds)


def bounds_of(where: str, bounds: Any) -> Bounds:
    """Check bounds: two numbers, the first below the second."""
    try:
        low, high = (float(one) for one in bounds)
    except (TypeError, ValueError):
        errors.refuse(where, "bounds", "two numbers", bounds, "Scale columns to common bounds.")
    if not low < high:
        errors.refuse(where, "bounds", "a lower and an upper bound", bounds)
    return low, high


def _vector(name: str, numbers: Any) -> Reals:
    """Check untrusted numbers: a vector of finite ones."""
    try:
        vector = np.atleast_1d(np.asarray(numbers, dtype=np.float64))
    except (TypeError, ValueError):
        raise errors.InvalidData(f"normalisation: {name} must be numbers.") from None
    if vector.ndim != 1 or not vector.size or not bool(np.all(np.abs(vector) < 1e100)):
        raise errors.InvalidData(f"normalisation: {name} must be a vector of finite numbers.")
    return vector
