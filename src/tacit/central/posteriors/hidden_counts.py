r"""Counts behind noise: the law of the true counts, given what a mechanism released of them.

With :math:`x \sim` Dirichlet-multinomial(n, α) and a channel P,

.. math:: P(x \mid y) \propto P(y \mid x) \prod_i \frac{\Gamma(x_i + \alpha_i)}{x_i!},
          \qquad \sum_i x_i = n.

Where the channel is a product over counts, P(y | x) = ∏ P_i(y_i | x_i), the counts are independent
given y but for their sum: exact marginals, draws and evidence come from k convolutions of n + 1
numbers, without listing the C(n + k − 1, k − 1) possible counts. The lattice geometric is such a
channel, since its normaliser does not depend on x.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import gammaln, logsumexp

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_DIRECT = 1500
"""Up to here convolutions are sums of products; beyond, Fourier transforms."""

_RARE = 1e-6
"""Below this a Fourier transform has less than ten digits."""

_CHUNK = 2**22


class Hidden(Protocol):
    """A law of k counts with a known sum."""

    @property
    def marginals(self) -> Reals:
        """P(x_i = c): a row for each count, a column for each c from 0 to n."""
        ...

    def sample(self, size: int, generator: np.random.Generator) -> Integers:
        """Draws, one a row."""
        ...

    def log_density(self, log_shares: Reals) -> Reals:
        """Ln p(θ) of the mixture of Dirichlets, at rows of logarithms of shares."""
        ...


@dataclass(frozen=True, eq=False)
class Listed:
    """Counts that are listed, one a row, with their probabilities."""

    prior: Reals
    counts: Integers
    weights: Reals

    @classmethod
    def of(cls, prior: Reals, counts: Integers, log_channel: Reals) -> Listed:
        """Bayes' rule over the list: the channel's logarithm for each of the counts."""
        log_weights = log_prior(prior, counts).sum(axis=1) + log_channel
        return cls(prior, counts, np.exp(log_weights - logsumexp(log_weights)))

    @classmethod
    def known(cls, prior: Reals, counts: Integers) -> Listed:
        """Counts that are taken for the truth."""
        return cls(prior, np.atleast_2d(counts), np.ones(1))

    @cached_property
    def marginals(self) -> Reals:
        total = int(self.counts[0].sum())
        columns = [np.bincount(c, self.weights, total + 1) for c in self.counts.T]
        return np.array(columns)

    def sample(self, size: int, generator: np.random.Generator) -> Integers:
        chosen = generator.choice(self.weights.size, size=size, p=self.weights)
        return self.counts[chosen]

    def log_density(self, log_shares: Reals) -> Reals:
        powers = self.counts + self.prior
        with np.errstate(divide="ignore"):
            constant = np.log(self.weights) + gammaln(powers.sum(axis=1))
        constant = constant - gammaln(powers).sum(axis=1)
        step = max(1, _CHUNK // len(powers))
        parts = [
            logsumexp(constant + log_shares[i : i + step] @ (powers - 1).T, axis=1)
            for i in range(0, len(log_shares), step)
        ]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Factored:
    """Counts that are independent but for their sum: a row of ln P_i(y_i | c) for each count."""

    prior: Reals
    log_channel: Reals

    @property
    def total(self) -> int:
        """N, the sum."""
        return int(self.log_channel.shape[1]) - 1

    @cached_property
    def _log_factors(self) -> Reals:
        counts = np.arange(self.total + 1)
        prior = np.array([log_prior(alpha, counts) for alpha in self.prior])
        return prior + self.log_channel

    @cached_property
    def _factors(self) -> Reals:
        return tilted(self._log_factors, self.total)[0]

    @cached_property
    def _heads(self) -> Reals:
        """Row i: the law of the sum of counts 0, …, i − 1, up to n."""
        return _running(self._factors)

    @cached_property
    def marginals(self) -> Reals:
        factors = self._factors
        tails = _running(factors[::-1])[::-1]
        found = np.empty_like(factors)
        for i, factor in enumerate(factors):
            rest = _convolved(self._heads[i], tails[i])
            found[i] = factor * rest[::-1]
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def sample(self, size: int, generator: np.random.Generator) -> Integers:
        """The last count given the sum, then the one before given what is left, …"""
        factors = self._factors
        found = np.zeros((size, len(factors)), np.int64)
        left = np.full(size, self.total)
        for i in reversed(range(1, len(factors))):
            for sum_left in np.unique(left):
                mine = np.flatnonzero(left == sum_left)
                chances = factors[i][: sum_left + 1] * self._heads[i][: sum_left + 1][::-1]
                drawn = generator.choice(sum_left + 1, size=mine.size, p=chances / chances.sum())
                found[mine, i] = drawn
            left = left - found[:, i]
        found[:, 0] = left
        return found

    def log_density(self, log_shares: Reals) -> Reals:
        r""":math:`\ln p(\theta) + \ln P(y \mid \theta) - \ln P(y)`."""
        alpha = self.prior
        # n! and Γ(Σα)/∏Γ(α) stand in both and cancel.
        evidence = log_coefficient(self._log_factors, self.total)
        evidence -= gammaln(alpha.sum() + self.total)
        step = max(1, _CHUNK // (alpha.size**2 * (self.total + 1)))
        parts = [
            self._log_likelihood(log_shares[i : i + step]) for i in range(0, len(log_shares), step)
        ]
        return np.asarray(log_shares @ (alpha - 1) + np.concatenate(parts) - evidence)

    def _log_likelihood(self, log_shares: Reals) -> Reals:
        r""":math:`\ln \sum_x \prod_i P_i(y_i \mid x_i)\, \theta_i^{x_i} / x_i!`, a row each.

        Counts tilted by n are about Poisson(nθ), whose sum is about n: no need to look for a tilt,
        but where the sum n is rare nevertheless.
        """
        total, counts = self.total, np.arange(self.total + 1)
        plain = log_shares[:, :, None] * counts - gammaln(counts + 1) + self.log_channel
        heavy = plain + np.log(total) * counts
        scale = logsumexp(heavy, axis=2, keepdims=True)
        size = next_fast_len(self.prior.size * total + 1, real=True)
        waves = np.fft.rfft(np.exp(heavy - scale), size, axis=2).prod(axis=1)
        chance = np.fft.irfft(waves, size, axis=1)[:, total]
        found = np.log(np.maximum(chance, _RARE)) + scale.sum(axis=(1, 2)) - total * np.log(total)
        for row in np.flatnonzero(chance < _RARE):
            found[row] = log_coefficient(plain[row], total)
        return np.asarray(found)


def log_prior(alpha: npt.ArrayLike, counts: Integers) -> Reals:
    """Ln Γ(c + α) − ln c!: the prior of counts, but for what they all share."""
    return np.asarray(gammaln(counts + np.asarray(alpha)) - gammaln(counts + 1))


def tilted(log_factors: Reals, total: int) -> tuple[Reals, float]:
    r"""Factors as laws whose sum has mean n, and the logarithm of what this took away at n.

    Weights :math:`e^{t c}` with one t for all counts are the same for all counts of sum n, so they
    change nothing there. With Σ E x_i = n the sum n is where the mass is, and no digit is lost in
    a tail.
    """
    counts = np.arange(total + 1)

    def law(tilt: float) -> tuple[Reals, Reals]:
        heavy = log_factors + tilt * counts
        scale = logsumexp(heavy, axis=1, keepdims=True)
        return np.exp(heavy - scale), scale

    def excess(tilt: float) -> float:
        return float((law(tilt)[0] @ counts).sum()) - total

    reach = 1.0
    while excess(-reach) > 0 or excess(reach) < 0:
        reach *= 4
    tilt = brentq(excess, -reach, reach, xtol=1e-9, rtol=1e-12)
    factors, scale = law(tilt)
    return factors, float(scale.sum()) - tilt * total


def log_coefficient(log_factors: Reals, total: int) -> float:
    r""":math:`\ln \sum_{x: \sum x_i = n} \prod_i e^{f_i(x_i)}`."""
    factors, constant = tilted(log_factors, total)
    return constant + float(np.log(_running(factors)[-1] @ factors[-1][::-1]))


def _running(factors: Reals) -> Reals:
    """Laws of partial sums, beginning with that of nothing."""
    found = np.zeros_like(factors)
    found[0, 0] = 1.0
    for i in range(1, len(factors)):
        found[i] = _convolved(found[i - 1], factors[i - 1])
    return found


def _convolved(first: Reals, second: Reals) -> Reals:
    """The law of a sum of two, up to n."""
    if first.size <= _DIRECT:
        return np.convolve(first, second)[: first.size]
    return np.asarray(np.maximum(fftconvolve(first, second)[: first.size], 0.0))
