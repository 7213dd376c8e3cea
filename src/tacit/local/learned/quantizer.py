r"""Quantization of features: a projection, many small cells, and cells joined into codewords.

Cells are those of k-means. `compact` codewords are cells; `linked` ones are groups of cells that
many rows lie between, by spectral clustering of the graph of `tacit.local.graphs`.

If classes are clusters of any shape, as in images, a few linked codewords replace hundreds of
compact ones, and the noise is spread over few symbols. If they are not, as in most tables, linking
joins rows that should stay apart.

References
----------
.. [SC17] Damle, Minden, Ying. Simple, direct and efficient multi-way spectral clustering. 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tacit.data.schema import Rows
from tacit.local.graphs import LEAST_LINKED, graph, nearest
from tacit.local.learned.features import Features, alone, blocks, reach
from tacit.privacy import errors
from tacit.privacy.rowwise import Product

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

GROUPINGS = ("linked", "compact")
MOST_CELLS, ROWS_PER_CELL = 1024, 16
_PROJECTION_ROWS, _FAR = 10_000, 1e6


@dataclass(frozen=True, eq=False)
class Projection:
    """Features less their mean, times a matrix; None leaves them as they are."""

    mean: Floats
    matrix: Floats | None

    def __call__(self, vectors: Floats) -> Floats:
        if self.matrix is None:
            return vectors
        return np.asarray((vectors - self.mean) @ self.matrix, np.float32)


@dataclass(frozen=True, eq=False)
class Quantizer:
    """A map from vectors to codewords.

    Parameters
    ----------
    projection : Projection
        The projection of features, applied first.
    cells : array, (M, q)
        Their centres.
    groups : array, (M,)
        The codeword of each cell, from 0 to K − 1.
    """

    projection: Projection
    cells: Floats
    groups: Integers

    @property
    def codewords(self) -> int:
        """K."""
        return int(self.groups.max()) + 1

    def __call__(self, features: Floats) -> Integers:
        """Return the codeword of each row of features."""
        return self.of_vectors(self.projection(features))

    def of_vectors(self, vectors: Floats) -> Integers:
        """Return the codeword of each row of projected features."""
        return self.groups[nearest(vectors, self.cells)]


def project(features: Features, rows: Rows, projection: Projection) -> Floats:
    """Project the features of all rows, in blocks."""
    parts = []
    for block in blocks(rows):
        made = projection(features.transform(block))
        # Every row gets a vector: an error would reveal which row has none.
        finite = np.nan_to_num(made, nan=0.0, posinf=_FAR, neginf=-_FAR)
        parts.append(np.clip(finite, -_FAR, _FAR))
    return np.ascontiguousarray(np.concatenate(parts), np.float32)


def project_alone(features: Features, rows: Rows, projection: Projection) -> Floats:
    """Compute the same up to rounding; the vector of a row depends on that row alone."""
    matrix, mean = projection.matrix, projection.mean
    if matrix is None:
        matrix = np.eye(len(mean), dtype=np.float32)
    product = Product.of(matrix, reach(features) + float(np.abs(mean).max()))
    parts = [product(alone(features, block) - mean) for block in blocks(rows)]
    return np.ascontiguousarray(np.concatenate(parts), np.float32)


def fit_projection(
    features: Features, rows: Rows, components: int | None, damped: bool, seed: int
) -> Projection:
    """Fit principal components of a sample of the rows.

    Damped components are divided by the square root of their standard deviation: a compromise
    between distances of the features and distances that weight all components equally.
    """
    from sklearn.decomposition import PCA

    dimension = features.dimension
    if components is None or components >= min(dimension, len(rows)):
        return Projection(np.zeros(dimension, np.float32), None)
    chosen = _sample(len(rows), _PROJECTION_ROWS, seed)
    sample = np.concatenate([features.transform(block) for block in blocks(rows[chosen])])
    analysis = PCA(components, svd_solver="randomized", random_state=seed).fit(sample)
    scale = np.maximum(np.sqrt(analysis.explained_variance_), 1e-12)
    matrix = analysis.components_.T / (np.sqrt(scale) if damped else 1.0)
    return Projection(analysis.mean_.astype(np.float32), matrix.astype(np.float32))


def fit_cells(
    vectors: Floats, codewords: int, grouping: str, seed: int, small: int | None = None
) -> tuple[Floats, Integers]:
    """Fit cell centres and the codeword of each; drop cells that no row is nearest to.

    `small` is the number of small cells that linked codewords join; by default it follows from the
    number of rows.
    """
    errors.choice("codebook", "grouping", grouping, GROUPINGS)
    if len(vectors) < codewords:
        refuse_too_few(codewords)
    count = codewords
    if grouping == "linked":
        count = max(small or min(MOST_CELLS, len(vectors) // ROWS_PER_CELL), codewords)
    cells = k_means(vectors, count, seed)
    cells = cells[np.unique(nearest(vectors, cells))]
    if grouping == "compact" or len(cells) <= max(codewords, LEAST_LINKED):
        return cells, np.arange(len(cells))
    return cells, spectral(graph(vectors, cells), codewords, seed)


def refuse_too_few(codewords: int) -> NoReturn:
    """Raise the error for too few rows, which both ways to fit share."""
    raise errors.InvalidData(
        f"codebook: in-house rows must be at least {codewords}, one per codeword. "
        "Give more rows, or fix codewords."
    )


def k_means(vectors: Floats, count: int, seed: int) -> Floats:
    """Fit the centres of k-means cells."""
    from sklearn.cluster import MiniBatchKMeans

    batch = min(4096, len(vectors))
    settings: dict[str, Any] = {"n_init": 3, "batch_size": batch, "max_iter": 60}
    clustering = MiniBatchKMeans(count, random_state=seed, **settings).fit(vectors)
    return np.asarray(clustering.cluster_centers_, np.float32)


def spectral(between: npt.NDArray[np.float64], codewords: int, seed: int) -> Integers:
    """Cluster cells into codewords, by the number of rows between any two cells."""
    from sklearn.cluster import SpectralClustering

    clustering = SpectralClustering(
        codewords, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
    )
    # The constant keeps the graph connected, whatever the data.
    labels = clustering.fit_predict(between + 1e-6)
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


def links(vectors: Floats, cells: Floats, groups: Integers) -> Floats:
    """Return the shares of rows between codewords: row k sums to 1 over the others, or to 0."""
    return links_of(graph(vectors, cells), groups)


def links_of(counts: npt.NDArray[np.float64], groups: Integers) -> Floats:
    """Return the same for a graph that is already counted."""
    member = np.eye(int(groups.max()) + 1)[groups]
    between = member.T @ counts @ member
    np.fill_diagonal(between, 0.0)
    total = between.sum(axis=1, keepdims=True)
    return np.asarray(between / np.where(total > 0, total, 1.0), np.float32)


def _sample(count: int, most: int, seed: int) -> Integers:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))


def means(values: Features, rows: Rows, codes: Integers, count: int) -> Floats:
    """Compute the mean row of each codeword, indicators of categories included."""
    totals = np.zeros((count, values.dimension))
    for start, block in enumerate(blocks(rows)):
        at = codes[start * 1024 : start * 1024 + len(block)]
        np.add.at(totals, at, values.transform(block))
    return np.asarray(totals / np.bincount(codes, minlength=count)[:, None], np.float32)


def must_fit(
    learned: Features, quantizer: Quantizer, arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Refuse weights whose shapes do not fit each other, before anything is encoded."""
    matrix, cells, groups = quantizer.projection.matrix, quantizer.cells, quantizer.groups
    width = learned.dimension if matrix is None else matrix.shape[1]
    count = int(groups.max()) + 1
    fits = (
        cells.ndim == 2
        and cells.shape == (len(groups), width)
        and bool(np.isfinite(cells).all())
        and np.array_equal(np.unique(groups), np.arange(count))
        and quantizer.projection.mean.shape == (learned.dimension,)
        and (matrix is None or matrix.shape[0] == learned.dimension)
        and arrays["counts"].shape == (count,)
        and len(arrays["prototypes"]) == count
        and arrays.get("links", np.empty((count, count))).shape == (count, count)
    )
    if not fits:
        raise errors.InvalidData(
            "Codebook: weights must fit each other. Was the file made by hand?"
        )
