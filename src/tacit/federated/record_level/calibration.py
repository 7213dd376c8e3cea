"""Calibration of a silo's gradient noise, which shares its budget with private statistics.

A node of a deployment is a new process for every message, so calibration has to be quick: it
evaluates the privacy loss distribution only a few times, near the noise that the much cheaper Rényi
accountant suggests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tacit.privacy import events, gaussian
from tacit.privacy.accounting import calibration, plans, privacy_loss
from tacit.privacy.accounting.plans import SampledGaussian
from tacit.privacy.guarantees import Adjacency, Unit

_SCOPE: Any = {"adjacency": Adjacency.ZERO_OUT, "unit": Unit.RECORD}


@lru_cache(maxsize=256)
def gradient_multiplier(
    epsilon: float, delta: float, share: float, threshold: int, steps: int, accountant: str
) -> float:
    """Compute the noise multiplier of gradients that share (ε, δ) with private statistics.

    Parameters
    ----------
    epsilon, delta : float
        The budget of both together.
    share : float
        Share of the budget that the statistics get, in [0, 1).
    threshold : int
        The sampling probability, in multiples of 2^-32.
    steps : int
        Number of gradients in all rounds together.
    accountant : {"pld", "rdp"}
        Accountant to calibrate with.

    Notes
    -----
    Results are cached: silos of equal size need the same noise.
    """
    beside = None
    if share:
        z = rounded_up(gaussian.noise_multiplier_for(epsilon, delta) / math.sqrt(share))
        beside = events.Gaussian(Fraction(1), z, **_SCOPE)
    q = threshold / plans.WORDS

    def calibrated(by: str) -> float:
        return calibration.noise_multiplier_for(
            epsilon, delta, sampling_probability=q, steps=steps, accountant=by, beside=beside
        )

    def excess(log_multiplier: float, spent: Callable[..., float]) -> float:
        multiplier = Fraction(math.exp(log_multiplier))
        run = SampledGaussian(1, threshold, steps, multiplier).event(Unit.RECORD)
        event = run if beside is None else events.Composed((beside, run))
        return math.log(max(spent(event, delta), 1e-12) / epsilon)

    if accountant == "rdp" or (q == 1 and beside is None):
        return calibrated(accountant)
    start = math.log(calibrated("rdp"))
    slope = excess(start + 0.05, privacy_loss.epsilon_rdp) / 0.05
    near = _secant(lambda at: excess(at, privacy_loss.epsilon_pld_or_rdp), start, slope)
    return calibrated(accountant) if near is None else math.exp(near)


def rounded_up(multiplier: float) -> Fraction:
    """Round up to a short fraction, which a certificate can state exactly."""
    return Fraction(math.ceil(multiplier * 2**20), 2**20)


def _secant(excess: Callable[[float], float], start: float, slope: float) -> float | None:
    """Find where a decreasing function is in [−5e-4, 0]; None if that takes too many steps."""
    now, value = start, excess(start)
    for _ in range(6):
        if -5e-4 <= value <= 0:
            return now
        then = now - (value + 2e-4) / min(max(slope, -6.0), -0.2)
        before, value = value, excess(then)
        slope, now = (value - before) / (then - now), then
    return None
