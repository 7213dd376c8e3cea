r"""Unbiased counts from reports that hold each category with one of two probabilities.

References
----------
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [WBLJ17] Wang, Blocki, Li, Jha. Locally differentially private protocols for frequency
   estimation. USENIX Security 2017 ("pure" protocols).
.. [ZD08] Zou, Donner. Construction of confidence limits about effect measures: a general approach.
   Statistics in Medicine 2008.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, binom

from tacit.privacy import errors

_WINDOW = 24
"""Standard deviations on both sides together: the tails have a probability below 1e-30."""


@dataclass(frozen=True)
class CountEstimate:
    """Unbiased counts and their estimated variances, one per category.

    The variance is that of the randomisation: the counts are of the people who reported. For the
    population that they were sampled from, see `share_interval`.
    """

    counts: npt.NDArray[np.float64]
    variances: npt.NDArray[np.float64]
    reports: int
    support: npt.NDArray[np.int64]
    true: float
    other: float

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Unbiased shares of the people who reported."""
        return self.counts / self.reports

    @property
    def standard_errors(self) -> npt.NDArray[np.float64]:
        """Standard errors of the shares, of the randomisation alone."""
        return np.sqrt(self.variances) / self.reports

    def interval(self, confidence: float = 0.95) -> npt.NDArray[np.float64]:
        r"""Compute exact intervals for the counts, one row with two ends per category.

        A count k is in the interval where neither tail of its support

        .. math:: S \sim \mathrm{Bin}(k, p) + \mathrm{Bin}(n - k, q)

        is rarer than half the risk. Both tails are monotone in k: the interval misses with a
        probability of at most the risk, for every n, k and confidence.
        """
        confidence = errors.probability("interval", "confidence", confidence, zero=False)
        seen, places = np.unique(self.support, return_inverse=True)
        tail = (1 - confidence) / 2
        ends = [self._ends(int(one), tail) for one in seen]
        return np.array(ends, np.float64)[places.reshape(np.shape(self.support))]

    def share_interval(self, confidence: float = 0.95) -> npt.NDArray[np.float64]:
        r"""Compute intervals for shares of the population, one row with two ends per category.

        They cover the randomisation and the sampling of people, who are taken as a simple random
        sample of a large population: a category of share π has the support

        .. math:: S \sim \mathrm{Bin}\bigl(n,\, \pi p + (1 - \pi) q\bigr),

        so an exact interval of its probability [CP34]_ is one of π. It misses with a probability of
        at most the risk, for every n, π and confidence.
        """
        confidence = errors.probability("share_interval", "confidence", confidence, zero=False)
        exact = clopper_pearson(self.support, self.reports, (1 - confidence) / 2)
        ends = (np.stack(exact, axis=-1) - self.other) / (self.true - self.other)
        return np.asarray(np.clip(ends, 0.0, 1.0), np.float64)

    def _ends(self, support: int, tail: float) -> tuple[int, int]:
        """Find the least and the largest count whose upper and lower tail are not too rare."""
        least = _first(lambda k: self._tails(k, support)[1] > tail, self.reports)
        beyond = _first(lambda k: not self._tails(k, support)[0] > tail, self.reports)
        most = beyond - 1 if self._tails(beyond, support)[0] <= tail else beyond
        # If no count makes such a support likely enough, take the nearest one.
        return min(least, max(most, 0)), max(most, least)

    def _tails(self, count: int, support: int) -> tuple[float, float]:
        """Compute P(S ≤ support) and P(S ≥ support) for this count of the category."""
        own = np.arange(count + 1)
        if count > _WINDOW**2:
            reach = _WINDOW * math.sqrt(count) / 2
            middle = count * self.true
            own = np.arange(max(0, int(middle - reach)), min(count, math.ceil(middle + reach)) + 1)
        chance, rest = binom.pmf(own, count, self.true), self.reports - count
        below = float(chance @ binom.cdf(support - own, rest, self.other))
        above = float(chance @ binom.sf(support - own - 1, rest, self.other))
        return below, above


