r"""The noise that each accountant requires for the same training run.

A run samples every record with probability q in each of T steps and adds Gaussian noise with
multiplier z. All five statements about it are true; they differ in tightness:

======== ===========================================================================
naive    the sum of T steps, each by the exact profile of Gaussian noise, amplified
advanced the best of the sum and two advanced bounds [KOV15]_, on the same steps
zcdp     :math:`\rho = T / 2z^2` [BS16]_: as if every step had read all records
rdp      the Rényi curve of the sampled Gaussian [MTZ19]_
pld      the discretised privacy loss distribution [DGKKM22]_
======== ===========================================================================

The noise is that at which `privacy_loss.compare` gives ε, with its conventions: naive and advanced
spend half of δ on the steps, and advanced spends the other half as its slack.

Notes
-----
A sampled Gaussian has no useful ρ. Its density ratio is :math:`1 - q + q r` with r that of the
Gaussian, so :math:`D_\alpha \ge \frac{1}{\alpha - 1}\ln E[(q r)^\alpha] = \frac{\alpha}{2z^2} +
\frac{\alpha}{\alpha - 1}\ln q`, and the least ρ with :math:`D_\alpha \le \rho\alpha` for all α is
:math:`1 / 2z^2`, as without sampling: zCDP gains nothing from sampling.

The noise of advanced never exceeds that of naive, since the plain sum is one of its three bounds;
with few steps both are the same. The noise of rdp exceeds that of zcdp by at most what its finite
list of orders loses: Rényi divergences are quasi-convex, so :math:`D_\alpha((1-q)Q + qP \| Q) \le
D_\alpha(P \| Q)`. That of pld is the smallest, up to its grid and the tails that it truncates: at a
δ of 1e-10 these can make it larger. Between naive or advanced and zcdp there is no order: the
former use sampling, the latter uses tails. The published code of Jayaraman and Evans counts epochs
instead of steps for naive, advanced and zcdp. That is valid where the batches of an epoch are
disjoint, but not for Poisson samples, where a record may be in every batch.

References
----------
.. [KOV15] Kairouz, Oh, Viswanath. The composition theorem for differential privacy. ICML 2015.
.. [BS16] Bun, Steinke. Concentrated differential privacy. TCC 2016.
.. [MTZ19] Mironov, Talwar, Zhang. Rényi differential privacy of the sampled Gaussian. 2019.
.. [DGKKM22] Doroshenko et al. Connect the dots. PETS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from tacit.privacy import errors, gaussian
from tacit.privacy.accounting import calibration, composition, privacy_loss
from tacit.privacy.accounting.calibration import noise_multiplier_for

NAMES = ("naive", "advanced", "zcdp", "rdp", "pld")
LARGEST = 700.0
"""Largest ε that is calibrated; for a larger ε, this noise is used, which also suffices."""

_ROUND_UP = 1 + 1e-9


def noise_by(
    accountant: str, epsilon: float, delta: float, *, sampling_probability: float, steps: int
) -> float:
    """Find the noise multiplier at which this accountant states at most ε at δ.

    Parameters
    ----------
    accountant : {"naive", "advanced", "zcdp", "rdp", "pld"}
    epsilon, delta : float
        For an ε above 700 the noise is that of 700, which proves more than was requested.
    sampling_probability, steps
        Sampling probability and number of steps of the run.

    Examples
    --------
    >>> from tacit.privacy.accounting.accountants import noise_by
    >>> run = {"sampling_probability": 0.05, "steps": 400}
    >>> [round(noise_by(name, 1.0, 1e-5, **run), 1) for name in ("naive", "zcdp", "rdp")]
    [77.3, 80.9, 4.2]
    """
    errors.choice("noise_by", "accountant", accountant, NAMES)
    epsilon = min(float(errors.positive("noise_by", "epsilon", epsilon)), LARGEST)
    if accountant in ("rdp", "pld"):
        multiplier = noise_multiplier_for(
            epsilon,
            delta,
            sampling_probability=sampling_probability,
            steps=steps,
            accountant=accountant,
        )
        return multiplier * _ROUND_UP
    # This also checks the arguments, as the other two branches do.
    privacy_loss.subsampled_gaussian(1, sampling_probability, steps)
    if accountant == "zcdp":
        rho = calibration.concentration_for(epsilon, delta)
        return math.sqrt(steps / (2 * rho)) * _ROUND_UP
    delta = errors.probability("noise_by", "delta", delta, zero=False)
    step = epsilon / steps if accountant == "naive" else _advanced_step(epsilon, delta / 2, steps)
    share = min(delta / (2 * sampling_probability * steps), 0.5)
    unsampled = _before_sampling(step, sampling_probability)
    return gaussian.noise_multiplier_for(unsampled, share) * _ROUND_UP


def _advanced_step(epsilon: float, slack: float, steps: int) -> float:
    """Return the ε of one step such that T steps give ε by advanced composition."""

    def excess(step: float) -> float:
        return composition.advanced_epsilon(np.array([step]), steps, slack) - epsilon

    # The sum is among the bounds, so ε/T is never too much; ε itself suffices for one step.
    least = epsilon / steps
    if steps == 1 or excess(least * _ROUND_UP) > 0:
        return least
    root = float(brentq(excess, least, epsilon, xtol=1e-15, rtol=1e-12))
    return _rounded_down(excess, root)


def _rounded_down(excess: Callable[[float], float], step: float) -> float:
    while excess(step) > 0:
        step /= _ROUND_UP
    return step


def _before_sampling(epsilon: float, probability: float) -> float:
    r"""Return the ε₀ with :math:`\ln(1 + q(e^{\varepsilon_0} - 1)) = \varepsilon`."""
    if epsilon < 1:
        return math.log1p(math.expm1(epsilon) / probability)
    rest = math.log1p(-(1 - probability) * math.exp(-epsilon))
    return epsilon - math.log(probability) + rest
