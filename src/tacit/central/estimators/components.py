r"""The input layer of a network: columns on the scale of their bounds, and components of them.

Columns are measured from the middle of their bounds in half-widths, u = (x − m)/h, which is public.
Where components are asked for, a private principal component analysis comes first, as Abadi et al.
have it [ACG16]_: Gaussian noise on the mean and on the sums of products of the rows, both held to
norm N; directions V of what was released; and rows then enter as

.. math:: v = L\,\frac{(u - \tilde m)V^\top}{s}, \qquad
          s^2 = \max\Big(\sum_k \tilde\lambda_k,\, \tau\Big)

with eigenvalues λ and the level τ of their noise, so that they are about L long, whatever their
scale was. All of this is linear in x: a fitted
network holds it in its first layer.

Notes
-----
Privacy: directions, mean and s are post-processing of `tacit.private_statistics.mean` and
`tacit.private_statistics.covariance` with a noise multiplier of :math:`z/\sqrt{S}`, z that of one
Gaussian that gives the (ε, δ) of the whole fit, S the share. What the share leaves of ε is not a
difference: training is calibrated with this event beside it, as one composition.

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
from tacit.central.statistics.sums import Mean, spend_mean
from tacit.privacy import errors, rowwise
from tacit.privacy.accounting import gaussian
from tacit.privacy.events import Event
from tacit.privacy.randomness import Randomness, Seeded

SHARE = 1 / 8
"""S: components have √8 times the noise that they would have alone."""

MEAN_SHARE = Fraction(1, 8)
"""Of that, for the mean."""

_BLOCK = 4096
_USUAL = 0.5
"""Root mean square of a column in half-widths, about, where nothing is known."""


@dataclass(frozen=True, eq=False)
class Affine:
    """A public or released map v = (s x + b) A, column by column but for A, where there is one."""

    scale: Reals
    shift: Reals
    turn: Reals | None = None
    limit: float = 1.0
    """Of s x + b, for rows of the box."""

    def __call__(self, X: Reals) -> npt.NDArray[np.float32]:
        """Rows in float32, each by itself."""
        width = len(self.shift) if self.turn is None else self.turn.shape[1]
        found = np.empty((len(X), width), dtype=np.float32)
        turn = None if self.turn is None else rowwise.Product.of(self.turn, self.limit)
        for start in range(0, len(X), _BLOCK):
            made = X[start : start + _BLOCK] * self.scale + self.shift
            found[start : start + _BLOCK] = made if turn is None else turn(made)
        return found

    def then(self, weights: Reals, bias: Reals) -> tuple[Reals, Reals]:
        """Weights and bias that a layer after this map has on x itself."""
        turned = weights if self.turn is None else self.turn @ weights
        return self.scale[:, None] * turned, self.shift @ turned + bias


@dataclass(frozen=True, eq=False)
class Components:
    """So many private components of rows in a box, for a share of (ε, δ)."""

    where: str
    box: Box
    count: int
    norm: Any
    epsilon: float
    delta: float
    unit: str

    @cached_property
    def event(self) -> Event:
        """What `fit` runs: it does not depend on rows, so that of none at all is that of any."""
        return self.fit(np.zeros((0, len(self.box.lower))), Seeded(0))[1]

    @cached_property
    def bound(self) -> float:
        """N: rows are pulled in to this many half-widths from the middle."""
        corner = math.sqrt(len(self.box.lower))
        if self.norm is None:
            return NORM_PART * corner
        return min(float(errors.positive(self.where, "norm", self.norm)), corner)

    def fit(self, X: Reals, rng: Randomness | None) -> tuple[Affine, Event]:
        """The map from rows to inputs, and what ran."""
        errors.whole(self.where, "components", self.count, least=1, most=X.shape[1])
        multiplier = gaussian.noise_multiplier_for(self.epsilon, self.delta) / math.sqrt(SHARE)
        spending = Spending(self.where, multiplier, None, self.delta, self.unit, rng)
        frame = halves(self.box)
        rows, center = X * frame.scale + frame.shift, np.zeros(X.shape[1])
        about = spend_mean(spending, rows, self.bound, center, MEAN_SHARE)
        moments = spend_covariance(spending, rows, self.bound, center, 1 - MEAN_SHARE)
        return self._map(frame, about, moments), spending.released(None).event

    def _map(self, frame: Affine, about: Mean, moments: Covariance) -> Affine:
        values, vectors = np.linalg.eigh(moments.matrix - np.outer(about.point, about.point))
        directions = vectors[:, ::-1][:, : self.count]
        spread = float(np.maximum(values[::-1][: self.count], 0).sum())
        directions = directions * (LENGTH / math.sqrt(max(spread, moments.noise_level, 1e-12)))
        # Rows of the box lie within 1 of its middle, in half-widths.
        limit = 1 + float(np.abs(about.point).max())
        return Affine(frame.scale, frame.shift - about.point, directions, limit)


def halves(box: Box, scale: float = 1.0) -> Affine:
    """Half-widths from the middle, times a scale."""
    half = (box.upper - box.lower) / 2
    return Affine(scale / half, -scale * box.center / half)


def plain(box: Box) -> Affine:
    """Half-widths from the middle, on a scale on which rows are about `LENGTH` long."""
    return halves(box, LENGTH / (_USUAL * math.sqrt(len(box.lower))))
