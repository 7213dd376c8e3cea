r"""Subset selection: a report is a set of categories that holds the true one more often than not.

References
----------
.. [YB18] Ye, Barg. Optimal schemes for discrete distribution estimation under locally
   differential privacy. IEEE Trans. IT 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit import errors, events
from tacit.accounting.theorems import of_leaf
from tacit.guarantees import Adjacency, Guarantee, Unit
from tacit.mechanisms.counts import CountEstimate, unbiased_counts
from tacit.randomness import Randomness, bernoulli, source, subsets
from tacit.randomness.reals import exp_floor

_TOTAL = 2**events.WEIGHT_BITS
_BLOCK_CELLS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class SubsetSelection:
    r"""A category in, `size` categories out.

    .. math:: P(S \mid x) = \frac{p}{\binom{K-1}{d-1}}\;(x \in S), \qquad
              \frac{1-p}{\binom{K-1}{d}}\;(x \notin S), \qquad
              p = \frac{d\,e^\varepsilon}{d\,e^\varepsilon + K - d}

    Parameters
    ----------
    categories : int
        K ≥ 2; raw values are 0, …, K − 1.
    epsilon : float
        Local privacy parameter of one report.
    size : int, optional
        d. By default the one with the smallest variance of estimated counts, near K/(e^ε + 1).

    Notes
    -----
    ε-DP for any two inputs. p is a multiple of 2^-64, rounded down: the odds of a set are compared
    with e^ε in integers. A released row lists its categories in increasing order.
    """

    categories: int
    epsilon: float
    size: int | None = None
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", self.event.categories)

    @cached_property
    def event(self) -> events.SubsetSelection:
        name = "SubsetSelection"
        categories = errors.whole(name, "categories", self.categories, least=2, most=2**20)
        epsilon = errors.epsilon_in_range(name, self.epsilon)
        if self.size is None:
            size = best_size(categories, float(epsilon))
        else:
            size = errors.whole(name, "size", self.size, least=1, most=categories - 1)
        odds = size * Fraction(exp_floor(epsilon, 128), 2**128)
        inclusion = math.floor(_TOTAL * odds / (odds + categories - size))
        inclusion = min(inclusion, _TOTAL - 1)
        return events.SubsetSelection(
            categories,
            size,
            epsilon,
            inclusion,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    @property
    def guarantee(self) -> Guarantee:
        return of_leaf(self.event)

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """One sorted row of `size` categories for each raw category."""
        values = self._categories(raw)
        flat, stream = values.ravel(), source(rng)
        rows = max(_BLOCK_CELLS // self.categories, 1)
        blocks = [
            self._release_block(flat[start : start + rows], stream)
            for start in range(0, flat.size, rows)
        ]
        return np.concatenate(blocks).reshape(*values.shape, self.event.size)

    def _release_block(self, raw: npt.NDArray[np.int64], rng: Randomness) -> npt.NDArray[np.int64]:
        included = bernoulli(Fraction(self.event.inclusion, _TOTAL), raw.size, rng)
        chosen = np.zeros((raw.size, self.categories), dtype=np.bool_)
        chosen[included, raw[included]] = True
        for held in (True, False):
            rows = np.flatnonzero(included == held)
            others = subsets(self.categories - 1, self.event.size - held, rows.size, rng)
            row, column = np.nonzero(others)
            row = rows[row]
            chosen[row, column + (column >= raw[row])] = True
        return np.nonzero(chosen)[1].reshape(raw.size, self.event.size)

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        sets = self._sets(released)
        held = np.any(sets == self._categories(raw)[..., None], axis=-1)
        p, d, k = self.event.inclusion / _TOTAL, self.event.size, self.categories
        log_held = math.log(p) - math.log(math.comb(k - 1, d - 1))
        log_missed = math.log((_TOTAL - self.event.inclusion) / _TOTAL) - math.log(
            math.comb(k - 1, d)
        )
        return np.where(held, log_held, log_missed)

    def estimate_counts(self, released: Any) -> CountEstimate:
        """How many people are in each category, unbiased."""
        sets = self._sets(released)
        support = np.bincount(sets.ravel(), minlength=self.categories)
        p = self.event.inclusion / _TOTAL
        reports = sets.size // self.event.size
        return unbiased_counts(support, reports, p, _other(self.categories, self.event.size, p))

    def inputs(self) -> range:
        return range(self.categories)

    def outputs(self) -> npt.NDArray[np.int64]:
        """All sets, for audits; refused where there are more than a million."""
        count = math.comb(self.categories, self.event.size)
        if count > 10**6:
            errors.refuse("SubsetSelection.outputs", "sets", "at most a million", count)
        return np.array(list(combinations(range(self.categories), self.event.size)))

    def adjacent(self, first: int, second: int) -> bool:
        return first != second

    def _categories(self, raw: Any) -> npt.NDArray[np.int64]:
        return errors.integers("SubsetSelection", raw, lower=0, upper=self.categories - 1)

    def _sets(self, released: Any) -> npt.NDArray[np.int64]:
        sets = self._categories(released)
        if sets.ndim == 0 or sets.shape[-1] != self.event.size:
            raise errors.InvalidData(
                f"SubsetSelection: a report must list {self.event.size} categories."
            )
        if bool(np.any(sets[..., 1:] <= sets[..., :-1])):
            raise errors.InvalidData("SubsetSelection: a report must be sorted, without repeats.")
        return sets


def best_size(categories: int, epsilon: float) -> int:
    """The subset size with the smallest variance of a rare category's count."""

    def variance(size: int) -> float:
        p = 1 / (1 + (categories - size) / size * math.exp(-epsilon))
        q = _other(categories, size, p)
        return q * (1 - q) / (p - q) ** 2

    guess = math.floor(categories / (math.exp(epsilon) + 1))
    sizes = {min(max(size, 1), categories - 1) for size in (guess, guess + 1)}
    return min(sorted(sizes), key=variance)


def _other(categories: int, size: int, inclusion: float) -> float:
    """The chance that a report holds a given category other than its own."""
    return (size - inclusion) / (categories - 1)
