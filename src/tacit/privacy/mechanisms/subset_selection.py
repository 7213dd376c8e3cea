r"""Subset selection: a report is a set of categories that is likely to hold the true one.

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

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.counts import CountEstimate, unbiased_counts
from tacit.privacy.randomness import Randomness, bernoulli, source, subsets
from tacit.privacy.rounding import exp_floor
from tacit.privacy.shown import Shown

_TOTAL = 2**events.WEIGHT_BITS
_BLOCK_CELLS = 1 << 22


@dataclass(frozen=True, kw_only=True, repr=False)
class SubsetSelection(Shown):
    r"""A channel from one category to a set of `size` categories.

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
    epsilon: float | Fraction
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
        return self.event.guarantee_at()

    @property
    def inclusion(self) -> tuple[float, float]:
        """The probability that a report holds its own category, and that it holds any other one."""
        p = self.event.inclusion / _TOTAL
        return p, _other(self.categories, self.event.size, p)

    @property
    def log_odds(self) -> float:
        """The log-odds of a set given a category in it against one not in it."""
        p, d, k = Fraction(self.event.inclusion, _TOTAL), self.event.size, self.categories
        return math.log(p * (k - d) / ((1 - p) * d))

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Release one sorted row of `size` categories for each raw category."""
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
        sets = self.must_be_sets(released)
        held = np.any(sets == self._categories(raw)[..., None], axis=-1)
        p, d, k = self.event.inclusion / _TOTAL, self.event.size, self.categories
        log_held = math.log(p) - math.log(math.comb(k - 1, d - 1))
        log_missed = math.log((_TOTAL - self.event.inclusion) / _TOTAL) - math.log(
            math.comb(k - 1, d)
        )
        return np.where(held, log_held, log_missed)

    def estimate_counts(self, released: Any) -> CountEstimate:
        """Estimate how many people are in each category, without bias."""
        sets = self.must_be_sets(released)
        support = np.bincount(sets.ravel(), minlength=self.categories)
        return unbiased_counts(support, sets.size // self.event.size, *self.inclusion)

    @property
    def report_bytes(self) -> int:
        """Bytes of one report in compact form."""
        return -(-min(self.categories, self.event.size * self._place_bits) // 8)

    @property
    def _place_bits(self) -> int:
        return (self.categories - 1).bit_length()

    def to_bytes(self, released: Any) -> npt.NDArray[np.uint8]:
        """Encode each set in `report_bytes` bytes: as a bitmap, or as a list if that is shorter."""
        sets = self.must_be_sets(released).reshape(-1, self.event.size)
        if self.categories <= self.event.size * self._place_bits:
            bits = np.zeros((len(sets), self.categories), np.uint8)
            np.put_along_axis(bits, sets, 1, axis=1)
        else:
            places = np.arange(self._place_bits)[::-1]
            bits = ((sets[:, :, None] >> places) & 1).astype(np.uint8).reshape(len(sets), -1)
        return np.packbits(bits, axis=1)

    def from_bytes(self, wire: Any) -> npt.NDArray[np.int64]:
        """Decode the compact form; refuse bytes that are not a report."""
        packed = np.asarray(wire)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != self.report_bytes:
            raise errors.InvalidData(
                f"SubsetSelection: a report must be {self.report_bytes} bytes."
            )
        bits = np.unpackbits(packed, axis=1)
        width = min(self.categories, self.event.size * self._place_bits)
        body = bits[:, :width].astype(np.int64)
        if bool(np.any(bits[:, width:])):
            raise errors.InvalidData("SubsetSelection: a report must end in zeros.")
        if width < self.categories:
            weights = 1 << np.arange(self._place_bits)[::-1]
            return self.must_be_sets(body.reshape(len(body), self.event.size, -1) @ weights)
        if bool(np.any(body.sum(axis=1) != self.event.size)):
            raise errors.InvalidData(
                f"SubsetSelection: a report must list {self.event.size} categories."
            )
        return self.must_be_sets(np.nonzero(body)[1].reshape(len(body), self.event.size))

    def inputs(self) -> range:
        return range(self.categories)

    def outputs(self) -> npt.NDArray[np.int64]:
        """List all sets, for audits; refuse if there are more than a million."""
        count = math.comb(self.categories, self.event.size)
        if count > 10**6:
            errors.refuse("SubsetSelection.outputs", "sets", "at most a million", count)
        return np.array(list(combinations(range(self.categories), self.event.size)))

    def adjacent(self, first: int, second: int) -> bool:
        return first != second

    def _categories(self, raw: Any) -> npt.NDArray[np.int64]:
        return errors.integers("SubsetSelection", raw, lower=0, upper=self.categories - 1)

    def must_be_sets(self, released: Any) -> npt.NDArray[np.int64]:
        """Return released sets as integers; refuse what is not a sorted set of `size` symbols."""
        sets = self._categories(released)
        if sets.ndim == 0 or sets.shape[-1] != self.event.size:
            raise errors.InvalidData(
                f"SubsetSelection: a report must list {self.event.size} categories."
            )
        if bool(np.any(sets[..., 1:] <= sets[..., :-1])):
            raise errors.InvalidData("SubsetSelection: a report must be sorted, without repeats.")
        return sets


def best_size(categories: int, epsilon: float) -> int:
    """Return the subset size with the smallest variance of a rare category's count."""

    def variance(size: int) -> float:
        p = 1 / (1 + (categories - size) / size * math.exp(-epsilon))
        q = _other(categories, size, p)
        return q * (1 - q) / (p - q) ** 2

    guess = math.floor(categories / (math.exp(epsilon) + 1))
    sizes = {min(max(size, 1), categories - 1) for size in (guess, guess + 1)}
    return min(sorted(sizes), key=variance)


def _other(categories: int, size: int, inclusion: float) -> float:
    """Return the probability that a report holds a given category other than its own."""
    return (size - inclusion) / (categories - 1)
