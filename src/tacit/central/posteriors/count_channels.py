r"""Channels for k counts whose sum n is public, from which private posteriors are computed.

Neighbours replace one record: one count falls by one, another rises by one.

References
----------
.. [GRS09] Ghosh, Roughgarden, Sundararajan. Universally utility-maximizing privacy mechanisms.
   STOC 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.central.posteriors.hellinger import places
from tacit.central.posteriors.hidden_counts import Factored, Hidden, Listed
from tacit.privacy import errors
from tacit.privacy.mechanisms import DiscreteLaplace, Geometric, Mechanism
from tacit.privacy.mechanisms.integer_table import IntegerTable
from tacit.privacy.mechanisms.lattice import LatticeGeometric
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MECHANISMS = ("geometric", "laplace", "hellinger")
_LEAST, _MOST = 1e-6, 1e9
"""Limits on the parameters of a prior, beyond which floats lose precision."""


class CountChannel(Protocol):
    """A mechanism for counts, with Bayes' rule over its law."""

    @property
    def mechanism(self) -> Mechanism:
        """Return the mechanism that is drawn from, with its guarantee and event."""
        ...

    def release(self, counts: Integers, rng: Randomness | None = None) -> Integers:
        """Draw as many integers as there are counts (the last axis)."""
        ...

    def hidden(self, released: Integers, prior: Reals) -> Hidden:
        """Return the law of the true counts given the draw."""
        ...


@dataclass(frozen=True)
class OneCount:
    """Geometric noise on the first of two counts, clamped to [0, n]; the second is the rest.

    ε-DP: a replaced record changes the first count by at most one, and clamping is
    post-processing. For every prior and every loss that grows with the distance, no ε-DP mechanism
    has a smaller expected loss than this one after the best remap [GRS09]_.
    """

    mechanism: Geometric

    def release(self, counts: Integers, rng: Randomness | None = None) -> Integers:
        first = self.mechanism.release(counts[..., 0], rng)
        return np.stack([first, self.mechanism.upper - first], axis=-1)

    def hidden(self, released: Integers, prior: Reals) -> Hidden:
        every = np.array(self.mechanism.inputs())
        law = self.mechanism.log_prob(np.full(every.size, released[0]), every)
        return Listed.of(prior, pairs(self.mechanism.upper), law)


@dataclass(frozen=True)
class LatticeCounts:
    r"""Geometric noise for k counts on the lattice of all integer vectors of sum n.

    .. math:: P(r \mid x) \propto e^{-\varepsilon \lVert r - x \rVert_1 / 2}

    ε-DP: neighbours are 2 apart in ℓ1, and the normaliser does not depend on x, since the lattice
    is unbounded. Entries may be negative.
    """

    mechanism: LatticeGeometric

    def release(self, counts: Integers, rng: Randomness | None = None) -> Integers:
        return np.asarray(self.mechanism.release(counts, rng))

    def hidden(self, released: Integers, prior: Reals) -> Hidden:
        """Return a product over counts: the common normaliser carries no information."""
        distance = np.abs(np.arange(self.mechanism.total + 1) - released[:, None])
        return Factored(prior, -float(self.mechanism.epsilon) / 2 * distance)


@dataclass(frozen=True)
class EachCount:
    """Discrete Laplace noise of scale 2/ε on every count: the baseline, which ignores the sum.

    ε-DP: a replaced record changes the counts by 2 in ℓ1.
    """

    mechanism: DiscreteLaplace
    total: int

    def release(self, counts: Integers, rng: Randomness | None = None) -> Integers:
        return self.mechanism.release(counts, rng)

    def hidden(self, released: Integers, prior: Reals) -> Hidden:
        every = np.arange(self.total + 1)
        rows = [self.mechanism.log_prob(np.full(every.size, y), every) for y in released]
        if released.size == 2:
            return Listed.of(prior, pairs(self.total), rows[0] + rows[1][::-1])
        return Factored(prior, np.array(rows))


@dataclass(frozen=True, eq=False)
class TabledCounts:
    """A certified table whose rows and columns are all counts of sum n, in this order."""

    mechanism: IntegerTable
    listed: Integers

    def release(self, counts: Integers, rng: Randomness | None = None) -> Integers:
        total = int(self.listed[0].sum())
        return np.asarray(self.listed[self.mechanism.release(places(counts, total), rng)])

    def hidden(self, released: Integers, prior: Reals) -> Hidden:
        rows = np.array(self.mechanism.inputs())
        column = places(released, int(released.sum()))
        return Listed.of(prior, self.listed, self.mechanism.log_prob(column, rows))


def checked_prior(where: str, prior: Any, *, most: int) -> tuple[float, ...]:
    """Check that the prior is two or more positive numbers."""
    try:
        given = tuple(prior)
    except TypeError:
        given = ()
    if not 2 <= len(given) <= most:
        condition = "two numbers" if most == 2 else f"2 to {most} numbers"
        errors.refuse(where, "prior", condition, prior)
    numbers = tuple(float(errors.positive(where, "prior", alpha)) for alpha in given)
    if not _LEAST <= min(numbers) <= max(numbers) <= _MOST:
        errors.refuse(where, "prior", "from 1e-6 to 1e9", prior)
    return numbers


def pairs(total: int) -> Integers:
    """List all pairs of counts of this sum."""
    every = np.arange(total + 1)
    return np.stack([every, total - every], axis=1)
