r"""Gaussian noise on the integers: discrete, and the analytic Gaussian mechanism rounded.

References
----------
.. [CKS20] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020.
.. [BW18] Balle, Wang. Improving the Gaussian mechanism for differential privacy. ICML 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp

from tacit.privacy import errors, events
from tacit.privacy import gaussian as profile
from tacit.privacy.accounting.calibration import concentration_for
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, Unit
from tacit.privacy.mechanisms import bounding
from tacit.privacy.randomness import Randomness, discrete_gaussian, rounded_gaussian, source
from tacit.privacy.shown import Shown

_LARGEST_SIGMA = 2**45
_WIDE = 1e3


@dataclass(frozen=True, kw_only=True, repr=False)
class DiscreteGaussian(Shown):
    r"""Integers plus discrete Gaussian noise [CKS20]_.

    .. math:: P(y \mid x) \propto e^{-(y - x)^2 / (2\sigma^2)} \text{ on the integers}

    Parameters
    ----------
    sensitivity : int
        ℓ2 sensitivity of the entries that are released together.
    sigma : float, optional
        Give either this (the guarantee is then ρ = Δ²/(2σ²) of zCDP) …
    epsilon, delta : float, optional
        … or these two (σ is then the smallest that gives (ε, δ)).
    dimension : int, optional
        Number of entries released together, the last axis of the data; further axes are separate
        runs, each of which costs the guarantee. One entry is accounted exactly. Without it the
        whole array is released together, and more than one entry go through zCDP.
    adjacency, unit
        The neighbours that the sensitivity was worked out for.
    """

    sensitivity: int
    sigma: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    dimension: int | None = None
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        _ = self.event
        _freeze_target(self)

    @cached_property
    def event(self) -> events.DiscreteGaussian:
        name = "DiscreteGaussian"
        sensitivity = errors.whole(name, "sensitivity", self.sensitivity, least=1)
        dimension = 0
        if self.dimension is not None:
            dimension = errors.whole(name, "dimension", self.dimension, least=1)
        target = _target(name, self.sigma, self.epsilon, self.delta)
        if isinstance(target, Fraction):
            variance = target**2
        else:
            variance = _variance_for(*target, sensitivity, dimension)
        _check_sigma(name, math.sqrt(variance))
        return events.DiscreteGaussian(
            Fraction(sensitivity**2), variance, dimension, adjacency=self.adjacency, unit=self.unit
        )

    @property
    def guarantee(self) -> Guarantee:
        return _stated(self.event, self.epsilon, self.delta)

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Add independent noise to every entry of the array."""
        values = errors.held_integers("DiscreteGaussian", raw)
        entries = values.shape[-1] if values.ndim else 1
        if self.dimension not in (None, entries):
            raise errors.InvalidData(
                f"DiscreteGaussian: data must have {self.dimension} entries along the last axis, "
                f"got shape {values.shape}."
            )
        noise = discrete_gaussian(self.event.variance, values.size, source(rng))
        return values + noise.reshape(values.shape)

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        """Compute the log-probability of each entry; sum them for the whole array."""
        width = float(2 * self.event.variance)
        return -(_difference(released, raw) ** 2) / width - self._log_normaliser

    @cached_property
    def _log_normaliser(self) -> float:
        variance = float(self.event.variance)
        if variance > 1e4:
            # Poisson summation: the sum is √(2πσ²) up to a factor 1 + 2 exp(−2π²σ²).
            return 0.5 * math.log(2 * math.pi * variance)
        k = np.arange(-4100, 4101, dtype=np.float64)
        return float(logsumexp(-(k**2) / (2 * variance)))


