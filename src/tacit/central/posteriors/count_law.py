r"""The law of the released count given the true one, and the resulting error.

The error of a release is the Hellinger distance between Beta(α + r, β + n − r), where r is the
released count, and the posterior without privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp, polygamma

from tacit.central.posteriors.hellinger import Scores
from tacit.central.posteriors.hidden_counts import log_prior
from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency
from tacit.privacy.mechanisms import DiscreteLaplace

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Prior = tuple[float, ...]
"""α and β."""

_UNSEEN = 34.0
"""Noise of probability below e^-34 does not change a double."""

_MOST_TABLED = 5000
_CHUNK = 2**20
_CLOSE = 0.01
"""Below this part of the middle, three terms of the series are accurate to all but four digits."""


@dataclass(frozen=True, eq=False)
class CountLaw:
    """The law of the released count given the true one.

    Parameters
    ----------
    prior : pair of float
        Prior of the share.
    total : int
        Number of records.
    rows : callable
        Maps true counts to released counts and their probabilities, one row per true count.
    """

    prior: Prior
    total: int
    rows: Callable[[Integers], tuple[Integers, Reals]]

    @classmethod
    def tabled(cls, prior: Prior, probabilities: Reals) -> CountLaw:
        """Build the law from a table: one row per true count, one column per released count."""
        columns = np.arange(probabilities.shape[1])

        def rows(counts: Integers) -> tuple[Integers, Reals]:
            chances = probabilities[counts]
            return np.broadcast_to(columns, chances.shape), chances

        return cls(prior, len(probabilities) - 1, rows)

    def table(self) -> Reals:
        """Return P(r | x), one row per true count."""
        errors.whole("accuracy", "total", self.total, least=1, most=_MOST_TABLED)
        every = np.arange(self.total + 1)
        released, chances = self.rows(every)
        table = np.zeros((every.size, every.size))
        np.add.at(table, (every[:, None], released), np.broadcast_to(chances, released.shape))
        return table

    def remapped(self) -> CountLaw:
        """Return the law with every released count replaced by that of least expected error."""
        law, every = self.table(), np.arange(self.total + 1)
        joint = np.exp(log_counts(self.prior, self.total))[:, None] * law
        loss = distances(self.prior, self.total, every[:, None], every) @ joint
        best = loss.argmin(axis=0)
        moved = np.zeros_like(law)
        np.add.at(moved.T, best, law.T)
        return CountLaw.tabled(self.prior, moved)

    def errors(self, counts: Any = None) -> Reals:
        """Return the expected error at each of these true counts, or at all counts."""
        chosen = np.arange(self.total + 1) if counts is None else np.atleast_1d(counts)
        chosen = errors.integers("accuracy", chosen, lower=0, upper=self.total)
        width = self.rows(chosen[:1])[0].shape[1]
        step = max(1, _CHUNK // width)
        return np.concatenate(
            [self._errors(chosen[i : i + step]) for i in range(0, chosen.size, step)]
        )

    def _errors(self, counts: Integers) -> Reals:
        released, chances = self.rows(counts)
        distance = distances(self.prior, self.total, counts[:, None], released)
        return np.asarray((distance * chances).sum(axis=1))

    def average(self) -> float:
        """Return the expected error where true counts come from the prior."""
        return float(np.exp(log_counts(self.prior, self.total)) @ self.errors())

    def tail(self, count: int, distance: float) -> float:
        """Return P(error ≥ distance) at a true count."""
        released, chances = self.rows(np.array([count]))
        error = distances(self.prior, self.total, count, released[0])
        return float(np.broadcast_to(chances, released.shape)[0][error >= distance].sum())


def noisy(prior: Prior, total: int, epsilon: float | Fraction, mechanism: str) -> CountLaw:
    """Return the law under clamped geometric noise, or under projected Laplace noise on both."""
    each = mechanism == "laplace"
    noise, chances = _difference(epsilon, total) if each else _noise(epsilon, total)

    def rows(counts: Integers) -> tuple[Integers, Reals]:
        moved = (2 if each else 1) * counts[:, None] + noise
        if each:
            # The nearest counts of sum n: half of the difference; ties go towards the middle.
            moved = np.where(moved >= total, moved // 2, -(-moved // 2))
        return np.clip(moved, 0, total), chances

    return CountLaw(prior, total, rows)


def drawn(prior: Prior, scores: Scores, exponent: float) -> CountLaw:
    """Return the law of the Hellinger mechanism with this exponent: weights e^(−c H/S)."""
    log_weights = every_row(scores, -exponent * scores.scaled())
    law = np.exp(log_weights - logsumexp(log_weights, axis=1, keepdims=True))
    return CountLaw.tabled(prior, law)


def every_row(scores: Scores, stored: Reals) -> Reals:
    """Return the whole table, of which `stored` has one row per orbit."""
    return np.array([scores.symmetry.row(stored, row) for row in range(len(scores.listed))])


def _noise(epsilon: float | Fraction, total: int) -> tuple[Integers, Reals]:
    """Return the noise on a count, as far as it changes a count between 0 and n."""
    channel = DiscreteLaplace(epsilon=epsilon, sensitivity=1, adjacency=Adjacency.REPLACE_ONE)
    every = _reach(float(channel.event.scale), total)
    return every, _with_tails(np.exp(channel.log_prob(every, np.zeros_like(every))))


def _difference(epsilon: float | Fraction, total: int) -> tuple[Integers, Reals]:
    r"""Return the law of the difference of the noises on two counts, as far as it matters.

    Both have the scale t = 2/ε; with :math:`p = e^{-1/t}`,

    .. math:: P(d) = \tanh^2\!\frac{1}{2t}\; p^{|d|} \left(|d| + \frac{1 + p^2}{1 - p^2}\right).
    """
    rate = float(epsilon) / 2
    every = _reach(2 / rate, 2 * total)
    magnitude = np.abs(every)
    return every, _with_tails(
        math.tanh(rate / 2) ** 2 * np.exp(-rate * magnitude) * (magnitude + 1 / math.tanh(rate))
    )


def _reach(scale: float, most: int) -> Integers:
    reach = int(min(_UNSEEN * scale, most)) + 1
    return np.arange(-reach, reach + 1)


def _with_tails(chances: Reals) -> Reals:
    """Add the probability that lies further out to the ends."""
    chances[[0, -1]] += max((1 - chances.sum()) / 2, 0.0)
    return chances


def distances(prior: Prior, total: int, first: Any, second: Any) -> Reals:
    r"""Return the Hellinger distance of Beta(α + x, β + n − x) from Beta(α + r, β + n − r).

    Per coordinate, with m the middle of the two parameters and h half of their difference, the
    logarithm of the affinity falls by

    .. math:: \tfrac12 \ln\Gamma(m - h) + \tfrac12 \ln\Gamma(m + h) - \ln\Gamma(m)
              = \sum_{j \ge 1} \frac{\psi^{(2j-1)}(m)}{(2j)!}\, h^{2j} :

    The series is used where h is small relative to m, as the left side cancels there.
    """
    first, second = np.asarray(first), np.asarray(second)
    fall = np.zeros(np.broadcast_shapes(first.shape, second.shape))
    for alpha, x, r in ((prior[0], first, second), (prior[1], total - first, total - second)):
        middle, log_gamma, series = _middles(alpha, total)
        at, half = x + r, (x - r) / 2
        close = (log_gamma[2 * x] + log_gamma[2 * r]) / 2 - log_gamma[at]
        square = half**2
        power = ((series[2][at] * square + series[1][at]) * square + series[0][at]) * square
        fall += np.where(np.abs(half) < _CLOSE * middle[at], power, close)
    return np.sqrt(-np.expm1(-np.maximum(fall, 0.0)))


@lru_cache(maxsize=8)
def _middles(alpha: float, total: int) -> tuple[Reals, Reals, Reals]:
    """Return α, α + ½, …, α + n, their log-gammas, and three coefficients of the series."""
    middle = alpha + np.arange(2 * total + 1) / 2
    series = [polygamma(2 * j - 1, middle) / math.factorial(2 * j) for j in (1, 2, 3)]
    return middle, gammaln(middle), np.array(series)


def log_counts(prior: Prior, total: int) -> Reals:
    """Return ln P(x) of the beta-binomial."""
    every = np.arange(total + 1)
    log_weights = log_prior(prior[0], every) + log_prior(prior[1], total - every)
    return np.asarray(log_weights - logsumexp(log_weights))


def best_count(weights: Reals, prior: Reals) -> int:
    """Return the count of least expected error, where the true count has this law."""
    total = weights.size - 1
    (likely,) = np.nonzero(weights > 1e-12 * weights.max())
    # The best lies between likely counts: the distance grows with how far apart counts are.
    candidates = np.arange(likely.min(), likely.max() + 1)
    step = max(1, _CHUNK // likely.size)
    pair = (float(prior[0]), float(prior[1]))
    loss = [
        distances(pair, total, candidates[i : i + step, None], likely) @ weights[likely]
        for i in range(0, candidates.size, step)
    ]
    return int(candidates[int(np.concatenate(loss).argmin())])
