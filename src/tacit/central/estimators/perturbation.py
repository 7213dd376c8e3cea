r"""Objective and output perturbation: convex problems whose solutions are private.

Both need rows of norm at most 1, and losses of a linear score with slope at most 1; there is one
problem per class. The theorem is in `tacit.events.objective_perturbation`.

Notes
-----
*Output perturbation* [CMS11]_. The gradient of one record's loss has norm at most 1, and the rest
of the objective is λ-strongly convex: one more record moves the minimum by at most 1/λ. (The
papers' 2/(nΛ) is for a mean of losses, with one record replaced: λ = nΛ. Here losses are summed,
so n is not used.) With the solver's error of at most γ/λ on either side, and rounding to a grid of
step h in d entries, K problems together have the ℓ2 sensitivity
:math:`\sqrt K((1 + 2\gamma)/\lambda + h\sqrt d)`, and :math:`\sqrt{Kd}` times that in ℓ1.

*The linear term* is an exact draw from its law, of which only the nearest point of a grid (the
cell, for Laplace) is ever known: half a step per entry counts towards the solver's error, so the
proof does not depend on properties of floats. `PenalizedObjective.rounding` bounds the
rounding error of the gradient.

References
----------
.. [CMS11] Chaudhuri, Monteleoni, Sarwate. Differentially private empirical risk minimization.
   JMLR 2011.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Reals
from tacit.central.estimators.classifier import Codes, signs_of
from tacit.central.estimators.losses import Loss, PenalizedObjective
from tacit.central.estimators.minimum import minimum
from tacit.privacy import errors, events, gaussian
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.randomness import (
    Randomness,
    discrete_laplace,
    geometric,
    rounded_gaussian,
    source,
)

MOST_ROWS = 2**23
"""Rounding in larger sums could exceed the solver's tolerance."""

VOLUME_SHARE = 0.25
"""Share of ε that the change of volume, ln(1 + β/λ), may cost if no penalty is given."""

_SCORES_PER_NOISE = 8
_SMALLEST_PENALTY = Fraction(1, 2**10)
_LEAST_PENALTY = Fraction(1, 16)
_OUTPUT_SHARE = 2.0**-10  # share of the squared shift for the noise added to a minimiser
_PURE_OUTPUT_SHARE = 2.0**-6  # the same, as a share of ε, for pure ε
_TERM_STEPS = 2**26  # grid steps of the linear term in its scale
_SPARE = 1 - 1e-9  # share of ε that is used; the rest allows for rounding in calibration


@dataclass(frozen=True)
class LearningProblem:
    """Public numbers that the noise depends on.

    Parameters
    ----------
    loss : Loss
        Loss of a score, for rows of norm at most 1.
    dimension : int
        Number of entries of a row.
    count : int
        Number of problems on the same records.
    delta : float
        0 asks for pure ε-DP, with Laplace noise.
    penalty : float, optional
        λ. If not given, it is chosen from ε.
    """

    where: str
    loss: Loss
    dimension: int
    count: int
    epsilon: float
    delta: float
    penalty: float | None
    unit: Unit | str

    @cached_property
    def scope(self) -> dict[str, Any]:
        unit = Unit.of(self.where, self.unit)
        return {"adjacency": Adjacency.ADD_REMOVE, "unit": unit}

    @property
    def stated_penalty(self) -> Fraction:
        """Return λ, where one is given."""
        number = errors.positive(self.where, "alpha", self.penalty)
        if number < _SMALLEST_PENALTY:
            remedy = "With a weaker penalty, rounding would dominate the solution."
            errors.refuse(self.where, "alpha", "at least 2^-10", self.penalty, remedy)
        return number


