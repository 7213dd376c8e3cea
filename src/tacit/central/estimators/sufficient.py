r"""Linear regression from noisy sums of products: Gaussian noise (AdaSSP) or Laplace noise.

With the rows :math:`v = (x, 1, y)` of `Frame`, one symmetric matrix is released,

.. math:: \tilde M = \sum_i v_i v_i^\top + E =
          \begin{pmatrix} \tilde A & \tilde b \\ \tilde b^\top & \cdot \end{pmatrix},

and the rest is post-processing: coefficients solve :math:`\tilde A\,\beta = \tilde b`, with a
repair of the directions in which noise hides the variation of the rows.

Notes
-----
Gaussian: as in `tacit.private_statistics.covariance`, the vector of the :math:`v_j^2` and the
:math:`\sqrt 2\,v_j v_k` of one record has ℓ2 norm :math:`\lVert v\rVert_2^2 \le R^2` [DTTZ14]_.
One draw pays for :math:`X^\top X`, :math:`X^\top y`, all sums and the count.

Laplace: the vector of the :math:`v_j^2` and the :math:`2 v_j v_k` has ℓ1 norm
:math:`\lVert v\rVert_1^2 \le R^2`, in whole numbers. These are the coefficients of the squared
error as a polynomial of β, to which [ZZXYW12]_ add noise, with the bound that the box gives.

References
----------
.. [Wan18] Wang. Revisiting differentially private linear regression: optimal and adaptive
   prediction and estimation in unbounded domain. UAI 2018 (AdaSSP).
.. [ZZXYW12] Zhang, Zhang, Xiao, Yang, Winslett. Functional mechanism: regression analysis under
   differential privacy. VLDB 2012.
.. [DTTZ14] Dwork, Talwar, Thakurta, Zhang. Analyze Gauss: optimal bounds for privacy-preserving
   principal component analysis. STOC 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tacit.central.estimators.base import Reals
from tacit.central.estimators.frames import CONSTANT, Frame, Integers
from tacit.central.statistics.moments import symmetric_noise
from tacit.central.statistics.released import Spending
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.mechanisms.laplace import DiscreteLaplace
from tacit.privacy.randomness import Randomness

REPAIRS = ("shrink", "ridge", "trim")


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """A noisy matrix of sums of products, in half-widths of the bounds."""

    matrix: Reals
    size: int
    """Number of entries of a row, from the first, that have a coefficient: A has this size."""
    deviation: float
    """Standard deviation of the noise on an entry off the diagonal."""

    @property
    def noise_level(self) -> float:
        """Bound the eigenvalues of noise alone: see `tacit.private_statistics.Covariance`."""
        return self.deviation * (2 * math.sqrt(self.size) + math.pow(self.size, -1 / 6))

    @property
    def signal(self) -> float:
        """Return the mean variation of the rows over their entries."""
        return max(float(np.diag(self.matrix)[: self.size].mean()), 0.0)

    @property
    def correlation(self) -> Reals:
        """Return the vector b."""
        return self.matrix[: self.size, -1]

    def inverse(self, repair: str, penalty: Reals) -> Reals:
        r"""Invert A with a penalty on its diagonal, repaired through its eigenvalues a.

        With τ the standard deviation, p entries and ℓ the `noise_level`:

        - "shrink": :math:`1/a` becomes :math:`a_+ / (a_+^2 + 2p\tau^2)`. The error of
          :math:`\tilde b - \tilde A\beta` is :math:`\tau^2(1 + \lVert\beta\rVert^2)` per direction;
          for coefficients of norm 1, all directions alike, this factor has the least squared error.
          It is a ridge for each direction, large where the eigenvalue is small.
        - "ridge": :math:`1/(a + \lambda)`, :math:`\lambda = \max(0, \ell - a_{\min})` [Wan18]_,
          with the smallest eigenvalue computed from the release, where the paper spends a third.
        - "trim": 1/a where a > ℓ, else 0: the spectral trimming of [ZZXYW12]_.
        """
        size = self.size
        values, vectors = np.linalg.eigh(self.matrix[:size, :size] + np.diag(penalty))
        if repair == "shrink":
            kept = np.maximum(values, 0.0)
            factor = kept / (kept**2 + 2 * size * self.deviation**2)
        elif repair == "ridge":
            factor = 1 / (values + max(self.noise_level - float(values[0]), 0.0))
        else:
            kept = values > self.noise_level
            factor = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
        return np.asarray((vectors * factor) @ vectors.T)

    def residual(self, solution: Reals) -> float:
        r"""Return the root mean square of the residuals, including their own noise.

        .. math:: \frac{1}{\tilde n}\left((w^\top \tilde M w)_+
                  + \sqrt 2\,\tau\lVert w\rVert^2\right), \qquad w = (-\beta, 1)
        """
        signs = np.zeros(len(self.matrix))
        signs[: self.size], signs[-1] = -solution, 1.0
        squares = max(float(signs @ self.matrix @ signs), 0.0)
        noise = math.sqrt(2) * self.deviation * float(signs @ signs)
        count = max(float(self.matrix[-2, -2]) / CONSTANT**2, 1.0)
        return math.sqrt((squares + noise) / count)


def gaussian_moments(
    frame: Frame, spending: Spending, products: Integers, share: Fraction
) -> NoisyMoments:
    """Release sums of products for a share of a budget."""
    sensitivity = frame.radius**2
    noise = symmetric_noise(spending, sensitivity, share, len(products))
    scale = frame.step**2
    deviation = float(spending.sigma(sensitivity, share)) * scale / math.sqrt(2)
    return NoisyMoments((products + noise).astype(np.float64) * scale, frame.size, deviation)


@dataclass(frozen=True, eq=False)
class GaussianProducts:
    """Sums of products with Gaussian noise: (ε, δ)-DP."""

    frame: Frame
    spending: Callable[[], Spending]

    @property
    def event(self) -> Event:
        """Return the event of `release`."""
        spending, sensitivity = self.spending(), self.frame.radius**2
        spending.charge(sensitivity, spending.sigma(sensitivity), Fraction(1))
        return spending.released(None).event

    def release(self, products: Integers) -> tuple[NoisyMoments, Event]:
        """Return the matrix, and the event."""
        spending = self.spending()
        moments = gaussian_moments(self.frame, spending, products, Fraction(1))
        return moments, spending.released(None).event


@dataclass(frozen=True, eq=False)
class LaplaceProducts:
    """Sums of products with Laplace noise: ε-DP."""

    frame: Frame
    epsilon: Any
    unit: Unit
    rng: Randomness

    @cached_property
    def _noise(self) -> DiscreteLaplace:
        return DiscreteLaplace(
            epsilon=self.epsilon,
            sensitivity=self.frame.radius**2,
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
        )

    @property
    def event(self) -> Event:
        """Return the event of `release`."""
        return self._noise.event

    def release(self, products: Integers) -> tuple[NoisyMoments, Event]:
        """Return the matrix, and the event."""
        upper = np.triu_indices(len(products), 1)
        diagonal = np.diag_indices(len(products))
        raw = np.concatenate([products[diagonal], 2 * products[upper]])
        noisy = self._noise.release(raw, self.rng).astype(np.float64) * self.frame.step**2
        matrix = np.zeros(products.shape)
        matrix[upper] = noisy[len(products) :] / 2
        matrix += matrix.T
        matrix[diagonal] = noisy[: len(products)]
        # Laplace noise has a standard deviation of √2 scales, which is halved with its entry.
        deviation = float(self._noise.event.scale) * self.frame.step**2 / math.sqrt(2)
        return NoisyMoments(matrix, self.frame.size, deviation), self.event
