"""Support vector machines with a central guarantee: linear, or Gaussian by random features."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.central.estimators.base import DELTA, Bounds, Reals
from tacit.central.estimators.classifier import LinearClassifier, RowMap, ScoreClassifier, Solver
from tacit.central.estimators.dual import DualPerturbation
from tacit.central.estimators.fourier import Fourier
from tacit.central.estimators.losses import HuberHinge
from tacit.central.estimators.perturbation import (
    LearningProblem,
    OutputPerturbation,
    PerturbedObjective,
)
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.randomness import Randomness

ALGORITHMS = ("objective", "output", "dual")
_SMALLEST_WIDTH = 2.0**-6
_MOST_PAIRS = 2**12


class LinearSVC(LinearClassifier):
    r"""Linear support vector machine with a smoothed hinge loss.

    .. math:: \min_\theta \sum_i \ell_h(y_i v_i^\top\theta)
              + \tfrac\lambda2\lVert\theta\rVert^2

    with Huber's hinge (`tacit.estimators.losses.HuberHinge`) and rows v in a ball of radius 1
    (`tacit.estimators.scores`). More than two classes: one against the rest.

    Parameters
    ----------
    algorithm : {"objective", "output", "dual"}
        - "objective": objective perturbation. The better one on synthetic data, except with a few
          hundred records at δ = 0.
        - "output": noise on the solution, as much as one record can move it. Simpler to explain,
          and it composes as a plain Gaussian.
        - "dual": dual-variable perturbation as published, for comparison only: its guarantee is
          `Unproven` (`tacit.estimators.dual`). Slow with more than a few thousand rows.
    width : float
        h: half the width of the smoothed corner. The curvature of a record's loss is at most
        1/(2h).
    epsilon, bounds, delta, alpha, fit_intercept, norm, classes, unit, ledger, account, rng
        As in `LogisticRegression`.

    Notes
    -----
    Guarantee: (ε, δ)-DP, or ε-DP for δ = 0; neighbours differ by one record more or less. Proofs in
    `tacit.events.objective_perturbation` and `tacit.estimators.perturbation`. Cost: about ten
    passes over the rows per class.

    References
    ----------
    .. [CMS11] Chaudhuri, Monteleoni, Sarwate. Differentially private empirical risk minimization.
       JMLR 2011.
    .. [ZHW19] Zhang, Hao, Wang. A differential privacy support vector machine classifier based on
       dual variable perturbation. IEEE Access 2019.
    """

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
        ledger: LedgerLike | None = None,
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

    def _solver(self, rows: int, dimension: int) -> Solver:
        return _solver_of(self, dimension)


class SVC(ScoreClassifier):
    r"""Support vector machine with a Gaussian kernel, approximated by random Fourier features.

    .. math:: \min_\theta \sum_i \ell_h(y_i z(x_i)^\top\theta)
              + \tfrac\lambda2\lVert\theta\rVert^2, \qquad
              z(x)^\top z(x') \approx e^{-\gamma\lVert x - x'\rVert^2}

    with features z drawn without the data (`tacit.estimators.fourier`) and x in half-widths of the
    bounds. The rest is as in `LinearSVC`.

    Parameters
    ----------
    gamma : float, optional
        γ, for columns in half-widths. By default 3 divided by the number of columns; it is never
        computed from the data.
    n_components : int
        Number of features. Noise grows with it, and the approximation error of the kernel falls.
    epsilon, bounds, delta, algorithm, alpha, width, fit_intercept, classes
        As in `LinearSVC`.
    unit, ledger, account, rng
        As in `LogisticRegression`.

    Notes
    -----
    Guarantee: that of `LinearSVC`, because the features have norm 1 and depend only on their own
    row and on public draws. Cost: n × `n_components` features, and passes over them.

    References
    ----------
    .. [RR07] Rahimi, Recht. Random features for large-scale kernel machines. NIPS 2007.
    .. [CMS11] Chaudhuri, Monteleoni, Sarwate. Differentially private empirical risk minimization.
       JMLR 2011 (section 4: kernels).
    """

    features_: Fourier
    weights_: Reals

    _stored = ("classes_", "features_", "weights_")

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
        ledger: LedgerLike | None = None,
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

    def _dimension(self, columns: int) -> int:
        return 2 * self._pairs + bool(self.fit_intercept)

    @property
    def _pairs(self) -> int:
        most = 2 * _MOST_PAIRS
        return -(-errors.whole("SVC", "n_components", self.n_components, least=1, most=most) // 2)

    def _solver(self, rows: int, dimension: int) -> Solver:
        return _solver_of(self, dimension)

    def _frame(self, columns: int) -> Fourier:
        gamma = 3 / columns if self.gamma is None else self.gamma
        number = float(errors.positive("SVC", "gamma", gamma))
        intercept = bool(self.fit_intercept)
        return Fourier.drawn(
            self._box(columns), self._pairs, number, intercept=intercept, rng=self.rng
        )

    def _store(self, frame: RowMap, solutions: Reals) -> None:
        assert isinstance(frame, Fourier)
        self.features_, self.weights_ = frame, solutions

    def _scored(self, rows: Reals) -> Reals:
        return np.asarray(self.features_.features(rows) @ self.weights_.T)


def _solver_of(estimator: LinearSVC | SVC, dimension: int) -> Solver:
    where = type(estimator).__name__
    width = float(errors.positive(where, "width", estimator.width))
    if width < _SMALLEST_WIDTH:
        errors.refuse(where, "width", "at least 2^-6", estimator.width, "Curvature is 1/(2 width).")
    problem = LearningProblem(
        where,
        HuberHinge(width),
        dimension,
        estimator._problems,
        float(errors.epsilon_in_range(where, estimator.epsilon)),
        errors.probability(where, "delta", estimator.delta),
        estimator.alpha,
        estimator.unit,
    )
    match errors.choice(where, "algorithm", estimator.algorithm, ALGORITHMS):
        case "objective":
            return PerturbedObjective(problem)
        case "output":
            return OutputPerturbation(problem)
    return DualPerturbation(problem, bool(estimator.fit_intercept))
