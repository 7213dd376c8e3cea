"""One mean and one deviation for all silos, out of what each released of its own.

Everything here is post-processing of noisy statistics, so it costs nothing.
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
class Moments:
    """What a silo released: means, means of squares, and its noisy number of rows.

    Parameters
    ----------
    mean, second : array of shape (d,)
        Of every column; of shape (1,) where all columns share one.
    count : int
        How much they count beside other silos' moments.
    """

    mean: Reals
    second: Reals
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _vector("mean", self.mean))
        object.__setattr__(self, "second", _vector("second", self.second))
        object.__setattr__(self, "count", errors.whole("Moments", "count", self.count, least=1))
        fits = self.mean.shape == self.second.shape
        # Deviations at the end of floats' digits divide by noise of rounding.
        if not fits or not bool(np.all(self.variance > 1e-12 * self.second)):
            raise errors.InvalidData("Moments: means of squares must be above squared means.")

    @property
    def variance(self) -> Reals:
        return np.asarray(self.second - self.mean**2)

    def within(self, bounds: Bounds) -> bool:
        """Whether rows between these bounds can have such moments."""
        low, high = bounds
        inside = bool(np.all((self.mean >= low) & (self.mean <= high)))
        if not inside or math.isinf(low) or math.isinf(high):
            return inside
        # No law between two bounds varies more than a coin that shows one or the other.
        return bool(np.all(self.variance <= (1 + 1e-9) * ((high - low) / 2) ** 2))


@dataclass(frozen=True, eq=False)
class Normalisation:
    """Rows held to public bounds, less the mean, over the deviation.

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
            raise errors.InvalidData("Normalisation: deviations must be above 0, one for a mean.")
        object.__setattr__(self, "bounds", bounds_of("Normalisation", self.bounds))

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """A row becomes what it would become alone. As raw as the rows are."""
        shape = rows.shape[1:]
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        if len(self.mean) not in (1, flat.shape[1]):
            found = f"{len(self.mean)} means for {flat.shape[1]} columns"
            raise errors.InvalidData(f"Normalisation: there must be one for each, got {found}.")
        with np.errstate(all="ignore"):
            held = (np.clip(flat, *self.bounds) - self.mean) / self.deviation
            return held.astype(np.float32).reshape(len(rows), *shape)


def combine(moments: Sequence[Moments], bounds: Bounds = EVERYTHING) -> Normalisation:
    r"""The mean and deviation of all silos' rows together.

    .. math:: m = \frac{\sum_k n_k m_k}{\sum_k n_k}, \qquad
              s^2 = \frac{\sum_k n_k q_k}{\sum_k n_k} - m^2

    Parameters
    ----------
    moments : sequence of Moments
        What silos sent. Those that no rows within the bounds can have are left out.
    bounds : (float, float)
        Public; rows are held to them.

    Examples
    --------
    >>> one, two = Moments([0.0], [1.0], 10), Moments([1.0], [2.0], 10)
    >>> found = combine([one, two])
    >>> found.mean.tolist(), (found.deviation**2).round(3).tolist()
    ([0.5], [1.25])
    """
    bounds = bounds_of("combine", bounds)
    fitting = [one for one in moments if one.within(bounds)]
    if not fitting or len({one.mean.shape for one in fitting}) > 1:
        raise errors.InvalidData("combine: moments of one shape, within the bounds, must be there.")
    counts = np.array([one.count for one in fitting], dtype=np.float64)
    weights = (counts / counts.sum())[:, None]
    mean = (weights * np.stack([one.mean for one in fitting])).sum(axis=0)
    # As a sum of what lies within silos and between them: nothing cancels.
    between = np.stack([(one.mean - mean) ** 2 + one.variance for one in fitting])
    return Normalisation(mean, np.sqrt((weights * between).sum(axis=0)), bounds)


def bounds_of(where: str, bounds: Any) -> Bounds:
    """Two numbers, the first below the second."""
    try:
        low, high = (float(one) for one in bounds)
    except (TypeError, ValueError):
        errors.refuse(where, "bounds", "two numbers", bounds, "Scale columns to common ones.")
    if not low < high:
        errors.refuse(where, "bounds", "a lower and an upper one", bounds)
    return low, high


def _vector(name: str, numbers: Any) -> Reals:
    """Finite numbers in a row, whoever sent them."""
    try:
        found = np.atleast_1d(np.asarray(numbers, dtype=np.float64))
    except (TypeError, ValueError):
        raise errors.InvalidData(f"normalisation: {name} must be numbers.") from None
    if found.ndim != 1 or not found.size or not bool(np.all(np.abs(found) < 1e100)):
        raise errors.InvalidData(f"normalisation: {name} must be finite numbers in a row.")
    return found
