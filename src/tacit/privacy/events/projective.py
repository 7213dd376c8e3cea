r"""Projective geometry response: a point, likelier on the hyperplane of an answer.

The points of PG(t − 1, q) are the lines through the origin of :math:`F_q^t`: with
:math:`[m] = (q^m - 1) / (q - 1)` there are [t] of them. Every answer has a hyperplane of its own,
of [t − 1] points. A report is a uniform point of it with probability p, and otherwise a uniform
point outside it, so two answers give any point probabilities within a factor

.. math:: \max\Bigl(\frac{p\,([t] - [t-1])}{(1 - p)\,[t-1]},
          \frac{(1 - p)\,[t-1]}{p\,([t] - [t-1])}\Bigr).

References
----------
.. [FNNT22] Feldman, Nelson, Nguyen, Talwar. Private frequency estimation via projective geometry.
   ICML 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit.privacy import errors
from tacit.privacy.decimals import above
from tacit.privacy.events.base import WEIGHT_BITS, Leaf, ratio_within
from tacit.privacy.guarantees import Guarantee, PureDP
from tacit.privacy.rounding import float_above

__all__ = ["MOST_ORDER", "MOST_POINTS", "ProjectiveGeometryResponse", "is_prime", "points_of"]

MOST_POINTS = 2**26
MOST_ORDER = 2**25


@dataclass(frozen=True)
class ProjectiveGeometryResponse(Leaf):
    """One of `categories` answers becomes a point, on its hyperplane with inclusion/2^64."""

    categories: int
    order: int
    dimension: int
    epsilon: Fraction
    inclusion: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epsilon()
        name = "ProjectiveGeometryResponse"
        self._whole("order", least=2, most=MOST_ORDER)
        self._whole("dimension", least=2, most=64)
        if not is_prime(self.order):
            errors.refuse(name, "order", "a prime", self.order)
        if self.points > MOST_POINTS:
            errors.refuse(name, "dimension", f"one of {MOST_POINTS} points at most", self.dimension)
        self._whole("categories", least=2, most=self.points)
        self._whole("inclusion", least=1, most=2**WEIGHT_BITS - 1)
        weight = self.inclusion * (self.points - self.held)
        outside = (2**WEIGHT_BITS - self.inclusion) * self.held
        for one, other in ((weight, outside), (outside, weight)):
            if not ratio_within(one, other, self.epsilon):
                errors.refuse(name, "inclusion", "within e^epsilon of the rest", self.inclusion)

    @property
    def points(self) -> int:
        """The points of the space: what a report can be."""
        return points_of(self.order, self.dimension)

    @property
    def held(self) -> int:
        """The points of one hyperplane."""
        return points_of(self.order, self.dimension - 1)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # The constructor has compared the odds of a point with e^ε in integers [FNNT22].
        return PureDP(epsilon=float_above(self.epsilon), **self.scope)

    def words(self) -> str:
        return (
            f"Each answer, one of {self.categories} categories, becomes a random one of "
            f"{self.points} points, which is among the {self.held} points that belong to the "
            f"answer with probability {above(Fraction(self.inclusion, 2**64))}."
        )


def points_of(order: int, dimension: int) -> int:
    """Count the points of a projective space over vectors of that many entries."""
    return int((order**dimension - 1) // (order - 1))


def is_prime(number: int) -> bool:
    """Decide by trial division."""
    return number > 1 and all(number % one for one in range(2, math.isqrt(number) + 1))
