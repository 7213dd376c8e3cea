r"""From features to codewords with a central guarantee towards the in-house rows.

Every number that is read off the rows has Gaussian noise on integers
(`tacit.private_statistics`), so that the total cost is that of one Gaussian with noise multiplier
z: query i has the share :math:`s_i` of :math:`1/z^2`, and :math:`\sum_i s_i = 1`.

1. Features are reduced to at most 256 directions that are known without the rows: those of
   synthetic images (`tacit.learned.synthetic`), or random ones.
2. A quantile of the norms, the mean, a quantile of the distances from it, and the covariance give
   the principal components above the noise; if there are too few, those of the synthetic images
   are used.
3. Many public candidates (normal with that covariance) are counted; the fullest are the first
   cells. Noisy steps of k-means move them; empty ones are moved next to the fullest.
4. Linked codewords: the graph of `tacit.learned.quantizer` is counted with noise, counts below the
   noise are dropped, and the rest is clustered.
5. The rows of each codeword are counted, and their mean is the prototype.

Notes
-----
What is not noise is post-processing, or public: bounds, shares, the number of cells. The number of
rows is public, and the number of cells depends on it: neighbours have equally many rows, one of
which is blank in one of them (zero-out). Everything that depends on a row is computed from that row
alone, by arithmetic with a fixed order (`privacy.rowwise`), and is rounded to integers before sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central import statistics as statistics
from tacit.central.statistics import Released
from tacit.data.schema import ArraySchema, Rows, Schema, TableSchema
from tacit.local.learned import features as features_of
from tacit.local.learned import quantizer, synthetic
from tacit.local.learned.features import Features, blocks
from tacit.local.learned.quantizer import Projection, Quantizer
from tacit.privacy import events, rowwise
from tacit.privacy.guarantees import Adjacency
from tacit.privacy.mechanisms import Gaussian
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Randomness, source
from tacit.privacy.rowwise import Product

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

SHARES = {
    "norms": 0.01,
    "mean": 0.04,
    "distances": 0.01,
    "covariance": 0.24,
    "start": 0.06,
    "steps": 0.31,
    "graph": 0.29,
    "counts": 0.01,
    "prototypes": 0.03,
}
"""The share of each query; if no graph is needed, the steps get its share too."""

MOST_AXES, MOST_COMPONENTS, FEWEST_COMPONENTS, PUBLIC_COMPONENTS = 256, 32, 8, 16
ROWS_PER_CELL, CANDIDATES, STEPS = 175, 8, 5
_SYNTHETIC, _BLOCK = 4096, 1024
_WIDEST = 4.0  # norms are searched up to this many times the root of the number of features
_INSIDE, _BEYOND, ROOM = 0.8, 1.15, 1.05
_LINKS = ((1, 2), (2, 1))  # rank and weight: twice those of `quantizer`, so that they are integers
_OUTSTANDING = 2.0
_BITS = 11  # coordinates in ranks: products of integers below 2^24 are exact in float32


@dataclass
class Budget:
    """A budget of one Gaussian in shares, with a record of what ran."""

    noise_multiplier: float
    rng: Randomness | None = None
    spent: list[events.Event] = field(default_factory=list)

    def share(self, part: float) -> dict[str, Any]:
        """Return the arguments of a query that may cost this part."""
        return {"noise_multiplier": self.multiplier(part), "rng": self.rng}

    def multiplier(self, part: float) -> float:
        """Return the noise multiplier of a query that may cost this part, rounded up."""
        return self.noise_multiplier / math.sqrt(part) * (1 + 1e-12)

    def part(self, share: float) -> Budget:
        """Return a part of this budget; what it spends is recorded here."""
        return Budget(self.multiplier(share), self.rng, self.spent)

    def take(self, released: Released[Any]) -> Any:
        """Return the value of a release, and record its event."""
        self.spent.append(released.event)
        return released.value

    def noisy(self, counts: Integers, squared: int, part: float) -> tuple[Integers, float]:
        """Add noise to counts of ℓ2 sensitivity √squared; return them and the noise's σ."""
        sensitivity = math.sqrt(squared) * (1 + 1e-12)
        noise = Gaussian(
            sensitivity=sensitivity,
            sigma=self.multiplier(part) * sensitivity,
            adjacency=Adjacency.ADD_REMOVE,
        )
        self.spent.append(noise.event)
        return noise.release(counts, self.rng), float(noise.event.sigma)

    @property
    def event(self) -> events.Event:
        """The composition of everything that ran."""
        return events.Composed(tuple(self.spent))

    @property
    def seeded(self) -> bool:
        """Whether the noise came from a reproducible generator."""
        return not source(self.rng).secure


@dataclass(frozen=True, eq=False, repr=False)
class Private:
    """The learned parts of a codebook, all covered by the budget."""

    quantizer: Quantizer
    counts: Integers
    count_variance: float
    """The variance of the noise of each count."""
    links: Floats | None
    prototypes: Floats