@dataclass(frozen=True)
class PerturbedObjective:
    """Objective perturbation: minimisers of objectives with a random linear term."""

    problem: LearningProblem

    @cached_property
    def penalty(self) -> Fraction:
        """Return λ: if none is given, as small as its share of ε allows."""
        problem = self.problem
        if problem.penalty is not None:
            return problem.stated_penalty
        spread = math.expm1(VOLUME_SHARE * float(problem.epsilon) / problem.count)
        return max(_rational(float(problem.loss.smoothness) / spread), _LEAST_PENALTY)

    @cached_property
    def event(self) -> events.ObjectivePerturbation:
        """Return the event of `solve`."""
        problem, off = self.problem, self._grid[1]
        return events.ObjectivePerturbation(
            "gaussian" if problem.delta else "laplace",
            self._sensitivity,
            self._scales[0] * self._sensitivity,
            problem.loss.smoothness,
            self.penalty,
            off,
            self._scales[1] * off,
            problem.count,
            **problem.scope,
        )

    @property
    def noise(self) -> float:
        """Return the approximate norm of the linear term."""
        return float(self.event.scale) * math.sqrt(self.problem.dimension)

    def solve(
        self, rows: Reals, codes: Codes, rng: Randomness | None
    ) -> tuple[Reals, events.Event]:
        """Release one minimiser per row, for the signs of each problem."""
        _few_enough(self.problem.where, rows)
        stream, signs = source(rng), signs_of(codes, self.problem.count)
        return np.array([self._one(rows, one, stream) for one in signs]), self.event

    def _one(self, rows: Reals, signs: Reals, stream: Randomness) -> Reals:
        scale = float(self.event.scale)
        linear = _term(self.event.law, self.problem.dimension, stream) * (scale / _TERM_STEPS)
        objective = PenalizedObjective(self.problem.loss, rows, signs, float(self.penalty), linear)
        cell = math.sqrt(self.problem.dimension) / 2 * scale / _TERM_STEPS
        minimiser = minimum(objective, self._tolerance - cell)
        step = self._grid[0]
        noise = _noise(self.event.law, self.event.output_scale, minimiser.shape, stream)
        return np.asarray((np.rint(minimiser / step) + noise) * step)

    @cached_property
    def _scales(self) -> tuple[Fraction, Fraction]:
        """Return the noise of the linear term and of the output, over their sensitivities."""
        problem = self.problem
        lost = problem.count * math.log1p(float(problem.loss.smoothness / self.penalty))
        remaining = float(problem.epsilon) * _SPARE - lost
        if remaining <= 0:
            least = float(problem.loss.smoothness) / math.expm1(
                float(problem.epsilon) / problem.count
            )
            remedy = "A weaker penalty alone costs more than this ε."
            errors.refuse(problem.where, "alpha", f"above {least:.4g}", problem.penalty, remedy)
        if not problem.delta:
            top = _PURE_OUTPUT_SHARE * remaining / problem.count
            return _rational(1 / (remaining / problem.count - top)), _rational(1 / top)
        chance = problem.delta / 2**problem.count
        z = gaussian.noise_multiplier_for(remaining, chance) * math.sqrt(problem.count)
        first = z * math.sqrt(1 + _OUTPUT_SHARE)
        return _rational(first), _rational(first / math.sqrt(_OUTPUT_SHARE))

    @cached_property
    def _tolerance(self) -> float:
        """Return the tolerance of the gradient: far below its noise, far above rounding."""
        return max(2.0**-18 * float(self._scales[0] * self._sensitivity), 2.0**-16)

    @cached_property
    def _sensitivity(self) -> Fraction:
        """Return the sensitivity of the sum of gradients: ℓ2, or ℓ1 for Laplace noise."""
        return Fraction(1) if self.problem.delta else _rational(math.sqrt(self.problem.dimension))

    @cached_property
    def _grid(self) -> tuple[float, Fraction]:
        """Return the grid step of the output, and its sensitivity in steps."""
        problem = self.problem
        distance = self._tolerance / float(self.penalty)
        step = 2.0 ** math.floor(math.log2(distance))
        off = 2 * distance / step + math.sqrt(problem.dimension)
        return step, _rational(off if problem.delta else off * math.sqrt(problem.dimension))


