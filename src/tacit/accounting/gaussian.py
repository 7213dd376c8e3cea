r"""The exact privacy profile of Gaussian noise, continuous and discrete.

References
----------
.. [BW18] Balle, Wang. Improving the Gaussian mechanism for differential privacy: analytical
   calibration and optimal denoising. ICML 2018.
.. [CKS20] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

_ROUND_UP = 1 + 1e-12
_LARGEST_EXACT_SIGMA = 2**14
_LARGEST_EXACT_SENSITIVITY = 64


def delta_of(noise_multiplier: float, epsilon: float) -> float:
    r"""Smallest δ at ε of Gaussian noise with multiplier z [BW18]_.

    .. math:: \delta = \Phi\!\left(\tfrac{1}{2z} - \varepsilon z\right)
              - e^\varepsilon \Phi\!\left(-\tfrac{1}{2z} - \varepsilon z\right)
    """
    half = 0.5 / noise_multiplier
    if half < 1e-3:
        t = epsilon * noise_multiplier
        mills = math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))
        slope = t * mills - 1
        third = 2 * slope + t * (mills + t * slope)
        density = math.exp(-((t - half) ** 2) / 2) / math.sqrt(2 * math.pi)
        return density * max(-2 * half * slope - half**3 / 3 * third, 0.0)
    first = float(log_ndtr(half - epsilon * noise_multiplier))
    second = epsilon + float(log_ndtr(-half - epsilon * noise_multiplier))
    return math.exp(first) * max(-math.expm1(min(second - first, 0.0)), 0.0)


def epsilon_of(noise_multiplier: float, delta: float) -> float:
    """Smallest ε at δ of Gaussian noise with this multiplier, rounded up."""
    if delta_of(noise_multiplier, 0.0) <= delta:
        return 0.0
    return _root_from_above(lambda epsilon: delta_of(noise_multiplier, epsilon), delta)


def noise_multiplier_for(epsilon: float, delta: float) -> float:
    """Smallest noise multiplier that gives (ε, δ), rounded up."""
    return _root_from_above(lambda multiplier: delta_of(multiplier, epsilon), delta)


def discrete_delta_of(variance: Fraction, sensitivity: int, epsilon: float) -> float:
    r"""Smallest δ at ε of one-dimensional discrete Gaussian noise [CKS20]_, Theorem 7.

    For a shift s the loss exceeds ε exactly where :math:`k > \varepsilon\sigma^2/s - s/2`; the
    largest value over the shifts 1, …, Δ is returned.
    """
    reach, tails = _log_tails(variance, sensitivity)

    def log_above(cut: float) -> float:
        if cut >= reach:
            return -math.inf
        return float(tails[max(math.floor(cut) + 1 + reach, 0)])

    def at_shift(shift: int) -> float:
        cut = epsilon * float(variance) / shift - shift / 2
        first = log_above(cut)
        if first == -math.inf:
            return 0.0
        second = epsilon + log_above(cut + shift)
        return math.exp(first) * -math.expm1(min(second - first, 0.0))

    return max(at_shift(shift) for shift in range(1, sensitivity + 1))


def discrete_is_exact(variance: Fraction, squared_sensitivity: Fraction, dimension: int) -> bool:
    """Whether `discrete_delta_of` applies: one dimension, and small enough to sum up."""
    root = math.isqrt(int(squared_sensitivity))
    return (
        dimension == 1
        and root**2 == squared_sensitivity
        and root <= _LARGEST_EXACT_SENSITIVITY
        and variance <= _LARGEST_EXACT_SIGMA**2
    )


def discrete_epsilon_of(variance: Fraction, sensitivity: int, delta: float) -> float:
    """Smallest ε at δ of one-dimensional discrete Gaussian noise, rounded up."""
    if discrete_delta_of(variance, sensitivity, 0.0) <= delta:
        return 0.0
    return _root_from_above(
        lambda epsilon: discrete_delta_of(variance, sensitivity, epsilon), delta
    )


def discrete_sigma_for(epsilon: float, delta: float, sensitivity: int) -> float:
    """Smallest deviation of one-dimensional discrete Gaussian noise that gives (ε, δ)."""
    return _root_from_above(
        lambda sigma: discrete_delta_of(Fraction(repr(sigma)) ** 2, sensitivity, epsilon), delta
    )


@lru_cache(maxsize=8)
def _log_tails(variance: Fraction, sensitivity: int) -> tuple[int, np.ndarray]:
    """Logarithm of P(K ≥ k) for k = −reach, …, reach."""
    reach = math.ceil(40 * math.sqrt(variance)) + sensitivity + 2
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    log_mass = -(k**2) / float(2 * variance)
    tails = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    return reach, tails - tails[0]


def _root_from_above(delta_at: Callable[[float], float], delta: float) -> float:
    """Where a decreasing profile reaches δ, on the safe side."""
    lower, upper = 0.0, 1.0
    while delta_at(upper) > delta:
        lower, upper = upper, 2 * upper
    while lower == 0.0 and delta_at(upper / 2) <= delta:
        upper /= 2
    lower = lower or upper / 2
    # The logarithm keeps both ends of twenty orders of magnitude in view.
    target = math.log(delta)
    root = brentq(
        lambda x: math.log(max(delta_at(x), 1e-320)) - target, lower, upper, xtol=1e-14 * upper
    )
    root = float(root) * _ROUND_UP
    while delta_at(root) > delta:
        root *= _ROUND_UP
    return root
