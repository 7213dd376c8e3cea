r"""Three ways to grow a forest, each with its division of the budget.

A plan is fixed before any record is read; `event` is its cost, and `grow` follows it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Box, Reals
from tacit.central.estimators.forest.noise import WHERE, ForestNoise
from tacit.central.estimators.forest.splits import (
    MOST_RECORDS,
    blended,
    blended_sensitivity,
    consistent,
    gains,
)
from tacit.central.estimators.forest.tree import Growth, Tree, ancestors, places_of
from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency
from tacit.privacy.randomness import Randomness, source, uniform_below

Integers = npt.NDArray[np.int64]

LEAVES = Fraction(1, 10)
"""Share of a histogram tree's budget for the counts of its leaves."""

CHOICES = Fraction(1, 2)
"""Share of a DPRF tree's budget for its splits; the rest is for its leaves."""

_MOST_CELLS = 2**27
_MOST_CUTS = 2**14


@dataclass(frozen=True, eq=False)
class Growing(ABC):
    """Settings of a forest, all public.

    Parameters
    ----------
    noise : tuple
        ε, δ and the unit.
    box : Box
        Public bounds.
    classes, trees, depth, bins, columns : int
        Numbers of classes, trees, levels of splits, bins per column, and columns tried per node.
    records : int
        Upper bound on the number of records; used by DPRF only.
    """

    noise: tuple[float, float, str]
    box: Box
    classes: int
    trees: int
    depth: int
    bins: int
    columns: int
    records: int
    blend: float

    def __post_init__(self) -> None:
        if self.cells > _MOST_CELLS:
            remedy = "Lower max_depth, bins or max_features."
            errors.refuse(WHERE, "counts of a level", f"at most {_MOST_CELLS}", self.cells, remedy)

    @property
    def cells(self) -> int:
        """Return the number of counts of the largest level, which are in memory at once."""
        return int(2 ** (self.depth - 1)) * self.columns * self.bins * self.classes

    @property
    def bagged(self) -> bool:
        """Return whether each record is in one tree, which has the whole budget, or in all."""
        return not self.noise[1]

    @property
    def share(self) -> Fraction:
        """Return the share of the budget for one tree."""
        return Fraction(1) if self.bagged else Fraction(1, self.trees)

    @property
    def event(self) -> events.Event:
        """Return the event of a forest."""
        noise = ForestNoise(*self.noise, None)
        for _ in range(1 if self.bagged else self.trees):
            self._charge(noise)
        return self._of(noise)

    def grow(
        self, rows: Reals, codes: Integers, rng: Randomness | None
    ) -> tuple[list[Tree], events.Event]:
        """Return the trees, and the event."""
        stream, columns = source(rng), np.ascontiguousarray(rows.T)
        free = np.random.default_rng(stream.words(4))  # for choices that read no record
        shared = ForestNoise(*self.noise, stream)
        grown, ran = [], set()
        for part in self._parts(len(rows), stream):
            noise = ForestNoise(*self.noise, stream) if self.bagged else shared
            growth = Growth(self.box, columns[:, part], codes[part], self.classes)
            grown.append(self._tree(growth, noise, free))
            if self.bagged:
                ran.add(self._of(noise))
        return grown, ran.pop() if len(ran) == 1 else self._of(shared)

    @property
    def adjacency(self) -> Adjacency:
        """Return the neighbours of the guarantee: add-remove, as n is not used."""
        return Adjacency.ADD_REMOVE

    def _of(self, noise: ForestNoise) -> events.Event:
        whole = events.Parallel((noise.event,)) if self.bagged else noise.event
        return events.towards(whole, self.adjacency)

    def _parts(self, records: int, rng: Randomness) -> Iterator[Integers | slice]:
        """Yield the records of each tree; bags are drawn without looking at any record."""
        if not self.bagged:
            yield from [slice(None)] * self.trees
            return
        bag = uniform_below(self.trees, records, rng)
        order = np.argsort(bag, kind="stable")
        yield from np.split(order, np.searchsorted(bag[order], np.arange(1, self.trees)))

    @abstractmethod
    def _charge(self, noise: ForestNoise) -> None:
        """Pay for one tree."""

    @abstractmethod
    def _tree(self, growth: Growth, noise: ForestNoise, free: np.random.Generator) -> Tree:
        """Grow one tree, and pay what `_charge` says."""

    def _candidates(
        self, growth: Growth, free: np.random.Generator
    ) -> tuple[Integers, Reals, Integers]:
        """Draw columns and cuts to try at each node, without the records; count histograms."""
        nodes, columns = growth.nodes, len(self.box.lower)
        features = np.tile(np.arange(columns), (nodes, 1))
        if self.columns < columns:
            features = free.permuted(features, axis=1)[:, : self.columns]
        shifts = free.random(features.shape)
        counts = growth.histograms(features, shifts, self.bins)
        return features, growth.cuts_at(features, places_of(shifts, self.bins)), counts


