r"""The exact privacy profile of Gaussian noise, continuous and discrete.

Roots are searched for in floats and then certified: at the returned point, a ball that contains the
exact δ lies at or below the requested δ.

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
from flint import arb
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from tacit.privacy import rounding

_LARGEST_EXACT_SIGMA = 2**14
_LARGEST_EXACT_SENSITIVITY = 64


@rounding.precision()
def delta_of(noise_multiplier: rounding.Real, epsilon: float) -> float:
    r"""Return the smallest δ at ε of Gaussian noise with multiplier z [BW18]_, rounded up.

    .. math:: \delta = \Phi\!\left(\tfrac{1}{2z} - \varepsilon z\right)
              - e^\varepsilon \Phi\!\left(-\tfrac{1}{2z} - \varepsilon z\right)
    """
    # δ decreases in both, so their smaller readings are used.
    z, loss = rounding.low(noise_multiplier), rounding.low(epsilon)
    half, shift = 1 / (2 * z), loss * z
    tails = [rounding.normal_below(half - shift), rounding.normal_below(-half - shift)]
    return max(rounding.above(tails[0] - loss.exp() * tails[1]), 0.0)


def epsilon_of(noise_multiplier: rounding.Real, delta: float) -> float:
    """Return the smallest ε at δ of Gaussian noise with this multiplier, rounded up."""
    z = float(noise_multiplier)
    return smallest_epsilon(
        lambda epsilon: _rough_delta(z, epsilon),
        lambda epsilon: delta_of(noise_multiplier, epsilon),
        delta,
    )


def noise_multiplier_for(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier that gives (ε, δ), rounded up."""
    return root_from_above(
        lambda multiplier: _rough_delta(multiplier, epsilon),
        lambda multiplier: delta_of(multiplier, epsilon),
        delta,
    )


def _rough_delta(noise_multiplier: float, epsilon: float) -> float:
    """Compute `delta_of` in floats, to search for a root."""
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


def discrete_delta_of(variance: Fraction, sensitivity: int, epsilon: float) -> float:
    r"""Return the smallest δ at ε of one-dimensional discrete Gaussian noise, rounded up.

    By [CKS20]_, Theorem 7. For a shift s the loss exceeds ε exactly where
    :math:`k > \varepsilon\sigma^2/s - s/2`; the largest value over the shifts 1, …, Δ is returned.
    Both ε and σ² are rational, so the first such k is known exactly.
    """
    # What is taken away is multiplied by e^ε, and with it what was rounded off.
    with rounding.precision(128 + min(math.ceil(1.5 * epsilon), 4096)):
        return _discrete_delta_of(variance, sensitivity, rounding.least(epsilon))


def _discrete_delta_of(variance: Fraction, sensitivity: int, loss: Fraction) -> float:
    shifts = range(1, sensitivity + 1)
    firsts = [math.floor(loss * variance / s - Fraction(s, 2)) + 1 for s in shifts]
    start = firsts[-1]  # the smallest of them
    sums, whole, rest = _running_sums(variance, start, sensitivity)

    def excess(k: int, shift: int) -> arb:
        """Sum p(j) − e^ε p(j + s) from k on; beyond `whole`, without the subtracted part."""
        end = max(whole, k)
        return between(k, end) - odds * between(k + shift, end + shift) + rest

    def between(first: int, end: int) -> arb:
        return sums[end - start] - sums[first - start] if end > first else arb(0)

    odds = rounding.low(loss).exp()
    largest = max(excess(k, s).upper() for k, s in zip(firsts, shifts, strict=True))
    scale = rounding.low(Fraction(start**2) / (-2 * variance)).exp() / _mass(variance)
    return max(rounding.above(largest * scale), 0.0)


def _running_sums(variance: Fraction, start: int, more: int) -> tuple[list[arb], int, arb]:
    r"""Sum :math:`e^{-(k^2 - start^2)/2\sigma^2}` from start up to, not including, each k.

    Each term is the one before times a ratio that falls by :math:`e^{-1/\sigma^2}` every time, so a
    geometric series bounds what lies beyond the second value returned; `more` terms follow.
    """
    ratio = rounding.low(Fraction(-(2 * start + 1)) / (2 * variance)).exp()
    shrink = rounding.low(-1 / variance).exp()
    term, total, least, sums = arb(1), arb(0), arb(2) ** -90, [arb(0)]

    def add(count: int) -> None:
        nonlocal term, total, ratio
        for _ in range(count):
            total += term
            sums.append(total)
            term *= ratio
            ratio *= shrink

    while not (ratio < 1 and term < least * total * (1 - ratio)):
        add(32)
    whole, rest = start + len(sums) - 1, term / (1 - ratio)
    add(more)
    return sums, whole, rest


