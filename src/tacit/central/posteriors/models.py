r"""Private posteriors of shares of records, learned from counts that are released with noise.

Of n records, :math:`x_i` have value i; the prior of the shares θ is Beta or Dirichlet. Without
privacy the posterior is Dirichlet(α + x). Here a mechanism releases y instead of x, and the
posterior given y is a mixture over the hidden counts,

.. math:: p(\theta \mid y) = \sum_x P(x \mid y)\, \mathrm{Dirichlet}(\theta; \alpha + x), \qquad
          P(x \mid y) \propto P(y \mid x) \int P(x \mid \theta)\, p(\theta)\, d\theta .

Its intervals have the stated coverage, over prior and noise together [BS18]_. The naive posterior
Dirichlet(α + y) treats noise as data, and its intervals are too narrow. n is public, and neighbours
replace one record.

References
----------
.. [BS18] Bernstein, Sheldon. Differentially private Bayesian inference for exponential families.
   NeurIPS 2018 (noise-aware posteriors).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.central.posteriors import hellinger
from tacit.central.posteriors.count_channels import (
    MECHANISMS,
    CountChannel,
    EachCount,
    LatticeCounts,
    OneCount,
    TabledCounts,
    checked_prior,
)
from tacit.central.posteriors.count_law import best_count
from tacit.central.posteriors.hidden_counts import Hidden, Listed
from tacit.central.posteriors.released import Posterior
from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, NotPrivate, Unit
from tacit.privacy.mechanisms import DiscreteLaplace, Geometric
from tacit.privacy.mechanisms.bounding import project_counts
from tacit.privacy.mechanisms.lattice import LatticeGeometric
from tacit.privacy.randomness import Randomness, source
from tacit.privacy.rounding import float_above

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LARGEST = 2 * 10**7
"""Limit on values times records: larger arrays would not fit in memory."""


class Prepared(NamedTuple):
    """A mechanism whose guarantee is proved, before any data are read."""

    prior: Reals
    total: int
    channel: CountChannel
    exact_epsilon: float
    seconds: float

    def release(
        self,
        counts: Any,
        *,
        noise_aware: bool = True,
        remap: bool = False,
        rng: Randomness | None = None,
    ) -> Posterior:
        """Draw once, and return the posterior: see `BetaBinomial.release`."""
        checked = checked_counts("release", counts, self.prior.size)
        if int(checked.sum()) != self.total:
            raise errors.InvalidData(f"release: counts must sum to {self.total}, which is public.")
        stream = source(rng)
        drawn = self.channel.release(checked, stream)
        return self.posterior(drawn, noise_aware=noise_aware, remap=remap, seeded=not stream.secure)

    def posterior(
        self,
        released: Integers,
        *,
        noise_aware: bool = True,
        remap: bool = False,
        seeded: bool = False,
    ) -> Posterior:
        """Return the posterior given a draw, by post-processing.

        `seeded` says whether a seeded stream made the draw.
        """
        hidden = self.channel.hidden(released, self.prior) if noise_aware or remap else None
        counts = project_counts(released[None], self.total)[0]
        if remap and hidden is not None:
            counts = remapped(hidden, self.prior)
        known: Hidden = Listed.known(self.prior, counts)
        return Posterior(
            prior=self.prior,
            released=released,
            counts=counts,
            noise_aware=noise_aware,
            hidden=hidden if noise_aware and hidden is not None else known,
            event=self.channel.mechanism.event,
            guarantee=self.channel.mechanism.guarantee,
            exact_epsilon=self.exact_epsilon,
            seconds_to_certify=self.seconds,
            seeded=seeded,
        )


@dataclass(frozen=True)
class _Model(ABC):
    """Abstract base: counts with a conjugate prior. Use one of the two classes below."""

    prior: tuple[float, ...]

    def channel(
        self,
        total: int,
        *,
        epsilon: float | Fraction,
        delta: float = 0.0,
        mechanism: str = "geometric",
        sensitivity: str = "smooth",
        calibration: str = "instance",
        unit: Unit | str = Unit.RECORD,
    ) -> Prepared:
        """Return the mechanism for this number of records, with its guarantee: see `release`."""
        began = time.perf_counter()
        where = type(self).__name__
        total = errors.whole(where, "total", total, least=1, most=LARGEST // len(self.prior))
        exact = errors.epsilon_in_range(where, epsilon)
        delta = errors.probability(where, "delta", delta)
        unit = Unit.of(where, unit)
        errors.choice(where, "mechanism", mechanism, MECHANISMS)
        if mechanism == "hellinger":
            table = hellinger.build(
                self.prior,
                total,
                epsilon=exact,
                delta=delta,
                sensitivity=sensitivity,
                calibration=calibration,
                unit=unit,
            )
            channel: CountChannel = TabledCounts(table, hellinger.counts(len(self.prior), total))
            tight = table.exact_epsilon(delta)
        else:
            noisy = self._geometric if mechanism == "geometric" else self._laplace
            channel = noisy(total, exact, unit)
            # Both attain their ε: outside the range between two neighbours, a draw is e^ε times
            # less likely from the farther one.
            tight = float_above(exact)
        seconds = time.perf_counter() - began
        return Prepared(np.array(self.prior), total, channel, tight, seconds)

    @abstractmethod
    def _geometric(self, total: int, epsilon: Fraction, unit: Unit) -> CountChannel: ...

    def _laplace(self, total: int, epsilon: Fraction, unit: Unit) -> CountChannel:
        noise = DiscreteLaplace(
            epsilon=epsilon, sensitivity=2, adjacency=Adjacency.REPLACE_ONE, unit=unit
        )
        return EachCount(noise, total)

    def release(
        self,
        counts: Any,
        *,
        epsilon: float | Fraction,
        delta: float = 0.0,
        mechanism: str = "geometric",
        noise_aware: bool = True,
        remap: bool = False,
        sensitivity: str = "smooth",
        calibration: str = "instance",
        unit: Unit | str = Unit.RECORD,
        rng: Randomness | None = None,
    ) -> Posterior:
        """Draw noisy counts, and return the posterior given them.

        Parameters
        ----------
        counts : sequence of int
            Number of records with each value; their sum is public.
        epsilon, delta
            Privacy budget of the release. Only "hellinger" uses δ.
        mechanism : str
            "geometric": geometric noise, for two counts on the first, clamped, otherwise on the
            lattice of sum n; "laplace": discrete Laplace noise on every count, the baseline;
            "hellinger": a table that draws posteriors by their distance.
        noise_aware : bool
            Whether the posterior accounts for the noise; if not, it is marked and too narrow.
        remap : bool
            Whether `counts` of the result, and so a naive posterior, are those of least expected
            error given the draw, instead of those nearest to the draw.
        sensitivity, calibration : str
            Settings of "hellinger": see `tacit.posteriors.hellinger.build`.
        unit : Unit
            What one record belongs to.
        rng
            By default the operating system's randomness; tests may pass their own.
        """
        checked = checked_counts(type(self).__name__, counts, len(self.prior))
        prepared = self.channel(
            int(checked.sum()),
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            sensitivity=sensitivity,
            calibration=calibration,
            unit=unit,
        )
        return prepared.release(checked, noise_aware=noise_aware, remap=remap, rng=rng)

    def without_privacy(self, counts: Any) -> Posterior:
        """Return the posterior of the raw counts: not private, for whoever holds them."""
        prior = np.array(self.prior)
        checked = checked_counts(type(self).__name__, counts, prior.size)
        nothing = NotPrivate(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD)
        return Posterior(
            prior=prior,
            released=checked,
            counts=checked,
            noise_aware=True,
            hidden=Listed.known(prior, checked),
            event=events.Declared(nothing),
            guarantee=nothing,
            exact_epsilon=float("inf"),
            seconds_to_certify=0.0,
        )


@dataclass(frozen=True)
class BetaBinomial(_Model):
    """Model of the share of records that have a property, with a Beta prior.

    Parameters
    ----------
    prior : pair of float
        α and β, chosen without looking at the data.

    Examples
    --------
    >>> posterior = BetaBinomial(prior=(1, 1)).release((37, 63), epsilon=1)
    >>> print(posterior.guarantee)
    1-DP (central, replace-one, unit: record)
    >>> low, high = posterior.interval(0.95)
    >>> low < posterior.mean < high
    True
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", checked_prior("BetaBinomial", self.prior, most=2))

    def _geometric(self, total: int, epsilon: Fraction, unit: Unit) -> CountChannel:
        scope: Any = {"adjacency": Adjacency.REPLACE_ONE, "unit": unit}
        return OneCount(Geometric(epsilon=epsilon, lower=0, upper=total, **scope))  # type: ignore[arg-type]


