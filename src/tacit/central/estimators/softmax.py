r"""Softmax regression by noisy, preconditioned gradient descent on whole numbers.

First a noisy matrix of second moments is released, then T noisy gradients. Steps are Nesterov's
[Nes83]_ in the metric of the matrix, which bounds the curvature of the loss [Boh92]_:

.. math:: \theta_{t+1} = \gamma_t - \Big(\kappa\tilde G + \lambda I\Big)^{-1}
          \Big(\sum_i r_i(\gamma_t) \otimes v_i + E_t + \lambda\gamma_t\Big), \quad
          \gamma_t = \theta_t + \tfrac{t}{t + 3}(\theta_t - \theta_{t-1})

with residuals :math:`r_i = p_i - e_{y_i}` shortened to a norm of c = 0.7, and κ = 1/4 for two
classes (one score), 1/2 for more. The last third of the points is averaged.

Notes
-----
Sensitivity: rows v of norm at most 1 are whole numbers of 2^-12, so of norm at most
:math:`V = 2^{12} + \sqrt d/2`. One record adds :math:`vv^\top` to the matrix, of norm V² in the
coordinates of `tacit.private_statistics.covariance`; and :math:`r \otimes v` to a gradient, of norm
at most :math:`\lVert r\rVert V`, where r is of norm at most c and then rounded to whole numbers of
2^-12: at most :math:`2^{12}c + \sqrt K/2` for K scores. θ is on a grid of 2^-14 with a norm of at
most 2^12, so that scores are whole numbers below 2^53: exact in any order, and r depends on its own
row alone. Multipliers are fixed beforehand, so the Gaussians compose exactly
[DRS22]_. Nothing here needs the minimum to be reached, or the loss to be convex.

References
----------
.. [BST14] Bassily, Smith, Thakurta. Private empirical risk minimization: efficient algorithms and
   tight error bounds. FOCS 2014.
.. [Boh92] Böhning. Multinomial logistic regression algorithm. Ann. Inst. Stat. Math. 1992.
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3).
.. [Nes83] Nesterov. A method of solving a convex programming problem with convergence rate O(1/k²).
   Soviet Math. Dokl. 1983.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Reals
from tacit.central.estimators.classifier import Codes
from tacit.central.estimators.whole import BITS, gram, norm_of_rows, parts, repaired, whole
from tacit.central.statistics.moments import symmetric_noise
from tacit.central.statistics.released import Spending
from tacit.privacy import errors, rowwise
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms.bounding import project_l2
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]

CLIP = 0.7
"""Limit on the norm of a residual: noise is proportional to it, and few residuals are longer."""

GRAM_SHARE = Fraction(1, 8)
"""Share of the budget for the matrix of second moments."""

_PENALTY = 1 / 16
_AVERAGED = 1 / 3
_FINE, _LARGEST = 2.0**14, 2.0**12


@dataclass(frozen=True)
class NoisyDescent:
    """Noisy gradient descent: number of steps, scores and public settings.

    Parameters
    ----------
    dimension, scores : int
        Number of entries of a row; number of scores: 1 for two classes, else one per class.
    penalty : float, optional
        λ, the penalty on the squared norm of the weights; a small one by default.
    """

    where: str
    dimension: int
    scores: int
    epsilon: float
    delta: float
    penalty: float | None
    steps: int
    unit: Unit | str

    @cached_property
    def sensitivity(self) -> int:
        """Return the sensitivity of a sum of gradients."""
        residual = CLIP * 2.0**BITS + math.sqrt(self.scores) / 2
        return math.ceil(residual * norm_of_rows(self.dimension) * (1 + 1e-12))

    @property
    def event(self) -> Event:
        """Return the event of `solve`."""
        _ = self._penalty  # an invalid penalty is refused here, before anything is paid
        spending = self._spending(None)
        square = norm_of_rows(self.dimension) ** 2
        spending.charge(square, spending.sigma(square, GRAM_SHARE), GRAM_SHARE)
        for _ in range(self._steps):
            sigma = spending.sigma(self.sensitivity, self._share)
            spending.charge(self.sensitivity, sigma, self._share)
        return spending.released(None).event

    @property
    def noise(self) -> float:
        """Return the approximate norm of the noise on a gradient."""
        sigma = float(self._spending(None).sigma(self.sensitivity, self._share)) / 4.0**BITS
        return sigma * math.sqrt(self.dimension * self.scores)

    def solve(self, rows: Reals, codes: Codes, rng: Randomness | None) -> tuple[Reals, Event]:
        """Return weights, one row per score, and the event."""
        spending, penalty, rows = self._spending(rng), self._penalty, whole(rows)
        inverse = np.linalg.inv(self._curvature(spending, rows) + penalty * np.eye(self.dimension))
        before = now = np.zeros((self.scores, self.dimension))
        points = []
        for step in range(self._steps):
            ahead = _on_grid(now + step / (step + 3) * (now - before))
            total = spending.add(self.gradient(rows, codes, ahead), self.sensitivity, self._share)
            slope = total / 4.0**BITS + penalty * ahead
            before, now = now, ahead - slope @ inverse
            points.append(now)
        averaged = points[-math.ceil(self._steps * _AVERAGED) :]
        return np.mean(averaged, axis=0), spending.released(None).event

    def gradient(self, rows: Reals, codes: Codes, theta: Reals) -> Integers:
        """Sum residuals times whole rows, in whole numbers of 2^-24."""
        total = np.zeros(theta.shape, dtype=np.int64)
        # One score is kept as a vector: its products are twice as fast as a narrow matrix's.
        weights = (theta[0] if self.scores == 1 else theta.T) * 2.0**-BITS
        for part in parts(len(rows)):
            residual = self._residuals(rows[part] @ weights, codes[part])
            residual *= 2.0**BITS
            total += (np.rint(residual, out=residual).T @ rows[part]).astype(np.int64)
        return total

    def _residuals(self, scores: Reals, codes: Codes) -> Reals:
        if self.scores == 1:
            # 1 / (1 + e^-s), from that of |s|.
            decay = rowwise.exp_below(-np.abs(scores))
            residuals = np.where(scores < 0, decay, 1.0) / (1.0 + decay)
            residuals -= codes
            return np.asarray(np.minimum(np.maximum(residuals, -CLIP), CLIP))
        residuals = rowwise.exp_below(scores - scores.max(axis=1, keepdims=True))
        residuals /= rowwise.total(residuals)[:, None]
        residuals[np.arange(len(codes)), codes] -= 1
        norms = rowwise.lengths(residuals)[:, None]
        return np.asarray(residuals / np.maximum(norms / CLIP, 1.0))

    def _curvature(self, spending: Spending, rows: Reals) -> Reals:
        """Bound the curvature by noisy second moments, repaired at the level of their noise."""
        square = norm_of_rows(self.dimension) ** 2
        noise = symmetric_noise(spending, square, GRAM_SHARE, self.dimension)
        sigma = float(spending.sigma(square, GRAM_SHARE)) / 4.0**BITS
        moments = repaired((gram(rows) + noise) / 4.0**BITS, sigma / math.sqrt(2))
        return moments * (0.25 if self.scores == 1 else 0.5)

    @cached_property
    def _penalty(self) -> float:
        if self.penalty is None:
            return _PENALTY
        return float(errors.positive(self.where, "alpha", self.penalty))

    @cached_property
    def _steps(self) -> int:
        return errors.whole(self.where, "steps", self.steps, least=1, most=10_000)

    @property
    def _share(self) -> Fraction:
        return (1 - GRAM_SHARE) / self._steps

    def _spending(self, rng: Randomness | None) -> Spending:
        return Spending(self.where, None, self.epsilon, self.delta, self.unit, rng)


def _on_grid(theta: Reals) -> Reals:
    """Round to multiples of 2^-14, with a norm at which every product with a row is exact."""
    limited = project_l2(theta.ravel(), _LARGEST).reshape(theta.shape)
    return np.rint(limited * _FINE) / _FINE
