r"""Wagers that reports break the law of their channel, which nobody's honest report favours.

A report names d of K symbols. Given the person's own symbol x, the number J of named symbols in a
group G has one of two laws that are known exactly: :math:`L_1` if x is in G, :math:`L_0` if not.
For any threshold c there is one :math:`\beta` for which

.. math:: h(J) = 1[J \ge c] - \alpha - \beta J, \qquad E_{L_0} h = E_{L_1} h = 0,

so h has mean zero for every person, whatever their symbol is. A factor :math:`1 + \lambda\, h(J)`
that cannot be negative therefore has mean 1 for all of them: a fair bet that more of G is named
than an honest report names.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln
from scipy.stats import hypergeom

from tacit.privacy.mechanisms import SubsetSelection

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_STAKES = np.array([0.01, 0.03, 0.1, 0.3, 0.9])
"""Parts of the largest stake for which no factor is negative."""
_MOST_THRESHOLDS = 8


class Wager(NamedTuple):
    """Zero-mean scores of J = 0, 1, …, one row per threshold, and the factors of stakes on them.

    `even` is the law of J for people who are spread evenly over the symbols.
    """

    scores: Reals
    log_factors: Reals
    even: Reals


def group_laws(law: SubsetSelection, group: int) -> tuple[Reals, Reals]:
    """Return the laws of how many symbols of a group are named, by someone outside and inside."""
    (p, _), k, d = law.inclusion, law.categories, law.event.size
    counts = np.arange(min(d, group) + 1)

    def others(size: int, inside: int, named: Any) -> Reals:
        return np.asarray(hypergeom.pmf(named, k - 1, inside, size), np.float64)

    outside = p * others(d - 1, group, counts) + (1 - p) * others(d, group, counts)
    own = p * others(d - 1, group - 1, counts - 1) + (1 - p) * others(d, group - 1, counts)
    return outside, own


def group_wager(law: SubsetSelection, group: int) -> Wager | None:
    """Wager that more of a group is named than anyone's channel would; None if that is no law."""
    if not 1 < group < law.categories:
        return None
    laws = np.stack(group_laws(law, group))
    counts = np.arange(laws.shape[1])
    means = laws @ counts
    above = np.cumsum(laws[:, ::-1], axis=1)[:, ::-1]
    slopes = (above[1] - above[0]) / (means[1] - means[0])
    scores = (counts >= counts[:, None]) - (
        above[0][:, None] + slopes[:, None] * (counts - means[0])
    )
    useful = (above[0] > 0) & (scores[:, -1] > 1e-9) & (above[0] < 0.5)
    evenly = group / law.categories
    return _wager(scores[useful], laws, (1 - evenly) * laws[0] + evenly * laws[1])


def run_wager(law: SubsetSelection) -> Wager | None:
    r"""Wager on neighbours among the named symbols: their law is the same for everyone.

    A set of d of K symbols on a circle that falls into r runs has d - r pairs of neighbours, and
    :math:`\frac Kr \binom{d-1}{r-1} \binom{K-d-1}{r-1}` sets do.
    """
    k, d = law.categories, law.event.size
    if not 1 < d < k - 1:
        return None
    runs = np.arange(1, d + 1)
    logs = math.log(k) - np.log(runs) + _log_choose(d - 1, runs - 1)
    logs = logs + _log_choose(k - d - 1, runs - 1)
    chances = np.zeros(d + 1)
    chances[d - runs] = np.exp(logs - _log_choose(k, np.array([d])))
    above = np.cumsum(chances[::-1])[::-1]
    counts = np.arange(d)  # d neighbours would take the whole circle
    scores = (counts >= counts[:, None]) - above[:d, None]
    useful = (above[:d] > 0) & (above[:d] < 0.5)
    return _wager(scores[useful], chances[None, :d], chances[:d])


def uniform_wager(partitions: int) -> Wager | None:
    """Wager that one partition is named more often than each of the others."""
    if partitions < 2:
        return None
    chances = np.array([[1 - 1 / partitions, 1 / partitions]])
    return _wager(np.array([[-1 / partitions, 1 - 1 / partitions]]), chances, chances[0])


def _wager(scores: Reals, laws: Reals, even: Reals) -> Wager | None:
    """Return factors for each threshold and stake, none of which has a mean above 1."""
    if not len(scores):
        return None
    scores = scores[
        np.unique(np.linspace(0, len(scores) - 1, _MOST_THRESHOLDS).round().astype(int))
    ]
    possible = laws.max(axis=0) > 0
    largest = 1 / -scores[:, possible].min(axis=1)
    factors = 1 + _STAKES[:, None] * largest[:, None, None] * scores[:, None, :]
    factors = np.maximum(factors, 1e-12)
    # Rounding must not make a mean larger than 1.
    means = np.max(factors @ laws.T, axis=-1, keepdims=True)
    return Wager(scores, np.log(factors / np.maximum(means, 1) / (1 + 1e-12)), even)


def _log_choose(n: int, chosen: Integers) -> Reals:
    with np.errstate(invalid="ignore"):
        logs = gammaln(n + 1) - gammaln(chosen + 1) - gammaln(n - chosen + 1)
    return np.where((chosen >= 0) & (chosen <= n), logs, -np.inf)
