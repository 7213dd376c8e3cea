r"""Hidden counts: the law of the true counts, given what a mechanism released about them.

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
"""Convolutions up to this length are sums of products; longer ones use Fourier transforms."""

_RARE = 1e-6
"""Below this probability, a Fourier transform has fewer than ten correct digits."""

_CHUNK = 2**22


class Hidden(Protocol):
    """A law of k counts with a known sum."""

    @property
    def marginals(self) -> Reals:
        """Return P(x_i = c): one row per count, one column for each c from 0 to n."""
        ...

    def sample(self, size: int, generator: np.random.Generator) -> Integers:
        """Draw counts, one draw per row."""
        ...

    def log_density(self, log_shares: Reals) -> Reals:
        """Return ln p(θ) of the mixture of Dirichlets, at rows of logarithms of shares."""
        ...


@dataclass(frozen=True, eq=False)
class Listed:
    """Counts that are listed, one per row, with their probabilities."""

    prior: Reals
    counts: Integers
    weights: Reals

    @classmethod
    def of(cls, prior: Reals, counts: Integers, log_channel: Reals) -> Listed:
        """Apply Bayes' rule over the list, given the log-probability of the draw for each row."""
        log_weights = log_prior(prior, counts).sum(axis=1) + log_channel
        return cls(prior, counts, np.exp(log_weights - logsumexp(log_weights)))

    @classmethod
    def known(cls, prior: Reals, counts: Integers) -> Listed:
        """Treat counts as known."""
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
    """Counts that are independent given their sum: one row of ln P_i(y_i | c) per count."""

    prior: Reals
    log_channel: Reals

    @property
    def total(self) -> int:
        """Return n, the sum."""
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
        """Return, in row i, the law of the sum of counts 0, …, i − 1, up to n."""
        return _running(self._factors)

    @cached_property
    def marginals(self) -> Reals:
        factors = self._factors
        tails = _running(factors[::-1])[::-1]
        products = np.empty_like(factors)
        for i, factor in enumerate(factors):
            rest = _convolved(self._heads[i], tails[i])
            products[i] = factor * rest[::-1]
        return np.asarray(products / products.sum(axis=1, keepdims=True))

    def sample(self, size: int, generator: np.random.Generator) -> Integers:
        """Draw the last count given the sum, then the one before given the rest, and so on."""
        factors = self._factors
        draws = np.zeros((size, len(factors)), np.int64)
        remaining = np.full(size, self.total)
        for i in reversed(range(1, len(factors))):
            for rest in np.unique(remaining):
                rows = np.flatnonzero(remaining == rest)
                chances = factors[i][: rest + 1] * self._heads[i][: rest + 1][::-1]
                drawn = generator.choice(rest + 1, size=rows.size, p=chances / chances.sum())
                draws[rows, i] = drawn
            remaining = remaining - draws[:, i]
        draws[:, 0] = remaining
        return draws

    def log_density(self, log_shares: Reals) -> Reals:
        r"""Return :math:`\ln p(\theta) + \ln P(y \mid \theta) - \ln P(y)`."""
        alpha = self.prior
        # n! and Γ(Σα)/∏Γ(α) occur in both and cancel.
        evidence = log_coefficient(self._log_factors, self.total)
        evidence -= gammaln(alpha.sum() + self.total)
        step = max(1, _CHUNK // (alpha.size**2 * (self.total + 1)))
        parts = [
            self._log_likelihood(log_shares[i : i + step]) for i in range(0, len(log_shares), step)
        ]
        return np.asarray(log_shares @ (alpha - 1) + np.concatenate(parts) - evidence)

    def _log_likelihood(self, log_shares: Reals) -> Reals:
        r"""Return :math:`\ln \sum_x \prod_i P_i(y_i \mid x_i)\, \theta_i^{x_i} / x_i!`, per row.

        Counts tilted by n are about Poisson(nθ), whose sum is about n, so that no tilt need be
        searched for, except where the sum n is rare nevertheless.
        """
        total, counts = self.total, np.arange(self.total + 1)
        plain = log_shares[:, :, None] * counts - gammaln(counts + 1) + self.log_channel
        heavy = plain + np.log(total) * counts
        scale = logsumexp(heavy, axis=2, keepdims=True)
        size = next_fast_len(self.prior.size * total + 1, real=True)
        waves = np.fft.rfft(np.exp(heavy - scale), size, axis=2).prod(axis=1)
        chance = np.fft.irfft(waves, size, axis=1)[:, total]
        log_likelihood = (
            np.log(np.maximum(chance, _RARE)) + scale.sum(axis=(1, 2)) - total * np.log(total)
        )
        for row in np.flatnonzero(chance < _RARE):
            log_likelihood[row] = log_coefficient(plain[row], total)
        return np.asarray(log_likelihood)


def log_prior(alpha: npt.ArrayLike, counts: Integers) -> Reals:
    """Return ln Γ(c + α) − ln c!: the log-prior of counts, up to a common constant."""
    return np.asarray(gammaln(counts + np.asarray(alpha)) - gammaln(counts + 1))


def tilted(log_factors: Reals, total: int) -> tuple[Reals, float]:
    r"""Tilt factors to laws whose sum has mean n; return them and the log of the change at n.

    Weights :math:`e^{t c}` with one t for all counts are the same for all counts of sum n, so they
    change nothing there. With Σ E x_i = n the sum n is where the mass is, and no precision is lost
    in a tail.
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
    r"""Return :math:`\ln \sum_{x: \sum x_i = n} \prod_i e^{f_i(x_i)}`."""
    factors, constant = tilted(log_factors, total)
    return constant + float(np.log(_running(factors)[-1] @ factors[-1][::-1]))


def _running(factors: Reals) -> Reals:
    """Return the laws of partial sums, beginning with the empty sum."""
    laws = np.zeros_like(factors)
    laws[0, 0] = 1.0
    for i in range(1, len(factors)):
        laws[i] = _convolved(laws[i - 1], factors[i - 1])
    return laws


def _convolved(first: Reals, second: Reals) -> Reals:
    """Return the law of the sum of two counts, up to n."""
    if first.size <= _DIRECT:
        return np.convolve(first, second)[: first.size]
    return np.asarray(np.maximum(fftconvolve(first, second)[: first.size], 0.0))
