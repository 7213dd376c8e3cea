"""Gaussian noise, on vectors or on integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tacit.privacy import errors, gaussian, rounding
from tacit.privacy.decimals import above, below
from tacit.privacy.events.base import Leaf
from tacit.privacy.guarantees import ZCDP, ApproxDP, Guarantee
from tacit.privacy.rounding import float_above

__all__ = ["DiscreteGaussian", "Gaussian"]


@dataclass(frozen=True)
class Gaussian(Leaf):
    """Gaussian noise (sigma) on vectors of this ℓ2 sensitivity, possibly post-processed."""

    l2_sensitivity: Fraction
    sigma: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("l2_sensitivity", "sigma")
        if not 1e-6 <= self.sigma / self.l2_sensitivity <= 10**12:
            ratio = float(self.sigma / self.l2_sensitivity)
            errors.refuse("Gaussian", "sigma / l2_sensitivity", "from 1e-6 to 1e12", ratio)

    @property
    def noise_multiplier(self) -> float:
        return float(self.sigma / self.l2_sensitivity)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        if delta is None:
            rho = (self.l2_sensitivity / self.sigma) ** 2 / 2
            return ZCDP(xi=0.0, rho=float_above(rho), **self.scope)
        epsilon = gaussian.epsilon_of(self.sigma / self.l2_sensitivity, delta)
        return ApproxDP(epsilon=epsilon, delta=delta, **self.scope)

    def words(self) -> str:
        return (
            f"Gaussian noise of standard deviation {below(self.sigma)} on numbers that one "
            f"{self.unit} can change by at most {above(self.l2_sensitivity)} (Euclidean "
            f"norm): a noise multiplier of {below(self.sigma / self.l2_sensitivity, 4)}."
        )

    def proves(self, epsilon: float, delta: float) -> bool:
        return gaussian.delta_of(self.sigma / self.l2_sensitivity, epsilon) <= delta


@dataclass(frozen=True)
class DiscreteGaussian(Leaf):
    """Discrete Gaussian noise on integer vectors; `squared_sensitivity` is for the ℓ2 norm.

    `dimension` is 0 if the number of entries is not fixed.
    """

    squared_sensitivity: Fraction
    variance: Fraction
    dimension: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("squared_sensitivity", "variance")
        self._whole("dimension", least=0)

    @property
    def rho(self) -> float:
        return float(self.squared_sensitivity / (2 * self.variance))

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        rho = self.squared_sensitivity / (2 * self.variance)
        concentrated = ZCDP(xi=0.0, rho=float_above(rho), **self.scope)
        if delta is None:
            return concentrated
        if not self._exact:
            return concentrated.at_delta(delta)
        epsilon = gaussian.discrete_epsilon_of(self.variance, self._shift, delta)
        return ApproxDP(epsilon=epsilon, delta=delta, **self.scope)

    def words(self) -> str:
        return (
            f"Discrete Gaussian noise of standard deviation {shown_root(self.variance, below)} on "
            f"whole numbers that one {self.unit} can change by at most "
            f"{shown_root(self.squared_sensitivity, above)} (Euclidean norm)."
        )

    def proves(self, epsilon: float, delta: float) -> bool:
        if not self._exact:
            return False
        return gaussian.discrete_delta_of(self.variance, self._shift, epsilon) <= delta

    @property
    def _exact(self) -> bool:
        """Whether the profile is that of one entry, which is known exactly."""
        return gaussian.discrete_is_exact(self.variance, self.squared_sensitivity, self.dimension)

    @property
    def _shift(self) -> int:
        return math.isqrt(int(self.squared_sensitivity))


def shown_root(square: Fraction, shown: Callable[[float | Fraction], str]) -> str:
    """Write a square root, rounded as `shown` rounds; a rational root is exact."""
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if root**2 == square:
        return shown(root)
    with rounding.precision():
        value = rounding.ball(square).sqrt()
        return shown(rounding.above(value) if shown is above else rounding.below(value))
