r"""Input layer of a network: columns on the scale of their bounds, and their components.

Columns are measured from the middle of their bounds in half-widths, u = (x − m)/h, which is public.
If components are requested, a private principal component analysis comes first, as in Abadi et al.
[ACG16]_: Gaussian noise is added to the mean and to the sums of products of the rows, both clipped
to norm N; V are the directions of the released matrix; and the network's inputs are

.. math:: v = L\,\frac{(u - \tilde m)V^\top}{s}, \qquad
          s^2 = \max\Big(\sum_k \tilde\lambda_k,\, \tau\Big)

with eigenvalues λ and the level τ of their noise, so that inputs have a length of about L, whatever
their scale was. All of this is linear in x: a fitted network contains it in its first layer.

Notes
-----
Privacy: directions, mean and s are post-processing of `tacit.private_statistics.mean` and
`tacit.private_statistics.covariance` with a noise multiplier of :math:`z/\sqrt{S}`, where z is the
multiplier of one Gaussian that gives the (ε, δ) of the whole fit, and S is the share. What is left
for training is not a difference of ε: training is calibrated together with this event, as one
composition.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016 (section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Box, Reals
from tacit.central.estimators.network import LENGTH
from tacit.central.estimators.scores import NORM_PART
from tacit.central.statistics.moments import Covariance, spend_covariance
from tacit.central.statistics.released import Spending
from tacit.central.statistics.sums import PrivateMean, spend_mean
from tacit.privacy import errors, gaussian, rowwise
from tacit.privacy.events import Event
from tacit.privacy.randomness import Randomness, Seeded

SHARE = 1 / 8
"""S, the share of the budget: components have √8 times the noise of a release with all of it."""

MEAN_SHARE = Fraction(1, 8)
"""Share of the components' budget for the mean."""

_BLOCK = 4096
_USUAL = 0.5
"""Assumed root mean square of a column in half-widths."""


@dataclass(frozen=True, eq=False)
class Affine:
    """A public or released map v = (s x + b) A; the matrix A is optional."""

    scale: Reals
    shift: Reals
    turn: Reals | None = None
    limit: float = 1.0
    """Bound of s x + b, for rows of the box."""

    def __call__(self, X: Reals) -> npt.NDArray[np.float32]:
        """Map rows to float32, each by itself."""
        width = len(self.shift) if self.turn is None else self.turn.shape[1]
        inputs = np.empty((len(X), width), dtype=np.float32)
        turn = None if self.turn is None else rowwise.Product.of(self.turn, self.limit)
        for start in range(0, len(X), _BLOCK):
            block = X[start : start + _BLOCK] * self.scale + self.shift
            inputs[start : start + _BLOCK] = block if turn is None else turn(block)
        return inputs

    def then(self, weights: Reals, bias: Reals) -> tuple[Reals, Reals]:
        """Return the weights and bias, on x itself, of a layer after this map."""
        turned = weights if self.turn is None else self.turn @ weights
        return self.scale[:, None] * turned, self.shift @ turned + bias


@dataclass(frozen=True, eq=False)
class PrivateComponents:
    """Private components of rows in a box, for a share of (ε, δ)."""

    where: str
    box: Box
    count: int
    norm: Any
    epsilon: float
    delta: float
    unit: str

    @cached_property
    def event(self) -> Event:
        """Return the event of `fit`. It does not depend on rows: an empty table has the same."""
        return self.fit(np.zeros((0, len(self.box.lower))), Seeded(0))[1]

    @cached_property
    def bound(self) -> float:
        """Return N: rows are shortened to this many half-widths from the middle."""
        corner = math.sqrt(len(self.box.lower))
        if self.norm is None:
            return NORM_PART * corner
        return min(float(errors.positive(self.where, "norm", self.norm)), corner)

    def fit(self, X: Reals, rng: Randomness | None) -> tuple[Affine, Event]:
        """Return the map from rows to inputs, and the event."""
        errors.whole(self.where, "components", self.count, least=1, most=X.shape[1])
        multiplier = gaussian.noise_multiplier_for(self.epsilon, self.delta) / math.sqrt(SHARE)
        spending = Spending(self.where, multiplier, None, self.delta, self.unit, rng)
        frame = halves(self.box)
        rows, center = X * frame.scale + frame.shift, np.zeros(X.shape[1])
        about = spend_mean(spending, rows, self.bound, center, MEAN_SHARE)
        moments = spend_covariance(spending, rows, self.bound, center, 1 - MEAN_SHARE)
        return self._map(frame, about, moments), spending.released(None).event

    def _map(self, frame: Affine, about: PrivateMean, moments: Covariance) -> Affine:
        values, vectors = np.linalg.eigh(moments.matrix - np.outer(about.point, about.point))
        directions = vectors[:, ::-1][:, : self.count]
        spread = float(np.maximum(values[::-1][: self.count], 0).sum())
        directions = directions * (LENGTH / math.sqrt(max(spread, moments.noise_level, 1e-12)))
        # Rows of the box lie within 1 of its middle, in half-widths.
        limit = 1 + float(np.abs(about.point).max())
        return Affine(frame.scale, frame.shift - about.point, directions, limit)


def halves(box: Box, scale: float = 1.0) -> Affine:
    """Map rows to half-widths from the middle, times a scale."""
    half = (box.upper - box.lower) / 2
    return Affine(scale / half, -scale * box.center / half)


def plain(box: Box) -> Affine:
    """Map rows to half-widths from the middle, on a scale with lengths of about `LENGTH`."""
    return halves(box, LENGTH / (_USUAL * math.sqrt(len(box.lower))))
