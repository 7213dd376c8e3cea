r"""The laws of what a part of a sheet releases, and scores that estimate functions of its symbol.

A law has a score φ of every function g of the symbol with :math:`E[\varphi \mid x] = g(x)`.

- `Sets`, subset selection of any symbol, with inclusion probabilities p and q:

.. math:: \varphi_g(S) = \frac{\sum_{x \in S} g(x) - q \sum_x g(x)}{p - q}

- `Grouped`, `GroupedMean` of a group c and a number x, for :math:`g(c, x) = a_c + b_c x`. With v
  the score of x, and p and q the probabilities that the own group and another one is named:

.. math:: \varphi_g(d, y) = b_d v_y + \frac{a_d - q \sum_c a_c}{p - q}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local.surveys.questions import Integers, Reals
from tacit.privacy import errors
from tacit.privacy.mechanisms.grouped_mean import POINTS, GroupedMean
from tacit.privacy.mechanisms.subset_selection import SubsetSelection
from tacit.privacy.randomness import Randomness


@dataclass(frozen=True)
class Sets:
    """Sets of symbols, by subset selection."""

    law: SubsetSelection

    @property
    def width(self) -> int:
        """The integers of a release."""
        return self.law.event.size

    @property
    def released(self) -> int:
        """How many symbols there are to release."""
        return self.law.categories

    @property
    def report_bytes(self) -> int:
        """Bytes of a release in compact form."""
        return self.law.report_bytes

    def release(self, symbols: Integers, rng: Randomness) -> Integers:
        """Release a set for each symbol."""
        return self.law.release(symbols, rng)

    def check(self, rows: Integers) -> Integers:
        """Refuse rows that cannot have been released."""
        return self.law.must_be_sets(rows)

    def to_bytes(self, rows: Integers) -> npt.NDArray[np.uint8]:
        """Encode releases in compact form."""
        return self.law.to_bytes(rows)

    def from_bytes(self, wire: Any) -> Integers:
        """Decode the compact form; refuse bytes that are no release."""
        return self.law.from_bytes(wire)

    def outputs(self) -> Integers:
        """List all releases, for audits."""
        return self.law.outputs()

    def chances(self, rows: Integers, levels: list[Reals]) -> Reals:
        """Return the probability of each release, given the chances of each measure's levels."""
        shape = tuple(one.shape[1] for one in levels)
        own = np.ones(rows.shape)
        for chance, places in zip(levels, np.unravel_index(rows, shape), strict=True):
            own *= np.take_along_axis(chance, places, axis=1)
        outside = next((s for s in range(self.law.categories) if s not in rows[0]), 0)
        held = float(np.exp(self.law.log_prob(rows[:1], [int(rows[0, 0])]))[0])
        missed = float(np.exp(self.law.log_prob(rows[:1], [outside]))[0])
        return np.asarray(missed + (held - missed) * own.sum(axis=1))

    def scores(self, rows: Integers, values: Reals) -> Reals:
        """Return the score of each release for a function with these values at symbols."""
        p, q = self.law.inclusion
        return np.asarray((values[rows].sum(axis=1) - q * values.sum()) / (p - q))

    def ends(self, values: Reals) -> tuple[float, float] | None:
        """Return the two values of a function's scores; None where there may be more."""
        sums = np.unique(values) if self.width == 1 else np.unique([0.0, values.sum()])
        if len(sums) != 2 or (self.width > 1 and np.count_nonzero(values) != 1):
            return None
        p, q = self.law.inclusion
        low, high = ((sums - q * values.sum()) / (p - q)).tolist()
        return low, high

    def seconds(self, values: Reals, chances: Reals) -> tuple[Reals, Reals]:
        """Return E[φ] and E[φ φ'] for functions (rows) of a symbol with these chances."""
        (p, q), size, count = self.law.inclusion, self.width, self.law.categories
        mean, product = values @ chances, (values * chances) @ values.T
        total, squares = values.sum(axis=1), values @ values.T
        # Two other symbols are both in the set; the true one and another are.
        both = p * (size - 1) / (count - 1)
        pairs = (size - 1) / (count - 1) * (p * (size - 2) + (1 - p) * size) / max(count - 2, 1)
        cross = np.outer(mean, total) + np.outer(total, mean) - 2 * product
        rest = np.outer(total, total) - squares - cross
        second = q * squares + (p - q) * product + pairs * rest + both * cross
        sums = q * total + (p - q) * mean
        shift = np.outer(total, sums)
        centred = second - q * (shift + shift.T) + q * q * np.outer(total, total)
        return mean, centred / (p - q) ** 2


