"""The rows of the demonstration, and how a classifier is learned from reports.

Only the VLM needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.datasets import Dataset, Split, load
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.local.reports import Reports
from tacit.privacy.guarantees import Unit

SEED = 0
"""Seed of the split and of what is learned in-house; the noise has none."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DemoCollection:
    """One report of each person, and the classifier learned from these reports."""

    reports: Reports
    model: Any
    accuracy: float


@dataclass(frozen=True, eq=False)
class DemoData:
    """In-house rows, rows of people, and test rows."""

    data: Dataset
    split: Split

    @classmethod
    def of_digits(cls) -> DemoData:
        """Split the digits that come with scikit-learn."""
        digits = load("digits")
        return cls(digits, digits.collection(SEED))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {part: len(getattr(self.split, part)) for part in ("inhouse", "people", "test")}

    def rows(self, part: str) -> tuple[Any, Integers]:
        """Return the images and digits of a part."""
        indices = getattr(self.split, part)
        return self.data.take(indices), self.data.labels[indices]

    def fitted(self, kind: str, progress: Callable[[int, int], None]) -> Callable[[float], Any]:
        """Return a function of ε that gives a mechanism, fitted on in-house rows without labels."""
        rows, schema = self.rows("inhouse")[0], self.data.schema
        common: dict[str, Any] = {"classes": self.data.classes, "unit": Unit.PERSON}
        if kind == "codebook":  # its number of codewords depends on ε
            people = len(self.split.people)
            return lambda epsilon: Codebook(epsilon=epsilon, people=people, **common).fit(
                rows, schema=schema, seed=SEED
            )
        if kind == "direct":
            return Direct(epsilon=1, **common).fit(rows, schema=schema).at
        from tacit import VLM

        fitted = VLM(epsilon=1, **common).fit(
            rows, schema=schema, seed=SEED, progress=lambda done, total, _: progress(done, total)
        )
        return fitted.at

    def collect(self, mechanism: Any) -> DemoCollection:
        """Release all reports, fit a classifier to them alone, and test it on clean rows."""
        reports = mechanism.release(*self.rows("people"))
        rows, digits = self.rows("test")
        # People and in-house rows come from one population: no test for a shift is needed.
        linear: dict[str, Any] = {}
        if isinstance(mechanism, Direct):  # each column has its own small part of ε
            linear = {"hidden": (), "output_bias": False}
        model = NoiseAwareClassifier(prior="inhouse", seed=SEED, **linear).fit(reports)
        return DemoCollection(reports, model, float(np.mean(model.predict(rows) == digits)))

    def no_privacy(self) -> float:
        """Measure the accuracy of a classifier that sees everybody's raw row and label."""
        from sklearn.svm import SVC

        (people, known), (rows, digits) = self.rows("people"), self.rows("test")
        model = SVC().fit(people.reshape(len(people), -1), known)
        return float(model.score(rows.reshape(len(rows), -1), digits))

    def largest_class(self) -> float:
        """Measure the accuracy of always naming the most frequent digit of the test rows."""
        return float(np.bincount(self.rows("test")[1]).max() / len(self.split.test))
