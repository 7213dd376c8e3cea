r"""A group and a bounded number in one report: the law of `LocalMean` within each group.

References
----------
.. [DJW18] Duchi, Jordan, Wainwright. Minimax optimal procedures for locally private estimation.
   JASA 2018.
.. [YB18] Ye, Barg. Optimal schemes for discrete distribution estimation under locally
   differential privacy. IEEE Trans. IT 2018.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.mean_design import (
    HALF,
    TOTAL,
    Windows,
    largest,
    must_be_base,
    solve_base,
)
from tacit.privacy.randomness import Inversion, Randomness, source
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

POINTS = 2 * HALF + 1
"""Points of the grid of numbers: point p stands for p/HALF − 1, in [−1, 1]."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GroupedMean(Shown):
    r"""A channel from a group and a point of a grid on [−1, 1] to a symbol that names both.

    .. math:: P(d, y \mid c, x) = \begin{cases} m_y + w_y(x) & d = c \\ m_y & d \ne c \end{cases},
              \qquad m_y + w_y(x) \le e^\varepsilon m_y

    Parameters
    ----------
    groups : int
        G ≥ 1; with one group this is the law of `LocalMean`.
    epsilon : float
        Local privacy parameter of one report.
    base : sequence of int, optional
        m in units of 2^-52, as stored with an earlier mechanism. By default it is computed: the
        linear program may end in another optimum with another version of the solver.

    Notes
    -----
    ε-DP for any two inputs: every weight lies between the base of its symbol and e^ε times that,
    which is compared in whole numbers when the mechanism is made. Raw values are 65c + p for the
    group c and the point p; a caller that rounds a number at random to one of two points mixes two
    of these laws. Released values are n·d + y, with n symbols in each group.

    With v the `values` of symbols, v_y in group c and 0 elsewhere estimates x·1{c} without bias.
    The base minimises the mean over groups of its variance, at the number where that is largest,
    among all laws in which a symbol names one group. At ε = 2 with two groups it is 0.935; subset
    selection over a group and the best number of levels has 1.077.

    Examples
    --------
    >>> wages = GroupedMean(groups=2, epsilon=2.0)
    >>> print(wages.guarantee)
    2-DP (local, any-two-inputs, unit: record)
    >>> round(wages.worst_variance, 2)
    0.94
    """

    groups: int
    epsilon: float | Fraction
    base: Any = field(default=None, repr=False)
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        groups = errors.whole("GroupedMean", "groups", self.groups, least=1, most=4096)
        object.__setattr__(self, "groups", groups)
        epsilon = errors.epsilon_in_range("GroupedMean", self.epsilon)
        base = solve_base(float(epsilon), groups) if self.base is None else self.base
        object.__setattr__(self, "base", must_be_base(base))
        self._must_hold(epsilon)
        _ = self.event

    @cached_property
    def _windows(self) -> Windows:
        epsilon = errors.epsilon_in_range("GroupedMean", self.epsilon)
        return Windows(self.base, epsilon, self.groups)

    @property
    def most(self) -> list[int]:
        """The largest weight of each symbol, with or without a base."""
        return largest(self.base, errors.epsilon_in_range("GroupedMean", self.epsilon))

    @cached_property
    def _least(self) -> list[int]:
        """The base of each symbol of a group that has a weight."""
        return [weight for weight in self.base if weight]

    @cached_property
    def rows(self) -> list[list[int]]:
        """The weights of the symbols of the own group, one row per point."""
        return self._windows.rows()

    @cached_property
    def denominators(self) -> list[int]:
        """What base weights are multiplied with in each row; all of a row is 2^52 times that."""
        return self._windows.denominators()

    def _must_hold(self, epsilon: Fraction) -> None:
        """Compare every weight with its base, and every row with its total, in whole numbers."""
        most = largest(self._least, epsilon)
        rest = (self.groups - 1) * sum(self._least)
        for row, scale in zip(self.rows, self.denominators, strict=True):
            ends = zip(self._least, row, most, strict=True)
            within = all(low * scale <= weight <= high * scale for low, weight, high in ends)
            if not within or sum(row) != (TOTAL - rest) * scale:
                errors.refuse("GroupedMean", "base", "one that keeps epsilon", len(self._least))

    @cached_property
    def event(self) -> events.CertifiedTable:
        return events.CertifiedTable(
            errors.epsilon_in_range("GroupedMean", self.epsilon),
            0.0,
            self.groups * POINTS,
            self.groups * self.symbols,
            self._digest(),
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    def _digest(self) -> str:
        sha256 = hashlib.sha256(f"tacit grouped rows\n{self.groups}\n".encode())
        for row in (self._least, self.denominators, *self.rows):
            sha256.update((" ".join(f"{weight:x}" for weight in row) + "\n").encode())
        return sha256.hexdigest()

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @property
    def symbols(self) -> int:
        """How many symbols each group has."""
        return len(self._least)

    @cached_property
    def values(self) -> Reals:
        """The score of each symbol of a group, for a number in [−1, 1]."""
        return np.array([float(value) for value in self._windows.values()])

    @property
    def inclusion(self) -> tuple[float, float]:
        """The probability that a report names the own group, and that it names any other one."""
        other = sum(self._least) / TOTAL
        return 1 - (self.groups - 1) * other, other

    @cached_property
    def own(self) -> Reals:
        """The probability of each symbol of the own group, one row per point."""
        pairs = zip(self.rows, self.denominators, strict=True)
        return np.array([[w / (TOTAL * scale) for w in row] for row, scale in pairs])

    @cached_property
    def other(self) -> Reals:
        """The probability of each symbol of any other group."""
        return np.array(self._least) / TOTAL

    @cached_property
    def worst_variance(self) -> float:
        """The mean over groups of the variance of a score, at the number where that is largest.

        Numbers between two points are rounded to either at random.
        """
        numbers = np.arange(-HALF, HALF + 1) / HALF
        moments = self.own @ self.values**2 + (self.groups - 1) * (self.other @ self.values**2)
        ends, step = moments - numbers**2, 1 / HALF
        at = np.clip(0.5 + np.diff(ends) / (2 * step**2), 0, 1)
        between = (1 - at) * ends[:-1] + at * ends[1:] + step**2 * at * (1 - at)
        return float(between.max()) / self.groups

    def release(self, raw: Any, rng: Randomness | None = None) -> Integers:
        """Release one symbol for each group and point."""
        given, stream = self._inputs(raw), source(rng)
        group, point = np.divmod(given.ravel(), POINTS)
        place = np.empty_like(point)
        for one in np.unique(point).tolist():
            rows = np.flatnonzero(point == one)
            place[rows] = self._law(one).draw(rows.size, stream)
        # A law lists the symbols of the own group first, then those of the others.
        which, symbol = np.divmod(place, self.symbols)
        named = np.where(which == 0, group, which - (which <= group))
        return np.asarray(named * self.symbols + symbol).reshape(given.shape)

    def _law(self, point: int) -> Inversion:
        if point not in self._laws:
            self._laws[point] = Inversion(lambda bits: self._floors(point, bits))
        return self._laws[point]

    @cached_property
    def _laws(self) -> dict[int, Inversion]:
        return {}

    def _floors(self, point: int, bits: int) -> list[int]:
        scale = self.denominators[point]
        others = [weight * scale for weight in self._least] * (self.groups - 1)
        sums = list(accumulate([*self.rows[point], *others]))
        return [(edge << bits) // sums[-1] for edge in sums[:-1]]

    def log_prob(self, released: Any, raw: Any) -> Reals:
        most = self.groups * self.symbols - 1
        symbols = errors.integers("GroupedMean", released, lower=0, upper=most)
        symbols, given = np.broadcast_arrays(symbols, self._inputs(raw))
        (named, symbol), (group, point) = np.divmod(symbols, self.symbols), np.divmod(given, POINTS)
        return np.log(np.where(named == group, self.own[point, symbol], self.other[symbol]))

    def inputs(self) -> range:
        return range(self.groups * POINTS)

    def outputs(self) -> range:
        return range(self.groups * self.symbols)

    def adjacent(self, first: int, second: int) -> bool:
        return first != second

    def law(self, raw: int) -> list[Fraction]:
        """Return the exact probability of every output."""
        group, point = divmod(raw, POINTS)
        scale = self.denominators[point]
        rows = [
            self.rows[point] if one == group else [weight * scale for weight in self._least]
            for one in range(self.groups)
        ]
        return [Fraction(weight, TOTAL * scale) for row in rows for weight in row]

    def _inputs(self, raw: Any) -> Integers:
        return errors.integers("GroupedMean", raw, lower=0, upper=self.groups * POINTS - 1)