class Histograms(Growing):
    """Trees whose splits are computed from noisy histograms of every column at every node."""

    @property
    def each(self) -> Fraction:
        """Return the share of one column's histograms of one level."""
        return self.share * (1 - LEAVES) / (self.depth * self.columns)

    def _charge(self, noise: ForestNoise) -> None:
        noise.charge(self.depth * self.columns, self.each)
        noise.charge(1, self.share * LEAVES)

    def _tree(self, growth: Growth, noise: ForestNoise, free: np.random.Generator) -> Tree:
        deviation, levels = noise.deviation(self.each), []
        for _ in range(self.depth):
            features, cuts, counts = self._candidates(growth, free)
            released = noise.add(counts, self.columns, self.each).astype(np.float64)
            agreed, totals = consistent(released)
            levels.append((totals, deviation * math.sqrt(self.bins / self.columns)))
            _split(growth, features, cuts, _best(gains(agreed, totals, deviation)))
        last = self.share * LEAVES
        leaves = noise.add(growth.counts(), 1, last).astype(np.float64)
        levels.append((leaves, noise.deviation(last)))
        return growth.tree(levels, deviation * math.sqrt(self.bins * self.classes) / 2)


class RandomSplits(Growing):
    """Trees with random splits; the whole budget is spent on the counts of leaves."""

    @property
    def cells(self) -> int:
        return int(2**self.depth * self.classes)

    def _charge(self, noise: ForestNoise) -> None:
        noise.charge(1, self.share)

    def _tree(self, growth: Growth, noise: ForestNoise, free: np.random.Generator) -> Tree:
        for _ in range(self.depth):
            features = free.integers(0, len(self.box.lower), (growth.nodes, 1))
            cuts = growth.cuts_at(features, free.random((growth.nodes, 1, 1)))
            growth.split(features[:, 0], cuts[:, 0, 0])
        return _with_leaves(growth, noise, self.share)


class DPRF(Growing):
    """Trees with splits by the exponential mechanism on exact scores, on disjoint bags.

    The sensitivity of a score depends on the number of records, which is therefore public.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        cuts = self.columns * (self.bins - 1)
        remedy = "That is max_features times bins less one."
        if not 2 <= cuts <= _MOST_CUTS:
            errors.refuse(WHERE, "cuts to choose from", f"from 2 to {_MOST_CUTS}", cuts, remedy)

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.ZERO_OUT

    @property
    def each(self) -> Fraction:
        """Return the share of the choices of one level."""
        return CHOICES / self.depth

    @property
    def sensitivity(self) -> float:
        """Return the sensitivity of a score."""
        return blended_sensitivity(self.records, self.blend)

    def _charge(self, noise: ForestNoise) -> None:
        for _ in range(self.depth):
            noise.charge_choice(self.sensitivity, self.each)
        noise.charge(1, 1 - CHOICES)

    def _tree(self, growth: Growth, noise: ForestNoise, free: np.random.Generator) -> Tree:
        for _ in range(self.depth):
            features, cuts, counts = self._candidates(growth, free)
            flat = blended(counts, self.blend).reshape(growth.nodes, -1)
            _split(growth, features, cuts, noise.choose(flat, self.sensitivity, self.each))
        return _with_leaves(growth, noise, 1 - CHOICES)


def public_size(records: int) -> int:
    """Return the next power of two: all that a DPRF forest uses of the number of records."""
    if records >= MOST_RECORDS:
        raise errors.InvalidData(f"{WHERE}: records must be fewer than 2^31.")
    return int(2 ** records.bit_length())


def _with_leaves(growth: Growth, noise: ForestNoise, share: Fraction) -> Tree:
    leaves = noise.add(growth.counts(), 1, share).astype(np.float64)
    deviation = noise.deviation(share)
    return growth.tree(ancestors(leaves, deviation), deviation * math.sqrt(leaves.size / 2))


def _best(scores: Reals) -> Integers:
    return np.asarray(scores.reshape(len(scores), -1).argmax(axis=1))


def _split(growth: Growth, features: Integers, cuts: Reals, chosen: Integers) -> None:
    """Cut each node by its chosen candidate."""
    node = np.arange(growth.nodes)
    column, place = np.divmod(chosen, cuts.shape[2])
    growth.split(features[node, column], cuts[node, column, place])
