r"""Cells of several partitions: each has its own, or all join the same small cells in other ways.

A partition is the arg-min of affine functions of a row's vector v,

.. math:: k_p(v) = \arg\min_k \; b_{pk} - c_{pk} \cdot v,

which covers cells of k-means (:math:`b = \lVert c \rVert^2 / 2`), quantiles along a direction, and
cells in the space of a linear model's scores. With `groups` there is one set of small cells, and
partition p maps small cell m to :math:`g_{pm}`: finding all partitions of a row then costs one
search, and a learner knows the rows' density from the small cells (`tacit.inference.field`).

`joined` makes such partitions, by turns of two kinds: *linked* ones follow the graph of small cells
that many rows lie between, *compact* ones follow their distances. Which is better depends on
whether classes are clusters, which cannot be known without labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local import proximity
from tacit.local.learned.quantizer import k_means

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

MOST_CELLS, ROWS_PER_CELL = 1024, 16
"""Small cells: at most so many, with so many in-house rows each."""

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of all partitions.

    Parameters
    ----------
    centres : array, (P, K, q), or (1, M, q) with `groups`
        c.
    offsets : array, (P, K), or (1, M)
        b.
    groups : array of int, (P, M), optional
        g: the cell of each small cell, in each partition.
    """

    centres: Floats
    offsets: Floats
    groups: Integers | None = None

    @classmethod
    def stacked(cls, parts: Sequence[tuple[Floats, Floats]]) -> Cells:
        """Put partitions together, each as centres and offsets."""
        centres, offsets = zip(*parts, strict=True)
        return cls(np.stack(centres).astype(np.float32), np.stack(offsets).astype(np.float32))

    @property
    def count(self) -> int:
        """K, the cells of a partition."""
        return self.centres.shape[1] if self.groups is None else int(self.groups.max()) + 1

    @property
    def partitions(self) -> int:
        """P."""
        return len(self.centres) if self.groups is None else len(self.groups)

    def __call__(self, vectors: Floats) -> Integers:
        """Return the cell of each vector in each partition, (n, P)."""
        count, cells, width = self.centres.shape
        flat = self.centres.reshape(-1, width)
        found = np.empty((len(vectors), count), np.int64)
        for start in range(0, len(vectors), _BLOCK):
            scores = self.offsets.ravel() - vectors[start : start + _BLOCK] @ flat.T
            found[start : start + _BLOCK] = scores.reshape(-1, count, cells).argmin(axis=2)
        return found if self.groups is None else self.groups[:, found[:, 0]].T


def joined(vectors: Floats, codewords: int, partitions: int, seed: int) -> Cells:
    """Fit small cells, and join them into partitions of both kinds by turns."""
    count = max(min(MOST_CELLS, len(vectors) // ROWS_PER_CELL), codewords)
    centres = k_means(vectors, count, seed)
    own = proximity.nearest(vectors, centres)
    used, own = np.unique(own, return_inverse=True)
    centres = centres[used]
    weights = np.bincount(own).astype(np.float64)
    codewords = min(codewords, len(centres))
    kinds: list[npt.NDArray[Any]] = [centres]
    if len(centres) > proximity.LEAST_LINKED:
        linked, values = proximity.harmonics(proximity.graph(vectors, centres), codewords)
        kinds.insert(0, linked * values)
    groups = [
        _grouped(kinds[index % len(kinds)], codewords, weights, seed + index)
        for index in range(partitions)
    ]
    offsets = (centres**2).sum(axis=1) / 2
    return Cells(centres[None], offsets[None].astype(np.float32), np.stack(groups))


def _grouped(places: npt.NDArray[Any], count: int, weights: Any, seed: int) -> Integers:
    """Divide small cells by k-means of their places."""
    from sklearn.cluster import KMeans

    clustering = KMeans(count, n_init=1, random_state=seed)
    return np.asarray(clustering.fit(places, sample_weight=weights).labels_, np.int64)