@dataclass(frozen=True)
class ShareChange:
    r"""By how much each share of the population has changed, from reports of the same people.

    A person's two reports support a category in the second round alone (gained), in the first
    alone (lost), or in both or neither. Expectations add up whether reports are independent or not:

    .. math:: \hat\Delta_v = \frac{g_v - l_v}{n\,(p - q)}

    and people are independent, so the variance of one person's difference is that of the sample:
    standard errors and intervals cover the randomisation and the sampling of people, with the
    dependence of a person's two reports on one permanent answer.
    """

    gained: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]
    people: int
    reach: float
    """p − q: how much likelier a report supports its own category than another one."""

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Unbiased changes of the shares."""
        return np.asarray((self.gained - self.lost) / self.people / self.reach)

    @property
    def standard_errors(self) -> npt.NDArray[np.float64]:
        """Their standard errors, estimated from the spread of the differences."""
        spread = (self.gained + self.lost) / self.people - (self.values * self.reach) ** 2
        return np.asarray(np.sqrt(spread / max(self.people - 1, 1)) / self.reach)

    def interval(self, confidence: float = 0.95) -> npt.NDArray[np.float64]:
        """Compute intervals for the changes, one row with two ends per category.

        They are made from the exact intervals of gained and lost ([ZD08]_, with the correlation of
        two counts of one sample), so that a change that nobody's reports show is not taken as none.
        From twenty people on, they hold at each level that was tried.
        """
        confidence = errors.probability("interval", "confidence", confidence, zero=False)
        tail, size = (1 - confidence) / 2, self.people
        gained, lost = self.gained / size, self.lost / size
        low, high = clopper_pearson(self.gained, size, tail)
        least, most = clopper_pearson(self.lost, size, tail)
        rest = np.maximum((1 - gained) * (1 - lost), 1e-300)
        correlation = -np.sqrt(gained * lost / rest)
        below = _joined(gained - low, most - lost, correlation)
        above = _joined(high - gained, lost - least, correlation)
        middle = gained - lost
        return np.stack([middle - below, middle + above], axis=-1) / self.reach


def _joined(
    first: npt.NDArray[np.float64],
    second: npt.NDArray[np.float64],
    correlation: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return how far the difference of two estimates reaches, from how far each does."""
    squared = first**2 - 2 * correlation * first * second + second**2
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def clopper_pearson(
    seen: npt.NDArray[np.int64], size: int, tail: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the ends of exact intervals for probabilities [CP34]_, with this risk at each end."""
    rest = size - seen
    low = np.where(seen > 0, beta.ppf(tail, np.maximum(seen, 1), rest + 1), 0.0)
    high = np.where(rest > 0, beta.isf(tail, seen + 1, np.maximum(rest, 1)), 1.0)
    return low, high


def _first(holds: Callable[[int], bool], most: int) -> int:
    """Bisect for the first of 0, …, most where a monotone condition holds; else `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def unbiased_counts(
    support: npt.NDArray[np.int64], reports: int, true: float, other: float
) -> CountEstimate:
    r"""Estimate counts, if a report supports its own category with probability p and others with q.

    .. math:: \hat n_v = \frac{s_v - nq}{p - q}, \qquad
              \mathrm{Var}\,\hat n_v = \frac{n_v\,p(1-p) + (n - n_v)\,q(1-q)}{(p-q)^2}

    The variance plugs in the estimate, held to [0, n].
    """
    counts = (support - reports * other) / (true - other)
    held = np.clip(counts, 0, reports)
    noise = held * true * (1 - true) + (reports - held) * other * (1 - other)
    return CountEstimate(
        counts.astype(np.float64),
        np.asarray(noise / (true - other) ** 2, dtype=np.float64),
        reports,
        np.asarray(support, dtype=np.int64),
        true,
        other,
    )
