r"""The plan of a run in which clients add the noise: who adds how much, and what that guarantees.

Of n clients, all of whom are asked in every round, at most l may be lost, and at most c may side
with the server. So in every sum there are n − l survivors or more, and h = n − l − c honest ones.
Each client adds discrete Gaussian noise of variance v to every entry of its update on the grid
(`grid`), which has norm S at most. Honest clients let nothing be unmasked that has fewer
survivors, so what the server and its allies can learn in a round is a function of

.. math:: \sum_{k \in U} x_k + \sum_{k \in H} Z_k, \qquad |H| \ge h,

with H the honest clients in U, up to what the masks hide computationally. That is
`events.SummedDiscreteGaussian` with h parties. Those who only see results know no client's noise:
for them there are n − l parties.

Honest clients take part in T·R sums at most, whatever the server asks for (`secure.participant`).

Theorem. T rounds of R such sums are (ε, δ)-DP for clients under zero-out neighbours, with the
guarantee of T·R of these events: a blanked client keeps its place, takes part, and adds noise to a
vector of zeros.

Proof. Blanking moves a sum by one encoded vector, an integer vector of norm S at most; everything
else that is sent, and who is lost, does not depend on it. Which list U the server chooses may
depend on masked vectors, which are uniform to it. Given U and earlier releases, a sum is a function
of the event's mechanism with |H| ≥ h parties, and adaptive composition adds up ξ and ρ. ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.federated.client_level.grid import Grid
from tacit.federated.secure.graph import FULL
from tacit.federated.secure.session import Setup
from tacit.privacy import errors, events
from tacit.privacy.accounting import calibration
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.outsiders import Outsiders
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness import Randomness, discrete_gaussian

_LEAST_STEPS = 2
"""Standard deviation of a client's noise, in grid steps, at least."""
_BINARY = 2**10


@dataclass(frozen=True)
class SharePlan:
    """Clients, grid and noise of a run, fixed before any client is asked.

    Parameters
    ----------
    clients, lost, corrupt : int
        n, l and c.
    rounds, releases : int
        T, and R, the number of sums in a round.
    grid : Grid
        The grid of updates.
    variance : Fraction
        v, the variance of one client's noise, in squared steps.
    delta : float
        δ.
    """

    clients: int
    lost: int
    corrupt: int
    rounds: int
    releases: int
    grid: Grid
    variance: Fraction
    delta: float

    @property
    def survivors(self) -> int:
        """The fewest clients in a sum."""
        return self.clients - self.lost

    @property
    def honest(self) -> int:
        """h, the fewest honest clients in a sum, whoever is protected included."""
        return self.survivors - self.corrupt

    @property
    def sums(self) -> int:
        """The number of sums in all rounds."""
        return self.rounds * self.releases

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise of h clients, over the largest norm of an update."""
        return math.sqrt(self.honest * float(self.variance)) / self.grid.bound

    @property
    def one_sum(self) -> events.Event:
        """The event of one sum, towards the server and its allies."""
        return self._noise(self.honest)

    def event(self, rounds: int | None = None, honest: int | None = None) -> events.Event:
        """Return the event of this many rounds, towards the server and its allies."""
        noise = self._noise(self.honest if honest is None else honest)
        return events.Repeated(noise, (self.rounds if rounds is None else rounds) * self.releases)

    def _noise(self, honest: int) -> events.SummedDiscreteGaussian:
        return events.SummedDiscreteGaussian(
            Fraction(self.grid.bound**2),
            self.variance,
            honest,
            self.survivors,
            self.grid.rotation.padded,
            adjacency=Adjacency.ZERO_OUT,
            unit=Unit.CLIENT,
        )

    def guarantee(self, rounds: int | None = None, honest: int | None = None) -> Guarantee:
        """Return the guarantee of this many rounds, if this many of those who answer are honest."""
        return guarantee_of(self.event(rounds, honest), self.delta)

    def outsiders(self, rounds: int | None = None) -> Outsiders:
        """Return the guarantee towards those who see results alone."""
        return Outsiders.of(self.event(rounds), self.delta)

    def epsilon(self, rounds: int | None = None, honest: int | None = None) -> float:
        """Compute ε of this many rounds, if this many of those who answer are honest."""
        return float(getattr(self.guarantee(rounds, honest), "epsilon", math.inf))

    def setup(self) -> Setup:
        """Return the parameters of the secure sums."""
        return Setup(
            self.clients,
            size=self.grid.rotation.padded,
            bits=self.grid.bits(self.clients, self.variance),
            corrupt=self.corrupt,
            least=self.survivors,
            lost=self.lost,
        )

    def share(self, encoded: npt.NDArray[np.int64], rng: Randomness) -> npt.NDArray[np.int64]:
        """Add one client's noise to its encoded update; several are rows."""
        noise = discrete_gaussian(self.variance, encoded.size, rng)
        return encoded + noise.reshape(encoded.shape)


def share_plan(
    clients: int,
    *,
    size: int,
    epsilon: float,
    delta: float,
    rounds: int,
    corrupt: int = 1,
    lost: int = 0,
    releases: int = 1,
) -> SharePlan:
    """Calibrate the noise of each client to the budget.

    Parameters are those of `SecureClientPrivacy`, and the number of sums in a round.

    Examples
    --------
    >>> plan = share_plan(3, size=650, epsilon=2, delta=1e-5, rounds=10)
    >>> plan.honest, plan.setup().threshold, plan.epsilon() <= 2
    (2, 3, True)
    """
    where = "SecureClientPrivacy"
    errors.whole(where, "clients", clients, least=3, most=2**17)
    errors.whole(where, "size", size, least=1, most=2**30)
    errors.whole(where, "rounds", rounds, least=1, most=10**6)
    errors.whole(where, "corrupt", corrupt, least=0, most=clients - 2)
    errors.whole(where, "lost", lost, least=0, most=_most_lost(clients, corrupt))
    epsilon = float(errors.epsilon_in_range(where, epsilon))
    delta = errors.delta_in_range(where, delta, records=clients)
    honest = clients - lost - corrupt
    rho = calibration.concentration_for(epsilon, delta)
    multiplier = math.sqrt(rounds * releases / (2 * rho))
    grid = Grid.of(size, _LEAST_STEPS * math.sqrt(honest) / multiplier)
    variance = _above((multiplier * grid.bound) ** 2 / honest)
    plan = SharePlan(clients, lost, corrupt, rounds, releases, grid, variance, delta)
    while plan.epsilon() > epsilon:
        plan = replace(plan, variance=_above(float(plan.variance) * (1 + 1e-6)))
    return plan


def _most_lost(clients: int, corrupt: int) -> int:
    """Return how many may be lost so that those who stay can still unmask a sum."""
    if clients > FULL:
        return clients - corrupt - 2
    return clients - ((clients + corrupt) // 2 + 1)


def _above(variance: float) -> Fraction:
    """Return a variance on a binary grid, a little above."""
    return Fraction(math.floor(variance * _BINARY) + 1, _BINARY)
