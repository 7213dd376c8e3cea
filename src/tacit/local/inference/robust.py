r"""Shares that forged reports can move as little as possible, and intervals that hold despite them.

Let J be the number of symbols that a report names of a group G. For an honest person J has the law
:math:`L_1` if their symbol is in G, and :math:`L_0` if not, both known exactly. For any threshold c
with :math:`a_i = L_i(J \ge c)`,

.. math:: \hat\pi = \frac1n \sum_{i=1}^n h(J_i), \qquad h(J) = \frac{1[J \ge c] - a_0}{a_1 - a_0}

is unbiased for the share of G, whoever the people are. One forged report in the place of an honest
one moves it on average by at most :math:`\max(1 - a_0, a_1) / ((a_1 - a_0) n)`, whatever it names:
naming G many times counts once. Of
all unbiased :math:`h`, the range is the least at the threshold where :math:`L_1` exceeds
:math:`L_0`: it is :math:`1/\mathrm{TV}(L_0, L_1)`, since :math:`E_1 h - E_0 h = 1` and this is at
most the range times the distance. The usual estimate has less variance and a larger range
(`poisoning.reach`). The threshold here minimises the width of the interval for the given numbers of
reports and forgeries, which do not depend on what was reported.

If at most m of the n reports are forged, then of the H reports with :math:`J \ge c` between
:math:`H - m` and H are honest. The interval runs from the lower end for :math:`H - m` of
:math:`n - m` to the upper end for :math:`\min(H, n - m)`; ends grow with the count, so it covers
the share among honest people whenever the exact interval of their own count does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.local.inference.validation import exact_interval
from tacit.local.inference.wagers import group_laws
from tacit.privacy import errors
from tacit.privacy.mechanisms import SubsetSelection

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Threshold(NamedTuple):
    """How reports are counted: those that name at least `least` symbols of a group.

    `outside` and `inside` are the probabilities of that for people outside and inside the group.
    """

    least: int
    outside: float
    inside: float

    def shift(self, reports: int, forged: int) -> float:
        """Return by how much forged reports can move the estimate at most, either way."""
        gap = self.inside - self.outside
        return forged / reports * max(1 - self.outside, self.inside) / gap

    def estimate(self, share: float) -> float:
        """Return the share of people for a share of reports, within [0, 1]."""
        return min(max((share - self.outside) / (self.inside - self.outside), 0.0), 1.0)


class RobustShares(NamedTuple):
    """Shares of groups, their intervals, the largest shift by forgeries, and what was counted."""

    shares: Reals
    intervals: Reals
    shift: float
    threshold: Threshold


def threshold_for(law: SubsetSelection, group: int, reports: int, forged: int) -> Threshold:
    """Choose the threshold with the narrowest interval, from the channel and the numbers alone."""
    outside, inside = (np.cumsum(one[::-1])[::-1] for one in group_laws(law, group))
    possible = [
        Threshold(least, float(outside[least]), float(inside[least]))
        for least in range(1, len(outside))
        if inside[least] > outside[least]
    ]

    def width(one: Threshold) -> float:
        rate = one.outside + group / law.categories * (one.inside - one.outside)
        error = math.sqrt(rate * (1 - rate) / reports) / (one.inside - one.outside)
        return one.shift(reports, forged) + 2 * error

    return min(possible, key=width)


def robust_shares(
    law: SubsetSelection,
    sets: Integers,
    group_of: Integers,
    forged: int,
    confidence: float = 0.95,
) -> RobustShares:
    """Estimate shares of groups of symbols, when some reports may be forged.

    Parameters
    ----------
    law : SubsetSelection
        The law of one report.
    sets : array of int, (n, d)
        The symbols that each report names.
    group_of : array of int, (K,)
        The group of each symbol; all groups have the same size.
    forged : int
        The largest number of forged reports to hold out against, below n.
    confidence : float
        Confidence of each interval on its own.
    """
    reports = len(sets)
    forged = errors.whole("robust", "forged", forged, least=0, most=max(reports - 1, 0))
    confidence = errors.probability("robust", "confidence", confidence, zero=False)
    sizes = np.bincount(group_of)
    if len(group_of) != law.categories or len(set(sizes.tolist())) != 1 or len(sizes) < 2:
        errors.refuse("robust", "group_of", "several groups of one size", len(sizes))
    chosen = threshold_for(law, int(sizes[0]), reports, forged)
    counts = _counts(sets, group_of, len(sizes), chosen.least)
    shares = np.array([chosen.estimate(count / reports) for count in counts.tolist()])
    ends = np.array([_interval(count, reports, forged, chosen, confidence) for count in counts])
    return RobustShares(shares, ends, min(chosen.shift(reports, forged), 1.0), chosen)


def _counts(sets: Integers, group_of: Integers, groups: int, least: int) -> Integers:
    """Count the reports that name enough symbols of each group."""
    named = np.zeros((len(sets), groups), np.int64)
    rows = np.arange(len(sets))
    for column in group_of[sets].T:
        np.add.at(named, (rows, column), 1)
    return np.asarray((named >= least).sum(axis=0))


def _interval(
    count: int, reports: int, forged: int, chosen: Threshold, confidence: float
) -> tuple[float, float]:
    honest = reports - forged
    fewest, most = max(int(count) - forged, 0), min(int(count), honest)
    law = chosen.inside, chosen.outside
    low, _ = exact_interval(fewest, honest, *law, confidence)
    _, high = exact_interval(most, honest, *law, confidence)
    return low, high
