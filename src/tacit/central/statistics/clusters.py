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
"""Of the budget, for the mean and the covariance that a start from moments needs."""

_COARSE = SUM_BITS - 12
_TABLE = 2**21
_SIMULATED_EACH, _SIMULATED_STEPS = 32, 10
_FEW, _APART = 0.3, 0.2


@dataclass(frozen=True, eq=False)
class Clusters:
    """Private centres, and how many records each drew in the last step, with noise."""

    centers: Reals
    counts: Integers

    def nearest(self, rows: Any) -> Integers:
        """The centre that each row is nearest to. In-house: it is as raw as the rows."""
        half = (self.centers**2).sum(axis=1) / 2
        found = [np.zeros(0, dtype=np.int64)]
        for block in blocks(matrix("Clusters", rows), _TABLE // len(self.centers)):
            found.append((block.astype(np.float64) @ self.centers.T - half).argmax(axis=1))
        return np.concatenate(found)


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
    r"""Centres of clusters.

    In every step each row goes to its nearest centre :math:`c_j`, and with :math:`r_i` what is left
    of a row after its centre, clipped to `reach`,

    .. math:: c_j \leftarrow c_j + \lambda_j \frac{\tilde S_j}{\max(\tilde n_j, 1)}, \quad
              \tilde S_j = \sum_{i \in j} r_i + E_j, \quad
              \lambda_j = \left(1 - \frac{(d - 2)\,\sigma^2}{\lVert\tilde S_j\rVert^2}\right)_+

    where :math:`\lambda_j` is James and Stein's [JS61]_. Between steps a centre with less than
    0.3 of the average count takes half of the largest cluster instead; both are post-processing.

    Parameters
    ----------
    rows : array of shape (n, d)
        One record a row. A row with NaN or infinity is left out.
    clusters : int
        How many centres.
    bound : float
        Public: how far a row may lie from `center`; rows beyond are pulled in.
    steps : int
        Each has an equal part of the budget.
    start : "moments", "random" or array of shape (clusters, d)
        Where centres begin. "moments": an eighth of the budget goes to mean and covariance, and
        centres are those of draws from the normal law that they describe; better where steps are
        few. "random": anywhere in the ball. An array: these public points.
    center : array of shape (d,), optional
        Public or already released: the middle of the ball.
    reach : float, optional
        Public: how far a row can pull its centre in one step; half the bound without it. Noise is
        proportional to it, so that it may well be less than the radius of a cluster.

    Notes
    -----
    Privacy: centres are public to every step. A row is in one cluster, which it changes by at most
    `reach` in the sums and by 1 in the counts, whatever all the other rows are: two Gaussians a
    step [BDMN05]_. This needs the choice of a cluster to depend on the row alone, to the last bit.
    Rows and centres are therefore put on a grid of the bound over 2^12, where their products and
    all partial sums are whole numbers below 2^24: float32 has them exactly, in any order. How a
    step is shared between sums and counts minimises the error of a centre: see `count_share`.
    Steps are adaptive with multipliers that are fixed beforehand, as composition asks.
    """
    spending = Spending("kmeans", noise_multiplier, epsilon, delta, unit, rng)
    array = matrix("kmeans", rows)
    clusters = errors.whole("kmeans", "clusters", clusters, least=1, most=2**16)
    steps = errors.whole("kmeans", "steps", steps, least=1, most=1000)
    ball = Ball("kmeans", bound, center, array.shape[1], SUM_BITS)
    limit = _reach(ball, reach)
    centers, left = _start(spending, array, clusters, ball, start)
    grid = np.concatenate([ball.origin, *(ball.kept(block) for block in blocks(array))])
    for step in range(steps):
        centers, counts = _step(spending, grid, centers, ball.radius, limit, left / steps)
        if step + 1 < steps:
            centers = _split(centers, counts, ball.radius, limit, spending.generator())
    return spending.released(Clusters(ball.center + centers * ball.step, counts))


def _step(
    spending: Spending, grid: Grid, centers: Integers, radius: int, limit: int, share: Fraction
) -> tuple[Integers, Integers]:
    """Noisy sums and counts, and where centres move by them; one that drew nobody stays."""
    totals, found = cluster_sums(grid, centers, limit)
    part = count_share(grid.shape[1]) * share
    noisy = spending.add(totals, limit, share - part).astype(np.float64)
    counts = spending.add(found, 1, part)
    sigma = float(spending.sigma(limit, share - part))
    squared = np.maximum((noisy**2).sum(axis=1), 1.0)
    kept = np.maximum(1 - max(grid.shape[1] - 2, 0) * sigma**2 / squared, 0.0)
    moved = noisy * (np.where(counts < 1, 0.0, kept) / np.maximum(counts, 1))[:, None]
    # No mean of clipped rows is longer than the reach, nor outside the ball: noise alone is.
    away = clip_l2(np.rint(np.clip(moved, -limit, limit)).astype(np.int64), limit)
    return clip_l2(centers + away, radius), counts


def _split(
    centers: Integers, counts: Integers, radius: int, limit: int, generator: np.random.Generator
) -> Integers:
    """Centres with few records go next to those with most, which they halve."""
    size = np.maximum(counts, 0).astype(np.float64)
    centers = centers.copy()
    for few in np.flatnonzero(size < _FEW * size.mean()):
        most = int(size.argmax())
        size[most] /= 2
        size[few] = size[most]
        direction = generator.standard_normal(centers.shape[1])
        away = direction * (_APART * limit / np.linalg.norm(direction))
        centers[few] = centers[most] + np.rint(away).astype(np.int64)
    return clip_l2(centers, radius)


def cluster_sums(grid: Grid, centers: Integers, limit: int) -> tuple[Integers, Integers]:
    """For every centre: the sum of what is left of its rows, clipped, and how many they are."""
    clusters, dimension = centers.shape
    totals = np.zeros((clusters, dimension), dtype=np.int64)
    found = np.zeros(clusters, dtype=np.int64)
    coarse = toward_zero(centers)
    for block in blocks(grid, _TABLE // max(clusters, dimension)):
        labels = nearest_exactly(toward_zero(block), coarse)
        rest = clip_l2(block - centers[labels], limit)
        ones = np.ones(len(block), dtype=np.int64)
        place = (labels, np.arange(len(block)))
        totals += sparse.csr_matrix((ones, place), shape=(clusters, len(block))) @ rest
        found += np.bincount(labels, minlength=clusters)
    return totals, found


def toward_zero(steps: npt.NDArray[Any]) -> Floats:
    """Fine steps as coarse ones, rounded towards zero so that no vector gets longer."""
    return np.asarray(np.sign(steps) * (np.abs(steps) >> _COARSE), dtype=np.float32)


def nearest_exactly(rows: Floats, centers: Floats) -> Integers:
    r"""The nearest centre of each row, as a function of that row alone; of equals, the first.

    Entries are whole and norms at most 2^12, so by Cauchy and Schwarz any partial sum of
    :math:`x \cdot c` is a whole number of at most 2^24, which float32 holds: however a library
    orders and groups the products, they come out the same.
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
    """Centres to begin with in grid steps, and what is left of the budget."""
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
    """Uniform in the ball, without a look at the data."""
    generator = spending.generator()
    direction = generator.standard_normal((clusters, len(ball.center)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    length = generator.random((clusters, 1)) ** (1 / len(ball.center))
    return ball.clipped(ball.center + direction * length * ball.bound)[0]


def _of_moments(spending: Spending, array: npt.NDArray[Any], clusters: int, ball: Ball) -> Integers:
    """k-means of draws from a normal law with private mean and covariance."""
    about = spend_mean(spending, array, ball.bound, ball.center, START_SHARE / 2)
    moments = spend_covariance(spending, array, ball.bound, ball.center, START_SHARE / 2)
    shift = about.point - ball.center
    values, vectors = np.linalg.eigh(moments.matrix - np.outer(shift, shift))
    # Directions that noise alone could have made are left out.
    spread = vectors * np.sqrt(np.where(values > moments.noise_level, values, 0.0))
    drawn = spending.generator().standard_normal((clusters * _SIMULATED_EACH, len(shift)))
    grid = ball.kept(about.point + drawn @ spread.T)
    centers = grid[:clusters].astype(np.int64)
    for _ in range(_SIMULATED_STEPS):
        totals, found = cluster_sums(grid, centers, 2 * ball.radius)
        centers = centers + totals // np.maximum(found, 1)[:, None]
    return clip_l2(centers, ball.radius)
