r"""Cells of several partitions: each has its own, or all join the same small cells in other ways.

A partition is the arg-min of affine functions of a row's vector v,

.. math:: k_p(v) = \arg\min_k \; b_{pk} - c_{pk} \cdot v,

which covers cells of k-means (:math:`b = \lVert c \rVert^2 / 2`), quantiles along a direction, and
cells in the space of a linear model's scores. With `groups` these are small cells, and partition p
maps small cell m to :math:`g_{pm}`. Partitions that share one set of small cells cost one search,
and a learner knows the rows' density from these cells (`tacit.inference.field`).

*Linked* partitions join small cells that many rows lie between, *compact* ones join by distance.
Which is better depends on whether classes are clusters, which cannot be known without labels.
`joined` makes both by turns from shared small cells; `linked` has small cells of its own for every
partition, so that these differ more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local import graphs
from tacit.local.learned import quantizer as quantizers

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

MOST_CELLS, ROWS_PER_CELL = 1024, 16
"""The largest number of small cells, and the in-house rows that each should have."""

MOST_IN_SETS, ROWS_IN_SETS = 400, 10
"""The same if every partition has small cells of its own."""

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of all partitions.

    Parameters
    ----------
    centres : array, (P, K, q); with `groups` (P, M, q), or (1, M, q) if they are shared
        c.
    offsets : array, (P, K), (P, M) or (1, M)
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

    @property
    def shared(self) -> bool:
        """Whether all partitions join the same small cells."""
        return self.groups is not None and len(self.centres) == 1

    def replaced(self, parts: Mapping[int, tuple[Floats, Floats]]) -> Cells:
        """Return cells with other ones in the named partitions, each as K centres and offsets."""
        centres, offsets = self.centres.copy(), self.offsets.copy()
        groups = None if self.groups is None else self.groups.copy()
        for index, (own, shifts) in parts.items():
            places = _padded(len(own), centres.shape[1])
            centres[index], offsets[index] = own[places], shifts[places]
            if groups is not None:
                groups[index] = places
        return Cells(centres, offsets, groups)

    def __call__(self, vectors: Floats) -> Integers:
        """Return the cell of each vector in each partition, (n, P)."""
        count, cells, width = self.centres.shape
        flat = self.centres.reshape(-1, width)
        found = np.empty((len(vectors), count), np.int64)
        for start in range(0, len(vectors), _BLOCK):
            scores = self.offsets.ravel() - vectors[start : start + _BLOCK] @ flat.T
            found[start : start + _BLOCK] = scores.reshape(-1, count, cells).argmin(axis=2)
        if self.groups is None:
            return found
        places = np.arange(len(self.groups)) * self.groups.shape[1]
        return np.asarray(self.groups.ravel()[found + places])


def joined(vectors: Floats, codewords: int, partitions: int, seed: int) -> Cells:
    """Fit small cells, and join them into partitions of both kinds by turns."""
    count = max(min(MOST_CELLS, len(vectors) // ROWS_PER_CELL), codewords)
    centres = quantizers.k_means(vectors, count, seed)
    own = graphs.nearest(vectors, centres)
    used, own = np.unique(own, return_inverse=True)
    centres = centres[used]
    weights = np.bincount(own).astype(np.float64)
    codewords = min(codewords, len(centres))
    kinds: list[npt.NDArray[Any]] = [centres]
    if len(centres) > graphs.LEAST_LINKED:
        linked, values = graphs.harmonics(graphs.graph(vectors, centres), codewords)
        kinds.insert(0, linked * values)
    groups = [
        _grouped(kinds[index % len(kinds)], codewords, weights, seed + index)
        for index in range(partitions)
    ]
    offsets = (centres**2).sum(axis=1) / 2
    return Cells(centres[None], offsets[None].astype(np.float32), np.stack(groups))


def linked(
    vectors: Floats, blocks: Sequence[slice], codewords: int, partitions: int, seed: int
) -> Cells:
    """Fit linked partitions, each with small cells of its own in one of the blocks by turns."""
    sets, small = [], _small(len(vectors))
    for index in range(partitions):
        block = blocks[index % len(blocks)]
        own, groups = quantizers.fit_cells(
            vectors[:, block], codewords, "linked", seed + index, small
        )
        centres = np.zeros((len(own), vectors.shape[1]), np.float32)
        centres[:, block] = own
        sets.append((centres, groups))
    most = max(len(groups) for _, groups in sets)
    padded = [_padded(len(groups), most) for _, groups in sets]
    centres = np.stack([own[chosen] for (own, _), chosen in zip(sets, padded, strict=True)])
    joins = np.stack([groups[chosen] for (_, groups), chosen in zip(sets, padded, strict=True)])
    return Cells(centres, ((centres**2).sum(axis=2) / 2).astype(np.float32), joins)


def enough_to_link(rows: int, codewords: int) -> bool:
    """Whether this many in-house rows give every codeword several small cells to join."""
    return _small(rows) >= 3 * codewords


def _padded(count: int, most: int) -> Integers:
    """Number cells, filled up with copies of the last: of equally near cells the first counts."""
    return np.minimum(np.arange(most), count - 1)


def _small(rows: int) -> int:
    """Return the number of small cells in each of several sets: fewer than if there is one set."""
    return min(MOST_IN_SETS, rows // ROWS_IN_SETS)


def _grouped(places: npt.NDArray[Any], count: int, weights: Any, seed: int) -> Integers:
    """Divide small cells by k-means of their places."""
    from sklearn.cluster import KMeans

    clustering = KMeans(count, n_init=1, random_state=seed)
    return np.asarray(clustering.fit(places, sample_weight=weights).labels_, np.int64)
