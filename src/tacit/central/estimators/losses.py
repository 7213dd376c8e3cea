r"""Convex losses of a signed score :math:`s = y\,x^\top\theta`, :math:`y = \pm 1`, and their sums.

The proofs need a slope of at most 1 and a curvature of at most `smoothness`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Reals = npt.NDArray[np.float64]

BLOCK = 1024
"""Rows per block: they fit in the cache, and rounding errors of short sums are small."""
_UNIT = 2.0**-53


class Loss(Protocol):
    """A convex function of the signed score, with slopes from −1 to 0."""

    @property
    def smoothness(self) -> Fraction:
        """Return the largest curvature."""
        ...

    def value(self, score: Reals) -> Reals: ...

    def slope(self, score: Reals) -> Reals: ...

    def curvature(self, score: Reals, slope: Reals) -> Reals:
        """Return the curvature, given the slope."""
        ...


@dataclass(frozen=True)
class Logistic:
    r""":math:`\ln(1 + e^{-s})`: curvature at most 1/4."""

    @property
    def smoothness(self) -> Fraction:
        return Fraction(1, 4)

    def value(self, score: Reals) -> Reals:
        return np.asarray(np.logaddexp(0.0, -score))

    def slope(self, score: Reals) -> Reals:
        return np.asarray(-expit(-score))

    def curvature(self, score: Reals, slope: Reals) -> Reals:
        return -slope * (1 + slope)


@dataclass(frozen=True)
class HuberHinge:
    r"""Hinge loss with a rounded corner [CMS11]_: curvature at most 1/(2h).

    .. math:: \ell(s) = 0 \text{ if } s > 1 + h, \quad \frac{(1 + h - s)^2}{4h}
              \text{ if } |1 - s| \le h, \quad 1 - s \text{ otherwise}

    References
    ----------
    .. [CMS11] Chaudhuri, Monteleoni, Sarwate. Differentially private empirical risk minimization.
       JMLR 2011 (equation 7, after Chapelle 2007).
    """

    width: float = 0.5

    @property
    def smoothness(self) -> Fraction:
        return 1 / (2 * Fraction(self.width))

    def value(self, score: Reals) -> Reals:
        short = np.maximum(1 + self.width - score, 0.0)
        return np.where(short > 2 * self.width, 1 - score, short**2 / (4 * self.width))

    def slope(self, score: Reals) -> Reals:
        return -np.clip((1 + self.width - score) / (2 * self.width), 0.0, 1.0)

    def curvature(self, score: Reals, slope: Reals) -> Reals:
        return ((slope > -1) & (slope < 0)) / (2 * self.width)


@dataclass(frozen=True, eq=False)
class PenalizedObjective:
    r"""Sum of losses, a penalty and a linear term.

    .. math:: F(\theta) = \sum_i \ell(y_i x_i^\top\theta) + \tfrac\lambda2\lVert\theta\rVert^2
              + b^\top\theta, \qquad \lVert x_i\rVert \le 1
    """

    loss: Loss
    rows: Reals
    signs: Reals
    penalty: float
    linear: Reals

    def value(self, theta: Reals) -> float:
        total = sum(
            float(self.loss.value(signs * (rows @ theta)).sum()) for rows, signs in self._blocks()
        )
        return total + self.penalty / 2 * float(theta @ theta) + float(self.linear @ theta)

    def gradient(self, theta: Reals) -> Reals:
        total = self.linear + self.penalty * theta
        for rows, signs in self._blocks():
            total += (signs * self.loss.slope(signs * (rows @ theta))) @ rows
        return total

    def hessian(self, theta: Reals) -> Reals:
        total = self.penalty * np.eye(len(theta))
        for rows, signs in self._blocks():
            score = signs * (rows @ theta)
            curved = self.loss.curvature(score, self.loss.slope(score))
            total += (rows * curved[:, None]).T @ rows
        return total

    def rounding(self, theta: Reals) -> float:
        r"""Bound the norm of the computed gradient's rounding error.

        With :math:`u = 2^{-53}`, B rows per block, n rows, d columns: sums of B and of n/B numbers
        of size at most 1, slopes whose scores are off by :math:`(d + 2)u\lVert\theta\rVert`, a few
        units for rows and slopes themselves, and the two terms beside the sum, which are part of
        the total that every block is added to. The bound is doubled.
        """
        count, columns = self.rows.shape
        size = float(np.linalg.norm(theta))
        smooth = float(self.loss.smoothness)
        units = BLOCK + count / BLOCK + 24 + smooth * (columns + 10) * size
        beside = (4 + count / BLOCK) * (self.penalty * size + float(np.linalg.norm(self.linear)))
        return float(2 * _UNIT * (count * units + beside))

    def _blocks(self) -> Iterator[tuple[Reals, Reals]]:
        for start in range(0, len(self.rows), BLOCK):
            yield self.rows[start : start + BLOCK], self.signs[start : start + BLOCK]
