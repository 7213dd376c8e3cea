r"""k-means: Lloyd's steps with noise.

References
----------
.. [BDMN05] Blum, Dwork, McSherry, Nissim. Practical privacy: the SuLQ framework. PODS 2005.
.. [JS61] James, Stein. Estimation with quadratic loss. Berkeley Symposium 1961.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tacit.central.statistics.moments import spend_covariance
from tacit.central.statistics.released import Released, Spending
from tacit.central.statistics.rows import SUM_BITS, Ball, blocks, matrix
from tacit.central.statistics.sums import count_share, spend_mean
from tacit.privacy import errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms.bounding import clip_l2
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Grid = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]

STARTS = ("moments", "random")
START_SHARE = Fraction(1, 8)
"""Share of the budget for the mean and the covariance that a start from moments needs."""

_COARSE = SUM_BITS - 12
_TABLE = 2**21
_SIMULATED_EACH, _SIMULATED_STEPS = 32, 10
_FEW, _APART = 0.3, 0.2


@dataclass(frozen=True, eq=False)
class Clusters:
    """Private centres, and the noisy number of records assigned to each in the last step."""

    centers: Reals
    counts: Integers

    def nearest(self, rows: Any) -> Integers:
        """Return the centre nearest to each row. In-house: the result is as raw as the rows."""
        half = (self.centers**2).sum(axis=1) / 2
        nearest = [np.zeros(0, dtype=np.int64)]
        for block in blocks(matrix("Clusters", rows), _TABLE // len(self.centers)):
            nearest.append((block.astype(np.float64) @ self.centers.T - half).argmax(axis=1))
        return np.concatenate(nearest)


def kmeans(
    rows: Any,
    clusters: int,
    bound: float,
    steps: int = 8,
    start: Any = "moments",
    *,
    center: Any = None,
    reach: float | None = None,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: Unit = Unit.RECORD,
    rng: Randomness | np.random.Generator | None = None,
) -> Released[Clusters]:
    r"""Compute private centres of clusters.

    In every step each row is assigned to its nearest centre :math:`c_j`. With :math:`r_i` the
    difference of a row from its centre, clipped to `reach`,

    .. math:: c_j \leftarrow c_j + \lambda_j \frac{\tilde S_j}{\max(\tilde n_j, 1)}, \quad
              \tilde S_j = \sum_{i \in j} r_i + E_j, \quad
              \lambda_j = \left(1 - \frac{(d - 2)\,\sigma^2}{\lVert\tilde S_j\rVert^2}\right)_+

    where :math:`\lambda_j` is James and Stein's [JS61]_. Between steps a centre with less than
    0.3 of the average count takes over half of the largest cluster; both are post-processing.

    Parameters
    ----------
    rows : array of shape (n, d)
        One record per row. A row with NaN or infinity is left out.
    clusters : int
        Number of centres.
    bound : float
        Public limit on the distance of a row from `center`; rows beyond it are clipped.
    steps : int
        Number of steps; each has an equal share of the budget.
    start : "moments", "random" or array of shape (clusters, d)
        Initial centres. "moments": an eighth of the budget goes to mean and covariance, and the
        centres are those of draws from the normal distribution with these moments; better with few
        steps. "random": uniform in the ball. An array: these public points.
    center : array of shape (d,), optional
        Public or already released: the middle of the ball.
    reach : float, optional
        Public limit on how far a row can pull its centre in one step; half the bound by default.
        Noise is proportional to it, so it may well be smaller than the radius of a cluster.

    Notes
    -----
    Privacy: every step knows the released centres. A row is in one cluster, which it changes by at
    most `reach` in the sums and by 1 in the counts, whatever the other rows are: two Gaussians per
    step [BDMN05]_. This requires that the choice of a cluster depends on the row alone, to the last
    bit. Rows and centres are therefore rounded to a grid of the bound over 2^12, where their
    products and all partial sums are whole numbers below 2^24: exact in float32, in any order. The
    shares of sums and counts in a step minimise the error of a centre: see `count_share`. Steps are
    adaptive with multipliers that are fixed beforehand, as composition requires.
    """
    spending = Spending("kmeans", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("kmeans", rows)
    clusters = errors.whole("kmeans", "clusters", clusters, least=1, most=2**16)
    steps = errors.whole("kmeans", "steps", steps, least=1, most=1000)
    ball = Ball("kmeans", bound, center, array.shape[1], SUM_BITS)
    limit = _reach(ball, reach)
    centers, share = _start(spending, array, clusters, ball, start)
    grid = np.concatenate([ball.origin, *(ball.kept(block) for block in blocks(array))])
    for step in range(steps):
        centers, counts = _step(spending, grid, centers, ball.radius, limit, share / steps)
        if step + 1 < steps:
            centers = _split(centers, counts, ball.radius, limit, spending.generator())
    return spending.released(Clusters(ball.center + centers * ball.step, counts))


def _step(
    spending: Spending, grid: Grid, centers: Integers, radius: int, limit: int, share: Fraction
) -> tuple[Integers, Integers]:
    """Return centres moved by noisy sums, and noisy counts; a centre without records stays."""
    totals, sizes = cluster_sums(grid, centers, limit)
    part = count_share(grid.shape[1]) * share
    noisy = spending.add(totals, limit, share - part).astype(np.float64)
    counts = spending.add(sizes, 1, part)
    sigma = float(spending.sigma(limit, share - part))
    squared = np.maximum((noisy**2).sum(axis=1), 1.0)
    shrinkage = np.maximum(1 - max(grid.shape[1] - 2, 0) * sigma**2 / squared, 0.0)
    moved = noisy * (np.where(counts < 1, 0.0, shrinkage) / np.maximum(counts, 1))[:, None]
    # A mean of clipped rows is never longer than the reach, nor outside the ball: only noise is.
    shift = clip_l2(np.rint(np.clip(moved, -limit, limit)).astype(np.int64), limit)
    return clip_l2(centers + shift, radius), counts


def _split(
    centers: Integers, counts: Integers, radius: int, limit: int, generator: np.random.Generator
) -> Integers:
    """Move centres with few records next to those with most, to halve them."""
    size = np.maximum(counts, 0).astype(np.float64)
    centers = centers.copy()
    for few in np.flatnonzero(size < _FEW * size.mean()):
        largest = int(size.argmax())
        size[largest] /= 2
        size[few] = size[largest]
        direction = generator.standard_normal(centers.shape[1])
        shift = direction * (_APART * limit / np.linalg.norm(direction))
        centers[few] = centers[largest] + np.rint(shift).astype(np.int64)
    return clip_l2(centers, radius)


def cluster_sums(grid: Grid, centers: Integers, limit: int) -> tuple[Integers, Integers]:
    """Sum the clipped differences of rows from their centre, and count them, per centre."""
    clusters, dimension = centers.shape
    totals = np.zeros((clusters, dimension), dtype=np.int64)
    sizes = np.zeros(clusters, dtype=np.int64)
    coarse = toward_zero(centers)
    for block in blocks(grid, _TABLE // max(clusters, dimension)):
        labels = nearest_exactly(toward_zero(block), coarse)
        rest = clip_l2(block - centers[labels], limit)
        ones = np.ones(len(block), dtype=np.int64)
        place = (labels, np.arange(len(block)))
        totals += sparse.csr_matrix((ones, place), shape=(clusters, len(block))) @ rest
        sizes += np.bincount(labels, minlength=clusters)
    return totals, sizes


def toward_zero(steps: npt.NDArray[Any]) -> Floats:
    """Convert fine steps to coarse ones, rounding towards zero so that no vector gets longer."""
    return np.asarray(np.sign(steps) * (np.abs(steps) >> _COARSE), dtype=np.float32)


def nearest_exactly(rows: Floats, centers: Floats) -> Integers:
    r"""Find the nearest centre of each row, as a function of that row alone; ties go to the first.

    Entries are whole and norms at most 2^12, so by Cauchy and Schwarz any partial sum of
    :math:`x \cdot c` is a whole number of at most 2^24, which is exact in float32: the order and
    grouping of the products by a library do not matter.
    """
    half = (centers.astype(np.float64) ** 2).sum(axis=1) / 2
    return np.asarray((rows @ centers.T - half.astype(np.float32)).argmax(axis=1))


def _reach(ball: Ball, reach: Any) -> int:
    if reach is None:
        return max(ball.radius // 2, 1)
    number = float(errors.positive("kmeans", "reach", reach))
    if not ball.step <= number <= 2 * ball.bound:
        errors.refuse("kmeans", "reach", "at most twice the bound, and not tiny", reach)
    return int(number / ball.step)


def _start(
    spending: Spending, array: npt.NDArray[Any], clusters: int, ball: Ball, start: Any
) -> tuple[Integers, Fraction]:
    """Return the initial centres in grid steps, and the remaining share of the budget."""
    if isinstance(start, str):
        errors.choice("kmeans", "start", start, STARTS)
        if start == "random":
            return _in_ball(spending, clusters, ball), Fraction(1)
        return _of_moments(spending, array, clusters, ball), 1 - START_SHARE
    try:
        given = np.array(start, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        given = np.array(np.nan)
    if given.shape != (clusters, array.shape[1]) or not bool(np.isfinite(given).all()):
        condition = f"one of {', '.join(STARTS)}, or {clusters} points of {array.shape[1]} numbers"
        errors.refuse("kmeans", "start", condition, start)
    return ball.clipped(given)[0], Fraction(1)


def _in_ball(spending: Spending, clusters: int, ball: Ball) -> Integers:
    """Draw uniformly in the ball, without looking at the data."""
    generator = spending.generator()
    direction = generator.standard_normal((clusters, len(ball.center)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    length = generator.random((clusters, 1)) ** (1 / len(ball.center))
    return ball.clipped(ball.center + direction * length * ball.bound)[0]


def _of_moments(spending: Spending, array: npt.NDArray[Any], clusters: int, ball: Ball) -> Integers:
    """Run k-means on draws from a normal distribution with private mean and covariance."""
    about = spend_mean(spending, array, ball.bound, ball.center, START_SHARE / 2)
    moments = spend_covariance(spending, array, ball.bound, ball.center, START_SHARE / 2)
    shift = about.point - ball.center
    values, vectors = np.linalg.eigh(moments.matrix - np.outer(shift, shift))
    # Directions that could be noise alone are left out.
    spread = vectors * np.sqrt(np.where(values > moments.noise_level, values, 0.0))
    drawn = spending.generator().standard_normal((clusters * _SIMULATED_EACH, len(shift)))
    grid = ball.kept(about.point + drawn @ spread.T)
    centers = grid[:clusters].astype(np.int64)
    for _ in range(_SIMULATED_STEPS):
        totals, sizes = cluster_sums(grid, centers, 2 * ball.radius)
        centers = centers + totals // np.maximum(sizes, 1)[:, None]
    return clip_l2(centers, ball.radius)
