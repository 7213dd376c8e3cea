"""Logistic regression with a central guarantee: one estimator, four algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from tacit.central.estimators.base import DELTA, Bounds, Reals
from tacit.central.estimators.classifier import UNSOLVED, LinearClassifier, Solver
from tacit.central.estimators.losses import Logistic
from tacit.central.estimators.perturbation import LearningProblem, PerturbedObjective
from tacit.central.estimators.sampled import SampledDescent
from tacit.central.estimators.softmax import NoisyDescent
from tacit.central.estimators.taylor import Functional
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.randomness import Randomness

ALGORITHMS = ("auto", "objective", "gradient", "functional", "sgd")
PUBLIC_COUNT = "How many records there are: sampling and steps were set from it."
FLOAT_NOISE = (
    "Gradient noise is floating-point Gaussian from a cryptographic generator, taken to be exact; "
    "gradients are clipped and summed in floating point."
)
_STEPS = {"gradient": 8, "sgd": 60}
_MORE_CLASSES = 12
"""Number of steps of "gradient" for more than two classes, which profit from more steps."""


class LogisticRegression(LinearClassifier):
    r"""Logistic regression for two or more classes.

    .. math:: \min_\theta \sum_i \ln\big(1 + e^{-y_i v_i^\top\theta}\big)
              + \tfrac\lambda2\lVert\theta\rVert^2

    Columns are measured in half-widths of their bounds, and rows v lie in a ball of radius 1
    (`tacit.estimators.scores`). After `fit`: `coef_` and `intercept_` in the units of the columns,
    `classes_`, `guarantee_`, `certificate_`, `event_`, `clipped_`.

    Parameters
    ----------
    epsilon : float
        Privacy budget of the fit.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column. Rows outside are clipped to them and counted in `clipped_`.
    delta : float
        0 asks for pure ε-DP, which "objective" and "functional" support.
    algorithm : {"auto", "objective", "gradient", "functional", "sgd"}
        - "gradient": noisy gradients of the softmax loss, preconditioned; one Gaussian per step for
          all classes together, on whole numbers. Needs δ > 0. On synthetic data it was better than
          "objective" and "functional" with few records, and about as good as "sgd".
        - "objective": objective perturbation. Two classes are one problem; more are fitted one
          against the rest, each with its own noise, because the theorem needs a loss of one linear
          score. The guarantee is proved for the approximate solution that is found, not for an
          exact minimiser.
        - "functional": noise on the Taylor polynomial of the loss. Needs one pass; its
          probabilities are too close to 1/2 where scores are large.
        - "sgd": DP-SGD of `tacit.private_training`. Needs δ > 0. The number of records is public,
          and neighbours are zero-out: one record is replaced by a blank.
        - "auto": "gradient", or "objective" for δ = 0.
    alpha : float, optional
        λ, the penalty on the weights of rows in the ball. By default, chosen from the algorithm
        and ε.
    fit_intercept : bool
        Whether to fit an intercept. It is penalised like a weight, about the middle of the bounds.
    norm : float, optional
        Limit, in half-widths, that longer rows are shortened to; by default 0.6 times the norm of
        the corners.
    classes : array, optional
        Public labels. If not given, they are read from y, and the certificate says so.
    steps : int, optional
        Number of steps of "gradient" (8 for two classes, 12 for more) and "sgd" (60).
    batch_size : int, optional
        Expected batch size of "sgd"; by default a quarter of the records.
    unit, ledger, account, rng
        What one row belongs to; the ledger and account charged before rows are read; a generator
        for tests.

    Notes
    -----
    Guarantee: (ε, δ)-DP, or ε-DP for δ = 0; neighbours differ by one record more or less. Proofs:
    `tacit.events.objective_perturbation` (objective: slope 1 and curvature 1/4 of a record's loss
    in the ball), `tacit.estimators.softmax`, `tacit.estimators.taylor`, `tacit.private_training`.

    Cost: about ten passes over the rows for "objective" (Newton steps, with curvatures from one row
    in sixteen), one for "functional", T for "gradient".

    References
    ----------
    .. [CMS11] Chaudhuri, Monteleoni, Sarwate. Differentially private empirical risk minimization.
       JMLR 2011.
    .. [KST12] Kifer, Smith, Thakurta. Private convex empirical risk minimization and
       high-dimensional regression. COLT 2012.
    .. [RKW23] Redberg, Koskela, Wang. Improving the privacy and practicality of objective
       perturbation for differentially private linear learners. NeurIPS 2023.
    .. [ZZXYW12] Zhang, Zhang, Xiao, Yang, Winslett. Functional mechanism: regression analysis
       under differential privacy. VLDB 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.privacy.randomness import Seeded
    >>> rows = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    >>> labels = rows[:, 0] > rows[:, 1]
    >>> model = LogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=[False, True],
    ...                            rng=Seeded(0)).fit(rows, labels)
    >>> print(model.guarantee_)
    (1, 1e-06)-DP (central, add-remove, unit: record)
    >>> model.score(rows, labels) > 0.9
    True
    """

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
        ledger: LedgerLike | None = None,
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
        """Return the probabilities of the classes, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        if self._algorithm() in ("gradient", "sgd"):
            return np.asarray(softmax(scores, axis=1))
        chances = expit(scores)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Reals:
        """Return the logarithms of the probabilities of the classes."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _algorithm(self) -> str:
        where = type(self).__name__
        name = errors.choice(where, "algorithm", self.algorithm, ALGORITHMS)
        if name == "auto":
            name = "gradient" if self.delta else "objective"
        if not self.delta and name in _STEPS:
            remedy = "Use objective or functional for pure ε."
            errors.refuse(where, "delta", f"above 0 for {name}", self.delta, remedy)
        return name

    def _usual_steps(self, name: str) -> int:
        if name == "gradient" and self._problems > 1:
            return _MORE_CLASSES
        return _STEPS.get(name, 1)

    def _solver(self, rows: int, dimension: int) -> Solver:
        where, name = type(self).__name__, self._algorithm()
        epsilon = float(errors.epsilon_in_range(where, self.epsilon))
        delta = errors.probability(where, "delta", self.delta)
        size, scores = dimension, self._problems
        steps = self._usual_steps(name) if self.steps is None else self.steps
        if name == "objective":
            settings = (Logistic(), size, scores, epsilon, delta, self.alpha, self.unit)
            return PerturbedObjective(LearningProblem(where, *settings))
        if name == "functional":
            return Functional(where, size, scores, epsilon, delta, self.alpha, self.unit)
        if name == "gradient":
            return NoisyDescent(where, size, scores, epsilon, delta, self.alpha, steps, self.unit)
        return SampledDescent(
            where, rows, size, scores, epsilon, delta, steps, self.batch_size, self.unit
        )

    def _assumptions(self) -> tuple[str, ...]:
        more = (FLOAT_NOISE,) if self._algorithm() == "sgd" else ()
        return (*super()._assumptions(), *more)

    def _limits(self) -> tuple[str, ...]:
        limit = {"sgd": PUBLIC_COUNT, "objective": UNSOLVED}.get(self._algorithm())
        return () if limit is None else (limit,)
