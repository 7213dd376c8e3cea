r"""Minimisation of a strongly convex sum, to a tolerance that is checked.

Notes
-----
A gradient of norm at most γ means a distance of at most γ/λ from the minimum, where λ is the strong
convexity; the proofs that use a minimiser account for that distance. Newton directions, each
followed to near the lowest point on its line, reach every tolerance above rounding from any start
[BV04]_. Curvatures are reused from step to step as long as convergence is fast.

References
----------
.. [BV04] Boyd, Vandenberghe. Convex optimization. 2004 (section 9.5).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from tacit.central.estimators.losses import PenalizedObjective
from tacit.privacy import errors

Reals = npt.NDArray[np.float64]

_FEW = 4096
"""With more rows than this, the search starts near the minimum for a part of the rows."""
_PART = 16
_ROUGH = 1e-4
_FAST = 0.25
"""Curvatures are recomputed after a step that leaves more than this part of the gradient."""
_FLAT = 0.1
"""A line search ends where the slope is below this part of its initial value."""
_MOST_STEPS = 2000
_MOST_HALVINGS = 200


def minimum(objective: PenalizedObjective, tolerance: float) -> Reals:
    """Find a point where the norm of the gradient, rounding included, is at most `tolerance`."""
    theta, curvatures = np.zeros(objective.rows.shape[1]), None
    if len(objective.rows) > _FEW:
        part = _part(objective)
        theta = _Search(part, theta).to(_ROUGH * len(part.rows))
        curvatures = cho_factor(_PART * part.hessian(theta))
    return _Search(objective, theta, curvatures).to(tolerance)


def _part(objective: PenalizedObjective) -> PenalizedObjective:
    """Take every 16th row, with a sixteenth of the penalty and linear term."""
    return PenalizedObjective(
        objective.loss,
        np.ascontiguousarray(objective.rows[::_PART]),
        np.ascontiguousarray(objective.signs[::_PART]),
        objective.penalty / _PART,
        objective.linear / _PART,
    )


class _Search:
    """A point on its way to the minimum, and the curvatures of an earlier point."""

    def __init__(self, objective: PenalizedObjective, theta: Reals, curvatures: Any = None) -> None:
        self.objective = objective
        self.theta, self.gradient = theta, objective.gradient(theta)
        self.curvatures = curvatures
        self.fresh = False

    def to(self, tolerance: float) -> Reals:
        for _ in range(_MOST_STEPS):
            missed = float(np.linalg.norm(self.gradient)) + self.objective.rounding(self.theta)
            if missed <= tolerance:
                return self.theta
            self._step()
        raise errors.TacitError("minimum: the tolerance was not reached. Nothing is released.")

    def _step(self) -> None:
        if self.curvatures is None:
            self.curvatures = cho_factor(self.objective.hessian(self.theta))
            self.fresh = True
        direction = -cho_solve(self.curvatures, self.gradient)
        trial = self.theta + direction
        gradient = self.objective.gradient(trial)
        if np.linalg.norm(gradient) > _FAST * np.linalg.norm(self.gradient):
            if not self.fresh:
                self.curvatures = None  # and try again from here
                return
            trial, gradient = self._lowest(direction, trial, gradient)
            self.curvatures = None
        self.theta, self.gradient, self.fresh = trial, gradient, False

    def _lowest(self, direction: Reals, trial: Reals, gradient: Reals) -> tuple[Reals, Reals]:
        """Find a point near the lowest between here and the trial, by the sign of the slope.

        Slopes along a line never fall, as the sum is convex: where one is negative, all before it
        are negative too, and the sum has decreased all the way. Values themselves cannot be
        compared near the minimum because of rounding.
        """
        below, above = 0.0, 1.0
        slope_below, slope_above = float(self.gradient @ direction), float(gradient @ direction)
        flat = -_FLAT * slope_below
        for _ in range(_MOST_HALVINGS if slope_above > flat else 0):
            # Where a linear slope would cross zero, restricted to the middle eight tenths.
            share = min(max(slope_below / (slope_below - slope_above), 0.1), 0.9)
            middle = below + share * (above - below)
            trial = self.theta + middle * direction
            gradient = self.objective.gradient(trial)
            slope = float(gradient @ direction)
            if abs(slope) <= flat:
                break
            if slope < 0:
                below, slope_below = middle, slope
            else:
                above, slope_above = middle, slope
        return trial, gradient
