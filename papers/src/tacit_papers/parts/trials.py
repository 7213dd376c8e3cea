"""Trials of a collection: the split of each, and the mechanisms that are fitted on it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.datasets.base import Dataset, Split
from tacit.local.inference.decisions import ConstantAnswerWarning
from tacit.local.inference.noise_aware import ShiftWarning
from tacit_papers.parts.collecting import QUICK_ROWS, Collecting
from tacit_papers.parts.contenders import Contenders


@dataclass(frozen=True)
class Trial:
    """One split of a data set."""

    dataset: Dataset
    split: Split
    parameters: Collecting
    seed: int
    contenders: Contenders

    @property
    def people(self) -> tuple[Any, Any]:
        """Rows and labels of the people who report."""
        return self._part("people")

    @property
    def voters(self) -> tuple[Any, Any]:
        """Rows and labels of the voters."""
        return self._part("voters")

    @property
    def test(self) -> tuple[Any, Any]:
        """Rows and labels of the test rows."""
        return self._part("test")

    def _part(self, name: str) -> tuple[Any, Any]:
        chosen = getattr(self.split, name)
        return self.dataset.take(chosen), self.dataset.labels[chosen]


class Trials:
    """All trials of a study, one in memory at a time."""

    def __init__(self, dataset: Dataset, parameters: Collecting) -> None:
        self.dataset, self.parameters = dataset, parameters
        self._shared: dict[str, Any] = {}
        self._last: tuple[int, Trial] | None = None

    def sizes(self) -> dict[str, int]:
        """Return the number of rows of each part."""
        return {name: len(part) for name, part in vars(self._split(0)).items()}

    def __getitem__(self, number: int) -> Trial:
        if self._last is None or self._last[0] != number:
            split, seed = self._split(number), self.parameters.seed + number
            classes = len(self.dataset.classes)
            fits = self.contenders(self.dataset.take(split.inhouse), split.people, classes, seed)
            self._last = number, Trial(self.dataset, split, self.parameters, seed, fits)
        return self._last[1]

    def contenders(self, inhouse: Any, people: Any, classes: int | None, seed: int) -> Contenders:
        """Make mechanisms for these in-house rows of the data set."""
        return Contenders(
            inhouse,
            self.dataset.schema,
            len(people),
            classes,
            self.parameters,
            seed,
            self._shared,
        )

    def _split(self, number: int) -> Split:
        split = self.dataset.collection(self.parameters.seed + number)
        return split.limited(*[QUICK_ROWS] * 4) if self.parameters.quick else split


@contextmanager
def unwarned() -> Iterator[None]:
    """Leave out warnings of learners: the record shows what they are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        warnings.simplefilter("ignore", ConstantAnswerWarning)
        yield


def accuracy(answers: Any, truth: Any) -> float:
    """Return the share of right predictions."""
    return float(np.mean(np.asarray(answers) == truth))
