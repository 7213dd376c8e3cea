"""Simulated collections: the pipeline that will run, on in-house rows with labels of a world."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.columns import columns_of
from tacit.data.schema import Schema
from tacit.local.collection import Collection
from tacit.local.reports import Reports
from tacit.privacy.randomness import Seeded

Reals = npt.NDArray[np.float64]

MOST_ROWS = 2000
"""In-house rows that people are drawn from: more take longer and change little."""

MOST_FITTED = 5000
"""In-house rows that a collection is fitted on. With a central guarantee the noise depends on their
number, so it is fitted on all.
"""


@dataclass(frozen=True)
class Pipeline:
    """How the collection will run, besides ε, people and classes.

    Parameters
    ----------
    rounds : int
        Of the collection; people are divided equally among them.
    central_epsilon, central_delta : float, optional
        The total cost of the mechanism to the in-house rows.
    schema : Schema, optional
        Public bounds and categories.
    image, signal : optional
        The shape of flat rows, as for `Collection.fit`.
    """

    rounds: int = 1
    central_epsilon: float | None = None
    central_delta: float | None = None
    schema: Schema | None = None
    image: tuple[int, ...] | None = None
    signal: tuple[int, int] | None = None

    @property
    def usual(self) -> bool:
        """Whether it is that of the record: one round, in-house rows as they are."""
        return self.rounds == 1 and self.central_epsilon is None

    def collection(self, epsilon: float, people: int, classes: int) -> Collection:
        """Return the collection of this pipeline, not fitted."""
        settings: dict[str, Any] = {"epsilon": epsilon, "people": people, "classes": classes}
        settings |= {"central_epsilon": self.central_epsilon, "central_delta": self.central_delta}
        return Collection(**settings, rounds=self.rounds)

    def fitted(self, made: Collection, inhouse: Any, seed: int) -> Collection:
        """Fit a collection; its noise comes from the seed, as everything simulated does."""
        shape: dict[str, Any] = {"schema": self.schema, "image": self.image, "signal": self.signal}
        coins = None if self.central_epsilon is None else Seeded(seed)
        return made.fit(inhouse, **shape, seed=seed, rng=coins)


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
    pipeline : Pipeline
        How the collection will run.
    seed : int
        Of everything that is drawn.
    """

    def __init__(
        self,
        inhouse: Any,
        classes: int,
        epsilon: float,
        pipeline: Pipeline | None = None,
        seed: int = 0,
    ) -> None:
        self.classes, self.epsilon, self.seed = classes, epsilon, seed
        self.pipeline = pipeline or Pipeline()
        rows = _plain(inhouse)
        count = _count(rows)
        order = np.random.default_rng(seed).permutation(count)
        self.rows = _taken(rows, np.sort(order[:MOST_ROWS]))
        self.count = min(MOST_ROWS, count)
        most = MOST_FITTED if self.pipeline.central_epsilon is None else count
        self._fitted_on = _taken(rows, np.sort(order[:most]))
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
        crowd, noise = np.random.default_rng([self.seed, seed]).spawn(2)
        drawn = crowd.integers(0, self.count, people)
        chances = np.cumsum(probabilities, axis=1)[drawn]
        codes = (chances < crowd.random((people, 1)) * chances[:, -1:]).sum(axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about simulated people would mislead
            guesses = self._learned(people, drawn, codes, Seeded(noise)).predict(self.rows)
        right = probabilities[np.arange(self.count), np.asarray(guesses, np.int64)]
        return Trial(people, *levels(probabilities), float(right.mean()), kind)

    def _learned(self, people: int, drawn: Any, codes: Any, coins: Seeded) -> Any:
        """Let people report, in as many rounds as planned, and learn the model."""
        collection, released = self._collection(people), list[Reports]()
        parts = np.array_split(np.arange(people), self.pipeline.rounds)
        for number, part in enumerate(parts):
            if number:
                collection = collection.adapt(collection.learn(released))
            rows = _taken(self.rows, drawn[part])
            released.append(collection.release(rows, codes[part], rng=coins))
        return collection.learn(released)

    def _collection(self, people: int) -> Collection:
        if people not in self._collections:
            made = self.pipeline.collection(self.epsilon, people, self.classes)
            self._collections[people] = self.pipeline.fitted(made, self._fitted_on, self.seed)
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
