r"""The mean of a bounded number under local privacy, by a channel with a small worst-case variance.

References
----------
.. [DJW18] Duchi, Jordan, Wainwright. Minimax optimal procedures for locally private estimation.
   JASA 2018.
.. [WXYZ19] Wang, Xiao, Yang, Zhao et al. Collecting and analyzing multidimensional data with local
   differential privacy. ICDE 2019 (piecewise and hybrid mechanisms).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.integer_table import IntegerTable
from tacit.privacy.mechanisms.mean_design import HALF, Windows, must_be_base, solve_base
from tacit.privacy.randomness import Randomness, source
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_PARTS = 2**40
"""Parts of a step of the grid that a number is read to."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalMean(Shown):
    r"""A channel from a number in [lower, upper] to a symbol whose score has that number as mean.

    .. math:: m_y \le P(y \mid x) \le e^\varepsilon m_y, \qquad \sum_y P(y \mid x)\, v_y = x

    Parameters
    ----------
    lower, upper : float
        Public bounds. Numbers beyond them are clipped.
    epsilon : float
        Local privacy parameter of one report.
    base : sequence of int, optional
        m in units of 2^-52, as stored with an earlier mechanism. By default it is computed: the
        linear program may end in another optimum with another version of the solver.

    Notes
    -----
    ε-DP for any two inputs. A number is clipped, rounded at random to one of 65 points without
    bias, and the row of that point is drawn from a table of whole numbers; every two rows are
    compared with e^ε exactly. The law given a number is a mixture of two rows, and stays within e^ε
    of any other mixture.

    Scores are public fractions, whose mean given a point of the grid is that point exactly, for
    every ε. What remains is that a number is read to 2^-46 of the range, and `values` are floats.

    The base minimises the largest variance over inputs and symbols of the grid. On [−1, 1] at
    ε = 1, 2, 4 it is 3.99, 0.866, 0.127 with the rounding, where the hybrid mechanism [WXYZ19]_ has
    4.29, 1.04, 0.219 (`benchmarks/local_means.py`). The grid limits it from ε = 12 on: it stays at
    0.0006, below the piecewise mechanism's up to ε = 15.

    Examples
    --------
    >>> hours = LocalMean(lower=0, upper=80, epsilon=2.0)
    >>> print(hours.guarantee)
    2-DP (local, any-two-inputs, unit: record)
    >>> round(hours.worst_variance / 40**2, 2)
    0.87
    """

    lower: float
    upper: float
    epsilon: float | Fraction
    base: Any = field(default=None, repr=False)
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            value = float(errors.rational("LocalMean", name, getattr(self, name)))
            if abs(value) > 2.0**53:
                errors.refuse("LocalMean", name, "within 2^53", getattr(self, name), "Scale it.")
            object.__setattr__(self, name, value)
        size = max(abs(self.lower), abs(self.upper), 2.0**-40)
        if not self.upper - self.lower >= 2.0**-40 * size:
            given = [self.lower, self.upper]
            errors.refuse("LocalMean", "upper", "clearly above lower", given)
        epsilon = errors.epsilon_in_range("LocalMean", self.epsilon)
        base = solve_base(float(epsilon)) if self.base is None else self.base
        object.__setattr__(self, "base", must_be_base(base))
        _ = self.event

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.base, errors.epsilon_in_range("LocalMean", self.epsilon))

    @cached_property
    def table(self) -> IntegerTable:
        """The certified channel from grid points to symbols."""
        points = range(2 * HALF + 1)
        return IntegerTable(
            self._windows.rows(),
            list(combinations(points, 2)),
            epsilon=self.epsilon,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    @property
    def event(self) -> events.CertifiedTable:
        return self.table.event

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @cached_property
    def points(self) -> Reals:
        """The grid that numbers are rounded to."""
        return self.lower + (self.upper - self.lower) * np.arange(2 * HALF + 1) / (2 * HALF)

    @cached_property
    def values(self) -> Reals:
        """The public score of each symbol: the mean of the scores of reports estimates the mean."""
        middle, half = (self.lower + self.upper) / 2, (self.upper - self.lower) / 2
        return np.array([middle + half * float(value) for value in self._windows.values()])

    @cached_property
    def matrix(self) -> Reals:
        """The law of each grid point's report, one row a point."""
        return np.array([self.table.rows.law(point) for point in self.table.inputs()])

    def release(self, raw: Any, rng: Randomness | None = None) -> Integers:
        """Release one symbol for each number."""
        below, parts = self._read(raw)
        stream = source(rng)
        words = stream.words(below.size).reshape(below.shape) >> np.uint64(24)
        return self.table.release(below + (words.astype(np.int64) < parts), stream)

    def log_prob(self, released: Any, raw: Any) -> Reals:
        symbols = self._symbols(released)
        symbols, below, parts = np.broadcast_arrays(symbols, *self._read(raw))
        share = parts / _PARTS
        next_point = np.minimum(below + 1, 2 * HALF)
        chances = (
            (1 - share) * self.matrix[below, symbols],
            share * self.matrix[next_point, symbols],
        )
        return np.asarray(np.log(sum(chances)))

    def variance(self, raw: Any) -> Reals:
        """Compute the variance of the score of one report of a number, rounding included."""
        below, parts = self._read(raw)
        share, next_point = parts / _PARTS, np.minimum(below + 1, 2 * HALF)
        middle = (self.lower + self.upper) / 2
        moments = self.matrix @ (self.values - middle) ** 2
        number = (1 - share) * self.points[below] + share * self.points[next_point] - middle
        moment = (1 - share) * moments[below] + share * moments[next_point]
        return np.asarray(moment - number**2)

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of one score over all numbers.

        Between two points of the grid it is concave, with slope a + bt for t in [0, 1].
        """
        ends, step = self.variance(self.points), self.points[1] - self.points[0]
        slope = np.diff(ends) / (2 * step**2)
        at = np.clip(0.5 + slope, 0, 1)
        between = (1 - at) * ends[:-1] + at * ends[1:] + step**2 * at * (1 - at)
        return float(between.max())

    def estimate(self, released: Any) -> MeanEstimate:
        """Estimate the mean of numbers, clipped to the bounds, without bias."""
        scores = self.values[self._symbols(released).ravel()]
        reports, least = scores.size, float(self.variance(self.points).min())
        if reports > 1:  # a few scores may agree by chance: noise alone varies by `least`
            total = max(float(scores.var(ddof=1)), least)
        else:
            total = self.worst_variance + ((self.upper - self.lower) / 2) ** 2
        return MeanEstimate(
            float(scores.mean()), total / reports, self.worst_variance / reports, reports
        )

    def outputs(self) -> range:
        return self.table.outputs()

    def _symbols(self, released: Any) -> Integers:
        most = self.table.rows.columns - 1
        return errors.integers("LocalMean", released, lower=0, upper=most)

    def _read(self, raw: Any) -> tuple[Integers, Integers]:
        """Clip; return the grid point below each number, and how many parts of 2^40 beyond it."""
        held = np.clip(errors.held_reals("LocalMean", raw), self.lower, self.upper)
        share = (held - self.lower) / (self.upper - self.lower)
        place = np.rint(np.clip(share, 0, 1) * (2.0 * HALF * _PARTS)).astype(np.int64)
        return place // _PARTS, place % _PARTS


@dataclass(frozen=True)
class MeanEstimate:
    """An unbiased mean with its variance: that of noise and that of who was asked.

    Parameters
    ----------
    mean : float
        The mean of the scores.
    variance : float
        Of `mean` as an estimate for the population that people were sampled from: noise and
        sampling together, estimated from the spread of the scores.
    noise_variance : float
        The most that noise and rounding contribute to it, whatever the numbers are: the variance of
        `mean` as an estimate for the people who reported is at most that.
    reports : int
        Number of reports.
    """

    mean: float
    variance: float
    noise_variance: float
    reports: int

    @property
    def standard_error(self) -> float:
        """The square root of `variance`."""
        return math.sqrt(self.variance)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Compute a normal interval for the mean of the population: noise and sampling.

        It is an approximation, and needs some dozens of reports.
        """
        confidence = errors.probability("interval", "confidence", confidence, zero=False)
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * self.standard_error
        return self.mean - reach, self.mean + reach
