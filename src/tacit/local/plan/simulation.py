"""Simulated collections: the pipeline that will run, on in-house rows with labels of a world."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.columns import columns_of
from tacit.local.collection import Collection
from tacit.privacy.randomness import Seeded

Reals = npt.NDArray[np.float64]

MOST_ROWS = 2000
"""In-house rows that are simulated on: more take longer and change little."""


@dataclass(frozen=True)
class Trial:
    """One simulated collection.

    Parameters
    ----------
    people : int
        How many reported.
    best, largest : float
        The accuracy of the best classifier in this world, and of naming the largest class.
    reached : float
        The accuracy of the model that was learned from the reports.
    kind : str
        The kind of world.
    """

    people: int
    best: float
    largest: float
    reached: float
    kind: str


class Simulation:
    """Collections that are simulated on the same in-house rows at one ε.

    Parameters
    ----------
    inhouse
        A table or an array, as `Collection.fit` takes it.
    classes : int
        How many labels there are.
    epsilon : float
        Local ε of one report.
    image : (int, int), optional
        Height and width, if flat rows are images.
    seed : int
        Of everything that is drawn.
    """

    def __init__(
        self,
        inhouse: Any,
        classes: int,
        epsilon: float,
        image: tuple[int, ...] | None = None,
        seed: int = 0,
    ) -> None:
        self.classes, self.epsilon, self.image, self.seed = classes, epsilon, image, seed
        rows = _plain(inhouse)
        count = _count(rows)
        chosen = np.random.default_rng(seed).permutation(count)[:MOST_ROWS]
        self.rows = _taken(rows, np.sort(chosen))
        self.count = len(chosen)
        self._collections: dict[int, Collection] = {}
        self.vectors = self.vectors_of(self.rows)

    @property
    def clustered(self) -> bool:
        """Whether cells of tables follow clusters."""
        cells = getattr(self._collection(1000).mechanism_, "cells_", None)
        return cells is not None and cells.groups is not None and not cells.shared

    def vectors_of(self, rows: Any) -> npt.NDArray[np.float32]:
        """Compute the vectors of rows in which worlds are drawn: the first block of features."""
        mechanism: Any = self._collection(1000).mechanism_
        vectors = mechanism.vectors(rows)
        blocks = getattr(mechanism, "blocks_", None)
        return np.asarray(vectors[:, blocks[0]] if blocks else vectors)

    def trial(self, probabilities: Reals, people: int, seed: int, kind: str) -> Trial:
        """Simulate one collection; people are in-house rows with labels drawn by probability."""
        collection = self._collection(people)
        crowd, noise = np.random.default_rng([self.seed, seed]).spawn(2)
        drawn = crowd.integers(0, self.count, people)
        chances = np.cumsum(probabilities, axis=1)[drawn]
        codes = (chances < crowd.random((people, 1)) * chances[:, -1:]).sum(axis=1)
        reports = collection.release(_taken(self.rows, drawn), codes, rng=Seeded(noise))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about simulated people would mislead
            guesses = collection.learn(reports).predict(self.rows)
        right = probabilities[np.arange(self.count), np.asarray(guesses, np.int64)]
        return Trial(people, *levels(probabilities), float(right.mean()), kind)

    def _collection(self, people: int) -> Collection:
        if people not in self._collections:
            made = Collection(epsilon=self.epsilon, people=people, classes=self.classes)
            self._collections[people] = made.fit(self.rows, image=self.image, seed=self.seed)
        return self._collections[people]


def levels(probabilities: Reals) -> tuple[float, float]:
    """Return the accuracy of the best classifier in a world, and of naming the largest class."""
    best = float(probabilities.max(axis=1).mean())
    return best, float(probabilities.mean(axis=0).max())


def _plain(raw: Any) -> Any:
    """Return a mapping of columns, or an array: both can be taken apart by rows."""
    table = columns_of(raw)
    return np.asarray(raw) if table is None else {name: np.asarray(own) for name, own in table}


def _count(rows: Any) -> int:
    return len(next(iter(rows.values()))) if isinstance(rows, dict) else len(rows)


def _taken(rows: Any, chosen: npt.NDArray[Any]) -> Any:
    if isinstance(rows, dict):
        return {name: column[chosen] for name, column in rows.items()}
    return rows[chosen]
