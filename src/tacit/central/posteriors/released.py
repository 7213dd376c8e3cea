r"""A released posterior: its shares, intervals and samples, and what it cost.

Everything here is post-processing of the draw, so results may be rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from tacit.central.posteriors.beta_mixture import BetaMixture
from tacit.central.posteriors.hidden_counts import Hidden, Listed
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Seeded

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

NAIVE = "The posterior treats the noisy counts as exact: its intervals are too narrow."


@dataclass(frozen=True, eq=False)
class Posterior:
    """A posterior of the shares, computed from released counts.

    Parameters
    ----------
    prior : array
        Prior of the k shares.
    released : array of int
        The draw: with some mechanisms it can be negative, or its sum can differ from n.
    counts : array of int
        Counts of sum n that represent the draw: the nearest, or those of least expected error.
    noise_aware : bool
        Whether the posterior is the mixture over the hidden counts; else Dirichlet(α + counts).
    hidden
        The law of the hidden counts.
    event, guarantee
        What ran, and its guarantee.
    exact_epsilon : float
        The smallest ε that holds at the guarantee's δ for this instance; inf for none.
    seconds_to_certify : float
        Time to build the mechanism and to prove its guarantee.
    seeded : bool
        Whether a reproducible generator drew the noise: such a release is not private.
    """

    prior: Reals
    released: Integers
    counts: Integers
    noise_aware: bool
    hidden: Hidden
    event: Event
    guarantee: Guarantee
    exact_epsilon: float
    seconds_to_certify: float
    seeded: bool = False

    @property
    def one_share(self) -> bool:
        """Return whether there are two values, so that results are numbers instead of arrays."""
        return self.prior.size == 2

    @cached_property
    def shares(self) -> tuple[BetaMixture, ...]:
        """Return the law of each share (with two values: of the first)."""
        counts, rest = np.arange(self.hidden.marginals.shape[1]), self.prior.sum() - self.prior
        every = [
            BetaMixture.of(weights, alpha + counts, other + counts[::-1])
            for alpha, other, weights in zip(self.prior, rest, self.hidden.marginals, strict=True)
        ]
        return tuple(every[:1] if self.one_share else every)

    @cached_property
    def mean(self) -> Any:
        """Return the expected share: a number, or one per value."""
        means = np.array([share.mean for share in self.shares])
        return float(means[0]) if self.one_share else means

    def interval(self, level: float = 0.95) -> Any:
        """Return the central credible interval: two ends, or two for each value separately."""
        ends = [share.interval(level) for share in self.shares]
        return ends[0] if self.one_share else np.array(ends)

    def pdf(self, share: Any, value: int = 0) -> Reals:
        """Return the density of the share of one value."""
        return self._share(value).pdf(share)

    def cdf(self, share: Any, value: int = 0) -> Reals:
        """Return P(θ ≤ share) for the share of one value."""
        return self._share(value).cdf(share)

    def _share(self, value: int) -> BetaMixture:
        return self.shares[errors.whole("Posterior", "value", value, least=0, most=self._last)]

    @property
    def _last(self) -> int:
        return len(self.shares) - 1

    def sample(self, size: int, rng: int | np.random.Generator | None = None) -> Reals:
        """Draw shares, or rows of all shares. This is post-processing: it needs no secure noise."""
        size = errors.whole("sample", "size", size, least=1, most=10**8)
        generator = np.random.default_rng(rng)
        if self.one_share:
            return self.shares[0].sample(size, generator)
        gammas = generator.standard_gamma(self.prior + self.hidden.sample(size, generator))
        return np.asarray(gammas / gammas.sum(axis=1, keepdims=True))

    def hellinger(
        self, other: Posterior, *, draws: int = 2000, rng: int | np.random.Generator | None = 0
    ) -> float:
        r"""Return the Hellinger distance :math:`\sqrt{1 - \int \sqrt{p q}}` to another posterior.

        It is computed in closed form between two naive posteriors, and by quadrature for one share;
        otherwise as the mean of :math:`\sqrt{q/p}` over this many draws of the mixture (p + q)/2,
        whose standard error is below :math:`0.5/\sqrt{\mathrm{draws}}` before the root.
        """
        if self.prior.size != other.prior.size:
            errors.refuse("hellinger", "values", f"{self.prior.size}", other.prior.size)
        mine, others = self._point, other._point
        if mine is not None and others is not None:
            return _distance(_closed_form(mine, others))
        if self.one_share:
            return _distance(np.log(self.shares[0].affinity(other.shares[0])))
        return _distance(np.log(_simulated(self, other, draws, np.random.default_rng(rng))))

    @property
    def _point(self) -> Reals | None:
        """Return the parameters, if the posterior is one Dirichlet."""
        hidden = self.hidden
        single = isinstance(hidden, Listed) and hidden.weights.size == 1
        return np.asarray(self.prior + hidden.counts[0]) if single else None  # type: ignore[attr-defined]

    def log_density(self, shares: Any) -> Reals:
        """Return ln p at rows of k shares that sum to one."""
        rows = np.atleast_2d(errors.reals("log_density", shares))
        if rows.shape[1] != self.prior.size or bool(np.any(np.abs(rows.sum(axis=1) - 1) > 1e-9)):
            raise errors.InvalidData(
                f"log_density: rows must be {self.prior.size} shares that sum to 1."
            )
        return self.hidden.log_density(np.log(np.maximum(rows, np.finfo(float).tiny)))

    def certificate(self, artifact: str | Path | None = None) -> Certificate:
        """Certify guarantee, event and what is not protected, bound to a file if one is named."""
        more = () if self.noise_aware else (NAIVE,)
        stream = Seeded(0) if self.seeded else None
        return Certificate.issue(
            self.event, guarantee=self.guarantee, artifact=artifact, assumptions=more, rng=stream
        )

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the posterior and its cost as JSON-ready data."""
        return {
            "guarantee": {
                "epsilon": getattr(self.guarantee, "epsilon", None),
                "delta": getattr(self.guarantee, "delta", None),
            },
            **self.guarantee.scope,
            "exact_epsilon": self.exact_epsilon if np.isfinite(self.exact_epsilon) else None,
            "mean": _listed(self.mean),
            "interval": _listed(self.interval(level)),
            "noise_aware": self.noise_aware,
            "seconds_to_certify": self.seconds_to_certify,
            "released": self.released.tolist(),
            "counts": self.counts.tolist(),
            "seeded": self.seeded,
        }


def _listed(value: Any) -> Any:
    return value if isinstance(value, float) else np.asarray(value).tolist()


def _distance(log_affinity: float) -> float:
    return float(np.sqrt(max(0.0, -np.expm1(log_affinity))))


def _closed_form(first: Reals, second: Reals) -> float:
    """Return ln ∫√(pq) of two Dirichlets."""

    def log_beta(powers: Reals) -> float:
        return float(gammaln(powers).sum() - gammaln(powers.sum()))

    return log_beta((first + second) / 2) - (log_beta(first) + log_beta(second)) / 2


def _simulated(
    first: Posterior, second: Posterior, draws: int, generator: np.random.Generator
) -> float:
    r"""Estimate E over (p + q)/2 of :math:`2 \sqrt{pq}/(p + q)`, which lies in [0, 1]."""
    half = errors.whole("hellinger", "draws", draws, least=2, most=10**7) // 2
    rows = np.concatenate([one.sample(half, generator) for one in (first, second)])
    log_ratio = first.log_density(rows) - second.log_density(rows)
    return float(np.mean(1 / np.cosh(log_ratio / 2)))