@dataclass(frozen=True)
class Grouped:
    """One symbol that names a group and a number; the number is the last measure of the part."""

    law: GroupedMean

    @property
    def width(self) -> int:
        """The integers of a release."""
        return 1

    @property
    def released(self) -> int:
        """How many symbols there are to release."""
        return self.law.groups * self.law.symbols

    @property
    def report_bytes(self) -> int:
        """Bytes of a release in compact form."""
        return -(-(self.released - 1).bit_length() // 8)

    def release(self, symbols: Integers, rng: Randomness) -> Integers:
        """Release a symbol for each symbol."""
        return self.law.release(symbols, rng)[:, None]

    def check(self, rows: Integers) -> Integers:
        """Refuse rows that cannot have been released."""
        return errors.integers("GroupedMean", rows, lower=0, upper=self.released - 1)

    def to_bytes(self, rows: Integers) -> npt.NDArray[np.uint8]:
        """Encode releases in compact form: the lowest byte first."""
        whole = np.ascontiguousarray(self.check(rows)[:, :1].astype("<u4"))
        return whole.view(np.uint8)[:, : self.report_bytes]

    def from_bytes(self, wire: Any) -> Integers:
        """Decode the compact form; refuse bytes that are no release."""
        whole = np.zeros((len(wire), 4), np.uint8)
        whole[:, : self.report_bytes] = wire
        return self.check(whole.view("<u4").astype(np.int64))

    def outputs(self) -> Integers:
        """List all releases, for audits."""
        return np.arange(self.released)[:, None]

    def chances(self, rows: Integers, levels: list[Reals]) -> Reals:
        """Return the probability of each release, given the chances of each measure's levels."""
        shape = tuple(one.shape[1] for one in levels[:-1])
        codes = tuple(one.argmax(axis=1) for one in levels[:-1])  # an option is certain
        group = np.ravel_multi_index(codes, shape) if shape else 0
        named, symbol = np.divmod(rows[:, 0], self.law.symbols)
        own = (levels[-1] * self.law.own[:, symbol].T).sum(axis=1)
        return np.where(named == group, own, self.law.other[symbol])

    def scores(self, rows: Integers, values: Reals) -> Reals:
        """Return the score of each release for a function with these values at symbols."""
        return np.asarray(self._table(values)[rows[:, 0]])

    def ends(self, values: Reals) -> tuple[float, float] | None:
        """Return the two values of a function's scores; None where there may be more."""
        different = np.unique(self._table(values))
        return (float(different[0]), float(different[1])) if len(different) == 2 else None

    def seconds(self, values: Reals, chances: Reals) -> tuple[Reals, Reals]:
        """Return E[φ] and E[φ φ'] for functions (rows) of a symbol with these chances."""
        within = chances.reshape(self.law.groups, POINTS)
        others = (1 - within.sum(axis=1))[:, None] * self.law.other
        released = (within @ self.law.own + others).ravel()
        tables = np.array([self._table(one) for one in values])
        return values @ chances, (tables * released) @ tables.T

    def _table(self, values: Reals) -> Reals:
        """Return a function's score at each symbol that may be released."""
        low, high = values.reshape(self.law.groups, POINTS)[:, [0, -1]].T
        (p, q), level, slope = self.law.inclusion, (low + high) / 2, (high - low) / 2
        named = level if self.law.groups == 1 else (level - q * level.sum()) / (p - q)
        return np.asarray((named[:, None] + np.outer(slope, self.law.values)).ravel())


Law = Sets | Grouped
