r"""A guarantee for clients, given by a server that they trust: it hides all that one client sends.

In every round each of N clients is asked with probability q, independently. The server clips each
reply of a phase, whatever the client did itself, and uses only the noisy sum:

.. math:: \bar\Delta = \frac{1}{qN} \Big(\sum_{k \in S} \Delta_k \min(1, C / \|\Delta_k\|) +
          \mathcal N(0, z_\Delta^2 C^2 I)\Big)

Theorem. After t rounds everything that is computed from the releases alone, including the global
models, is (ε, δ)-DP for clients under zero-out neighbours, with the ε(δ) of t Gaussian mechanisms
with multiplier z on Poisson samples. Here one client is blanked: it keeps its place among the N
clients and its coins, but contributes nothing, like a client that does not reply.

Proof. (1) Blanking a client changes the sum over S by its own clipped reply. Every other reply is a
function of its own client's rows, that client's past and earlier releases, since each is computed
from a copy of the same model (`torch_model`) and clipped by a rule that sees it alone. If replies
depend on whether a client was asked before (FedDyn), fix the samples and states of the others:
given the releases so far, the client's coin of this round is independent of its earlier ones, so
the round is a mixture, over replies v within C, of the sampled Gaussian with shift v, and
divergences are convex. Replies are clipped on a grid of C/2^20, in integers, to 2^20 steps, and
summed in integers, so the sensitivity is exactly C. Rounded normal noise is a function of the exact
Gaussian mechanism. (2) The R releases of one round (two in FSVRG; with `Adaptive` each with a
count) use one sample S. Given S they are Gaussian mechanisms, each chosen adaptively from those
before, with :math:`\sum_i z_i^{-2} \le z^{-2}`: no worse than one with multiplier z [DRS22]_. (3) S
is a Poisson sample with exactly :math:`q = k/2^{32}`, drawn from a secret stream, so the round is
no worse than that Gaussian on a Poisson sample [MTZ19]_, [ZDW22]_. (4) Rounds compose by their
privacy loss distribution. A client that does not reply, or whose reply is refused, contributes
zero, and the divisor stays qN: the bound, and so ε, is the same.

Notes
-----
N is public: q and the divisor are computed from it, which is why add-remove is not stated. Which
clients were asked, how many replied and why a reply was refused (`rounds.Round`) stay on the
server; whoever knows the sample gets no amplification. All weights are 1, since numbers of rows
would be releases.

References
----------
.. [MRTZ18] McMahan, Ramage, Talwar, Zhang. Learning differentially private recurrent language
   models. ICLR 2018.
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3).
.. [MTZ19] Mironov, Talwar, Zhang. Rényi differential privacy of the sampled Gaussian. 2019.
.. [ZDW22] Zhu, Dong, Wang. Optimal accounting of differential privacy via characteristic function.
   AISTATS 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.client_level.adaptive import Adaptive
from tacit.federated.client_level.plan import plan
from tacit.federated.client_level.units import clip_units, norm_of, norms_by_unit
from tacit.federated.config import Config
from tacit.federated.coordinator import Coordinator
from tacit.federated.payload import Layout, Payload, Vector
from tacit.federated.payment import Payment
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.accounting.plans import update_multiplier
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Randomness, rounded_gaussian, source

Integers = npt.NDArray[np.int64]

_STEPS = 2**20
"""Grid steps in a clip norm: far below the noise, and exact in integers."""
_LARGEST_MULTIPLIER = 2**20
_BLOCK = 2**20
"""Number of values that are clipped at a time."""
_BALL = GridBall("ClientPrivacy", 1.0, 1 / _STEPS, order=2)


class Clipped(NamedTuple):
    """Replies in grid steps, clipped to the clip norm, and which were within it before."""

    steps: Integers
    within: npt.NDArray[np.bool_]


def clip(replies: Vector, norm: float) -> Clipped:
    """Clip each row on a grid of norm/2^20 to 2^20 steps; rows that are not finite become zero.

    The result of a row does not depend on other rows: rows, and so their norms, are in C order.
    """
    with np.errstate(all="ignore"):
        scaled = np.array(replies, dtype=np.float64, order="C") / norm
        finite = np.isfinite(scaled).all(axis=1)
        scaled[~finite] = 0
        within = finite & (np.linalg.norm(scaled, axis=1) <= 1)
    return Clipped(_BALL.clip(scaled), within)


class ClientPrivacy(Coordinator):
    r"""An (ε, δ)-DP guarantee for clients, by Poisson cohorts, clipped replies and noisy sums.

    Parameters
    ----------
    clients : int
        N, the number of clients, which is public.
    cohort : float
        Expected number of clients asked in a round, each with probability q = cohort / N, rounded
        down to a multiple of 2^-32.
    epsilon, delta : float
        Budget of each client for all rounds together.
    rounds : int, optional
        Number of rounds, to which the noise is calibrated.
    noise_multiplier : float, optional
        z, the noise multiplier of all releases of a round together. With it the run has as many
        rounds as ε allows, or `rounds` if that is fewer.
    clip_norm : float or mapping
        C, chosen without looking at the data: one for every reply, or one per clip unit
        ("update", "gradient").
    adaptive : Adaptive, optional
        Let C follow a quantile of the norms, starting at `clip_norm`.
    ledger, account : Ledger, str, optional
        The account that is charged before the first release. A Rényi account is charged round by
        round. Others, which cannot add up single rounds without loss, are charged for all rounds
        before the first.
    accountant : {"pld", "rdp"}
        Accountant with which noise or rounds are calibrated.
    rng : Randomness, optional
        Source of randomness for tests. The default is the operating system's, never the seed of a
        run.

    Examples
    --------
    >>> privacy = ClientPrivacy(1000, cohort=1000, epsilon=8, delta=1e-5, rounds=25)
    >>> f"{float(privacy.plan.multiplier):.3f}", privacy.spent
    ('3.001', 0.0)
    """

    hides_failures = True

    def __init__(
        self,
        clients: int,
        *,
        cohort: float | Fraction,
        epsilon: float,
        delta: float,
        rounds: int | None = None,
        noise_multiplier: float | None = None,
        clip_norm: float | Mapping[str, float] = 1.0,
        adaptive: Adaptive | None = None,
        ledger: Ledger | None = None,
        account: str | None = None,
        accountant: str = "pld",
        rng: Randomness | np.random.Generator | None = None,
    ) -> None:
        self.plan = plan(
            clients,
            cohort=cohort,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            noise_multiplier=noise_multiplier,
            accountant=accountant,
        )
        self.adaptive = adaptive
        self.run = 0
        """Number of rounds that were begun and paid."""
        self._initial_norms = norms_by_unit("ClientPrivacy", clip_norm)
        self.clip_norms: dict[str, float] = {}
        """The current C of each clip unit; with `Adaptive` it is itself a release."""
        whole = self.plan.event(self.plan.rounds)
        self._payment = Payment("ClientPrivacy", whole, self.plan.delta, ledger, account)
        self._rng = source(rng)
        self._asked: set[int] = set()
        self._open: list[Phase] = []
        self._phases: tuple[Phase, ...] = ()

    def __copy__(self) -> ClientPrivacy:
        """Return itself: two copies of a budget would be two budgets on one charge."""
        return self

    def __deepcopy__(self, memo: object) -> ClientPrivacy:
        return self

    def __reduce__(self) -> Any:
        raise errors.TacitError(
            "ClientPrivacy: it must stay in its process. A copy would spend twice."
        )

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse what cannot be protected, and divide the noise among a round's releases."""
        where = "ClientPrivacy"
        if self._phases:
            remedy = "Make another one for another run."
            errors.refuse(where, "algorithm", "settled once", algorithm.name, remedy)
        if clients != self.plan.clients:
            remedy = "Their number is public and fixed beforehand."
            errors.refuse(where, "clients", str(self.plan.clients), clients, remedy)
        if config.weighted:
            remedy = "A client's number of rows would be a release. Weight all clients equally."
            errors.refuse(where, "weighted", "False", True, remedy)
        units: list[str] = []
        for phase in algorithm.phases:
            units += clip_units("ClientPrivacy", algorithm.name, phase)
        adaptive = self.adaptive
        deviation = None if adaptive is None else adaptive.deviation(self.plan.cohort)
        self.update_multiplier = update_multiplier(
            "Adaptive", self.plan.multiplier, deviation, releases=len(units)
        )
        if self.update_multiplier > _LARGEST_MULTIPLIER:
            noise, remedy = float(self.update_multiplier), "An update would be only noise."
            errors.refuse(where, "noise of an update", "at most 2^20 clip norms", noise, remedy)
        self.clip_norms = {unit: self.initial_clip_norm(unit) for unit in units}
        self._phases = algorithm.phases

    def initial_clip_norm(self, unit: str) -> float:
        """Return the C with which a clip unit begins."""
        return norm_of("ClientPrivacy", self._initial_norms, unit)

    def choose(self, number: int, clients: int) -> list[int]:
        """Draw a Poisson sample of clients, after paying for the round.

        Raises
        ------
        BudgetExceeded
            After the planned rounds, or if the account has too little remaining.
        """
        if not self._phases or clients != self.plan.clients:
            raise errors.TacitError("ClientPrivacy: a run must be admitted before its first round.")
        if self.run >= self.plan.rounds:
            raise errors.BudgetExceeded(
                f"ClientPrivacy: rounds must be at most {self.plan.rounds}, the plan at this "
                f"epsilon, got {self.run + 1}. Plan for more, with more noise."
            )
        self._payment.stay()
        if self._payment.charges:  # else `run` is the count
            self._payment.begin("round", self.run + 1, self.plan.event())
        self.run += 1
        sampled = self.plan.sample(self._rng)
        self._asked, self._open = set(sampled), list(self._phases)
        return sampled

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged:
        """Divide the noisy sum by the expected cohort; if nobody replied, the sum is only noise."""
        if not self._open or self._open.pop(0) != phase:
            raise errors.TacitError("ClientPrivacy: each phase of a round must be released once.")
        heard = [one for client, one in taken.items() if client in self._asked]
        parts: dict[str, Vector] = {}
        for unit in clip_units("ClientPrivacy", "", phase):
            names = [part.name for part in phase.parts if part.clip_unit == unit]
            size = len(names) * layout.size
            mean = self._noisy_mean(unit, [_joined(one, names) for one in heard], size)
            parts.update(zip(names, np.split(mean, len(names)), strict=True))
        return Averaged(parts, self.plan.cohort)

    def _noisy_mean(self, unit: str, replies: list[Vector], size: int) -> Vector:
        norm, total, signs = self.clip_norms[unit], np.zeros(size, dtype=np.int64), 0
        at_once = max(_BLOCK // size, 1)
        for start in range(0, len(replies), at_once):
            steps, within = clip(np.stack(replies[start : start + at_once]), norm)
            total += steps.sum(axis=0)
            signs += 2 * int(within.sum()) - len(within)
        total += rounded_gaussian(self.update_multiplier * _STEPS, size, self._rng)
        if self.adaptive is not None:
            cohort = self.plan.cohort
            self.clip_norms[unit] = self.adaptive.moved(norm, signs, cohort, self._rng)
        return np.asarray(total * (norm / _STEPS / self.plan.cohort))

    @property
    def event(self) -> events.Event | None:
        """The event of the rounds so far; None before the first round."""
        return self.plan.event(self.run) if self.run else None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the global model after the rounds so far."""
        return guarantee_of(self._ran(), self.plan.delta)

    @property
    def spent(self) -> float:
        """ε of the rounds so far."""
        return self.plan.epsilon(self.run) if self.run else 0.0

    def certificate(
        self, artifact: str | Path | None = None, *, whole_plan: bool = False
    ) -> Certificate:
        """Issue a certificate of the current global model, or of a file that holds it.

        Parameters
        ----------
        artifact : path, optional
            The file.
        whole_plan : bool
            State the cost of all planned rounds. Use it if somebody looked at models to decide when
            to stop.
        """
        event = self.plan.event(self.plan.rounds) if whole_plan else self._ran()
        return Certificate.issue(
            event,
            delta=self.plan.delta,
            artifact=artifact,
            assumptions=_ASSUMPTIONS + (() if whole_plan else (_SETTLED,)),
            not_protected=_LIMITS,
            rng=self._rng,
        )

    def _ran(self) -> events.Event:
        if self.event is None:
            raise errors.TacitError("ClientPrivacy: no round has run yet, so there is no release.")
        return self.event


_ASSUMPTIONS = (
    "The initial model, the settings and the planned number of rounds did not depend on the "
    "clients' data.",
    "A round's releases on one sample of clients are stated as one equivalent Gaussian mechanism.",
    "Whether a client replied, and what, did not depend on which other clients were asked: each "
    "worked on a copy of the model as it was built. That the model keeps no state outside itself, "
    "which a copy would not cover, was checked on made-up rows if clients share a process; "
    "that it neither ends nor signals that process was not.",
)
_SETTLED = "The decision to end training after this round did not depend on what was released."
_LIMITS = (
    "Clients from the server, which is trusted: it sees every reply as it was sent.",
    "The number of clients: the sampling probability and the size of a step were set from it.",
    "Which clients were asked in a round, which replied and whose reply was refused: the server "
    "knows this and must not release it. Whoever watches the network learns it, and against them "
    "sampling amplifies nothing.",
    "Rows on which the model was evaluated: loss and accuracy of each round have no noise.",
)


def _joined(reply: Payload, names: list[str]) -> Vector:
    return np.concatenate([np.asarray(reply.parts[name], dtype=np.float64) for name in names])
