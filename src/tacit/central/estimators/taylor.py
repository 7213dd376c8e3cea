r"""Logistic regression by the functional mechanism: noise on a Taylor polynomial of the loss.

About a score of 0, :math:`\ln(1 + e^z) - tz \approx \ln 2 + (\tfrac12 - t)z + \tfrac18 z^2`. Summed
over records that is a quadratic function of the weights, and its coefficients are released:

.. math:: \tilde G = \sum_i v_i v_i^\top + E, \qquad
          \tilde m_k = \sum_i (t_{ik} - \tfrac12)\,v_i + e_k, \qquad
          \theta_k = 4\,(\tilde G + \lambda I)_+^{-1}\,\tilde m_k

with :math:`t_{ik} = 1` where record i is of class k, else 0: each class against the rest, with the
same matrix. Noise can make the function unbounded below: λ is four standard deviations of the noise
on an entry (the authors' regularisation), and directions whose eigenvalue is still not positive are
dropped (their spectral trimming).

Notes
-----
Rows of norm at most 1 are whole numbers of 2^-12 (`tacit.estimators.whole`), of norm at most V.
With Gaussian noise the matrix has sensitivity V² as in `tacit.private_statistics.covariance`, the K
vectors together :math:`\sqrt K V/2`, measured in half steps. With Laplace noise the matrix's
diagonal and upper half have the ℓ1 norm :math:`(\lVert v\rVert_1^2 + \lVert v\rVert_2^2)/2 \le
(d + 1)V^2/2`, the vectors :math:`K\sqrt d\,V/2`. Half the budget goes to each.

Accurate where scores are small; beyond ±2 the polynomial no longer follows the loss, and
probabilities are too close to 1/2.

References
----------
.. [ZZXYW12] Zhang, Zhang, Xiao, Yang, Winslett. Functional mechanism: regression analysis under
   differential privacy. VLDB 2012 (section 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Reals
from tacit.central.estimators.classifier import Codes, signs_of
from tacit.central.estimators.whole import BITS, gram, norm_of_rows, parts, whole
from tacit.central.statistics.moments import symmetric_noise
from tacit.central.statistics.released import Spending
from tacit.privacy import errors
from tacit.privacy.events import Composed, Event
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.mechanisms.laplace import DiscreteLaplace
from tacit.privacy.randomness import Randomness, source

Integers = npt.NDArray[np.int64]

_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Functional:
    """The functional mechanism for a number of scores; δ = 0 asks for Laplace noise."""

    where: str
    dimension: int
    scores: int
    epsilon: float
    delta: float
    penalty: float | None
    unit: Unit | str

    @property
    def event(self) -> Event:
        """Return the event of `solve`."""
        _ = self._penalty  # an invalid penalty is refused here, before anything is paid
        if not self.delta:
            return Composed(tuple(one.event for one in self._laplace))
        spending = self._spending(None)
        for sensitivity in self._sensitivities:
            spending.charge(sensitivity, spending.sigma(sensitivity, _HALF), _HALF)
        return spending.released(None).event

    @property
    def noise(self) -> float:
        """Return the approximate norm of the noise on a vector or on the matrix, if that is worse.

        The noise on the matrix has a spectral norm of twice its standard deviation times √d, and
        hides the matrix where that is at least twice the mean eigenvalue, which is at most n/d: so
        d/4 of it is compared with n/2.
        """
        on_matrix, on_vectors = self._deviations
        norm = on_vectors / 2.0 ** (BITS + 1) * math.sqrt(self.dimension * self.scores)
        return float(max(norm, on_matrix / 4.0**BITS * self.dimension**1.5 / 2))

    def solve(self, rows: Reals, codes: Codes, rng: Randomness | None) -> tuple[Reals, Event]:
        """Return weights, one row per score, and the event."""
        rows = whole(rows)
        matrix, vectors, ran = self._released(gram(rows), self.vectors(rows, codes), rng)
        ridge = 4 * self._deviations[0] / 4.0**BITS + 4 * self._penalty
        values, directions = np.linalg.eigh(matrix / 4.0**BITS + ridge * np.eye(self.dimension))
        factor = np.where(values > 0, 4 / np.where(values > 0, values, 1.0), 0.0)
        solved = (directions * factor) @ directions.T @ (vectors.T / 2.0 ** (BITS + 1))
        return np.asarray(solved.T), ran

    def vectors(self, rows: Reals, codes: Codes) -> Integers:
        """Sum whole rows with signs, one sum per score: twice the coefficients, in steps."""
        total = np.zeros((self.scores, self.dimension), dtype=np.int64)
        for part in parts(len(rows)):
            signs = np.array(signs_of(codes[part], self.scores))
            total += (signs @ rows[part]).astype(np.int64)
        return total

    def _released(
        self, matrix: Integers, vectors: Integers, rng: Randomness | None
    ) -> tuple[Integers, Integers, Event]:
        if self.delta:
            spending, (square, length) = self._spending(rng), self._sensitivities
            matrix = matrix + symmetric_noise(spending, square, _HALF, self.dimension)
            vectors = spending.add(vectors, length, _HALF)
            return matrix, vectors, spending.released(None).event
        stream, (on_matrix, on_vectors) = source(rng), self._laplace
        upper = np.triu_indices(self.dimension)
        noisy = np.zeros_like(matrix)
        noisy[upper] = on_matrix.release(matrix[upper], stream)
        noisy += np.triu(noisy, 1).T
        return noisy, on_vectors.release(vectors, stream), self.event

    @cached_property
    def _sensitivities(self) -> tuple[int, int]:
        """Return the sensitivities of matrix and vectors: ℓ2, or ℓ1 for Laplace noise."""
        length, size = norm_of_rows(self.dimension), self.dimension
        if self.delta:
            return length**2, math.ceil(math.sqrt(self.scores) * length)
        return math.ceil((size + 1) * length**2 / 2), math.ceil(
            self.scores * math.sqrt(size) * length
        )

    @cached_property
    def _laplace(self) -> tuple[DiscreteLaplace, DiscreteLaplace]:
        epsilon = errors.epsilon_in_range(self.where, self.epsilon) / 2
        scope: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE, "unit": self.unit}
        first, second = (
            DiscreteLaplace(epsilon=epsilon, sensitivity=one, **scope)
            for one in self._sensitivities
        )
        return first, second

    @cached_property
    def _deviations(self) -> tuple[float, float]:
        """Return the standard deviations of the noise on the matrix (off-diagonal) and vectors."""
        if not self.delta:
            first, second = (math.sqrt(2) * float(one.event.scale) for one in self._laplace)
            return first, second
        spending = self._spending(None)
        first, second = (float(spending.sigma(one, _HALF)) for one in self._sensitivities)
        return first / math.sqrt(2), second

    @cached_property
    def _penalty(self) -> float:
        if self.penalty is None:
            return 0.0
        return float(errors.positive(self.where, "alpha", self.penalty))

    def _spending(self, rng: Randomness | None) -> Spending:
        return Spending(self.where, None, self.epsilon, self.delta, self.unit, rng)
