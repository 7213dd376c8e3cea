r"""Random forests on noisy counts.

References
----------
.. [FS10] Friedman, Schuster. Data mining with differential privacy. KDD 2010.
.. [GWE06] Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 2006.
.. [JPW12] Jagannathan, Pillaipakkamnatt, Wright. A practical differentially private random
   decision tree classifier. Transactions on Data Privacy 2012.
.. [HLM19] Hou, Li, Meng, Ni, Chen, Liu. DPRF: a differential privacy protection random forest.
   IEEE Access 2019.
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3).
.. [McS09] McSherry. Privacy integrated queries. SIGMOD 2009 (Theorem 4: parallel composition).
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tacit import errors
from tacit.accounting.ledger import Ledger
from tacit.estimators.base import DELTA, Bounds, Box, PrivateEstimator, Reals, warn_of_noise
from tacit.estimators.forest_growing import (
    DPRF,
    Growing,
    Histograms,
    RandomSplits,
    public_size,
)
from tacit.estimators.forest_noise import WHERE, Noise
from tacit.estimators.forest_tree import Tree
from tacit.events import Event
from tacit.randomness import Randomness

Integers = npt.NDArray[np.int64]

ALGORITHMS: dict[str, type[Growing]] = {
    "histograms": Histograms,
    "random-splits": RandomSplits,
    "dprf": DPRF,
}

READ_CLASSES = "The set of classes was read off the labels: it is taken as public."
ROUGH_SIZE = "Between which powers of two the number of records lies is taken as public."


class RandomForestClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        delta: float = DELTA,
        n_estimators: int = 100,
        max_depth: int = 8,
        algorithm: str = "histograms",
        max_features: int | None = None,
        bins: int = 16,
        blend: float = 0.5,
        classes: Any = None,
        unit: str = "record",
        ledger: Ledger | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.delta = delta
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.algorithm = algorithm
        self.max_features = max_features
        self.bins = bins
        self.blend = blend
        self.classes = classes
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    classes_: npt.NDArray[Any]
    estimators_: list[Tree]

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X and labels y: checked, charged, then read."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        codes = self._codes(y)
        charged = self._charge(*X.shape)
        growing = self._growing(*X.shape)
        held, self.clipped_ = growing.box.clip(X)
        self.estimators_, ran = growing.grow(held, codes, self.rng)
        return self._keep(charged, ran)

    def predict_proba(self, X: Any) -> Reals:
        """Chances of the classes: the mean of what the trees say."""
        rows = self._rows(X)
        total = sum(tree.predict(rows) for tree in self.estimators_)
        return np.asarray(total / len(self.estimators_))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class with the highest chance."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _event(self, rows: int, columns: int) -> Event:
        return self._growing(rows, columns).event

    def _growing(self, rows: int, columns: int) -> Growing:
        name = errors.choice(WHERE, "algorithm", self.algorithm, list(ALGORITHMS))
        box = Box.of(WHERE, "bounds", self.bounds, columns)
        if not bool(np.isfinite(box.upper - box.lower).all()):
            errors.refuse(WHERE, "bounds", "a finite distance apart", self.bounds)
        few = math.isqrt(columns) if name == "dprf" else columns
        tried = few if self.max_features is None else self.max_features
        delta = errors.probability(WHERE, "delta", self.delta)
        return ALGORITHMS[name](
            noise=(self.epsilon, 0.0 if name == "dprf" else delta, self.unit),
            box=box,
            classes=len(self.classes_),
            trees=errors.whole(WHERE, "n_estimators", self.n_estimators, least=1, most=10**4),
            depth=errors.whole(WHERE, "max_depth", self.max_depth, least=1, most=16),
            bins=errors.whole(WHERE, "bins", self.bins, least=2, most=256),
            columns=errors.whole(WHERE, "max_features", tried, least=1, most=columns),
            records=public_size(rows),
            blend=errors.probability(WHERE, "blend", self.blend),
        )
    def _codes(self, y: Any) -> Integers:
        """Numbers of the classes; labels that are no class are refused."""
        check_classification_targets(y)
        if self.classes is None:
            self.classes_, codes = np.unique(y, return_inverse=True)
        else:
            self.classes_ = np.unique(np.asarray(self.classes))
            codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
            if not np.array_equal(self.classes_[codes], y):
                raise errors.InvalidData(f"{WHERE}: labels must be among the declared classes.")
        if len(self.classes_) < 2:
            raise errors.InvalidData(f"{WHERE}: there must be two classes or more, got one class.")
        return np.asarray(codes, dtype=np.int64)
