r"""Rows of linear scores: on the scale of their bounds, in a ball of radius 1.

Every column is measured from the middle of its bounds in half-widths, so that years and euros count
alike; rows longer than a public norm N are shortened to it; a constant stands for the intercept:

.. math:: v_i = \frac{(t_i u_i,\, 1)}{\sqrt{N^2 + 1}}, \qquad t_i = \min(1, N/\lVert u_i\rVert),
          \qquad \lVert v_i\rVert \le 1.

What a row becomes depends on that row alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit.central.estimators.base import Box, Reals
from tacit.privacy import errors, rowwise

NORM_PART = 0.6
"""The norm over that of the corners of the box, where none is given: a little more than what rows
have that are spread evenly over the box (0.58)."""

_SMALLEST = 1e-6  # squares of much shorter rows are no floats, and they would seem shorter still
_BLOCK = 2048
_ROOM = 1 + 2.0**-40  # floats may not make a row longer than 1


@dataclass(frozen=True, eq=False)
class Scores:
    """Public scales of columns, and the ball that rows are held to.

    Parameters
    ----------
    box : Box
        Public bounds.
    norm : float
        N, in half-widths of the columns.
    intercept : bool
        Without one there is no constant, and rows are measured from zero.
    """

    box: Box
    norm: float
    intercept: bool

    @classmethod
    def of(cls, where: str, box: Box, norm: Any, *, intercept: bool) -> Scores:
        """With the norm that was asked for, or the one that has proved itself."""
        corner = math.sqrt(len(box.lower))
        if norm is None:
            return cls(box, NORM_PART * corner, intercept)
        number = float(errors.positive(where, "norm", norm))
        if number < _SMALLEST:
            remedy = "It is in half-widths of the bounds."
            errors.refuse(where, "norm", "at least 1e-6", norm, remedy)
        return cls(box, min(number, corner), intercept)

    @cached_property
    def center(self) -> Reals:
        """Where columns are measured from."""
        return self.box.origin(self.intercept)

    @cached_property
    def half(self) -> Reals:
        """What columns are measured in."""
        return self.box.reach(self.center)

    @cached_property
    def dimension(self) -> int:
        """Entries of a row."""
        return len(self.half) + self.intercept

    @cached_property
    def bound(self) -> float:
        """What rows are divided by."""
        return math.hypot(self.norm, self.intercept) * _ROOM

    def rows(self, X: Reals) -> tuple[Reals, int]:
        """Rows in the ball, and how many lay outside the box: a number for the house alone."""
        found, clipped = np.empty((len(X), self.dimension)), 0
        for start in range(0, len(X), _BLOCK):
            # Always, and not only where a look at the block asks for it: what a row becomes must
            # not depend, even in its last bit, on the rows beside it.
            held, moved = self.box.clip(X[start : start + _BLOCK])
            scaled, clipped = self._scaled(held), clipped + moved
            norms = rowwise.lengths(scaled)
            factor = self.norm / self.bound / np.maximum(norms, self.norm)
            rows = found[start : start + _BLOCK]
            np.multiply(scaled, factor[:, None], out=rows[:, : len(self.half)])
            rows[:, len(self.half) :] = 1 / self.bound
        return found, clipped

    def _scaled(self, block: Reals) -> Reals:
        """In half-widths about the centre."""
        found = np.multiply(block, 1 / self.half, order="C")
        found -= self.center / self.half
        return found

    def coefficients(self, solutions: Reals) -> tuple[Reals, Reals]:
        """Of the columns in their own units, and intercepts, one a solution (row)."""
        found = solutions / self.bound
        coef = found[:, : len(self.half)] / self.half
        constant = found[:, -1] if self.intercept else np.zeros(len(found))
        return coef, constant - coef @ self.center
