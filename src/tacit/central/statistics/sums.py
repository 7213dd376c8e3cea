r"""Counts, sums and means.

References
----------
.. [DMNS06] Dwork, McSherry, Nissim, Smith. Calibrating noise to sensitivity. TCC 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.statistics.released import Released, Spending, share_of
from tacit.central.statistics.rows import SUM_BITS, Ball, blocks, column_of, matrix
from tacit.privacy import errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms.bounding import project_l2
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


def counts(
    codes: Any,
    categories: int,
    *,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[Integers]:
    r"""Count the records of each category.

    .. math:: \tilde n_k = \#\{i : c_i = k\} + \mathcal N(0, z^2) \text{, rounded}

    Parameters
    ----------
    codes : array of shape (n,)
        A category 0, …, K − 1 per record. Any other value, NaN included, is not counted.
    categories : int
        K, public.

    Notes
    -----
    Privacy: one record more or less changes one count by one, so the ℓ2 sensitivity is 1 [DMNS06]_.
    """
    spending = Spending("counts", noise_multiplier, epsilon, delta, unit, rng)
    categories = errors.whole("counts", "categories", categories, least=1, most=2**26)
    table = np.zeros(categories, dtype=np.int64)
    for block in blocks(column_of("counts", codes)):
        known = block[(block >= 0) & (block < categories) & (block == np.floor(block))]
        table += np.bincount(known.astype(np.int64), minlength=categories)
    return spending.released(spending.add(table, 1))


def vector_sum(
    rows: Any,
    bound: float,
    *,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[Reals]:
    r"""Sum rows that are clipped to an ℓ2 bound.

    .. math:: \tilde S = \sum_i x_i \min(1, B / \lVert x_i\rVert) + \mathcal N(0, z^2 B^2 I)

    Parameters
    ----------
    rows : array of shape (n, d)
        One record per row. A row with NaN or infinity is left out.
    bound : float
        B, public: longer rows are shortened to it.

    Notes
    -----
    Privacy: rows lie on a grid of about B/2^20 and are clipped there, in integers, to ⌊B/step⌋
    steps; the integer sum changes by one row, of at most that norm.
    """
    spending = Spending("vector_sum", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("vector_sum", rows)
    ball = Ball("vector_sum", bound, None, array.shape[1], SUM_BITS)
    total, _ = ball.total(array)
    noisy = spending.add(total, ball.radius).astype(np.float64)
    return spending.released(noisy * ball.step)


@dataclass(frozen=True, eq=False)
class PrivateMean:
    """A private mean: the point, the noisy number of records, and the noise of a coordinate."""

    point: Reals
    count: int
    deviation: float
    """Standard deviation of the noise on a coordinate of the sum, divided by `count`."""


def mean(
    rows: Any,
    bound: float,
    center: Any = None,
    *,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[PrivateMean]:
    r"""Compute the mean of rows, as a noisy sum divided by a noisy count.

    .. math:: \tilde m = c + \frac{\tilde S}{\max(\tilde n, 1)},
              \quad \tilde S \text{ the sum of } x_i - c \text{ clipped to } B

    Parameters
    ----------
    rows : array of shape (n, d)
        One record per row. A row with NaN or infinity is left out of the sum and the count.
    bound : float
        B, public: the largest distance of a row from `center`, and so of the result.
    center : array of shape (d,), optional
        c, public or already released: rows are measured from here. The closer it is to the mean,
        the smaller B can be, and the noise with it.

    Notes
    -----
    Privacy: two Gaussians, on the sum (sensitivity B) and on the count (sensitivity 1), with the
    shares of `count_share`.
    """
    spending = Spending("mean", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("mean", rows)
    return spending.released(spend_mean(spending, array, bound, center, Fraction(1)))


def spend_mean(
    spending: Spending, array: npt.NDArray[Any], bound: Any, center: Any, share: Fraction
) -> PrivateMean:
    """Compute the mean for a share of a budget."""
    ball = Ball(spending.where, bound, center, array.shape[1], SUM_BITS)
    total, rows_counted = ball.total(array)
    part = count_share(array.shape[1]) * share
    noisy = spending.add(total, ball.radius, share - part) * ball.step
    count = max(int(spending.add(np.array([rows_counted]), 1, part)[0]), 1)
    sigma = float(spending.sigma(ball.radius, share - part)) * ball.step
    return PrivateMean(ball.center + project_l2(noisy / count, ball.bound), count, sigma / count)


def count_share(dimension: int) -> Fraction:
    r"""Return the share of the count next to a sum of d coordinates: :math:`w = 1 / (1 + \sqrt d)`.

    With shares 1 − w and w the noise is :math:`zB/\sqrt{1-w}` per coordinate and
    :math:`z/\sqrt w`. To first order the mean's squared error is

    .. math:: \frac{z^2}{n^2}\left(\frac{dB^2}{1 - w} + \frac{\lVert m - c\rVert^2}{w}\right)
              \le \frac{z^2B^2}{n^2}\left(\frac{d}{1 - w} + \frac{1}{w}\right),

    and the right-hand side is smallest at this w.
    """
    return share_of(1 / (1 + math.sqrt(dimension)))
