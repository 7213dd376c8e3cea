r"""Rows (x, 1, y) on the scale of their bounds, and sums of their products in whole numbers.

Every column is measured from the middle of its bounds in half-widths, so that years and euros count
alike, and the target beside them. A row of a linear fit is then

.. math:: v_i = t_i\,(u_i,\; c,\; b\,y'_i), \qquad t_i = \min(1, N / \lVert u_i\rVert),

with u in [−1, 1]^d, y' in [−1, 1], and public numbers N (the norm), c and b. Shortening the whole
row, target included, weights a record by :math:`t_i^2` instead of bending it: under a linear model
any weights that depend on u alone leave the coefficients where they are.

Notes
-----
Sensitivity: :math:`\lVert v\rVert \le R` by construction, R = N + b + c in the ℓ1 norm and
:math:`\sqrt{N^2 + b^2 + c^2}` in the ℓ2 norm. Rows are rounded to a grid of about R/2^13 and then
judged in whole numbers; one that floats have made too long counts as zeros. What a row becomes
depends on that row alone, to the last bit: sums over the columns of one row are the only ones that
round.
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
"""Rows are measured in steps of their bound over about 2^13."""

CONSTANT = 0.5
"""c: of the column that the intercept belongs to. Sums over all records need little room."""

NORM_PARTS = {1: 0.4, 2: 0.6}
"""The norm over that of the corners of the box, where none is given."""

_BLOCK = 2**12


@dataclass(frozen=True, eq=False)
class Frame:
    """Public scales of columns and target, and the ball that rows are held to.

    Parameters
    ----------
    box, target : Box
        Public bounds.
    norm : float
        N, in half-widths of the columns.
    intercept : bool
        Without one, rows and target are measured from zero, and the constant column is there for
        the number of records alone.
    order : 1 or 2
        Of the norm that noise is calibrated to.
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
        """With the norm that was asked for, or the one that has proved itself."""
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
        """Where columns are measured from."""
        return self.box.origin(self.intercept)

    @cached_property
    def half(self) -> Reals:
        """What columns are measured in."""
        return self.box.reach(self.center)

    @cached_property
    def middle(self) -> float:
        """Where the target is measured from."""
        return float(self.target.center[0]) if self.intercept else 0.0

    @cached_property
    def span(self) -> float:
        """What the target is measured in."""
        low, high = float(self.target.lower[0]), float(self.target.upper[0])
        return max(high - self.middle, self.middle - low)

    @cached_property
    def weight(self) -> float:
        r"""The factor b of the target: √N in the ℓ1 norm, N/√2 in the ℓ2 norm.

        To first order the squared error is :math:`R^4(\lVert\beta\rVert^2 + 1/b^2)`, and these are
        near its least for :math:`\lVert\beta\rVert` from 0.3 to 1: a target that moves over a
        third of its bounds, or all of them.
        """
        return math.sqrt(self.norm) if self.order == 1 else self.norm / math.sqrt(2)

    @cached_property
    def width(self) -> int:
        """Entries of a row: columns, constant, target."""
        return len(self.half) + 2

    @cached_property
    def size(self) -> int:
        """How many of them, from the first, have a coefficient."""
        return len(self.half) + self.intercept

    @cached_property
    def bound(self) -> float:
        """R, in half-widths."""
        parts = (self.norm, self.weight, CONSTANT)
        return sum(parts) if self.order == 1 else math.hypot(*parts)

    @cached_property
    def step(self) -> float:
        """Size of a grid step: a power of two."""
        return 2.0 ** (math.ceil(math.log2(self.bound)) - BITS)

    @cached_property
    def reach(self) -> int:
        """The norm of the entries (x, 1) in grid steps, with half a step an entry for rounding."""
        parts = (self.norm, CONSTANT)
        bound = sum(parts) if self.order == 1 else math.hypot(*parts)
        rounding = self.width / 2 if self.order == 1 else math.sqrt(self.width) / 2
        return math.ceil(bound / self.step + rounding)

    @cached_property
    def top(self) -> int:
        """The largest target in grid steps."""
        return math.ceil(self.weight / self.step)

    @cached_property
    def radius(self) -> int:
        """R in grid steps: no row is longer."""
        if self.order == 1:
            return self.reach + self.top
        return math.isqrt(self.reach**2 + self.top**2 - 1) + 1

    def rows(self, X: Reals, y: Reals) -> Reals:
        """Rows in grid steps, as whole numbers in floats."""
        found = np.empty((len(X), self.width))
        columns, entries = found[:, :-2], found[:, :-1]
        np.subtract(X, self.center, out=columns)
        columns *= 1 / (self.half * self.step)
        with np.errstate(divide="ignore"):
            shrink = np.minimum(self.norm / self.step / self._lengths(columns), 1.0)
        found[:, -2] = CONSTANT / self.step
        found[:, -1] = (y - self.middle) * (self.weight / (self.span * self.step))
        found *= shrink[:, None]
        np.rint(found, out=found)
        np.clip(found[:, -1], -self.top, self.top, out=found[:, -1])
        # Exact, as all are whole: no rounding lets a longer one pass.
        found[self._lengths(entries, power=True) > self.reach**self.order] = 0.0
        return found

    def _lengths(self, rows: Reals, *, power: bool = False) -> Reals:
        """Norms of rows, each by itself; in the ℓ2 norm with `power` their squares."""
        if self.order == 1:
            return np.asarray(rowwise.total(np.abs(rows)))
        squares = np.asarray(rowwise.total(rows * rows))
        return squares if power else np.asarray(np.sqrt(squares))

    def blocks(self, X: Reals, y: Reals) -> Iterator[Reals]:
        """All rows, few enough at a time for a cache."""
        for start in range(0, len(X), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield self.rows(X[part], y[part])

    def products(self, blocks: Iterable[Reals]) -> Integers:
        """The sum of the outer products of rows, in squared steps."""
        total = np.zeros((self.width, self.width), dtype=np.int64)
        for rows in blocks:
            # No partial sum reaches 2^12 radius² < 2^53: exact in floats, in any order.
            total += (rows.T @ rows).astype(np.int64)
        return total

    def coefficients(self, solution: Reals) -> tuple[Reals, float]:
        """Of the columns in their own units, and the intercept, from those of a row's entries."""
        scale = self.span / self.weight
        coef = scale * solution[: len(self.half)] / self.half
        if not self.intercept:
            return coef, 0.0
        shift = self.middle + scale * CONSTANT * float(solution[-1])
        return coef, shift - float(coef @ self.center)

    def penalty(self, alpha: float) -> Reals:
        """What α‖coef‖² adds to the diagonal of the sums of products; the intercept is free."""
        return np.concatenate([alpha / self.half**2, np.zeros(self.size - len(self.half))])
