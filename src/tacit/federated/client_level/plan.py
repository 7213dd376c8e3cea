r"""The plan of a run with a guarantee for clients: sampling, noise and number of rounds.

The plan is fixed before any client is asked. Every client is asked with probability exactly
:math:`q = k / 2^{32}` (`accounting.plans`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from tacit.privacy import errors, events
from tacit.privacy.accounting import calibration, plans
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.plans import SampledGaussian
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness


@dataclass(frozen=True)
class ClientPlan:
    """Sampling, noise and number of rounds, fixed before any client is asked."""

    clients: int
    threshold: int
    """A client is asked if its 32-bit word is below this."""
    rounds: int
    multiplier: Fraction
    """z, the noise multiplier of all releases of a round together."""
    delta: float

    def sampled(self, rounds: int = 1) -> SampledGaussian:
        """Return the plan of this many rounds."""
        return SampledGaussian(self.clients, self.threshold, rounds, self.multiplier)

    @property
    def probability(self) -> float:
        """q, the sampling probability of a client."""
        return self.sampled().probability

    @property
    def cohort(self) -> float:
        """qN, the expected number of clients asked in a round: the divisor of every sum."""
        return self.sampled().expected_size

    def event(self, rounds: int = 1) -> events.Event:
        """Return the event of this many rounds."""
        return self.sampled(rounds).event(Unit.CLIENT)

    def epsilon(self, rounds: int) -> float:
        """Compute ε of this many rounds at `delta`."""
        guarantee = guarantee_of(self.event(rounds), self.delta)
        return float(getattr(guarantee, "epsilon", math.inf))

    def sample(self, rng: Randomness) -> list[int]:
        """Sample every client independently, with exactly `probability`."""
        return [int(k) for k in self.sampled().sample(rng)]


def plan(
    clients: int,
    *,
    cohort: float | Fraction,
    epsilon: float,
    delta: float,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    accountant: str = "pld",
) -> ClientPlan:
    """Calibrate the noise to the rounds, or the rounds to the noise.

    Parameters are those of `ClientPrivacy`.

    Examples
    --------
    >>> settled = plan(1000, cohort=100, epsilon=7.1, delta=1e-5, noise_multiplier=1, rounds=100)
    >>> settled.rounds, round(settled.cohort, 3)
    (100, 100.0)
    """
    where = "ClientPrivacy"
    count = errors.whole(where, "clients", clients, least=1, most=plans.WORDS)
    size = errors.positive(where, "cohort", cohort)
    epsilon = float(errors.epsilon_in_range(where, epsilon))
    delta = errors.delta_in_range(where, delta, records=count)
    errors.choice(where, "accountant", accountant, calibration.ACCOUNTANTS)
    threshold = plans.threshold(size, count)
    if threshold == 0:
        errors.refuse(where, "cohort", "at least 2^-32 of the clients", cohort, "Ask more clients.")
    if rounds is not None:
        errors.whole(where, "rounds", rounds, least=1, most=10**9)
    q = threshold / plans.WORDS
    if noise_multiplier is None:
        if rounds is None:
            errors.refuse(where, "rounds", "given, or noise_multiplier", None)
        calibrated = calibration.noise_multiplier_for(
            epsilon, delta, sampling_probability=q, steps=rounds, accountant=accountant
        )
        multiplier = errors.positive(where, "noise_multiplier", calibrated)
        return ClientPlan(count, threshold, rounds, multiplier, delta)
    multiplier = errors.positive(where, "noise_multiplier", noise_multiplier)
    most = ClientPlan(count, threshold, rounds or 1, multiplier, delta)
    # One evaluation suffices if the rounds are known; the largest number takes a search.
    if rounds is not None and most.epsilon(rounds) <= epsilon:
        return most
    affordable = calibration.steps_for(
        epsilon,
        delta,
        noise_multiplier=float(multiplier),
        sampling_probability=q,
        accountant=accountant,
    )
    return replace(most, rounds=min(affordable, rounds or affordable))