def _mass(variance: Fraction) -> arb:
    r"""Bound :math:`\sum_k e^{-k^2/2\sigma^2}` from below, by leaving out positive terms.

    For large σ, Poisson summation is used: :math:`\sigma\sqrt{2\pi}\sum_m e^{-2\pi^2\sigma^2m^2}`.
    """
    sigma2 = rounding.low(variance)
    if variance < 1:
        return 1 + 2 * sum(((-arb(k * k) / (2 * sigma2)).exp() for k in range(1, 16)), arb(0))
    rate = 2 * arb.pi() ** 2 * sigma2
    waves = sum(((-rate * (m * m)).exp() for m in range(1, 4)), arb(0))
    return (2 * arb.pi() * sigma2).sqrt() * (1 + 2 * waves)


def discrete_is_exact(variance: Fraction, squared_sensitivity: Fraction, dimension: int) -> bool:
    """Return whether `discrete_delta_of` applies: one dimension, and small enough to sum up."""
    root = math.isqrt(int(squared_sensitivity))
    return (
        dimension == 1
        and root**2 == squared_sensitivity
        and root <= _LARGEST_EXACT_SENSITIVITY
        and variance <= _LARGEST_EXACT_SIGMA**2
    )


@lru_cache(maxsize=256)
def discrete_epsilon_of(variance: Fraction, sensitivity: int, delta: float) -> float:
    """Return the smallest ε at δ of one-dimensional discrete Gaussian noise, rounded up."""
    return smallest_epsilon(
        lambda epsilon: _rough_discrete_delta(variance, sensitivity, epsilon),
        lambda epsilon: discrete_delta_of(variance, sensitivity, epsilon),
        delta,
    )


def discrete_sigma_for(epsilon: float, delta: float, sensitivity: int) -> float:
    """Find the smallest sigma of one-dimensional discrete Gaussian noise that gives (ε, δ)."""
    return root_from_above(
        lambda sigma: _rough_discrete_delta(Fraction(repr(sigma)) ** 2, sensitivity, epsilon),
        lambda sigma: discrete_delta_of(Fraction(repr(sigma)) ** 2, sensitivity, epsilon),
        delta,
    )


def _rough_discrete_delta(variance: Fraction, sensitivity: int, epsilon: float) -> float:
    """Compute `discrete_delta_of` in floats, to search for a root."""
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


@lru_cache(maxsize=8)
def _log_tails(variance: Fraction, sensitivity: int) -> tuple[int, np.ndarray]:
    """Return the logarithm of P(K ≥ k) for k = −reach, …, reach."""
    reach = math.ceil(40 * math.sqrt(variance)) + sensitivity + 2
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    log_mass = -(k**2) / float(2 * variance)
    tails = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    return reach, tails - tails[0]


Profile = Callable[[float], float]


def smallest_epsilon(rough: Profile, certain: Profile, delta: float) -> float:
    """Return the smallest ε at which a profile is at most δ, rounded up."""
    start = rough(0.0)
    if start <= delta * (1 + 1e-6) and certain(0.0) <= delta:
        return 0.0
    if start > delta:
        return root_from_above(rough, certain, delta)
    return certified(rough, certain, delta, 1e-12)


def root_from_above(rough: Profile, certain: Profile, delta: float) -> float:
    """Find where a decreasing profile reaches δ, with one function, and certify it with another."""
    lower, upper = 0.0, 1.0
    while rough(upper) > delta:
        lower, upper = upper, 2 * upper
    while lower == 0.0 and rough(upper / 2) <= delta:
        upper /= 2
    lower = lower or upper / 2
    # The logarithm covers twenty orders of magnitude.
    target = math.log(delta)
    root = brentq(
        lambda x: math.log(max(rough(x), 1e-320)) - target, lower, upper, xtol=1e-14 * upper
    )
    return certified(rough, certain, delta, float(root))


def certified(rough: Profile, certain: Profile, delta: float, root: float) -> float:
    """Return the root, or increase it along the rough slope until δ is certified."""
    step = 1e-15
    while (reached := certain(root)) > delta:
        further = root * (1 + 1e-6)
        fall = math.log(max(rough(root), 1e-320) / max(rough(further), 1e-320))
        missing = 1e-6 * root * math.log(reached / delta) / fall if fall > 0 else 0.0
        # In small steps where the slope says little: a profile may have flat parts.
        root += min(1.01 * missing, 0.05 * root) + step * root
        step *= 2
    return root
