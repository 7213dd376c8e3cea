r"""Noise scaled to the actual data: smooth bounds of the local sensitivity.

References
----------
.. [NRS07] Nissim, Raskhodnikova, Smith. Smooth sensitivity and sampling in private data analysis.
   STOC 2007.
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
from tacit.privacy.mechanisms.laplace import log_mass
from tacit.privacy.randomness import Randomness, discrete_laplace, source
from tacit.privacy.shown import Shown

_SMALLEST_BOUND = 1e-250
"""A lower limit for every data set, so that the bound stays smooth where e^{−βk} underflows."""

_LARGEST_SCALE = 2**50

_SLACK = 1e-12
"""Far above the rounding error of a bound that is computed in floats."""


def smooth_bound(sensitivity_at_distance: Any, beta: float) -> float:
    r"""Return :math:`S = \max_k e^{-\beta k} A_k`.

    A_k is the largest local sensitivity within distance k.

    It is β-smooth if the list goes to the largest distance there is, as A_k(x) ≤ A_{k+1}(x').
    """
    beta = float(errors.positive("smooth_bound", "beta", beta))
    at_distance = errors.reals("smooth_bound", sensitivity_at_distance)
    if at_distance.ndim != 1 or bool(np.any(at_distance < 0)):
        raise errors.InvalidData("smooth_bound: sensitivities must be a list of numbers ≥ 0.")
    largest = float(np.max(at_distance * np.exp(-beta * np.arange(at_distance.size))))
    return max(largest, _SMALLEST_BOUND)


def median_sensitivities(raw: Any, lower: int, upper: int) -> npt.NDArray[np.int64]:
    r"""Return A_k of the median of integers in a public range, k = 0, …, n [NRS07]_, section 3.1.

    .. math:: A_k = \max_{0 \le t \le k+1} x_{m+t} - x_{m+t-k-1}

    with the values sorted, m the middle, and the bounds standing in beyond both ends.
    """
    lower = errors.whole("median_sensitivities", "lower", lower, least=-(2**53))
    upper = errors.whole("median_sensitivities", "upper", upper, least=lower + 1)
    if upper - lower > errors.LARGEST_INTEGER:
        errors.refuse("median_sensitivities", "upper - lower", "at most 2^53", upper - lower)
    held = errors.held_integers("median_sensitivities", raw)
    values = np.sort(np.clip(held, lower, upper).ravel())
    size, middle = values.size, (values.size - 1) // 2
    padded = np.concatenate([np.full(size + 2, lower), values, np.full(size + 2, upper)])
    centre = size + 2 + middle
    largest = [
        (padded[centre : centre + k + 2] - padded[centre - k - 1 : centre + 1]).max()
        for k in range(size + 1)
    ]
    return np.array(largest, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, repr=False)
class SmoothLaplace(Shown):
    """Integers plus discrete Laplace noise whose scale follows a smooth bound of the data.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one release.
    adjacency, unit
        The neighbours that the bound was worked out for.

    Notes
    -----
    (ε, δ)-DP for noise of scale S(x)/α with a β-smooth S; half of ε goes into α, the rest fixes β.
    The proof is with `tacit.events.SmoothLaplace`. Work out the bound with
    `smooth_bound(…, beta=mechanism.beta)`.

    Noise is drawn up to a scale of 2^50, which is enough for values at most R = ⌊2^50 α⌋ apart. So
    values are held to ±⌊R/2⌋, where no local sensitivity exceeds R, and the bound to R: its minimum
    with a constant is as smooth as it is. No data are refused for their bound.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        _ = self.event

    @cached_property
    def event(self) -> events.SmoothLaplace:
        epsilon = errors.epsilon_in_range("SmoothLaplace", self.epsilon)
        delta = errors.delta_in_range("SmoothLaplace", self.delta)
        largest = min(math.log1p(float(epsilon) / 2 / math.log(2 / delta)), float(epsilon) / 2)
        # Rounded down: the last digits of the logarithm may be wrong.
        beta = Fraction(repr(largest * (1 - 1e-9)))
        if beta < 1e-9:
            errors.refuse("SmoothLaplace", "epsilon", "large enough for a bound", self.epsilon)
        return events.SmoothLaplace(
            epsilon / 2, beta, delta, adjacency=self.adjacency, unit=self.unit
        )

    @property
    def beta(self) -> float:
        """How fast the bound may change between neighbours."""
        return float(self.event.beta) - _SLACK

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    def release(
        self, raw: Any, rng: Randomness | None = None, *, bound: float
    ) -> npt.NDArray[np.int64]:
        """Release an integer with noise; `bound` is the smooth bound for this data."""
        value = self._held(raw)
        if value.size != 1:
            raise errors.InvalidData(f"SmoothLaplace: data must be one number, got {value.shape}.")
        return value + discrete_laplace(self._scale(bound), 1, source(rng)).reshape(value.shape)

    def log_prob(self, released: Any, raw: Any, *, bound: float) -> npt.NDArray[np.float64]:
        y = errors.integers("log_prob", released, lower=-(2**62), upper=2**62)
        return log_mass(self._scale(bound), y - self._held(raw))

    @property
    def _range(self) -> int:
        """How far apart values may be, by the largest noise that is drawn."""
        return math.floor(_LARGEST_SCALE * self.event.alpha)

    def _held(self, raw: Any) -> npt.NDArray[np.int64]:
        most = self._range // 2
        return np.clip(errors.held_integers("SmoothLaplace", raw), -most, most)

    def _scale(self, bound: float) -> Fraction:
        # The bound is a number of the data: it must not appear in an error, or decide about one.
        try:
            number = float(bound)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0 < number < math.inf:  # no smooth bound of any data
            raise errors.InvalidData("SmoothLaplace: bound must be above 0. Use smooth_bound.")
        held = min(max(number, _SMALLEST_BOUND), float(self._range))
        return min(Fraction(repr(held)) / self.event.alpha, Fraction(_LARGEST_SCALE))
