r"""Updates as whole numbers: clipped, rotated, rounded at random, and bounded in integers.

One clip norm C is K grid steps. A client scales its update to norm C at most, rotates it
(`rotation`), and rounds every entry up or down at random, without bias. Rounding may lengthen a
vector, so the rounded one is measured in integers, and shortened where its norm is above S, with

.. math:: S^2 = K^2 + \tfrac D4 + \sqrt{2 \ln 2^{40}}\,\big(K + \tfrac12\sqrt D\big),

which happens with probability :math:`2^{-40}` at most [KLS21]_. The guarantee rests on
the integer bound S alone: neither on floats, nor on the rotation, nor on the rounding. D is the
padded length.

Sums of n such vectors, each with noise of variance v, are taken modulo :math:`2^b`. For updates
that do not depend on the rotation an entry of a sum is sub-Gaussian with variance proxy
:math:`V = (nK)^2/B + n/4 + nv`, so that some entry is beyond :math:`2^{b-1}`, and wraps, with
probability at most :math:`2D\exp(-2^{2b-3}/V) + n2^{-40}`. That is an error in the result, at which
the guarantee stays.

References
----------
.. [KLS21] Kairouz, Liu, Steinke. The distributed discrete Gaussian mechanism for federated learning
   with secure aggregation. ICML 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.client_level.rotation import Reals, Rotation
from tacit.federated.secure.residues import WIDTHS
from tacit.privacy import errors, rowwise
from tacit.privacy.mechanisms.bounding import LARGEST_RADIUS, clip_l2
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]

_SLACK = math.sqrt(2 * 40 * math.log(2))
_WRAPPING = 2.0**-30
"""Probability with which some entry of a sum may wrap."""
_FINENESS = 4
"""Grid steps in a clip norm, over the root of the number of entries: S is then 2 % above K."""


@dataclass(frozen=True)
class Grid:
    """The grid of a run.

    Parameters
    ----------
    size : int
        Length of an update.
    steps : int
        K, the grid steps in a clip norm.
    """

    size: int
    steps: int

    @classmethod
    def of(cls, size: int, least: float) -> Grid:
        """Return the grid with at least `least` steps in a clip norm, and fine enough to round."""
        fine = _FINENESS * math.sqrt(Rotation(size).padded)
        steps = 2 ** math.ceil(math.log2(max(fine, least, 64)))
        errors.whole("Grid", "steps in a clip norm", steps, least=1, most=LARGEST_RADIUS // 2)
        return cls(size, steps)

    @cached_property
    def rotation(self) -> Rotation:
        """The rotation of updates."""
        return Rotation(self.size)

    @cached_property
    def bound(self) -> int:
        """S, the largest norm of a rounded vector, in steps."""
        size = self.rotation.padded
        slack = _SLACK * (self.steps + math.sqrt(size) / 2)
        return math.ceil(math.sqrt(self.steps**2 + size / 4 + slack))

    def encode(self, update: Any, norm: float, signs: Reals, rng: Randomness) -> Integers:
        """Encode one client's update; one that is not finite becomes zero.

        Random words are drawn whatever the update is.
        """
        with np.errstate(all="ignore"):
            vector = np.array(update, dtype=np.float64).ravel() / norm
            if not np.isfinite(vector).all() or not np.isfinite(length := _length(vector)):
                vector, length = np.zeros(self.size), 0.0
            rotated = self.rotation.forward(vector * (self.steps / max(length, 1.0)), signs)
        rounded = np.floor(rotated + _uniform(rotated.size, rng))
        reach = 2 * self.bound
        return clip_l2(np.clip(rounded, -reach, reach).astype(np.int64), self.bound)

    def decode(self, total: Integers, norm: float, signs: Reals) -> Reals:
        """Return the sum of updates that a sum of encoded vectors stands for."""
        return self.rotation.backward(total * (norm / self.steps), signs)

    def wrapping(self, clients: int, variance: Fraction, bits: int) -> float:
        """Bound the probability that some entry of a sum wraps."""
        spread = (clients * self.steps) ** 2 / self.rotation.block
        proxy = spread + clients / 4 + clients * float(variance)
        exponent = -(2.0 ** (2 * bits - 3)) / proxy
        return 2 * self.rotation.padded * math.exp(exponent) + clients * 2.0**-40

    def bits(self, clients: int, variance: Fraction) -> int:
        """Return the smallest number of bits with which sums hardly ever wrap."""
        for bits in WIDTHS:
            if self.wrapping(clients, variance, bits) <= _WRAPPING + clients * 2.0**-40:
                return bits
        remedy = "Ask fewer clients, or accept a larger epsilon."
        errors.refuse("Grid", "sums", f"below 2^{WIDTHS[-1]} steps", clients, remedy)


def _length(vector: Reals) -> float:
    """Return the Euclidean norm, of a vector whose squares may overflow, too."""
    largest = float(np.abs(vector).max(initial=0.0))
    return largest * float(rowwise.lengths(vector / largest)) if largest else 0.0


def _uniform(count: int, rng: Randomness) -> Reals:
    return np.asarray((rng.words(count) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
