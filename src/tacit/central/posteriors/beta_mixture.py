r"""Mixtures of Beta distributions: the posterior of a share whose count is known up to noise.

.. math:: p(\theta) = \sum_j w_j \, \mathrm{Beta}(\theta; a_j, b_j)

Everything here is post-processing: results may be rounded, and no guarantee depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betainc, betaln, expit, log_expit, logsumexp, polygamma

from tacit.privacy import errors

Reals = npt.NDArray[np.float64]

_NEGLIGIBLE = 1e-17
"""Components lighter than this relative to the heaviest do not change any digit of a double."""

_NODES = 6001
_FAR = 745.0
"""e^-745 is about the smallest positive double."""

_CHUNK = 2**21


@dataclass(frozen=True, eq=False)
class BetaMixture:
    """A distribution of a share: weights that sum to one, and the components' parameters."""

    weights: Reals
    first: Reals
    second: Reals

    @classmethod
    def of(cls, weights: Any, first: Any, second: Any) -> BetaMixture:
        """Normalise the weights, and drop components that are too light to matter."""
        weights = np.asarray(weights, np.float64)
        kept = weights > _NEGLIGIBLE * weights.max()
        normalised = weights[kept] / weights[kept].sum()
        return cls(normalised, np.asarray(first, float)[kept], np.asarray(second, float)[kept])

    @cached_property
    def mean(self) -> float:
        """Return the expected share."""
        return float(self.weights @ (self.first / (self.first + self.second)))

    @cached_property
    def variance(self) -> float:
        """Return the variance: within the components, and between their means."""
        total = self.first + self.second
        means = self.first / total
        within = means * (self.second / total) / (total + 1)
        return float(self.weights @ (within + (means - self.mean) ** 2))

    def pdf(self, share: Any) -> Reals:
        """Return the density: 0 outside [0, 1], infinite at an end with a pole."""
        at = np.asarray(share, np.float64)
        inside = (at > 0) & (at < 1)
        safe = np.where(inside, at, 0.5)
        density = np.exp(self.log_density(np.log(safe), np.log1p(-safe)))
        ends = np.where(at == 0, self._end(self.first, self.second), 0.0)
        ends = np.where(at == 1, self._end(self.second, self.first), ends)
        return np.asarray(np.where(inside, density, ends))

    def _end(self, near: Reals, far: Reals) -> float:
        """Return the density at an end: that of components with a finite, non-zero value there."""
        if near.min() < 1:
            return np.inf
        return float(self.weights[near == 1] @ far[near == 1])

    def log_density(self, log_share: Reals, log_rest: Reals) -> Reals:
        """Return ln p at shares in (0, 1), given ln(share) and ln(1 − share)."""
        at, rest = np.atleast_1d(log_share).ravel(), np.atleast_1d(log_rest).ravel()
        constant = np.log(self.weights) - betaln(self.first, self.second)
        step = max(1, _CHUNK // self.weights.size)
        parts = [
            logsumexp(
                constant
                + np.outer(at[i : i + step], self.first - 1)
                + np.outer(rest[i : i + step], self.second - 1),
                axis=1,
            )
            for i in range(0, at.size, step)
        ]
        return np.concatenate(parts).reshape(np.shape(log_share))

    def cdf(self, share: Any) -> Reals:
        """Return P(θ ≤ share)."""
        at = np.clip(np.asarray(share, np.float64), 0.0, 1.0)
        flat = at.ravel()
        step = max(1, _CHUNK // self.weights.size)
        parts = [
            betainc(self.first, self.second, flat[i : i + step, None]) @ self.weights
            for i in range(0, flat.size, step)
        ]
        return np.asarray(np.minimum(np.concatenate(parts), 1.0).reshape(at.shape))

    def quantile(self, level: float) -> float:
        """Return the share below which θ lies with this probability."""
        level = errors.probability("quantile", "level", level)
        if level == 0:
            return 0.0
        return float(brentq(lambda at: float(self.cdf(at)) - level, 0.0, 1.0, xtol=1e-13))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the central credible interval: equal probability lies below and above it."""
        level = errors.probability("interval", "level", level, zero=False)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def sample(self, size: int, generator: np.random.Generator) -> Reals:
        """Draw independent shares."""
        chosen = generator.choice(self.weights.size, size=size, p=self.weights)
        return generator.beta(self.first[chosen], self.second[chosen])

    def affinity(self, other: BetaMixture) -> float:
        r"""Return :math:`\int \sqrt{p q}`, by the trapezoid rule over the log odds.

        With the log odds u = c + s sinh t, every Beta density is analytic with exponential tails,
        so the rule converges faster than any power of the step; sinh extends it into flat tails.
        """
        center, spread = _log_odds(self, other)
        least = min(*self.first, *self.second, *other.first, *other.second)
        reach = np.arcsinh((2 * _FAR / least + abs(center)) / spread)
        at, step = np.linspace(-reach, reach, _NODES, retstep=True)
        odds = center + spread * np.sinh(at)
        share, rest = log_expit(odds), log_expit(-odds)
        log_root = (self.log_density(share, rest) + other.log_density(share, rest)) / 2
        measure = share + rest + np.log(spread * np.cosh(at))
        return float(min(np.exp(log_root + measure).sum() * step, 1.0))


def _log_odds(*mixtures: BetaMixture) -> tuple[float, float]:
    """Return the location of the log odds, and a scale no wider than a component."""
    parameters = [(m.weights, m.first, m.second) for m in mixtures]
    weights, first, second = (np.concatenate(part) for part in zip(*parameters, strict=True))
    share = float(weights @ (first / (first + second)) / weights.sum())
    center = float(np.log(share) - np.log1p(-share)) if 0 < share < 1 else 0.0
    narrow = float(np.sqrt(np.min(polygamma(1, first) + polygamma(1, second))))
    assert abs(expit(center) - share) < 1e-6
    return center, narrow