@dataclass(frozen=True)
class DirichletMultinomial(_Model):
    """Model of the shares of records over k values, with a Dirichlet prior.

    Parameters
    ----------
    prior : sequence of float
        α₁, …, α_k, chosen without looking at the data.

    Notes
    -----
    Noise-aware posteriors of "geometric" and "laplace" are exact for any k and n, by convolution:
    see `tacit.posteriors.hidden_counts`.

    Examples
    --------
    >>> posterior = DirichletMultinomial(prior=(1, 1, 1)).release((20, 30, 50), epsilon=1)
    >>> posterior.interval().shape
    (3, 2)
    """

    def __post_init__(self) -> None:
        prior = checked_prior("DirichletMultinomial", self.prior, most=2**10)
        object.__setattr__(self, "prior", prior)

    def _geometric(self, total: int, epsilon: Fraction, unit: Unit) -> CountChannel:
        categories = len(self.prior)
        return LatticeCounts(
            LatticeGeometric(epsilon=epsilon, categories=categories, total=total, unit=unit)
        )


def remapped(hidden: Hidden, prior: Reals) -> Integers:
    """Return counts of least expected Hellinger error; with k > 2, the expected counts, rounded."""
    marginals = hidden.marginals
    total = marginals.shape[1] - 1
    if prior.size == 2:
        first = best_count(marginals[0], prior)
        return np.array([first, total - first])
    expected = marginals @ np.arange(total + 1)
    counts = np.floor(expected).astype(np.int64)
    order = np.argsort(counts - expected, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def checked_counts(where: str, counts: Any, values: int) -> Integers:
    """Check that there is one count per parameter of the prior; errors do not quote counts."""
    checked = errors.integers(where, counts, lower=0)
    if checked.shape != (values,):
        raise errors.InvalidData(f"{where}: counts must be {values} numbers, one per value.")
    if not checked.any():
        raise errors.InvalidData(f"{where}: counts must not all be 0.")
    return checked
