r"""Randomized response: Warner's coin for two answers, and its K-ary form.

References
----------
.. [War65] Warner. Randomized response: a survey technique for eliminating evasive answer bias.
   JASA 1965.
.. [KOV14] Kairouz, Oh, Viswanath. Extremal mechanisms for local differential privacy. NIPS 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.counts import CountEstimate, unbiased_counts
from tacit.privacy.randomness import Randomness, source
from tacit.privacy.rounding import exp_floor
from tacit.privacy.shown import Shown

_TOTAL = 2**events.WEIGHT_BITS


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomizedResponse(Shown):
    r"""A channel from category to category: the true one has the highest probability that ε allows.

    .. math:: P(y \mid x) = \frac{e^\varepsilon}{e^\varepsilon + K - 1}\;(y = x),
              \qquad \frac{1}{e^\varepsilon + K - 1}\;(y \ne x)

    Parameters
    ----------
    categories : int
        K ≥ 2; raw values are 0, …, K − 1.
    epsilon : float
        Local privacy parameter of one report.

    Notes
    -----
    ε-DP for any two inputs. Both probabilities are multiples of 2^-64 whose ratio is at most e^ε,
    compared in integers; one 64-bit word decides a report.

    Examples
    --------
    >>> answer = RandomizedResponse(categories=2, epsilon=1.0)
    >>> print(answer.guarantee)
    1-DP (local, any-two-inputs, unit: record)
    """

    categories: int
    epsilon: float | Fraction
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", self.event.categories)

    @classmethod
    def warner(cls, truth: float) -> RandomizedResponse:
        r"""Make Warner's design: the true answer with probability p, else the opposite [War65]_."""
        truth = errors.probability("RandomizedResponse.warner", "truth", truth)
        if not truth > 0.5:
            errors.refuse("RandomizedResponse.warner", "truth", "above 1/2", truth)
        return cls(categories=2, epsilon=math.log(truth / (1 - truth)))

    @cached_property
    def event(self) -> events.RandomizedResponse:
        name = "RandomizedResponse"
        categories = errors.whole(name, "categories", self.categories, least=2, most=2**31)
        epsilon = errors.epsilon_in_range(name, self.epsilon)
        # Rounding this weight up rounds the odds of the true category down.
        odds = Fraction(exp_floor(epsilon, 128), 2**128) + categories - 1
        other = math.ceil(_TOTAL / odds)
        keep = _TOTAL - (categories - 1) * other
        if keep <= other:
            errors.refuse(name, "epsilon", "large enough for 64-bit weights", self.epsilon)
        return events.RandomizedResponse(
            categories, epsilon, keep, other, adjacency=Adjacency.ANY_TWO_INPUTS, unit=self.unit
        )

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """The K × K matrix whose row x is the law of a report of category x."""
        off = self.event.other / _TOTAL
        matrix = np.full((self.categories, self.categories), off)
        np.fill_diagonal(matrix, self.event.keep / _TOTAL)
        return matrix

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Release one report for each raw category."""
        released = self._categories(raw).copy()
        words = source(rng).words(released.size).reshape(released.shape)
        moved = words >= np.uint64(self.event.keep)
        slot = ((words[moved] - np.uint64(self.event.keep)) // np.uint64(self.event.other)).astype(
            np.int64
        )
        released[moved] = slot + (slot >= released[moved])
        return released

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        same = self._categories(released) == self._categories(raw)
        keep, other = (math.log(w / _TOTAL) for w in (self.event.keep, self.event.other))
        return np.where(same, keep, other)

    def estimate_counts(self, released: Any) -> CountEstimate:
        """Estimate how many people are in each category, without bias."""
        reports = self._categories(released).ravel()
        support = np.bincount(reports, minlength=self.categories)
        keep, other = self.event.keep / _TOTAL, self.event.other / _TOTAL
        return unbiased_counts(support, reports.size, keep, other)

    def inputs(self) -> range:
        return range(self.categories)

    def outputs(self) -> range:
        return range(self.categories)

    def adjacent(self, first: int, second: int) -> bool:
        return first != second

    def _categories(self, raw: Any) -> npt.NDArray[np.int64]:
        return errors.integers("RandomizedResponse", raw, lower=0, upper=self.categories - 1)
