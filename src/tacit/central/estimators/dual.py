r"""Dual-variable perturbation of a support vector machine, as published; its privacy is unproven.

The machine is solved in its dual variables :math:`0 \le a_i \le C`. With
:math:`e_i = |y_i - f(x_i)|` the error of support vector i, its dual variable gets Laplace noise in
proportion to its share of the sum of errors, and the weights follow:

.. math:: w = \sum_{i \in SV} \Big(a_i y_i + \frac{e_i}{\sum_{j \in SV} e_j}\,
          \mathrm{Lap}(2C/\varepsilon)\Big) x_i

Notes
-----
Which records are support vectors, and how much noise each gets, depends on the raw data without
noise: a neighbour may have other support vectors, and an output that is likely for one data set may
be impossible for the other. The weights also lie in the span of the raw support vectors. So the
guarantee is `Unproven`, whatever ε is; objective and output perturbation are the proved
alternatives. The survey describes the step in words only: that errors are absolute differences, and
that 2C is the largest change of a dual variable, are our interpretation.

References
----------
.. [ZHW19] Zhang, Hao, Wang. A differential privacy support vector machine classifier based on dual
   variable perturbation. IEEE Access 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit.central.estimators.base import Reals
from tacit.central.estimators.classifier import Codes, signs_of
from tacit.central.estimators.perturbation import LearningProblem
from tacit.privacy import errors
from tacit.privacy.events import Declared, Event
from tacit.privacy.guarantees import Unproven
from tacit.privacy.randomness import Randomness, discrete_laplace, source

REASON = (
    "which dual variables get noise, and how much, depends on the raw data: no bound on the "
    "distance between the laws of neighbours is known"
)
_PENALTY = Fraction(1, 16)
_STEPS = 2**20


@dataclass(frozen=True)
class DualPerturbation:
    """The published algorithm; the dimension and δ of the problem are not used."""

    problem: LearningProblem
    intercept: bool
    """Whether the last entry of a row is a constant."""

    @property
    def event(self) -> Event:
        """Return an event without a proved guarantee."""
        return Declared(Unproven(reason=REASON, **self.problem.scope))

    @property
    def noise(self) -> float:
        """Return 0: the noise is not known before the fit."""
        return 0.0

    def solve(self, rows: Reals, codes: Codes, rng: Randomness | None) -> tuple[Reals, Event]:
        """Return weights, one row per score, and the event."""
        signs, stream = signs_of(codes, self.problem.count), source(rng)
        return np.array([self._one(rows, one, stream) for one in signs]), self.event

    def _one(self, rows: Reals, signs: Reals, stream: Randomness) -> Reals:
        from sklearn.svm import SVC

        problem = self.problem
        penalty = _PENALTY if problem.penalty is None else problem.stated_penalty
        machine = SVC(kernel="linear", C=float(1 / penalty)).fit(rows, signs)
        support = machine.support_
        off = np.abs(signs[support] - machine.decision_function(rows[support]))
        epsilon = errors.epsilon_in_range(problem.where, problem.epsilon)
        noise = discrete_laplace(2 * _STEPS / epsilon, len(support), stream) / _STEPS
        shares = off / max(float(off.sum()), np.finfo(float).tiny)
        duals = machine.dual_coef_[0] + shares * noise * float(1 / penalty)
        weights = duals @ rows[support]
        if self.intercept:
            weights[-1] += machine.intercept_[0] / rows[0, -1]
        return np.asarray(weights)
