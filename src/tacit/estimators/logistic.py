"""Logistic regression with a central guarantee: four algorithms, one estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from tacit import errors
from tacit.accounting.ledger import Ledger
from tacit.estimators.base import DELTA, Bounds, Reals
from tacit.estimators.classifier import LinearClassifier, Solver
from tacit.estimators.losses import Logistic
from tacit.estimators.perturbation import ObjectivePerturbation, Problem
from tacit.estimators.sampled import SampledDescent
from tacit.estimators.softmax import NoisyDescent
from tacit.estimators.taylor import Functional
from tacit.randomness import Randomness

ALGORITHMS = ("auto", "objective", "gradient", "functional", "sgd")
PUBLIC_COUNT = "How many records there are: sampling and steps were set from it."
FLOAT_NOISE = (
    "Gradient noise is floating-point Gaussian from a cryptographic generator, taken to be exact; "
    "gradients are clipped and summed in floating point."
)
_STEPS = {"gradient": 12, "sgd": 60}


class LogisticRegression(LinearClassifier):
    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        delta: float = DELTA,
        algorithm: str = "auto",
        alpha: float | None = None,
        fit_intercept: bool = True,
        norm: float | None = None,
        classes: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
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
        self.fit_intercept = fit_intercept
        self.norm = norm
        self.classes = classes
        self.steps = steps
        self.batch_size = batch_size
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def predict_proba(self, X: Any) -> Reals:
        """Probabilities of the classes, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        if self._algorithm() in ("gradient", "sgd"):
            return np.asarray(softmax(scores, axis=1))
        each = expit(scores)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Reals:
        """Their logarithms."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _algorithm(self) -> str:
        where = type(self).__name__
        name = errors.choice(where, "algorithm", self.algorithm, ALGORITHMS)
        if name == "auto":
            name = "objective" if self._problems == 1 or not self.delta else "gradient"
        if not self.delta and name in _STEPS:
            remedy = "Pure ε has objective and functional."
            errors.refuse(where, "delta", f"above 0 for {name}", self.delta, remedy)
        return name

    def _solver(self, rows: int, columns: int) -> Solver:
        where, name = type(self).__name__, self._algorithm()
        epsilon = float(errors.epsilon_in_range(where, self.epsilon))
        delta = errors.probability(where, "delta", self.delta)
        size, scores = columns + bool(self.fit_intercept), self._problems
        steps = _STEPS.get(name, 1) if self.steps is None else self.steps
        if name == "objective":
            given = (Logistic(), size, scores, epsilon, delta, self.alpha, self.unit)
            return ObjectivePerturbation(Problem(where, *given))
        if name == "functional":
            return Functional(where, size, scores, epsilon, delta, self.alpha, self.unit)
        if name == "gradient":
            return NoisyDescent(
                where, size, scores, epsilon, delta, self.alpha, steps, self.unit
            )
        return SampledDescent(
            where, rows, size, scores, epsilon, delta, steps, self.batch_size, self.unit
        )

    def _assumptions(self) -> tuple[str, ...]:
        more = (FLOAT_NOISE,) if self._algorithm() == "sgd" else ()
        return (*super()._assumptions(), *more)

    def _limits(self) -> tuple[str, ...]:
        return (PUBLIC_COUNT,) if self._algorithm() == "sgd" else ()
