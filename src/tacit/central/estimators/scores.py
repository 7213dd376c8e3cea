r"""Rows of linear scores: on the scale of their bounds, in a ball of radius 1.

Every column is measured from the middle of its bounds in half-widths, so that units do not matter;
rows longer than a public norm N are shortened to it; a constant is appended for the intercept:

.. math:: v_i = \frac{(t_i u_i,\, 1)}{\sqrt{N^2 + 1}}, \qquad t_i = \min(1, N/\lVert u_i\rVert),
          \qquad \lVert v_i\rVert \le 1.

The result for a row depends on that row alone.
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
"""Default norm, as a part of the norm of the corners of the box: slightly more than that of rows
spread evenly over the box (0.58)."""

_SMALLEST = 1e-6  # squares of much shorter rows would underflow
_BLOCK = 2048
_ROOM = 1 + 2.0**-40  # rounding may not make a row longer than 1


@dataclass(frozen=True, eq=False)
class RowScaling:
    """Public scales of columns, and the ball that rows are shortened to.

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
    def of(cls, where: str, box: Box, norm: Any, *, intercept: bool) -> RowScaling:
        """Build the map with the given norm, or the default one."""
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
        """Return the points that columns are measured from."""
        return self.box.origin(self.intercept)

    @cached_property
    def half(self) -> Reals:
        """Return the units that columns are measured in."""
        return self.box.reach(self.center)

    @cached_property
    def dimension(self) -> int:
        """Return the number of entries of a row."""
        return len(self.half) + self.intercept

    @cached_property
    def bound(self) -> float:
        """Return the number that rows are divided by."""
        return math.hypot(self.norm, self.intercept) * _ROOM

    def rows(self, X: Reals) -> tuple[Reals, int]:
        """Map rows into the ball, and count the rows outside the box: an in-house number."""
        mapped, clipped = np.empty((len(X), self.dimension)), 0
        for start in range(0, len(X), _BLOCK):
            # Always, not only if some row of the block needs it: the result for a row must not
            # depend, even in its last bit, on the rows beside it.
            inside, moved = self.box.clip(X[start : start + _BLOCK])
            scaled, clipped = self._scaled(inside), clipped + moved
            norms = rowwise.lengths(scaled)
            factor = self.norm / self.bound / np.maximum(norms, self.norm)
            rows = mapped[start : start + _BLOCK]
            np.multiply(scaled, factor[:, None], out=rows[:, : len(self.half)])
            rows[:, len(self.half) :] = 1 / self.bound
        return mapped, clipped

    def _scaled(self, block: Reals) -> Reals:
        """Scale to half-widths about the centre."""
        scaled = np.multiply(block, 1 / self.half, order="C")
        scaled -= self.center / self.half
        return scaled

    def coefficients(self, solutions: Reals) -> tuple[Reals, Reals]:
        """Convert solutions (rows) to coefficients in the columns' own units, and intercepts."""
        weights = solutions / self.bound
        coef = weights[:, : len(self.half)] / self.half
        constant = weights[:, -1] if self.intercept else np.zeros(len(weights))
        return coef, constant - coef @ self.center
