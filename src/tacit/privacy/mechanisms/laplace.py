r"""Laplace noise on the integers, and on real numbers through a grid.

References
----------
.. [DMNS06] Dwork, McSherry, Nissim, Smith. Calibrating noise to sensitivity. TCC 2006.
.. [GRS09] Ghosh, Roughgarden, Sundararajan. Universally utility-maximizing privacy mechanisms.
   STOC 2009 (the geometric mechanism).
.. [Mir12] Mironov. On significance of the least significant bits for differential privacy.
   CCS 2012 (why floating-point Laplace noise is not private).
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
from tacit.privacy.mechanisms.base import ThroughNoise
from tacit.privacy.randomness import Randomness, discrete_laplace, source
from tacit.privacy.shown import Shown

_LARGEST_SCALE = 2**50


@dataclass(frozen=True, kw_only=True, repr=False)
class DiscreteLaplace(Shown):
    r"""Integers plus two-sided geometric noise.

    .. math:: P(y \mid x) = \tanh\!\left(\frac{1}{2t}\right) e^{-|y - x|/t}, \qquad
              t = \Delta_1 / \varepsilon

    Parameters
    ----------
    epsilon : float
        Privacy parameter of the whole released array.
    sensitivity : int
        ℓ1 sensitivity: the most by which the whole array can differ between neighbours.
    adjacency, unit
        The neighbours that the sensitivity was worked out for.

    Notes
    -----
    ε-DP: for every y the exponents differ by at most Δ₁/t = ε and the normaliser does not depend
    on x. The noise is drawn exactly; ε is read as the decimal that was written (0.1 is 1/10).

    Examples
    --------
    >>> count = DiscreteLaplace(epsilon=0.5, sensitivity=1, adjacency="replace-one")
    >>> print(count.guarantee)
    0.5-DP (central, replace-one, unit: record)
    """

    epsilon: float | Fraction
    sensitivity: int
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        _ = self.event

    @cached_property
    def event(self) -> events.Laplace:
        epsilon = errors.epsilon_in_range("DiscreteLaplace", self.epsilon)
        sensitivity = errors.whole("DiscreteLaplace", "sensitivity", self.sensitivity, least=1)
        scale = sensitivity / epsilon
        if scale > _LARGEST_SCALE:
            errors.refuse(
                "DiscreteLaplace",
                "sensitivity / epsilon",
                "at most 2^50",
                float(scale),
                "Use a coarser grid or a larger epsilon.",
            )
        return events.Laplace(
            Fraction(sensitivity), scale, adjacency=self.adjacency, unit=self.unit
        )

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Add independent noise to every entry of the array."""
        values = errors.held_integers("DiscreteLaplace", raw)
        noise = discrete_laplace(self.event.scale, values.size, source(rng))
        return values + noise.reshape(values.shape)

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        """Compute the log-probability of each entry; sum them for the whole array."""
        # Released values may lie farther from zero than raw ones may.
        difference = errors.integers("log_prob", released, lower=-(2**62), upper=2**62)
        difference = difference - errors.held_integers("log_prob", raw)
        return log_mass(self.event.scale, difference)


