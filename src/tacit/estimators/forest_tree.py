r"""Complete binary trees on columns with public bounds: how they grow, and what they say.

Level l has 2^l nodes, each a box: the public one, cut by the splits above it. A record at node i
goes to 2i where its column is below the cut, else to 2i + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.estimators.base import Box, Reals

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tree:
    """Splits level by level, and the chances of the classes at each leaf: all of it released."""

    features: tuple[Integers, ...]
    cuts: tuple[Reals, ...]
    chances: Reals

    def predict(self, rows: Reals) -> Reals:
        """Chances of the classes, one row a record."""
        node = np.zeros(len(rows), dtype=np.int64)
        for features, cuts in zip(self.features, self.cuts, strict=True):
            node = _below(rows, node, features, cuts)
        return np.asarray(self.chances[node])


class Growth:
    """A tree that is growing: its boxes, and which node each record is at.

    Parameters
    ----------
    rows : array of shape (n, d)
        Records within the box.
    codes : array of shape (n,)
        Their classes, 0, …, K − 1.
    """

    def __init__(self, box: Box, rows: Reals, codes: Integers, classes: int) -> None:
        self.rows, self.codes, self.classes = rows, codes, classes
        self.lower, self.upper = box.lower[None], box.upper[None]
        self.node = np.zeros(len(rows), dtype=np.int64)
        self.features: list[Integers] = []
        self.cuts: list[Reals] = []

    @property
    def nodes(self) -> int:
        """Of the level that is not split yet."""
        return len(self.lower)

    def counts(self) -> Integers:
        """Records of each class at each node. One record is in one count."""
        return self._table(self.node, self.nodes).reshape(self.nodes, self.classes)

    def edges(self, features: Integers, shifts: Reals) -> Reals:
        r"""Candidate cuts (nodes, m, b − 1): equal steps through each node's box.

        .. math:: a_k = \ell + (u - \ell)\,\frac{k + s}{b - 1}, \quad 0 \le k < b - 1

        with one s in (0, 1) a node and column, so that no two trees have the same cuts.
        """
        node = np.arange(self.nodes)[:, None]
        low, high = self.lower[node, features], self.upper[node, features]
        return np.asarray(low[..., None] + (high - low)[..., None] * shifts)

    def histograms(self, features: Integers, edges: Reals) -> Integers:
        """Counts (nodes, m, b, K) between edges. One record is in m counts, one a column."""
        bins = edges.shape[2] + 1
        found = np.empty((self.nodes, features.shape[1], bins, self.classes), dtype=np.int64)
        for place in range(features.shape[1]):
            cell = self.node * bins + self._cells(features[:, place], edges[:, place])
            found[:, place] = self._table(cell, self.nodes * bins).reshape(found[:, 0].shape)
        return found

    def split(self, features: Integers, cuts: Reals) -> None:
        """Cut every node in two."""
        node = np.arange(self.nodes)
        self.node = _below(self.rows, self.node, features, cuts)
        self.lower, self.upper = (np.repeat(side, 2, axis=0) for side in (self.lower, self.upper))
        self.upper[2 * node, features] = cuts
        self.lower[2 * node + 1, features] = cuts
        self.features.append(features)
        self.cuts.append(cuts)

    def tree(self, chances: Reals) -> Tree:
        """What has grown, with what its leaves say."""
        return Tree(tuple(self.features), tuple(self.cuts), chances)

    def _cells(self, features: Integers, edges: Reals) -> Integers:
        """How many of its node's edges a record reaches: a function of that record alone."""
        first, width = edges[:, 0], edges[:, -1] - edges[:, 0]
        # One edge, or a box without width: the first edge alone decides.
        rate = (edges.shape[1] - 1) / np.where(width > 0, width, 1.0)
        rate = np.where((width > 0) & np.isfinite(rate), rate, 1.0)
        value = self.rows[np.arange(len(self.rows)), features[self.node]]
        steps = np.floor((value - first[self.node]) * rate[self.node])
        return np.clip(steps + 1, 0, edges.shape[1]).astype(np.int64)

    def _table(self, cell: Integers, cells: int) -> Integers:
        flat = np.bincount(cell * self.classes + self.codes, minlength=cells * self.classes)
        return flat.astype(np.int64)


def chances(levels: list[tuple[Reals, float]], classes: int) -> Reals:
    r"""Chances of the classes at each leaf, from noisy counts on the path to it.

    .. math:: p_v = \frac{(\tilde c_v)_+ + \sigma_v\,p_{\mathrm{parent}(v)}}
                         {\sum (\tilde c_v)_+ + \sigma_v}

    A node of fewer records than the noise σ has on its counts says what its parent says.
    """
    found = np.full((1, classes), 1 / classes)
    for counts, deviation in levels:
        prior = np.repeat(found, len(counts) // len(found), axis=0)
        held, weight = np.maximum(counts, 0.0), max(deviation, 1.0)
        found = (held + weight * prior) / (held.sum(axis=1, keepdims=True) + weight)
    return found


def ancestors(leaves: Reals, deviation: float) -> list[tuple[Reals, float]]:
    """Counts of every level, root first, as sums of those of the leaves, and their deviations."""
    levels = [(leaves, deviation)]
    while len(levels[-1][0]) > 1:
        below, noise = levels[-1]
        levels.append((below[0::2] + below[1::2], noise * 2**0.5))
    return levels[::-1]


def _below(rows: Reals, node: Integers, features: Integers, cuts: Reals) -> Integers:
    """The nodes one level down."""
    value = rows[np.arange(len(rows)), features[node]]
    return 2 * node + (value >= cuts[node])
