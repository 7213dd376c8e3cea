"""Principal components and cells of k-means, in each block of features by itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tacit.data.schema import Rows
from tacit.local.learned import quantizer as quantizers
from tacit.local.learned.features import blocks
from tacit.local.learned.quantizer import Projection
from tacit.local.learned.scales import Scales
from tacit.local.learned.signals import Signals
from tacit.privacy import errors

Floats = npt.NDArray[np.float32]

COMPONENTS = 64
"""Most principal components of each block of features."""

_SAMPLE, _NEGLIGIBLE = 10_000, 1e-6


def projected(
    learned: Scales | Signals, rows: Rows, seed: int
) -> tuple[Projection, tuple[slice, ...]]:
    """Fit principal components of each block, most variable first."""
    from sklearn.decomposition import PCA

    chosen = np.random.default_rng(seed).permutation(len(rows))[:_SAMPLE]
    sample = np.concatenate([learned.transform(block) for block in blocks(rows[chosen])])
    if not sample.std(axis=0).any():
        raise errors.InvalidData("Partitions.fit: in-house rows must not be all alike.")
    mean, matrix, start = sample.mean(axis=0), [], 0
    kept: list[slice] = []
    for size in learned.blocks:
        block = sample[:, start : start + size]
        count = min(COMPONENTS, size, len(block))
        analysis = PCA(count, svd_solver="full", random_state=seed).fit(block)
        # Directions in which in-house rows do not vary say nothing, and could put a person far off.
        varies = analysis.explained_variance_ > _NEGLIGIBLE * analysis.explained_variance_.sum()
        count = max(int(varies.sum()), 1)
        whole = np.zeros((learned.dimension, count), np.float32)
        whole[start : start + size] = analysis.components_[:count].T
        first = kept[-1].stop if kept else 0
        kept.append(slice(first, first + count))
        matrix.append(whole)
        start += size
    return Projection(mean.astype(np.float32), np.hstack(matrix)), tuple(kept)


def k_means(vectors: Floats, block: slice, cells: int, seed: int) -> tuple[Floats, Floats]:
    """Fit cells in one block of the vectors, as affine functions of all of them."""
    own = quantizers.k_means(vectors[:, block], cells, seed)
    centres = np.zeros((cells, vectors.shape[1]), np.float32)
    centres[:, block] = own
    return centres, (own**2).sum(axis=1) / 2