@dataclass(frozen=True, kw_only=True, repr=False)
class Gaussian(Shown):
    r"""Integers plus a normal variable, rounded: the analytic Gaussian mechanism [BW18]_.

    .. math:: P(y \mid x) = \Phi\!\left(\frac{y - x + 1/2}{\sigma}\right)
                          - \Phi\!\left(\frac{y - x - 1/2}{\sigma}\right)

    Parameters are those of `DiscreteGaussian`, without `dimension`: the guarantee is the same in
    every dimension.

    Notes
    -----
    As x is an integer, the release is the nearest integer to x + N(0, σ²): post-processing of the
    continuous mechanism, whose profile is exact. The rounding is decided exactly (see
    `tacit.randomness.rounded_gaussian`), so no floating-point draw is ever released.
    """

    sensitivity: float
    sigma: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        _ = self.event
        _freeze_target(self)

    @cached_property
    def event(self) -> events.Gaussian:
        sensitivity = errors.positive("Gaussian", "sensitivity", self.sensitivity)
        target = _target("Gaussian", self.sigma, self.epsilon, self.delta)
        if isinstance(target, Fraction):
            sigma = target
        else:
            sigma = sensitivity * Fraction(repr(profile.noise_multiplier_for(*target)))
        _check_sigma("Gaussian", float(sigma))
        return events.Gaussian(sensitivity, sigma, adjacency=self.adjacency, unit=self.unit)

    @property
    def guarantee(self) -> Guarantee:
        return _stated(self.event, self.epsilon, self.delta)

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Add independent noise to every entry of the array."""
        values = errors.held_integers("Gaussian", raw)
        noise = rounded_gaussian(self.event.sigma, values.size, source(rng))
        return values + noise.reshape(values.shape)

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        """Compute the log-probability of each entry; sum them for the whole array."""
        distance = np.abs(_difference(released, raw))
        sigma = float(self.event.sigma)
        if sigma > _WIDE:
            # The density at the middle of the cell, and its curvature there.
            z = distance / sigma
            bend = np.log1p((z**2 - 1) / (24 * sigma**2))
            return np.asarray(-(z**2) / 2 - math.log(sigma * math.sqrt(2 * math.pi)) + bend)
        # Both ends in the lower tail, where the logarithm is accurate.
        near = log_ndtr((0.5 - distance) / sigma)
        far = log_ndtr((-0.5 - distance) / sigma)
        return np.asarray(near + np.log(-np.expm1(far - near)))


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalGaussian(bounding.ClippedVector):
    """A person's own vector, ℓ2-clipped, with noise for any two inputs: (ε, δ)-local DP.

    The sibling of `LocalLaplace`: put on the grid, clipped in integers to ⌊radius/grid⌋ steps, then
    the rounded analytic Gaussian. The last axis of the data is the vector.
    """

    epsilon: float
    delta: float
    radius: float
    grid: float | None = None
    unit: Unit = Unit.RECORD

    @cached_property
    def ball(self) -> bounding.GridBall:
        """The grid and the ball that vectors are clipped to."""
        return bounding.GridBall("LocalGaussian", self.radius, self.grid, order=2)

    @cached_property
    def _noise(self) -> Gaussian:
        return Gaussian(
            sensitivity=2 * self.ball.radius_steps,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    @property
    def event(self) -> events.Gaussian:
        return self._noise.event


def _target(
    where: str, sigma: float | None, epsilon: float | None, delta: float | None
) -> Fraction | tuple[float, float]:
    """Check that either σ or the pair (ε, δ) is given."""
    if sigma is not None and epsilon is None and delta is None:
        return errors.positive(where, "sigma", sigma)
    if sigma is None and epsilon is not None and delta is not None:
        return (
            float(errors.epsilon_in_range(where, epsilon)),
            errors.delta_in_range(where, delta),
        )
    errors.refuse(
        where, "noise", "given as sigma, or as epsilon and delta", (sigma, epsilon, delta)
    )


def _variance_for(epsilon: float, delta: float, sensitivity: int, dimension: int) -> Fraction:
    """Compute the smallest variance for (ε, δ): exactly for one entry, else through zCDP."""
    squared = Fraction(sensitivity**2)
    through_zcdp = squared / (2 * Fraction(repr(concentration_for(epsilon, delta))))
    if not profile.discrete_is_exact(through_zcdp, squared, dimension):
        return through_zcdp
    return Fraction(repr(profile.discrete_sigma_for(epsilon, delta, sensitivity))) ** 2


def _freeze_target(mechanism: DiscreteGaussian | Gaussian) -> None:
    """Store ε and δ as floats: the objects that were passed in may change later."""
    for name in ("epsilon", "delta"):
        if (value := getattr(mechanism, name)) is not None:
            number = float(errors.rational(type(mechanism).__name__, name, value))
            object.__setattr__(mechanism, name, number)


def _stated(event: events.Leaf, epsilon: float | None, delta: float | None) -> Guarantee:
    """State the requested (ε, δ), which the calibration meets, else the natural guarantee."""
    if epsilon is None or delta is None:
        return event.guarantee_at()
    return ApproxDP(epsilon=epsilon, delta=delta, **event.scope)


def _check_sigma(where: str, sigma: float) -> None:
    if not sigma <= _LARGEST_SIGMA:
        errors.refuse(where, "sigma", "at most 2^45", sigma, "Use a coarser grid.")


def _difference(released: Any, raw: Any) -> npt.NDArray[np.float64]:
    y = errors.integers("log_prob", released, lower=-(2**62), upper=2**62)
    return (y - errors.held_integers("log_prob", raw)).astype(np.float64)
