r"""Second moments, and principal components computed from them.

References
----------
.. [DTTZ14] Dwork, Talwar, Thakurta, Zhang. Analyze Gauss: optimal bounds for privacy-preserving
   principal component analysis. STOC 2014.
.. [TW96] Tracy, Widom. On orthogonal and symplectic matrix ensembles. Comm. Math. Phys. 1996.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.statistics.released import Released, Spending, share_of
from tacit.central.statistics.rows import PRODUCT_BITS, Ball, matrix
from tacit.privacy import errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness
from tacit.privacy.rounding import root_above

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Covariance:
    """A private second-moment matrix about `center`."""

    matrix: Reals
    """Average outer product of the differences of rows from `center`; because of the noise it may
    have negative eigenvalues."""
    center: Reals
    count: int
    """Noisy number of records."""
    deviation: float
    """Standard deviation of the noise on a diagonal entry; off the diagonal it is smaller by √2."""

    @property
    def noise_level(self) -> float:
        r"""Return a bound that the largest eigenvalue of noise alone exceeds 1 time in 20.

        .. math:: \tau\,(2\sqrt d + d^{-1/6}), \quad \tau = \text{deviation}/\sqrt 2

        Twice the variance on the diagonal makes the noise a Gaussian orthogonal ensemble, whose
        largest eigenvalue is :math:`\tau(2\sqrt d + d^{-1/6}\,T)` with T a Tracy–Widom variable
        (β = 1) that is below 0.98 with probability 95 % [TW96]_.
        """
        dimension = len(self.matrix)
        edge = 2 * math.sqrt(dimension) + math.pow(dimension, -1 / 6)
        return self.deviation / math.sqrt(2) * edge


def covariance(
    rows: Any,
    bound: float,
    center: Any = None,
    *,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[Covariance]:
    r"""Compute the matrix of second moments about a public or already released point.

    .. math:: \tilde M = \frac{1}{\max(\tilde n, 1)}\left(\sum_i u_i u_i^\top + E\right),
              \quad u_i = x_i - c \text{ clipped to } B

    with :math:`E` symmetric, of standard deviation :math:`zB^2` on the diagonal and
    :math:`zB^2/\sqrt 2` off it. About the mean (`mean(...).value.point`) it is the covariance
    matrix.

    Parameters
    ----------
    rows : array of shape (n, d)
        One record per row. A row with NaN or infinity is left out.
    bound : float
        B, public: the largest distance of a row from `center`.
    center : array of shape (d,), optional
        c, public or already released; the origin by default.

    Notes
    -----
    Privacy: one record more or less changes the sum by :math:`uu^\top` with
    :math:`\lVert u\rVert \le B`. The vector of its :math:`u_i^2` and, for i < j, its
    :math:`\sqrt 2\,u_i u_j` has squared norm :math:`\sum_i u_i^4 + \sum_{i<j} 2u_i^2u_j^2
    = (\sum_i u_i^2)^2 \le B^4`. So the Gaussian mechanism with standard deviation σ on that vector
    has sensitivity B²; dividing its second part by √2 gives the off-diagonal entries with σ/√2
    [DTTZ14]_ (which uses σ for all of them). Noise is rounded to whole squared grid steps, which
    is post-processing as the sum is whole. The count has the share of `product_count_share`.
    """
    spending = Spending("covariance", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("covariance", rows)
    return spending.released(spend_covariance(spending, array, bound, center, Fraction(1)))


def spend_covariance(
    spending: Spending, array: npt.NDArray[Any], bound: Any, center: Any, share: Fraction
) -> Covariance:
    """Compute the second moments for a share of a budget."""
    dimension = array.shape[1]
    ball = Ball(spending.where, bound, center, dimension, PRODUCT_BITS)
    total, rows_counted = ball.products(array)
    part = product_count_share(dimension) * share
    sigma = spending.sigma(ball.radius**2, share - part)
    total += symmetric_noise(spending, ball.radius**2, share - part, dimension)
    count = max(int(spending.add(np.array([rows_counted]), 1, part)[0]), 1)
    scale = ball.step**2 / count
    return Covariance(total.astype(np.float64) * scale, ball.center, count, float(sigma) * scale)


def symmetric_noise(
    spending: Spending, sensitivity: int, share: Fraction, dimension: int
) -> npt.NDArray[np.int64]:
    """Draw symmetric noise: σ on the diagonal, σ/√2 (rounded up) off it."""
    sigma = spending.sigma(sensitivity, share)
    spending.charge(sensitivity, sigma, share)
    upper = np.triu_indices(dimension, 1)
    noise = np.zeros((dimension, dimension), dtype=np.int64)
    noise[upper] = spending.draw(root_above(sigma**2 / 2), upper[0].shape)
    noise += noise.T
    noise[np.diag_indices(dimension)] = spending.draw(sigma, (dimension,))
    return noise


def product_count_share(dimension: int) -> Fraction:
    r"""Return the share of the count next to d × d products: :math:`w = 1 / (1 + d)`.

    As in `count_share`, with :math:`d^2` entries of variance about σ²/2 … σ² and a matrix of
    Frobenius norm at most B².
    """
    return share_of(1 / (1 + dimension))


@dataclass(frozen=True, eq=False)
class Components:
    """Private principal components: post-processing of a private second-moment matrix."""

    directions: Reals
    """One unit vector per row, the strongest first."""
    variances: Reals
    """Noisy second moment of the rows along each direction."""
    noise_level: float
    """A direction with a variance below this may be noise alone: see `Covariance`."""
    center: Reals
    count: int

    @property
    def above_noise(self) -> int:
        """Return the number of directions that stand out from the noise."""
        return int((self.variances > self.noise_level).sum())

    def transform(self, rows: Any) -> Reals:
        """Project rows onto the directions. In-house: the result is as raw as the rows."""
        return np.asarray((np.asarray(rows, dtype=np.float64) - self.center) @ self.directions.T)


def pca(
    rows: Any,
    components: int,
    bound: float,
    center: Any = None,
    *,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[Components]:
    """Find the directions of largest variance about a public or already released point.

    They are the eigenvectors of what `covariance` releases for the same parameters [DTTZ14]_, with
    an estimate of the strength that noise alone would have.

    Parameters
    ----------
    rows, bound, center
        As in `covariance`.
    components : int
        Number of directions, at most the number of columns.

    Notes
    -----
    Privacy: post-processing of `covariance`.
    """
    spending = Spending("pca", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("pca", rows)
    components = errors.whole("pca", "components", components, least=1, most=array.shape[1])
    moments = spend_covariance(spending, array, bound, center, Fraction(1))
    values, vectors = np.linalg.eigh(moments.matrix)
    directions = vectors[:, ::-1][:, :components].T
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(components), largest])[:, None]
    return spending.released(
        Components(
            directions,
            values[::-1][:components].copy(),
            moments.noise_level,
            moments.center,
            moments.count,
        )
    )