@dataclass(frozen=True, kw_only=True, repr=False)
class Geometric(ThroughNoise):
    r"""A count in a public range plus two-sided geometric noise, clamped to the range [GRS09]_.

    Notes
    -----
    ε-DP, by post-processing of `DiscreteLaplace`: what falls outside is clamped to the end of the
    range, never renormalised (a normaliser that depends on the data is not paid for). Raw values
    outside the range are clamped first.
    """

    epsilon: float
    lower: int
    upper: int
    sensitivity: int = 1
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        largest = errors.LARGEST_INTEGER
        lower = errors.whole("Geometric", "lower", self.lower, least=-largest)
        upper = errors.whole("Geometric", "upper", self.upper, least=lower + 1)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        super().__post_init__()

    @cached_property
    def _noise(self) -> DiscreteLaplace:
        return DiscreteLaplace(
            epsilon=self.epsilon,
            sensitivity=self.sensitivity,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    @property
    def event(self) -> events.Laplace:
        return self._noise.event

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        values = self._clamp(errors.held_integers("Geometric", raw))
        return self._clamp(self._noise.release(values, rng))

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        y = errors.integers("Geometric", released, lower=self.lower, upper=self.upper)
        difference = y - self._clamp(errors.held_integers("Geometric", raw))
        scale = self.event.scale
        inner = log_mass(scale, difference)
        tail = log_tail(scale, np.abs(difference))
        return np.where((y == self.lower) | (y == self.upper), tail, inner)

    def inputs(self) -> range:
        return range(self.lower, self.upper + 1)

    def outputs(self) -> range:
        return range(self.lower, self.upper + 1)

    def adjacent(self, first: int, second: int) -> bool:
        return 0 < abs(first - second) <= self.sensitivity

    def _clamp(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.clip(values, self.lower, self.upper)


@dataclass(frozen=True, kw_only=True, repr=False)
class Laplace(ThroughNoise):
    """Real answers of known ℓ1 sensitivity, on a grid: the central Laplace mechanism [DMNS06]_.

    Parameters
    ----------
    epsilon, adjacency, unit
        As in `DiscreteLaplace`.
    sensitivity : float
        ℓ1 sensitivity of the real answers.
    dimension : int
        Number of entries that are released together.
    grid : float, optional
        A power of two; by default about a thousandth of the noise.

    Notes
    -----
    Rounding d entries to the grid adds less than d steps to the ℓ1 distance of neighbours: the
    integers have sensitivity ⌈Δ/grid + d⌉ − 1 and get exact discrete noise. ε-DP.
    """

    epsilon: float
    sensitivity: float
    dimension: int = 1
    grid: float | None = None
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    @cached_property
    def step(self) -> float:
        """The grid step in use."""
        sensitivity = errors.positive("Laplace", "sensitivity", self.sensitivity)
        if self.grid is not None:
            return bounding.power_of_two("Laplace", "grid", self.grid)
        spread = float(sensitivity / errors.epsilon_in_range("Laplace", self.epsilon))
        return bounding.power_of_two("Laplace", "grid", bounding.grid_for(spread))

    @cached_property
    def _noise(self) -> DiscreteLaplace:
        sensitivity = errors.positive("Laplace", "sensitivity", self.sensitivity)
        dimension = errors.whole("Laplace", "dimension", self.dimension, least=1)
        return DiscreteLaplace(
            epsilon=self.epsilon,
            sensitivity=math.ceil(sensitivity / Fraction(self.step) + dimension) - 1,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    @property
    def event(self) -> events.Laplace:
        return self._noise.event

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.float64]:
        return self._noise.release(self._steps(raw), rng).astype(np.float64) * self.step

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        """Compute the log-probability of each entry; sum them for the whole array."""
        released = errors.reals("Laplace", released) / self.step
        return self._noise.log_prob(released, self._steps(raw))

    def _steps(self, raw: Any) -> npt.NDArray[np.int64]:
        steps = bounding.quantize(raw, self.step, "Laplace")
        if steps.size != self.dimension:
            raise errors.InvalidData(
                f"Laplace: data must have {self.dimension} entries, got shape {steps.shape}. "
                "Set dimension to the number of entries released together."
            )
        return steps


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalLaplace(bounding.ClippedVector):
    """A person's own vector, ℓ1-clipped, with noise for any two inputs: ε-local DP.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one vector.
    radius : float
        Vectors are scaled into the ℓ1 ball of this radius.
    grid : float, optional
        A power of two; by default about a thousandth of the noise.

    Notes
    -----
    The vector is put on the grid, clipped in integers to ⌊radius/grid⌋ steps, and gets exact
    discrete Laplace noise of scale 2⌊radius/grid⌋/ε steps. The last axis of the data is the
    vector; the other axes are different people.
    """

    epsilon: float
    radius: float
    grid: float | None = None
    unit: Unit = Unit.RECORD

    @cached_property
    def ball(self) -> bounding.GridBall:
        """The grid and the ball that vectors are clipped to."""
        return bounding.GridBall("LocalLaplace", self.radius, self.grid, order=1)

    @cached_property
    def _noise(self) -> DiscreteLaplace:
        return DiscreteLaplace(
            epsilon=self.epsilon,
            sensitivity=2 * self.ball.radius_steps,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    @property
    def event(self) -> events.Laplace:
        return self._noise.event


def log_mass(scale: Fraction, difference: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Compute ln P(noise = difference)."""
    rate = float(1 / scale)
    return np.asarray(math.log(math.tanh(rate / 2)) - np.abs(difference) * rate)


def log_tail(scale: Fraction, k: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    r"""Compute ln P(noise ≥ k): :math:`r^k/(1+r)` for k ≥ 0, one minus that at 1 − k below."""
    rate = float(1 / scale)
    distance = np.where(k >= 0, k, 1 - k)
    upper = -distance * rate - math.log1p(math.exp(-rate))
    return np.where(k >= 0, upper, np.log1p(-np.exp(np.where(k >= 0, -1.0, upper))))
