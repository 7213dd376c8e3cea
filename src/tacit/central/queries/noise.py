r"""Noise on integers, with the distribution that intervals need.

Discrete Laplace noise of scale :math:`b = \Delta_1/\varepsilon` gives ε-DP [DMNS06]_; discrete
Gaussian noise of variance :math:`\Delta_2^2/(2\rho)` gives ρ-zCDP [CKS20]_. Both are drawn exactly.

References
----------
.. [DMNS06] Dwork, McSherry, Nissim, Smith. Calibrating noise to sensitivity. TCC 2006.
.. [CKS20] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import erfc, erfcinv

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.randomness import Randomness, discrete_gaussian, discrete_laplace

Reals = npt.NDArray[np.float64]

_LARGEST_SCALE, _LARGEST_SIGMA = 2**50, 2**45
_APART = 1 + 1e-3


@dataclass(frozen=True)
class LaplaceNoise:
    """Discrete Laplace noise for integers with a given ℓ1 sensitivity."""

    sensitivity: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        if self.scale > _LARGEST_SCALE:
            _too_wide("sensitivity / epsilon", "2^50", float(self.scale))

    @property
    def scale(self) -> Fraction:
        return self.sensitivity / self.epsilon

    def event(self, adjacency: Adjacency, unit: Unit, entries: int) -> events.Event:
        return events.Laplace(
            Fraction(self.sensitivity), self.scale, adjacency=adjacency, unit=unit
        )

    def draw(self, size: int, rng: Randomness) -> list[int]:
        return [int(value) for value in discrete_laplace(self.scale, size, rng)]

    def reach(self, level: float) -> int:
        r"""Return the least k with P(\|Z\| ≤ k) ≥ level; P is :math:`1 - 2r^{k+1}/(1 + r)`."""
        rate = float(1 / self.scale)
        k = (math.log(2 / (1 - level)) - math.log1p(math.exp(-rate))) / rate - 1
        return max(math.ceil(k * (1 - 1e-15)), 0)

    def tail(self, coefficients: Reals, beyond: Reals) -> Reals:
        r"""Return P(\|Σ aᵢXᵢ\| > w) for independent continuous Laplace variables of this scale b.

        .. math:: \sum_i \frac{a_i^{2d-2}}{\prod_{j \ne i}(a_i^2 - a_j^2)}\,e^{-w/(a_i b)}

        for distinct \|aᵢ\|. Equal ones are increased until they differ by a thousandth: a wider
        symmetric unimodal term makes the sum less peaked, so the interval can only become wider.
        """
        a = np.sort(np.abs(coefficients), axis=0)
        a = np.maximum(a, a[-1:] * 1e-3)
        for i in range(1, len(a)):
            a[i] = np.maximum(a[i], a[i - 1] * _APART)
        w = np.maximum(beyond, 0.0) / float(self.scale)
        total = np.zeros(np.broadcast(a[0], w).shape)
        for i in range(len(a)):
            share = np.ones_like(a[i])
            for j in range(len(a)):
                if j != i:
                    share = share / (1 - (a[j] / a[i]) ** 2)
            total = total + share * np.exp(-w / a[i])
        return np.asarray(np.clip(total, 0.0, 1.0))


@dataclass(frozen=True)
class GaussianNoise:
    """Discrete Gaussian noise for integers with a given squared ℓ2 sensitivity."""

    squared: int
    rho: Fraction

    def __post_init__(self) -> None:
        if self.sigma > _LARGEST_SIGMA:
            _too_wide("sigma", "2^45", self.sigma)

    @property
    def variance(self) -> Fraction:
        return self.squared / (2 * self.rho)

    @property
    def sigma(self) -> float:
        return math.sqrt(self.variance)

    def event(self, adjacency: Adjacency, unit: Unit, entries: int) -> events.Event:
        return events.DiscreteGaussian(
            Fraction(self.squared), self.variance, entries, adjacency=adjacency, unit=unit
        )

    def draw(self, size: int, rng: Randomness) -> list[int]:
        return [int(value) for value in discrete_gaussian(self.variance, size, rng)]

    def reach(self, level: float) -> int:
        r"""Return the least k with P(\|Z\| ≤ k) ≥ level; for large σ, the normal one plus 1."""
        normal = self.sigma * math.sqrt(2) * float(erfcinv(1 - level))
        if self.sigma > 1000:
            return math.ceil(normal) + 1
        span = np.arange(-math.ceil(40 * self.sigma) - 2, math.ceil(40 * self.sigma) + 3)
        weights = np.exp(-(span.astype(np.float64) ** 2) / (2 * float(self.variance)))
        half = weights[span >= 0] * np.where(span[span >= 0] == 0, 1, 2)
        return int(np.searchsorted(np.cumsum(half) / half.sum(), level * (1 - 1e-12)))

    def tail(self, coefficients: Reals, beyond: Reals) -> Reals:
        r"""Return P(\|Σ aᵢXᵢ\| > w) for independent normal variables of this σ."""
        spread = np.sqrt(np.sum(np.square(coefficients), axis=0)) * self.sigma
        return np.asarray(erfc(np.maximum(beyond, 0.0) / (spread * math.sqrt(2))))


Noise = LaplaceNoise | GaussianNoise


@lru_cache(maxsize=256)
def reach_of(noise: Noise, coefficients: tuple[float, ...], level: float) -> float:
    r"""Return a w with P(\|Σ aᵢZᵢ\| ≤ w) ≥ level: the continuous one plus :math:`\sum_i |a_i|`.

    Discrete Laplace Z and Laplace X are within 1 of each other if both are functions of the same
    uniform number: :math:`Z \ge k` exactly if :math:`X \ge k - b\ln\frac{2}{1 + r}`, where
    :math:`r = e^{-1/b}`, and that shift is between 0 and ½.
    """
    factors = np.array([factor for factor in coefficients if factor])
    size = float(np.abs(factors).sum())
    if len(factors) == 1:
        return size * noise.reach(level)
    low, high = 0.0, size * noise.reach(1 - (1 - level) / 10)
    for _ in range(60):
        middle = (low + high) / 2
        if float(noise.tail(factors, np.array(middle))) > 1 - level:
            low = middle
        else:
            high = middle
    return high + size


def _too_wide(name: str, most: str, value: float) -> None:
    remedy = "Use a larger budget, or fewer rows and groups per person."
    errors.refuse("curator", name, f"at most {most}", value, remedy)