def fit(
    schema: Schema,
    features: Features,
    rows: Rows,
    codewords: int,
    *,
    budget: Budget,
    grouping: str,
    damped: bool,
    seed: int,
) -> Private:
    """Learn projection, cells, codewords, counts, links and prototypes within the budget."""
    if len(rows) < codewords:
        quantizer.refuse_too_few(codewords)
    axes = public_axes(schema, features, seed)
    reduced = on_axes(features, rows, axes)
    mean, matrix, spread = _components(reduced, axes, budget, damped)
    vectors = np.asarray(Product.of(matrix, 2 * axes.widest)(reduced - mean), np.float32)
    bound = ROOM * float(np.linalg.norm(spread))
    count = _count(len(rows), codewords, grouping)
    linked = codewords < count
    steps = SHARES["steps"] + (0 if linked else SHARES["graph"])
    cells = moved_cells(vectors, count, bound, spread, (SHARES["start"], steps), budget, seed)
    groups, links = np.arange(count), None
    ranked = ranks(vectors, cells, bound, 1 + len(_LINKS) if linked else 1)
    if linked:
        groups, links = _linked(ranked, cells, codewords, budget, seed)
    projection = Projection(
        np.asarray(axes.center + axes.directions @ mean, np.float32),
        np.asarray(axes.directions @ matrix, np.float32),
    )
    made = Quantizer(projection, cells, groups)
    codes = groups[ranked[:, 0]]
    counts = budget.take(statistics.counts(codes, made.codewords, **budget.share(SHARES["counts"])))
    prototypes = _prototypes(schema, rows, codes, np.maximum(counts, 1), budget)
    # The noise of a count has σ = z, as its sensitivity is 1, and is rounded.
    variance = budget.multiplier(SHARES["counts"]) ** 2 + 1 / 12
    return Private(made, np.maximum(counts, 0), variance, links, prototypes)


# --- 1. directions that need no rows ---------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Axes:
    """A centre and orthonormal directions that do not depend on the in-house rows."""

    center: npt.NDArray[np.float64]
    directions: npt.NDArray[np.float64]
    """(dimension, at most 256)"""
    widest: float
    """The expected largest distance of a row from the centre, or from another row."""
    variances: npt.NDArray[np.float64] | None = None
    """Variances of synthetic rows along each direction, largest first; None without them."""


def public_axes(schema: Schema, features: Features, seed: int) -> Axes:
    """Return principal directions of synthetic images; random ones if rows are not images."""
    dimension = features.dimension
    if not isinstance(schema, ArraySchema) or schema.image is None:
        widest, directions = _WIDEST * math.sqrt(dimension), np.eye(dimension)
        if dimension > MOST_AXES:
            drawn = np.random.default_rng(seed).standard_normal((dimension, MOST_AXES))
            directions = np.linalg.qr(drawn)[0]
        return Axes(np.zeros(dimension), directions, widest)
    from sklearn.decomposition import PCA

    images = synthetic.strokes(_SYNTHETIC, schema.image, seed)
    rows = Rows(images, np.empty((len(images), 0), np.int64))
    seen = np.concatenate([features.transform(block) for block in blocks(rows)])
    count = min(MOST_AXES, dimension)
    analysis = PCA(count, svd_solver="randomized", random_state=seed).fit(seen.astype(np.float64))
    widest = 3 * float(np.sqrt(((seen - analysis.mean_) ** 2).sum(axis=1).max()))
    return Axes(analysis.mean_, analysis.components_.T, widest, analysis.explained_variance_)


def on_axes(features: Features, rows: Rows, axes: Axes) -> Floats:
    """Project rows on the public directions, each row by itself."""
    product = Product.of(axes.directions, axes.widest)
    parts = [product(features_of.alone(features, one) - axes.center) for one in blocks(rows)]
    return np.concatenate(parts, dtype=np.float32)


# --- 2. principal components -----------------------------------------------------------------


def _components(
    reduced: Floats, axes: Axes, budget: Budget, damped: bool
) -> tuple[Floats, Floats, Floats]:
    """Estimate mean, projection, and the standard deviation of every projected coordinate."""
    inside = norm_within(reduced, axes.widest, SHARES["norms"], budget)
    mean = budget.take(statistics.mean(reduced, inside, **budget.share(SHARES["mean"]))).point
    around = (reduced - mean).astype(np.float32)
    inside = norm_within(around, axes.widest, SHARES["distances"], budget)
    most = min(MOST_COMPONENTS, reduced.shape[1])
    share = budget.share(SHARES["covariance"])
    released = budget.take(statistics.pca(reduced, most, inside, mean, **share))
    if released.above_noise < FEWEST_COMPONENTS and axes.variances is not None:
        # Too few rows: use the components of synthetic images, which come first here.
        most = min(PUBLIC_COMPONENTS, most)
        directions, variances = np.eye(len(mean))[:most], axes.variances[:most]
    else:
        kept = min(max(released.above_noise, FEWEST_COMPONENTS), most)
        directions, variances = released.directions[:kept], released.variances[:kept]
    least = max(1e-3 * float(variances[0]), (axes.widest / 1024) ** 2)
    deviation = np.sqrt(np.maximum(variances, least))
    scale = np.sqrt(deviation) if damped else np.ones_like(deviation)
    parts = (mean, directions.T / scale, deviation / scale)
    mean, matrix, spread = (np.asarray(part, np.float32) for part in parts)
    return mean, matrix, spread


