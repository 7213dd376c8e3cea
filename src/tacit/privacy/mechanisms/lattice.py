r"""Geometric noise on counts with a known total: on the whole lattice, then projected.

References
----------
.. [GRS09] Ghosh, Roughgarden, Sundararajan. Universally utility-maximizing privacy mechanisms.
   STOC 2009 (the geometric mechanism).
.. [CS97] Conway, Sloane. Low-dimensional lattices VII: coordination sequences. Proc. R. Soc. A
   1997 (the shells of the root lattice A).
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
from tacit.privacy.mechanisms import bounding
from tacit.privacy.randomness import Randomness, bernoulli_exp_each, discrete_laplace, source
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_LARGEST_ENTRY = 2**52
"""Sums of 2^10 such entries stay inside int64, and no noise comes near it."""

_MOST_CELLS = 1 << 20


@dataclass(frozen=True, kw_only=True, repr=False)
class LatticeGeometric(Shown):
    r"""K counts with a public sum n, plus noise that keeps the sum.

    .. math:: P(r \mid x) = \frac{1}{Z} e^{-\varepsilon \|r - x\|_1 / 2}, \qquad
              \sum_i r_i = n, \quad r_i \in \mathbb{Z}, \qquad
              Z = \frac{\sum_{i=0}^{k-1} \binom{k-1}{i}^2 q^i}{(1-q)^{k-1}}, \quad
              q = e^{-\varepsilon}

    Parameters
    ----------
    epsilon : float
        Privacy parameter of the whole vector.
    categories : int
        k ≥ 2, the last axis of the data.
    total : int
        n, the sum of the counts. It is public.
    unit : Unit
        What one of the n is.

    Notes
    -----
    ε-DP for replacing one: a unit that moves from one category to another changes the ℓ1 norm by
    at most 2, and the normaliser does not depend on x, because the lattice Σr = n is the same
    seen from each of its points. That fails on the bounded lattice r ≥ 0, where the normaliser
    would have to be paid for (1.78 ε at k = 3, n = 10, ε = 0.1). Released entries may therefore be
    negative; `projected` brings them back, which is post-processing.

    Half the ℓ1 norm is the distance in moves, and Z sums the shells of that distance [CS97]_. A
    draw takes k − 1 independent discrete Laplace variables of scale 2/ε and lets the last one
    balance them, accepted with probability :math:`e^{-\varepsilon |last| / 2}`: what is accepted
    has the law above, exactly. The running time depends on the noise alone, not on the counts.
    """

    epsilon: float | Fraction
    categories: int
    total: int
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        name = "LatticeGeometric"
        categories = errors.whole(name, "categories", self.categories, least=2, most=2**10)
        total = errors.whole(name, "total", self.total, least=1, most=2**48)
        object.__setattr__(self, "categories", categories)
        object.__setattr__(self, "total", total)
        _ = self.event

    @cached_property
    def event(self) -> events.Laplace:
        """ℓ1 sensitivity 2 at scale 2/ε; the sum of the noise is known to be 0."""
        scale = 2 / errors.epsilon_in_range("LatticeGeometric", self.epsilon)
        return events.Laplace(Fraction(2), scale, adjacency=Adjacency.REPLACE_ONE, unit=self.unit)

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    def release(self, raw: Any, rng: Randomness | None = None) -> Integers:
        """Release noisy counts with the same sum; the last axis is the vector."""
        counts, stream = self._counts(raw), source(rng)
        noise = self._noise(counts.size // self.categories, stream)
        return counts + noise.reshape(counts.shape)

    def _noise(self, size: int, rng: Randomness) -> Integers:
        accepted: list[Integers] = []
        missing, most = size, max(_MOST_CELLS // self.categories, 1)
        while missing:
            # About one in √k is accepted, whatever ε is.
            proposed = min(2 * missing * math.isqrt(self.categories) + 16, most)
            kept = self._proposals(proposed, rng)[:missing]
            accepted.append(kept)
            missing -= len(kept)
        return np.concatenate(accepted)

    def _proposals(self, size: int, rng: Randomness) -> Integers:
        scale = self.event.scale
        free = discrete_laplace(scale, size * (self.categories - 1), rng).reshape(size, -1)
        last = -free.sum(axis=1)

        def exponent(index: int) -> Fraction:
            return abs(int(last[index])) / scale

        keep = bernoulli_exp_each(np.abs(last) * float(1 / scale), exponent, rng)
        return np.column_stack([free, last])[keep]

    def log_prob(self, released: Any, raw: Any) -> Reals:
        """Compute the log-probability of each vector; −∞ if its sum is not the total."""
        seen, counts = self._released(released), self._counts(raw)
        distance = np.abs(seen - counts).sum(axis=-1)
        law = -distance * float(1 / self.event.scale) - self.log_normaliser
        return np.asarray(np.where(seen.sum(axis=-1) == self.total, law, -np.inf))

    @cached_property
    def log_normaliser(self) -> float:
        """Ln Z."""
        epsilon, free = float(2 / self.event.scale), self.categories - 1
        logs = [2 * math.log(math.comb(free, i)) - epsilon * i for i in range(free + 1)]
        largest = max(logs)
        series = largest + math.log(math.fsum(math.exp(one - largest) for one in logs))
        return series - free * math.log(-math.expm1(-epsilon))

    def projected(self, released: Any) -> Integers:
        r"""Project to the nearest integer counts ≥ 0 with the same sum, as post-processing.

        The Euclidean projection to the simplex takes the same amount off every entry that stays
        positive. Here that amount is rounded down, and the remainder is taken off the largest
        entries, one each (the first among equal ones).
        """
        seen = self._released(released)
        if bool(np.any(seen.sum(axis=-1) != self.total)):
            raise errors.InvalidData(f"LatticeGeometric: a release must sum to {self.total}.")
        flat = seen.reshape(-1, self.categories)
        return bounding.project_counts(flat, self.total).reshape(seen.shape)

    def adjacent(self, first: Any, second: Any) -> bool:
        """Test whether one unit moved."""
        return int(np.abs(np.asarray(first) - np.asarray(second)).sum()) == 2

    def _released(self, released: Any) -> Integers:
        far = _LARGEST_ENTRY
        seen = errors.integers("LatticeGeometric", released, lower=-far, upper=far)
        if seen.ndim == 0 or seen.shape[-1] != self.categories:
            raise errors.InvalidData(
                f"LatticeGeometric: a release must have {self.categories} entries."
            )
        return seen

    def _counts(self, raw: Any) -> Integers:
        counts = errors.integers("LatticeGeometric", raw, lower=0)
        if counts.ndim == 0 or counts.shape[-1] != self.categories:
            raise errors.InvalidData(
                f"LatticeGeometric: data must be vectors of {self.categories} counts."
            )
        if bool(np.any(counts.sum(axis=-1) != self.total)):
            raise errors.InvalidData(
                f"LatticeGeometric: counts must sum to {self.total}. Their sum is public."
            )
        return counts