@dataclass(frozen=True)
class OutputPerturbation:
    """Output perturbation: minimisers with noise as large as one record can move them."""

    problem: LearningProblem

    TOLERANCE = 2.0**-14

    @cached_property
    def penalty(self) -> Fraction:
        """Return λ: by default, for noise of standard deviation about 1/8 or less on a score."""
        if self.problem.penalty is not None:
            return self.problem.stated_penalty
        return _SCORES_PER_NOISE * self._scale * _rational(self._norms)

    @cached_property
    def event(self) -> events.Gaussian | events.Laplace:
        """Return the event of `solve`."""
        scope, sensitivity = self.problem.scope, Fraction(self._grid[1])
        if self.problem.delta:
            return events.Gaussian(sensitivity, self._scale * sensitivity, **scope)
        return events.Laplace(sensitivity, self._scale * sensitivity, **scope)

    @property
    def noise(self) -> float:
        """Return the noise of a sum of gradients that would move the minimisers equally far."""
        root = math.sqrt(self.problem.count * self.problem.dimension)
        return float(self._scale * self._grid[1]) * self._grid[0] * float(self.penalty) * root

    def solve(
        self, rows: Reals, codes: Codes, rng: Randomness | None
    ) -> tuple[Reals, events.Event]:
        """Release one minimiser per row, for the signs of each problem."""
        _few_enough(self.problem.where, rows)
        step, nothing = self._grid[0], np.zeros(self.problem.dimension)
        minimisers = [
            minimum(
                PenalizedObjective(self.problem.loss, rows, one, float(self.penalty), nothing),
                self.TOLERANCE,
            )
            for one in signs_of(codes, self.problem.count)
        ]
        law = "gaussian" if self.problem.delta else "laplace"
        scale = self._scale * self._grid[1]
        noise = _noise(law, scale, (len(minimisers), self.problem.dimension), source(rng))
        return np.asarray((np.rint(np.array(minimisers) / step) + noise) * step), self.event

    @cached_property
    def _scale(self) -> Fraction:
        """Return the noise over its sensitivity."""
        problem = self.problem
        epsilon = float(errors.epsilon_in_range(problem.where, problem.epsilon)) * _SPARE
        if not problem.delta:
            return _rational(1 / epsilon)
        return _rational(gaussian.noise_multiplier_for(epsilon, problem.delta))

    @cached_property
    def _norms(self) -> float:
        """Return the factor from the distance of one minimiser to the norm of all together."""
        problem = self.problem
        together = math.sqrt(problem.count)
        return (
            together if problem.delta else together * math.sqrt(problem.count * problem.dimension)
        )

    @cached_property
    def _grid(self) -> tuple[float, int]:
        """Return the grid step of the output, and its sensitivity in steps."""
        distance = (1 + 2 * self.TOLERANCE) / float(self.penalty)
        step = 2.0 ** (math.floor(math.log2(distance)) - 20)
        apart = distance / step + math.sqrt(self.problem.dimension)
        return step, math.ceil(apart * self._norms * (1 + 1e-12))


def _term(law: str, size: int, stream: Randomness) -> Reals:
    """Draw a linear term in steps: the nearest whole numbers, or the middles of cells."""
    if law == "gaussian":
        return rounded_gaussian(Fraction(_TERM_STEPS), size, stream).astype(np.float64)
    # The whole part of an exponential variable is geometric.
    size_of = geometric(Fraction(1, _TERM_STEPS), size, stream) + 0.5
    negative = (stream.words(size) & np.uint64(1)).astype(np.bool_)
    return np.where(negative, -size_of, size_of)


def _noise(
    law: str, scale: Fraction, shape: tuple[int, ...], stream: Randomness
) -> npt.NDArray[np.int64]:
    size = math.prod(shape)
    draw = rounded_gaussian if law == "gaussian" else discrete_laplace
    return draw(scale, size, stream).reshape(shape)


def _rational(number: float) -> Fraction:
    """Convert to a fraction, rounded up slightly: noise and penalty may only become larger."""
    return Fraction(math.ceil(number * (1 + 1e-12) * 2**40), 2**40)


def _few_enough(where: str, rows: Reals) -> None:
    if len(rows) > MOST_ROWS:
        errors.refuse(where, "rows", "at most 2^23", len(rows), "Fit several parts of the data.")
