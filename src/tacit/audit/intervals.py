r"""Confidence intervals for the success of an attack, valid for any number of records.

Shares have Clopper–Pearson intervals. A difference of two shares lies between the differences of
their bounds, each at half the risk (Bonferroni). The area under the curve is a two-sample
U-statistic, for which Hoeffding's inequality holds [Hoe63]_:

.. math:: P\left(|\hat A - A| \ge t\right) \le 2 e^{-2 \min(m, n) t^2}

Notes
-----
All intervals assume that records are drawn independently. The members of one model are not
independent of it. So an interval says how accurately the shares of *this model* are known from this
many records, and not what they would be for another model. It is not a bound on ε.

References
----------
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [Hoe63] Hoeffding. Probability inequalities for sums of bounded random variables. JASA 1963
   (Section 5a).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv
from scipy.stats import rankdata

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with a lower and an upper bound; the confidence level is stated elsewhere."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def share(hits: Any, confidence: float) -> Interval:
    """Return the Clopper–Pearson interval of the share of True in a sequence."""
    total, count = len(hits), int(np.sum(hits))
    tail = (1 - confidence) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return Interval(count / total, low, high)


def difference(first: Any, second: Any, confidence: float) -> Interval:
    """Return an interval of the difference of the shares of True in two sequences."""
    ours, theirs = (share(hits, 1 - (1 - confidence) / 2) for hits in (first, second))
    return Interval(ours.value - theirs.value, ours.low - theirs.high, ours.high - theirs.low)


def area(members: Reals, others: Reals, confidence: float) -> Interval:
    """Return the probability that a member's score is above another's; ties count half."""
    m, n = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))[:m].sum()
    value = float((ranks - m * (m + 1) / 2) / (m * n))
    reach = math.sqrt(math.log(2 / (1 - confidence)) / (2 * min(m, n)))
    return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))