def norm_within(vectors: Floats, widest: float, share: float, budget: Budget) -> float:
    """Estimate a length that most vectors do not exceed.

    It is slightly more than the 80 % quantile: with few rows, noise would move a higher quantile to
    the end of the range.
    """
    norms = rowwise.lengths(vectors.astype(np.float64))
    spent = budget.share(share)
    released = budget.take(statistics.quantiles(norms, [_INSIDE], 0.0, widest, cells=1024, **spent))
    return max(_BEYOND * float(released[0]), widest / 1024)


# --- 3. cells --------------------------------------------------------------------------------


def _count(rows: int, codewords: int, grouping: str) -> int:
    """Choose the number of cells: as many as noise allows if linked, else one per codeword."""
    if grouping == "compact":
        return codewords
    return max(min(quantizer.MOST_CELLS, rows // ROWS_PER_CELL), codewords)


def moved_cells(
    vectors: Floats,
    count: int,
    bound: float,
    spread: Floats,
    shares: tuple[float, float],
    budget: Budget,
    seed: int,
) -> Floats:
    """Run noisy k-means from the fullest of many public candidates.

    `shares` are those of the candidates' counts and of the steps.
    """
    public = np.random.default_rng(seed)
    drawn = public.standard_normal((CANDIDATES * count, len(spread))).astype(np.float32) * spread
    codes = ranks(vectors, drawn, bound, 1)[:, 0]
    seen = budget.take(statistics.counts(codes, len(drawn), **budget.share(shares[0])))
    cells = drawn[np.argsort(-seen, kind="stable")[:count]]
    moved = statistics.kmeans(vectors, count, bound, STEPS, cells, **budget.share(shares[1]))
    return np.asarray(budget.take(moved).centers, np.float32)


def ranks(vectors: Floats, cells: Floats, bound: float, places: int) -> Integers:
    """Return the nearest cells of each vector in order, decided in integers.

    The rank of one row then does not depend on how a product with others was rounded.
    """
    ball = GridBall("ranks", bound, 2.0 ** (math.ceil(math.log2(bound)) - _BITS), order=2)
    whole = ball.clip(cells).astype(np.float32)
    half = (whole**2).sum(axis=1) / 2
    nearest = []
    for start in range(0, len(vectors), _BLOCK):
        block = ball.clip(vectors[start : start + _BLOCK]).astype(np.float32)
        distance = half - block @ whole.T
        if places == 1:
            nearest.append(distance.argmin(axis=1)[:, None])
        else:
            nearest.append(np.argsort(distance, axis=1, kind="stable")[:, :places])
    return np.concatenate(nearest)


# --- 4. linked codewords ---------------------------------------------------------------------


def _linked(
    ranked: Integers, cells: Floats, codewords: int, budget: Budget, seed: int
) -> tuple[Integers, Floats]:
    """Group cells that many rows lie between; return the groups and links of codewords."""
    graph = np.zeros((len(cells), len(cells)), np.int64)
    for place, weight in _LINKS:
        np.add.at(graph, (ranked[:, 0], ranked[:, place]), weight)
    # One row adds 2 to one entry and 1 to another.
    squared = sum(weight**2 for _, weight in _LINKS)
    counted, sigma = budget.noisy(graph, squared, SHARES["graph"])
    noisy = counted.astype(np.float64)
    np.fill_diagonal(noisy, 0)
    both = noisy + noisy.T
    both[both < _OUTSTANDING * math.sqrt(2) * sigma] = 0
    groups = quantizer.spectral(both, codewords, seed)
    return groups, quantizer.links_of(both, groups)


# --- 5. prototypes ---------------------------------------------------------------------------


def _prototypes(
    schema: Schema, rows: Rows, codes: Integers, counts: Integers, budget: Budget
) -> Floats:
    """Estimate the mean row of each codeword, indicators of categories included."""
    values, table = features_of.Raw(schema), isinstance(schema, TableSchema)
    # A row of numbers is at most √d/2 from the middle of [0, 1]; a row of a table has at most a
    # number and a missing indicator, or one indicator, in each column.
    columns, middle = len(schema.names), 0.0 if table else 0.5
    bound = math.sqrt(2 * columns) if table else math.sqrt(columns) / 2
    share = budget.share(SHARES["prototypes"])
    sums = []
    for code in range(len(counts)):
        mine = values.transform(rows[np.flatnonzero(codes == code)]) - middle
        released = statistics.vector_sum(mine, bound, **share)
        sums.append(released.value)
    # A row is in a single codeword: all sums together cost as much as one of them.
    budget.spent.append(released.event)
    return np.clip(middle + np.stack(sums) / counts[:, None], 0, 1).astype(np.float32)
