r"""Random Fourier features: a Gaussian kernel as a linear product, drawn without the data.

.. math:: z(x) = \frac{1}{\sqrt D}\big(\cos w_1^\top x, \sin w_1^\top x, \dots, \cos w_D^\top x,
          \sin w_D^\top x\big), \quad w_j \sim \mathcal N(0, 2\gamma I), \qquad
          E[z(x)^\top z(x')] = e^{-\gamma\lVert x - x'\rVert^2}

Every z(x) has norm 1 [RR07]_. With a constant 1 appended, and divided by √2, rows have norm 1.

Notes
-----
The result for a row must depend on that row alone, but a library may add up products in an order
that depends on the number of rows. So x, in half-widths, is on a grid of 2^-20, and the w are on a
grid of :math:`2^{-31}` times the largest sum of their magnitudes: partial sums are then whole
multiples, fewer than 2^53, of the product of both steps, and exact in any order. What remains are
errors of cosines in their last digit, which
`tacit.estimators.losses.PenalizedObjective.rounding` includes.

References
----------
.. [RR07] Rahimi, Recht. Random features for large-scale kernel machines. NIPS 2007.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.central.estimators.base import Box, Reals
from tacit.privacy.randomness import Randomness, source

_BLOCK = 1024
_ROOM = 1 + 2.0**-40  # rounding may not make a row longer than 1
_FINE = 2.0**20
_BITS = 31


@dataclass(frozen=True, eq=False)
class Fourier:
    """Features of rows about the middle of their bounds, measured in half-widths."""

    box: Box
    directions: Reals
    intercept: bool

    @classmethod
    def drawn(
        cls, box: Box, pairs: int, gamma: float, *, intercept: bool, rng: Randomness | None
    ) -> Fourier:
        """Draw directions that depend on nothing but the stream."""
        generator = np.random.default_rng(source(rng).words(4))
        spread = math.sqrt(2 * gamma)
        drawn = generator.normal(scale=spread, size=(len(box.lower), pairs))
        step = 2.0 ** (math.ceil(math.log2(np.abs(drawn).sum(axis=0).max())) - _BITS)
        return cls(box, np.rint(drawn / step) * step, intercept)

    @property
    def dimension(self) -> int:
        """Return the number of entries of a row."""
        return 2 * int(self.directions.shape[1]) + self.intercept

    def rows(self, X: Reals) -> tuple[Reals, int]:
        """Map rows to norm 1, and count the rows outside the box: an in-house number."""
        mapped, clipped = np.empty((len(X), self.dimension)), 0
        for start in range(0, len(X), _BLOCK):
            inside, moved = self.box.clip(X[start : start + _BLOCK])
            clipped += moved
            mapped[start : start + _BLOCK] = self.features(inside)
        return mapped, clipped

    def features(self, rows: Reals) -> Reals:
        """Compute the features of rows, without clipping them."""
        half = (self.box.upper - self.box.lower) / 2
        angles = np.rint((rows - self.box.center) / half * _FINE) / _FINE @ self.directions
        parts = [np.cos(angles), np.sin(angles)]
        scale = 1 / math.sqrt(self.directions.shape[1])
        if self.intercept:
            parts.append(np.full((len(rows), 1), 1 / scale))
        return np.concatenate(parts, axis=1) * (scale / math.sqrt(1 + self.intercept) / _ROOM)
