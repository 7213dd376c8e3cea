"""Logistic regression on the shares of cells: coefficients, and intervals by the score test.

The estimate divided by its standard error is far from normal where cells are uncertain. The score
of a coefficient, at a held value and with the others solved for, is a linear function of the
shares, and much nearer to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from tacit.local.surveys.moments import Found
from tacit.local.surveys.questions import Reals

_STEPS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0)
"""Standard errors from an estimate at which a score test is tried; beyond, an end is infinite."""


class Fit:
    """The equation of a logistic regression on cells, with some coefficients held."""

    def __init__(self, design: Reals, found: Found) -> None:
        self._design, self._covariance = design, found.covariance
        self._absent, self._present = found.value.reshape(2, -1)

    def solve(self, start: Reals, free: Sequence[int]) -> Reals | None:
        """Solve for the free coefficients by Newton's method; None where that does not end."""
        solved, weights = start.copy(), self._absent + self._present
        x = self._design[:, list(free)]
        for _ in range(60 if len(free) else 0):
            chance = expit(self._design @ solved)
            pull = x.T @ (self._present - weights * chance)
            curve = (x.T * (weights * chance * (1 - chance))) @ x
            if not np.all(np.linalg.eigvalsh(curve) > 1e-12):
                return None
            step = np.linalg.solve(curve, pull)
            solved[list(free)] += step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
            if np.abs(step).max() < 1e-10:
                return solved
        return None if len(free) else solved

    def _score(self, solved: Reals, place: int) -> tuple[float, float, float]:
        """Return the score of a coefficient given the others, its spread, and its slope."""
        chance = expit(self._design @ solved)
        weights = (self._absent + self._present) * chance * (1 - chance)
        curve = (self._design.T * weights) @ self._design
        rest = [one for one in range(len(solved)) if one != place]
        along = self._design[:, place]
        if rest:
            along = along - self._design[:, rest] @ np.linalg.solve(
                curve[np.ix_(rest, rest)], curve[rest, place]
            )
        slope = np.concatenate([-along * chance, along * (1 - chance)])
        score = along @ (self._present * (1 - chance) - self._absent * chance)
        spread = math.sqrt(max(float(slope @ self._covariance @ slope), 0.0))
        return float(score), spread, float(weights @ (along * self._design[:, place]))

    def error(self, solved: Reals, place: int) -> float:
        """Return the standard error of a coefficient, by the implicit function's derivative."""
        _, spread, slope = self._score(solved, place)
        return spread / slope

    def end(self, solved: Reals, place: int, step: float, z: float) -> float:
        """Return where the score test first rejects, in the direction of the step."""
        value, inner = float(solved[place]), 0.0
        outer = next((one for one in _STEPS if self._rejects(solved, place, one * step, z)), None)
        if outer is None:
            return math.copysign(math.inf, step)
        inner = max((one for one in _STEPS if one < outer), default=0.0)
        for _ in range(12):
            middle = (inner + outer) / 2
            if self._rejects(solved, place, middle * step, z):
                outer = middle
            else:
                inner = middle
        return value + outer * step

    def _rejects(self, solved: Reals, place: int, shift: float, z: float) -> bool:
        start = solved.copy()
        start[place] += shift
        held = self.solve(start, [one for one in range(len(solved)) if one != place])
        if held is None:
            return False
        score, spread, _ = self._score(held, place)
        return -math.copysign(1.0, shift) * score > z * spread
