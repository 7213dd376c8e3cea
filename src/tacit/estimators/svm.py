"""Support vector machines with a central guarantee: linear, and Gaussian by random features."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit import errors
from tacit.accounting.ledger import Ledger
from tacit.estimators.base import DELTA, Bounds, Box, Reals
from tacit.estimators.classifier import LinearClassifier, Solver
from tacit.estimators.dual import DualPerturbation
from tacit.estimators.fourier import Fourier
from tacit.estimators.losses import HuberHinge
from tacit.estimators.perturbation import ObjectivePerturbation, OutputPerturbation, Problem
from tacit.randomness import Randomness

ALGORITHMS = ("objective", "output", "dual")


class LinearSVC(LinearClassifier):
    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        delta: float = DELTA,
        algorithm: str = "objective",
        alpha: float | None = None,
        width: float = 0.5,
        fit_intercept: bool = True,
        norm: float | None = None,
        classes: Any = None,
        unit: str = "record",
        ledger: Ledger | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.delta = delta
        self.algorithm = algorithm
        self.alpha = alpha
        self.width = width
        self.fit_intercept = fit_intercept
        self.norm = norm
        self.classes = classes
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _solver(self, rows: int, columns: int) -> Solver:
        return _solver_of(self, columns + bool(self.fit_intercept))


class SVC(LinearClassifier):
    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        delta: float = DELTA,
        algorithm: str = "objective",
        gamma: float | None = None,
        n_components: int = 200,
        alpha: float | None = None,
        width: float = 0.5,
        fit_intercept: bool = True,
        classes: Any = None,
        unit: str = "record",
        ledger: Ledger | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.delta = delta
        self.algorithm = algorithm
        self.gamma = gamma
        self.n_components = n_components
        self.alpha = alpha
        self.width = width
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def decision_function(self, X: Any) -> Reals:
        """Scores of the classes, or with two of them the score of the second."""
        rows = self._rows(X)
        return self._shaped(self.features_.features(rows) @ self.weights_.T)


def _solver_of(estimator: LinearSVC | SVC, dimension: int) -> Solver:
    where = type(estimator).__name__
    name = errors.choice(where, "algorithm", estimator.algorithm, ALGORITHMS)
    kind = {
        "objective": ObjectivePerturbation,
        "output": OutputPerturbation,
        "dual": DualPerturbation,
    }[name]
    width = float(errors.positive(where, "width", estimator.width))
    return kind(
        Problem(
            where,
            HuberHinge(width),
            dimension,
            estimator._problems,
            float(errors.epsilon_in_range(where, estimator.epsilon)),
            errors.probability(where, "delta", estimator.delta),
            estimator.alpha,
            estimator.unit,
        )
    )
