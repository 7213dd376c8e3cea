r"""Coefficients of correlated noise for which running sums of gradients have the least noise.

The weights after step t of SGD are a fixed combination of the gradients so far: their sum times the
learning rate, or with momentum β

.. math:: \theta_t - \theta_0 = -\eta \sum_{s \le t} w_{t-s}\, \tilde g_s, \qquad
          w_i = 1 + \beta + \dots + \beta^i .

With noise :math:`C^{-1} Z` on the gradients, the noise of all these together has the mean square

.. math:: \frac{\Delta(C)^2}{T} \sum_{i < T} (T - i)\, h_i^2, \qquad h = w * c^{-1},

for a noise multiplier of 1, where :math:`c^{-1}` are the coefficients of :math:`C^{-1}` and Δ(C) is
the sensitivity. It is minimised over banded Toeplitz matrices C [CCGMST23]_, from those of the
square root of the matrix of running sums [FHU22]_. Only public numbers enter: T, the period, the
number of bands, and β.

References
----------
.. [CCGMST23] Choquette-Choo et al. (Amplified) banded matrix factorization: a unified approach to
   private training. NeurIPS 2023.
.. [FHU22] Fichtenberger, Henzinger, Upadhyay. Constant matters: fine-grained error bound on
   differentially private continual observation. ICML 2023.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.signal import lfilter

from tacit.privacy.accounting.participation import Banded

Reals = npt.NDArray[np.float64]

_MOST_STEPS = 1 << 14
"""Longer trainings get the coefficients of this many steps, or of a period: 1 to 2 % more error."""


def strategy(steps: int, period: int, bands: int, momentum: float = 0.0) -> Banded:
    """Find the coefficients of least error for these turns and this momentum."""
    periods = max(1, _MOST_STEPS // period)
    problem = _Problem(min(steps, max(periods * period, bands)), period, momentum)
    orders = np.arange(1, bands)
    start = np.cumprod((orders - 0.5) / orders)
    if bands == 1:
        return Banded.nearest([1.0])
    found = minimize(
        problem.log_error, start, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * len(start)
    )
    return Banded.nearest([1.0, *found.x])


def error(chosen: Banded, steps: int, period: int, momentum: float = 0.0) -> float:
    """Compute the root mean square error of weights, for a noise multiplier of 1 and η = 1."""
    values = np.array([float(one) for one in chosen.coefficients])
    return math.exp(_Problem(steps, period, momentum).log_error(values[1:])[0] / 2)


class _Problem:
    """The error as a function of the coefficients, with its gradient."""

    def __init__(self, steps: int, period: int, momentum: float) -> None:
        powers = momentum ** np.arange(steps, dtype=np.float64)
        self.workload = np.cumsum(powers)
        self.weights = np.arange(steps, 0, -1) / steps
        self.turns = (np.arange(steps) % period == 0).astype(np.float64)

    def log_error(self, tail: Reals) -> tuple[float, Reals]:
        """Return the logarithm of the mean square error, and its gradient in c_1, c_2, …"""
        c = np.concatenate([[1.0], tail])
        h = lfilter([1.0], c, self.workload)
        mixed = lfilter(c, [1.0], self.turns)
        spread, square = float(self.weights @ h**2), float(mixed @ mixed)
        # δh = −c⁻¹ * h * δc.
        slope = -2 * _lagged(self.weights * h, lfilter([1.0], c, h), len(c)) / spread
        slope += 2 * _lagged(mixed, self.turns, len(c)) / square
        return math.log(spread) + math.log(square), slope[1:]


def _lagged(one: Reals, other: Reals, lags: int) -> Reals:
    return np.array([float(one[lag:] @ other[: len(other) - lag]) for lag in range(lags)])
