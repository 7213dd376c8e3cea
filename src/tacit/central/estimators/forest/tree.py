r"""Complete binary trees on columns with public bounds: how they grow and predict.

Level l has 2^l nodes. Each is a box: the public one, cut by the splits above it. A record at node i
goes to 2i if its column is below the cut, else to 2i + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Box, Reals

Integers = npt.NDArray[np.int64]

Levels = list[tuple[Reals, float]]
"""Noisy counts (nodes, K) of each level, root first, and their standard deviations."""

_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Tree:
    """A grown tree: splits level by level, and the predictions of leaves. All of it is released.

    `counts` are the noisy counts of the leaves, `records` the noisy number of all records, and
    `noise` the standard deviation of the count of half of them.
    """

    features: tuple[Integers, ...]
    cuts: tuple[Reals, ...]
    chances: Reals
    counts: Reals
    records: float
    noise: float

    def predict(self, rows: Reals) -> Reals:
        """Return the probabilities of the classes, one row per record."""
        node = np.zeros(len(rows), dtype=np.int64)
        for features, cuts in zip(self.features, self.cuts, strict=True):
            node = 2 * node + (rows[np.arange(len(rows)), features[node]] >= cuts[node])
        return np.asarray(self.chances[node])


class Growth:
    """A growing tree: its boxes, and the node that each record is at.

    Parameters
    ----------
    columns : array of shape (d, n)
        Records within the box, one per column of the array, which is read column by column.
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
        """Return the number of nodes of the level that is not split yet."""
        return len(self.lower)

    def counts(self) -> Integers:
        """Count records of each class at each node. A record is in one count."""
        return self._table(self.node, self.nodes).reshape(self.nodes, self.classes)

    def cuts_at(self, features: Integers, places: Reals) -> Reals:
        """Return cuts at these places (from 0 to 1) between the ends of each node's box."""
        node = np.arange(self.nodes)[:, None]
        low, high = self.lower[node, features], self.upper[node, features]
        return np.asarray(low[..., None] + (high - low)[..., None] * places)

    def histograms(self, features: Integers, shifts: Reals, bins: int) -> Integers:
        r"""Count (nodes, m, b, K) in m columns per node, between the cuts at `places_of` the
        shifts.

        A record x at a node with box [l, u] in a column is counted in the bin

        .. math:: \left\lfloor (b - 1)\,\frac{x - l}{u - l} + 1 - s \right\rfloor.

        One record is in m counts, one per column: its bin depends on that record alone.
        """
        counts = np.empty((self.nodes, features.shape[1], bins, self.classes), dtype=np.int64)
        for place in range(features.shape[1]):
            cell = self._cells(features[:, place], shifts[:, place], bins)
            counts[:, place] = self._table(cell, self.nodes * bins).reshape(counts[:, 0].shape)
        return counts

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
        """Return the grown tree, with the predictions of its leaves."""
        predictions, records = chances(levels, self.classes), float(levels[0][0].sum())
        grown = tuple(self.features), tuple(self.cuts)
        return Tree(*grown, predictions, levels[-1][0], records, noise)

    def _cells(self, features: Integers, shifts: Reals, bins: int) -> Integers:
        """Return node and bin of each record, as one number."""
        node = np.arange(self.nodes)
        low, width = self.lower[node, features], (self.upper - self.lower)[node, features]
        rate = np.zeros(self.nodes)
        # After many cuts a box may have no width left.
        np.divide(bins - 1, width, out=rate, where=width > (bins - 1) / _LARGEST)
        steps = self._values(features) * rate[self.node]
        steps += (1 - shifts - low * rate)[self.node]
        np.clip(steps, 0, bins - 1, out=steps)
        return self.node * bins + steps.astype(np.int64)

    def _values(self, features: Integers) -> Reals:
        """Return the value of each record in its node's column."""
        if bool((features == features[0]).all()):
            return np.asarray(self.columns[features[0]])
        return np.asarray(self.columns[features[self.node], np.arange(len(self.node))])

    def _table(self, cell: Integers, cells: int) -> Integers:
        flat = np.bincount(cell * self.classes + self.codes, minlength=cells * self.classes)
        return flat.astype(np.int64)


def chances(levels: Levels, classes: int) -> Reals:
    r"""Estimate class probabilities at each leaf, from noisy counts on the path to it.

    .. math:: p_v = \frac{(\tilde c_v)_+ + \sigma_v\,p_{\mathrm{parent}(v)}}
                         {\sum (\tilde c_v)_+ + \sigma_v}

    A node with fewer records than the noise σ on its counts predicts what its parent predicts.
    """
    probabilities = np.full((1, classes), 1 / classes)
    for counts, deviation in levels:
        prior = np.repeat(probabilities, len(counts) // len(probabilities), axis=0)
        positive, weight = np.maximum(counts, 0.0), max(deviation, 1.0)
        probabilities = (positive + weight * prior) / (positive.sum(axis=1, keepdims=True) + weight)
    return probabilities


def ancestors(leaves: Reals, deviation: float) -> Levels:
    """Sum the counts of leaves to every level, root first, with their standard deviations."""
    levels = [(leaves, deviation)]
    while len(levels[-1][0]) > 1:
        below, noise = levels[-1]
        levels.append((below[0::2] + below[1::2], noise * 2**0.5))
    return levels[::-1]


def places_of(shifts: Reals, bins: int) -> Reals:
    r"""Return the places :math:`(k + s)/(b - 1)`, 0 ≤ k < b − 1, of cuts between b bins.

    The shifts s in (0, 1) are drawn anew for every node and column, so that cuts of trees differ.
    """
    return np.asarray((np.arange(bins - 1) + shifts[..., None]) / (bins - 1))
