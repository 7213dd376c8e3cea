r"""Rows (x, 1, y) on the scale of their bounds, and exact sums of their products.

Every column, and the target, is measured from the middle of its bounds in half-widths, so that
units do not matter. A row of a linear fit is then

.. math:: v_i = t_i\,(u_i,\; c,\; b\,y'_i), \qquad t_i = \min(1, N / \lVert u_i\rVert),

with u in [−1, 1]^d, y' in [−1, 1], and public numbers N (the norm), c and b. Shortening the whole
row, target included, weights a record by :math:`t_i^2`. Under a linear model, weights that depend
on u alone do not change the coefficients; clipping x without y would.

Notes
-----
Sensitivity: :math:`\lVert v\rVert \le R` by construction, R = N + b + c in the ℓ1 norm and
:math:`\sqrt{N^2 + b^2 + c^2}` in the ℓ2 norm. Rows are rounded to a grid of about R/2^13, and their
length is then checked in whole numbers; a row that rounding has made too long counts as zeros. The
result for a row depends on that row alone, to the last bit: sums over the columns of one row are
the only ones that are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Box, Reals
from tacit.privacy import errors, rowwise

Integers = npt.NDArray[np.int64]

BITS = 13
"""Rows are measured in steps of about their bound over 2^13."""

CONSTANT = 0.5
"""c: the value of the constant column, whose coefficient is the intercept."""

NORM_PARTS = {1: 0.4, 2: 0.6}
"""Default norm, as a part of the norm of the corners of the box."""

_BLOCK = 2**12


@dataclass(frozen=True, eq=False)
class Frame:
    """Public scales of columns and target, and the ball that rows are shortened to.

    Parameters
    ----------
    box, target : Box
        Public bounds.
    norm : float
        N, in half-widths of the columns.
    intercept : bool
        Without one, rows and target are measured from zero, and the constant column only gives the
        number of records.
    order : 1 or 2
        Order of the norm that noise is calibrated to.
    """

    box: Box
    target: Box
    norm: float
    intercept: bool
    order: int

    @classmethod
    def of(
        cls, where: str, box: Box, target: Box, norm: Any, *, intercept: bool, order: int
    ) -> Frame:
        """Build a frame with the given norm, or the default one."""
        columns = len(box.lower)
        corner = math.sqrt(columns) if order == 2 else float(columns)
        if norm is None:
            return cls(box, target, NORM_PARTS[order] * corner, intercept, order)
        number = float(errors.positive(where, "norm", norm))
        if number > corner:
            remedy = "It is in half-widths of the bounds; the corners lie there."
            errors.refuse(where, "norm", f"at most {corner:.4g}", norm, remedy)
        return cls(box, target, number, intercept, order)

    @cached_property
    def center(self) -> Reals:
        """Return the points that columns are measured from."""
        return self.box.origin(self.intercept)

    @cached_property
    def half(self) -> Reals:
        """Return the units that columns are measured in."""
        return self.box.reach(self.center)

    @cached_property
    def middle(self) -> float:
        """Return the point that the target is measured from."""
        return float(self.target.center[0]) if self.intercept else 0.0

    @cached_property
    def span(self) -> float:
        """Return the unit that the target is measured in."""
        low, high = float(self.target.lower[0]), float(self.target.upper[0])
        return max(high - self.middle, self.middle - low)

    @cached_property
    def weight(self) -> float:
        r"""Return the factor b of the target: √N in the ℓ1 norm, N/√2 in the ℓ2 norm.

        To first order the squared error is :math:`R^4(\lVert\beta\rVert^2 + 1/b^2)`, and these are
        near its minimum for :math:`\lVert\beta\rVert` from 0.3 to 1: a target that varies over a
        third of its bounds, or all of them.
        """
        return math.sqrt(self.norm) if self.order == 1 else self.norm / math.sqrt(2)

    @cached_property
    def width(self) -> int:
        """Return the number of entries of a row: columns, constant, target."""
        return len(self.half) + 2

    @cached_property
    def size(self) -> int:
        """Return the number of entries, from the first, that have a coefficient."""
        return len(self.half) + self.intercept

    @cached_property
    def bound(self) -> float:
        """Return R, in half-widths."""
        parts = (self.norm, self.weight, CONSTANT)
        return sum(parts) if self.order == 1 else math.hypot(*parts)

    @cached_property
    def step(self) -> float:
        """Return the size of a grid step: a power of two."""
        return 2.0 ** (math.ceil(math.log2(self.bound)) - BITS)

    @cached_property
    def reach(self) -> int:
        """Return the norm of the entries (x, 1) in grid steps, with room for rounding."""
        parts = (self.norm, CONSTANT)
        bound = sum(parts) if self.order == 1 else math.hypot(*parts)
        rounding = self.width / 2 if self.order == 1 else math.sqrt(self.width) / 2
        return math.ceil(bound / self.step + rounding)

    @cached_property
    def top(self) -> int:
        """Return the largest target in grid steps."""
        return math.ceil(self.weight / self.step)

    @cached_property
    def radius(self) -> int:
        """Return R in grid steps: no row is longer."""
        if self.order == 1:
            return self.reach + self.top
        return math.isqrt(self.reach**2 + self.top**2 - 1) + 1

    def rows(self, X: Reals, y: Reals) -> Reals:
        """Return rows in grid steps, as whole numbers in floats."""
        scaled = np.empty((len(X), self.width))
        columns, entries = scaled[:, :-2], scaled[:, :-1]
        np.subtract(X, self.center, out=columns)
        columns *= 1 / (self.half * self.step)
        with np.errstate(divide="ignore"):
            shrink = np.minimum(self.norm / self.step / self._lengths(columns), 1.0)
        scaled[:, -2] = CONSTANT / self.step
        scaled[:, -1] = (y - self.middle) * (self.weight / (self.span * self.step))
        scaled *= shrink[:, None]
        np.rint(scaled, out=scaled)
        np.clip(scaled[:, -1], -self.top, self.top, out=scaled[:, -1])
        # Exact, as all entries are whole: rounding cannot let a longer row pass.
        scaled[self._lengths(entries, power=True) > self.reach**self.order] = 0.0
        return scaled

    def _lengths(self, rows: Reals, *, power: bool = False) -> Reals:
        """Return the norm of each row by itself; with `power`, the square of an ℓ2 norm."""
        if self.order == 1:
            return np.asarray(rowwise.total(np.abs(rows)))
        squares = np.asarray(rowwise.total(rows * rows))
        return squares if power else np.asarray(np.sqrt(squares))

    def blocks(self, X: Reals, y: Reals) -> Iterator[Reals]:
        """Yield all rows, in blocks that fit in a cache."""
        for start in range(0, len(X), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield self.rows(X[part], y[part])

    def products(self, blocks: Iterable[Reals]) -> Integers:
        """Sum the outer products of rows, in squared steps."""
        total = np.zeros((self.width, self.width), dtype=np.int64)
        for rows in blocks:
            # No partial sum reaches 2^12 radius² < 2^53: exact in floats, in any order.
            total += (rows.T @ rows).astype(np.int64)
        return total

    def coefficients(self, solution: Reals) -> tuple[Reals, float]:
        """Convert a solution to coefficients of the columns in their own units, and intercept."""
        scale = self.span / self.weight
        coef = scale * solution[: len(self.half)] / self.half
        if not self.intercept:
            return coef, 0.0
        shift = self.middle + scale * CONSTANT * float(solution[-1])
        return coef, shift - float(coef @ self.center)

    def penalty(self, alpha: float) -> Reals:
        """Return what α‖coef‖² adds to the diagonal of the products; the intercept is free."""
        return np.concatenate([alpha / self.half**2, np.zeros(self.size - len(self.half))])
