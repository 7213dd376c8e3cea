r"""Complete binary trees on columns with public bounds: how they grow, and what they say.

Level l has 2^l nodes, each a box: the public one, cut by the splits above it. A record at node i
goes to 2i where its column is below the cut, else to 2i + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Box, Reals

Integers = npt.NDArray[np.int64]

Levels = list[tuple[Reals, float]]
"""Noisy counts (nodes, K) of each level, root first, and their deviations."""

_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Tree:
    """Splits level by level, and what the leaves say: all of it released.

    `counts` are the noisy counts of the leaves, `records` the noisy number of all records, and
    `noise` the deviation of the count of half of them.
    """

    features: tuple[Integers, ...]
    cuts: tuple[Reals, ...]
    chances: Reals
    counts: Reals
    records: float
    noise: float

    def predict(self, rows: Reals) -> Reals:
        """Chances of the classes, one row a record."""
        node = np.zeros(len(rows), dtype=np.int64)
        for features, cuts in zip(self.features, self.cuts, strict=True):
            node = 2 * node + (rows[np.arange(len(rows)), features[node]] >= cuts[node])
        return np.asarray(self.chances[node])


class Growth:
    """A tree that is growing: its boxes, and which node each record is at.

    Parameters
    ----------
    columns : array of shape (d, n)
        Records within the box, one a column of the array: they are read a column at a time.
    codes : array of shape (n,)
        Their classes, 0, …, K − 1.
    """

    def __init__(self, box: Box, columns: Reals, codes: Integers, classes: int) -> None:
        self.columns, self.codes, self.classes = columns, codes, classes
        self.lower, self.upper = box.lower[None], box.upper[None]
        self.node = np.zeros(len(codes), dtype=np.int64)
        self.features: list[Integers] = []
        self.cuts: list[Reals] = []

    @property
    def nodes(self) -> int:
        """Of the level that is not split yet."""
        return len(self.lower)

    def counts(self) -> Integers:
        """Records of each class at each node. One record is in one count."""
        return self._table(self.node, self.nodes).reshape(self.nodes, self.classes)

    def cuts_at(self, features: Integers, places: Reals) -> Reals:
        """Cuts at these places (from 0 to 1) between the ends of each node's box."""
        node = np.arange(self.nodes)[:, None]
        low, high = self.lower[node, features], self.upper[node, features]
        return np.asarray(low[..., None] + (high - low)[..., None] * places)

    def histograms(self, features: Integers, shifts: Reals, bins: int) -> Integers:
        r"""Counts (nodes, m, b, K) of m columns a node, between the cuts at `places_of` the shifts.

        A record x at a node with box [l, u] in a column is counted in the bin

        .. math:: \left\lfloor (b - 1)\,\frac{x - l}{u - l} + 1 - s \right\rfloor.

        One record is in m counts, one a column: where it is counted depends on it alone.
        """
        found = np.empty((self.nodes, features.shape[1], bins, self.classes), dtype=np.int64)
        for place in range(features.shape[1]):
            cell = self._cells(features[:, place], shifts[:, place], bins)
            found[:, place] = self._table(cell, self.nodes * bins).reshape(found[:, 0].shape)
        return found

    def split(self, features: Integers, cuts: Reals) -> None:
        """Cut every node in two."""
        node = np.arange(self.nodes)
        self.node = 2 * self.node + (self._values(features) >= cuts[self.node])
        self.lower, self.upper = (np.repeat(side, 2, axis=0) for side in (self.lower, self.upper))
        self.upper[2 * node, features] = cuts
        self.lower[2 * node + 1, features] = cuts
        self.features.append(features)
        self.cuts.append(cuts)

    def tree(self, levels: Levels, noise: float) -> Tree:
        """What has grown, with what its leaves say."""
        said, records = chances(levels, self.classes), float(levels[0][0].sum())
        grown = tuple(self.features), tuple(self.cuts)
        return Tree(*grown, said, levels[-1][0], records, noise)

    def _cells(self, features: Integers, shifts: Reals, bins: int) -> Integers:
        """Node and bin of each record, as one number."""
        node = np.arange(self.nodes)
        low, width = self.lower[node, features], (self.upper - self.lower)[node, features]
        rate = np.zeros(self.nodes)
        # A box can be cut so often that it has no width left.
        np.divide(bins - 1, width, out=rate, where=width > (bins - 1) / _LARGEST)
        steps = self._values(features) * rate[self.node]
        steps += (1 - shifts - low * rate)[self.node]
        np.clip(steps, 0, bins - 1, out=steps)
        return self.node * bins + steps.astype(np.int64)

    def _values(self, features: Integers) -> Reals:
        """Of each record in its node's column."""
        if bool((features == features[0]).all()):
            return np.asarray(self.columns[features[0]])
        return np.asarray(self.columns[features[self.node], np.arange(len(self.node))])

    def _table(self, cell: Integers, cells: int) -> Integers:
        flat = np.bincount(cell * self.classes + self.codes, minlength=cells * self.classes)
        return flat.astype(np.int64)


def chances(levels: Levels, classes: int) -> Reals:
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


def ancestors(leaves: Reals, deviation: float) -> Levels:
    """Counts of every level, root first, as sums of those of the leaves, and their deviations."""
    levels = [(leaves, deviation)]
    while len(levels[-1][0]) > 1:
        below, noise = levels[-1]
        levels.append((below[0::2] + below[1::2], noise * 2**0.5))
    return levels[::-1]


def places_of(shifts: Reals, bins: int) -> Reals:
    r"""Places :math:`(k + s)/(b - 1)`, 0 ≤ k < b − 1, of the cuts between b bins, from s in (0, 1).

    Shifts are drawn afresh for every node and column, so that no two trees have the same cuts.
    """
    return np.asarray((np.arange(bins - 1) + shifts[..., None]) / (bins - 1))
