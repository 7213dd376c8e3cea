r"""Memoised randomized response: answers that are drawn once, and noised afresh in each report.

A device draws one permanent answer :math:`M_c` for each of g cells, from randomized response with
probabilities p (of c itself) and q (of each other cell). Report t is a randomized response of
:math:`M_{x_t}`, with odds R of the permanent answer against each other one. So

.. math:: P(y \mid x) = s^T \prod_c f_c(a_c), \qquad f_c(a) = \sum_m P(M_c = m)\,R^{a_m},

where :math:`a_{cm}` counts the reports m at the times when the true cell was c, and s is the
probability of each cell that is not the permanent answer. Three bounds follow, for any reports y
and any true cells; each pair of a report sequence and a history is bounded by itself, so cells may
also be chosen by somebody who sees the earlier reports.

**Report by report.** Given the permanent answers, a report is within a factor R for any two cells,
and so is their mixture. Bounding all reports but the first so leaves
:math:`\varepsilon_1 + (T - 1)\log R`, where ε₁ is that of one report alone.

**All together.** The mean of g numbers is at least their geometric mean, so
:math:`f_c(a) \ge g\,(p\,q^{g-1})^{1/g}\,R^{|a|/g}`; the product over the cells is at least
:math:`g^g\,p\,q^{g-1}\,R^{T/g}`. A sum of convex functions on :math:`|a| = A` is largest where one
count is A, so :math:`f_c(a) \le p\,R^A + 1 - p`; its logarithm is convex in A and 0 at 0, so the
product is at most :math:`p\,R^T + 1 - p`. The loss is at most

.. math:: \log\frac{p\,R^T + 1 - p}{g^g\,p\,q^{g-1}\,R^{T/g}} \approx
          \Bigl(1 - \frac1g\Bigr)\,T \log R .

**Same pattern.** If two histories change at the same times and return to the same cells
(:math:`x_s = x_t` if and only if :math:`x'_s = x'_t`) and have d distinct cells, their reports are
the same function of d independent permanent answers: the loss is at most d · ε of one of them.

References
----------
.. [EPK14] Erlingsson, Pihur, Korolova. RAPPOR: randomized aggregatable privacy-preserving ordinal
   response. CCS 2014 (permanent and instantaneous answers).
.. [APC23] Arcolezi, Pinzón, Palamidessi, Gambs. Frequency estimation of evolving data under local
   differential privacy. EDBT 2023 (LOLOHA).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from flint import arb

from tacit.privacy import errors
from tacit.privacy.decimals import above, below
from tacit.privacy.events.base import WEIGHT_BITS, Leaf
from tacit.privacy.events.choices import RandomizedResponse
from tacit.privacy.guarantees import Guarantee, PureDP
from tacit.privacy.rounding import float_above, low, precision

__all__ = ["MOST_CELLS", "MOST_REPORTS", "MemoizedResponse", "sequence_loss"]

MOST_CELLS, MOST_REPORTS = 2**10, 10**5
_TOTAL = 2**WEIGHT_BITS
_BITS = 192
"""Precision of a loss: a hundred bits more than it is shown with."""


@dataclass(frozen=True)
class MemoizedResponse(Leaf):
    """A sequence of reports, each a randomized response of a kept randomized response.

    `epsilon` is that of the whole sequence, for any two histories.
    """

    cells: int
    reports: int
    epsilon: Fraction
    permanent_epsilon: Fraction
    permanent_keep: int
    later_epsilon: Fraction
    later_keep: int

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "MemoizedResponse"
        self._whole("cells", least=2, most=MOST_CELLS)
        self._whole("reports", least=1, most=MOST_REPORTS)
        for one in ("permanent_keep", "later_keep"):
            self._whole(one, least=1, most=_TOTAL)
        for one in ("epsilon", "permanent_epsilon", "later_epsilon"):
            value = errors.epsilon_in_range(name, getattr(self, one), least=Fraction(0), name=one)
            object.__setattr__(self, one, value)
        for draw in (self.permanent, self.later):  # the proof needs p ≥ q and R ≥ 1
            if draw.keep < draw.other:
                errors.refuse(name, "keep", "at least the weight of another cell", draw.keep)
        with precision(_BITS):
            if not sequence_loss(self.permanent, self.later, self.reports) <= low(self.epsilon):
                errors.refuse(name, "epsilon", "that of the whole sequence", float(self.epsilon))

    @property
    def permanent(self) -> RandomizedResponse:
        """The draw of a permanent answer, once per cell."""
        return self._response("permanent")

    @property
    def later(self) -> RandomizedResponse:
        """The draw of a report from a permanent answer: what each report but the first can cost."""
        return self._response("later")

    @property
    def first_keep(self) -> Fraction:
        """The probability that one report is the true cell."""
        p, r = self.permanent, self.later
        return Fraction(p.keep * r.keep + (self.cells - 1) * p.other * r.other, _TOTAL**2)

    def same_pattern(self, distinct: int) -> Fraction:
        """Return ε of histories that change at the same times, and have so many distinct cells."""
        most = min(self.cells, self.reports)
        distinct = errors.whole("same_pattern", "distinct", distinct, least=1, most=most)
        return min(distinct * self.permanent_epsilon, self.epsilon)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # The constructor has compared ε with the smaller of the first two bounds above.
        return PureDP(epsilon=float_above(self.epsilon), **self.scope)

    def words(self) -> str:
        kept, shown = (Fraction(one.keep, _TOTAL) for one in (self.permanent, self.later))
        each = above(self.permanent_epsilon)
        return (
            f"For each of {self.cells} cells a permanent answer was drawn once, the cell itself "
            f"with probability {above(kept)}; each of at most {self.reports} reports is the "
            f"permanent answer of the true cell with probability {above(shown)}, and each other "
            f"cell with probability {below(Fraction(self.later.other, _TOTAL))}. Changes can be "
            "seen: that somebody's answer has changed shows in their reports. Any two histories, "
            f"of whatever changes, are covered by epsilon = {above(self.epsilon)} for all reports "
            "together; histories that change at the same times, and return to the same cells, by "
            f"{each} per distinct cell, so that answers that never change are covered by "
            f"{above(self.same_pattern(1))}, however many reports there are."
        )

    def assumption(self) -> str | None:
        return (
            "A device keeps its permanent answers for all reports, sends no more reports than "
            "stated, and is not set back to an earlier state."
        )

    def _response(self, which: str) -> RandomizedResponse:
        keep, epsilon = (getattr(self, f"{which}_{one}") for one in ("keep", "epsilon"))
        other, rest = divmod(_TOTAL - keep, self.cells - 1)
        if rest:
            condition = "2^64 less equal weights of the other cells"
            errors.refuse("MemoizedResponse", f"{which}_keep", condition, keep)
        return RandomizedResponse(self.cells, epsilon, keep, other, **self.scope)


@precision(_BITS)
def sequence_loss(permanent: RandomizedResponse, later: RandomizedResponse, reports: int) -> arb:
    """Compute what any two histories lose in all reports: the smaller of the two bounds above."""
    cells = permanent.categories
    p, q = (arb(one) / _TOTAL for one in (permanent.keep, permanent.other))
    odds = arb(later.keep) / later.other
    true = permanent.keep * later.keep + (cells - 1) * permanent.other * later.other
    other = (_TOTAL**2 - true) // (cells - 1)
    singly = (arb(true) / other).log() + (reports - 1) * odds.log()
    largest = (p + (1 - p) * odds**-reports).log() + reports * odds.log()
    smallest = cells * arb(cells).log() + p.log() + (cells - 1) * q.log()
    together = largest - smallest - reports * odds.log() / cells
    smaller: arb = singly if singly <= together else together
    return smaller
