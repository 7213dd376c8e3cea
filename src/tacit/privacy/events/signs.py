r"""Signs of several numbers: a report that likely agrees with most of them.

Each number is rounded at random to an end of its range, which gives d signs. A report names k of
the d places, drawn uniformly, and a sign for each of these. Of the :math:`2^k` choices of signs,

.. math:: C = \sum_{j \ge a} \binom{k}{j}

agree with the rounded ones in a places or more, whatever these are. The report is a uniform one of
them with probability p, and otherwise a uniform one of the rest, so two sets of signs give any
report probabilities within a factor

.. math:: \max\Bigl(\frac{p\,(2^k - C)}{(1 - p)\,C}, \frac{(1 - p)\,C}{p\,(2^k - C)}\Bigr),

and so do two mixtures of sets of signs, which is what two vectors of numbers are.

References
----------
.. [DJW18] Duchi, Jordan, Wainwright. Minimax optimal procedures for locally private estimation.
   JASA 2018 (signs of one half space: a is k/2).
.. [BDFKR18] Bhowmick, Duchi, Freudiger, Kapoor, Rogers. Protection against reconstruction and its
   applications in private federated learning. 2018 (caps of the sphere).
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

__all__ = ["MOST_ENTRIES", "MOST_SIGNS", "SignVector", "agreeing_signs"]

MOST_ENTRIES = 1024
MOST_SIGNS = 32


@dataclass(frozen=True)
class SignVector(Leaf):
    """Signs of `told` of `dimension` numbers: `agreeing` or more are right with inclusion/2^64."""

    dimension: int
    told: int
    agreeing: int
    epsilon: Fraction
    inclusion: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epsilon()
        self._whole("dimension", least=1, most=MOST_ENTRIES)
        self._whole("told", least=1, most=min(self.dimension, MOST_SIGNS))
        self._whole("agreeing", least=1, most=self.told)
        self._whole("inclusion", least=1, most=2**WEIGHT_BITS - 1)
        weight = self.inclusion * (2**self.told - self.held)
        rest = (2**WEIGHT_BITS - self.inclusion) * self.held
        for one, other in ((weight, rest), (rest, weight)):
            if not ratio_within(one, other, self.epsilon):
                wanted = "within e^epsilon of the rest"
                errors.refuse("SignVector", "inclusion", wanted, self.inclusion)

    @property
    def held(self) -> int:
        """The choices of signs that agree with the rounded ones often enough."""
        return agreeing_signs(self.told, self.agreeing)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # The constructor has compared the odds of a report with e^ε in integers; the law of a
        # vector is a mixture over its roundings, and a ratio of mixtures is no larger.
        return PureDP(epsilon=float_above(self.epsilon), **self.scope)

    def words(self) -> str:
        numbers, told, at_least = self.dimension, self.told, self.agreeing
        which = "all of them" if told == numbers else f"{told} of them, drawn at random"
        often = f"all {told}" if at_least == told else f"{at_least} or more"
        return (
            f"Of each vector of {numbers} bounded numbers, every number was rounded at random to "
            f"an end of its range. The report has an end for {which}; {often} are the rounded ones "
            f"with probability {above(Fraction(self.inclusion, 2**64))}."
        )


def agreeing_signs(signs: int, least: int) -> int:
    """Count the choices of so many signs that agree with given ones in `least` or more places."""
    return sum(math.comb(signs, count) for count in range(least, signs + 1))
