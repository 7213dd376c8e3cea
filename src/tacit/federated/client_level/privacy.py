r"""A guarantee for clients, from a server that they trust: everything one client sends is hidden.

In every round each of N clients is asked with probability q, independently. What it answers in a
phase is clipped again on the server, whatever it did itself, and only the noisy sum goes on:

.. math:: \bar\Delta = \frac{1}{qN} \Big(\sum_{k \in S} \Delta_k \min(1, C / \|\Delta_k\|) +
          \mathcal N(0, z_\Delta^2 C^2 I)\Big)

Theorem. After t rounds everything computed from the releases alone, the global models among it, is
(ε, δ)-DP towards clients under zero-out neighbours, with ε(δ) that of t Gaussian mechanisms with
multiplier z on Poisson samples: one client is blanked, keeps its place among the N and its coins,
and counts for nothing, as one that does not answer.

Proof. (1) A client blanked or not changes the sum over S by its own clipped reply: every other
reply is a function of that client's rows, its own past and earlier releases, as each is computed
from a copy of the same model (`torch_model`), and is clipped by a rule that sees it alone. Where
replies depend on whether a client was asked before (FedDyn), fix the samples and states of the
others: given the releases so far, this round's coin of the client is independent of its earlier
ones, so the round is a mixture over replies v within C of the sampled Gaussian with shift v, and
divergences are convex. Replies are clipped on a grid of C/2^20, in integers, to 2^20 steps, and
summed in integers, so the sensitivity is exactly C. Rounded normal noise is a function of the exact
Gaussian mechanism. (2) The R releases of one round (two in FSVRG; a count beside each with
`Adaptive`) use one sample S. Given S they are Gaussian mechanisms, each chosen by looking at those
before, with :math:`\sum_i z_i^{-2} \le z^{-2}`: no worse than one of multiplier z [DRS22]_. (3) S
is a Poisson sample with exactly :math:`q = k/2^{32}`, drawn from a stream that nobody knows, so the
round is no worse than that Gaussian on a Poisson sample [MTZ19]_, [ZDW22]_. (4) Rounds compose, by
their privacy loss distribution. A client that does not answer, or whose answer is refused,
contributes zero, the divisor stays qN: the bound, and so ε, is the same.

Notes
-----
N is public: q and the divisor come from it, which is why add-remove is not stated. Who was asked,
how many answered and why a reply was refused (`rounds.Round`) stay on the server; knowing the
sample would undo what it gains. Weights are 1 for all, as numbers of rows would be releases.

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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.client_level.adaptive import Adaptive, update_multiplier
from tacit.federated.client_level.plan import plan
from tacit.federated.config import Config
from tacit.federated.coordinator import Coordinator
from tacit.federated.payload import Layout, Payload, Vector
from tacit.federated.payment import Payment
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Randomness, rounded_gaussian, source

Integers = npt.NDArray[np.int64]

_STEPS = 2**20
"""Grid steps in a clip norm: far below the noise, and exact in integers."""
_LARGEST_MULTIPLIER = 2**20
_BLOCK = 2**20
"""Numbers that are clipped at a time."""
_BALL = GridBall("ClientPrivacy", 1.0, 1 / _STEPS, order=2)


class Clipped(NamedTuple):
    """Replies in grid steps, none longer than the clip norm, and which were so before."""

    steps: Integers
    within: npt.NDArray[np.bool_]


def clip(replies: Vector, norm: float) -> Clipped:
    """Rows on a grid of norm/2^20, each clipped there to 2^20 steps; zero where not finite.

    A row becomes what it would become alone: rows are in C order, and so is every norm.
    """
    with np.errstate(all="ignore"):
        scaled = np.array(replies, dtype=np.float64, order="C") / norm
        finite = np.isfinite(scaled).all(axis=1)
        scaled[~finite] = 0
        within = finite & (np.linalg.norm(scaled, axis=1) <= 1)
    return Clipped(_BALL.clip(scaled), within)


class ClientPrivacy(Coordinator):
    r"""(ε, δ)-DP towards clients: Poisson cohorts, clipped replies, noisy sums.

    Parameters
    ----------
    clients : int
        N, public.
    cohort : float
        Clients asked in a round on average: each with probability q = cohort / N, rounded down to
        a multiple of 2^-32.
    epsilon, delta : float
        What all rounds together may cost each client.
    rounds : int, optional
        How many. The noise is calibrated to them.
    noise_multiplier : float, optional
        z, deviation of the noise over the clip norm, of all releases of a round together. As many
        rounds as ε pays for, or `rounds` if that is less.
    clip_norm : float or mapping
        C, chosen without the data: of every reply, or by clip unit ("update", "gradient").
    adaptive : Adaptive, optional
        Let C follow a quantile of the norms, from `clip_norm`.
    ledger, account : Ledger, str, optional
        Charged before the first release. A Rényi account is charged round by round. Others, which
        cannot add up single rounds without loss, are charged for all rounds before the first.
    accountant : {"pld", "rdp"}
        What noise or rounds are calibrated with.
    rng : Randomness, optional
        For tests. The operating system's without it, never the seed of a run.

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
        cohort: float,
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
        """Rounds that were begun: so many are paid."""
        self._starts = _norms(clip_norm)
        self.clip_norms: dict[str, float] = {}
        """C by clip unit, as it stands; with `Adaptive` a release of its own."""
        whole = self.plan.event(self.plan.rounds)
        self._payment = Payment("ClientPrivacy", whole, self.plan.delta, ledger, account)
        self._rng = source(rng)
        self._asked: set[int] = set()
        self._open: list[Phase] = []
        self._phases: tuple[Phase, ...] = ()

    def __copy__(self) -> ClientPrivacy:
        """Itself: two copies of a budget would be two budgets, on one charge."""
        return self

    def __deepcopy__(self, memo: object) -> ClientPrivacy:
        return self

    def __reduce__(self) -> Any:
        raise errors.TacitError("ClientPrivacy: it must stay in its process: a copy spends twice.")

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse what cannot be hidden, and share out the noise of a round."""
        where = "ClientPrivacy"
        if self._phases:
            remedy = "Make another one for another run."
            errors.refuse(where, "algorithm", "settled once", algorithm.name, remedy)
        if clients != self.plan.clients:
            remedy = "Their number is public and settled beforehand."
            errors.refuse(where, "clients", str(self.plan.clients), clients, remedy)
        if config.weighted:
            remedy = "A client's number of rows is a release: count all alike."
            errors.refuse(where, "weighted", "False", True, remedy)
        units: list[str] = []
        for phase in algorithm.phases:
            units += _units(algorithm.name, phase)
        adaptive = self.adaptive
        deviation = None if adaptive is None else adaptive.deviation(self.plan.cohort)
        self.update_multiplier = update_multiplier(self.plan.multiplier, len(units), deviation)
        if self.update_multiplier > _LARGEST_MULTIPLIER:
            found, remedy = float(self.update_multiplier), "That is noise alone."
            errors.refuse(where, "noise of an update", "at most 2^20 clip norms", found, remedy)
        self.clip_norms = {unit: _start(self._starts, unit) for unit in units}
        self._phases = algorithm.phases

    def choose(self, number: int, clients: int) -> list[int]:
        """A Poisson sample, once the round is paid.

        Raises
        ------
        BudgetExceeded
            After the rounds that were planned, or where the ledger has too little left.
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
        asked = self.plan.sample(self._rng)
        self._asked, self._open = set(asked), list(self._phases)
        return asked

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged:
        """The noisy sum over the expected cohort; noise alone where nobody answered."""
        if not self._open or self._open.pop(0) != phase:
            raise errors.TacitError("ClientPrivacy: each phase of a round is released once.")
        heard = [one for client, one in taken.items() if client in self._asked]
        parts: dict[str, Vector] = {}
        for unit in _units("", phase):
            names = [part.name for part in phase.parts if part.clip_unit == unit]
            size = len(names) * layout.size
            found = self._noisy_mean(unit, [_joined(one, names) for one in heard], size)
            parts.update(zip(names, np.split(found, len(names)), strict=True))
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
        """What ran so far; None before the first round."""
        return self.plan.event(self.run) if self.run else None

    @property
    def guarantee(self) -> Guarantee:
        """Of the global model after the rounds so far."""
        return guarantee_of(self._ran(), self.plan.delta)

    @property
    def spent(self) -> float:
        """ε of the rounds so far."""
        return self.plan.epsilon(self.run) if self.run else 0.0

    def certificate(
        self, artifact: str | Path | None = None, *, whole_plan: bool = False
    ) -> Certificate:
        """Certify the global model as it is, or a file that holds it.

        Parameters
        ----------
        artifact : path, optional
            The file.
        whole_plan : bool
            State the cost of all rounds that were planned. That is what holds where somebody looked
            at models and stopped at one that pleased.
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
    "The model at the start, the settings and the number of rounds that was planned did not depend "
    "on the clients' data.",
    "A round's releases on one sample of clients are stated as the one Gaussian that they come to.",
    "Whether a client answered, and what, did not depend on who else was asked: each worked on a "
    "copy of the model as it was built. That the model keeps nothing outside itself, where no copy "
    "reaches, was checked on made-up rows where clients share a process.",
)
_SETTLED = "That training ended after this round was not decided by looking at what was released."
_LIMITS = (
    "Clients from the server, which is trusted: it sees every reply as it was sent.",
    "How many clients there are: the sampling rate and the size of a step were set from it.",
    "Who was asked in a round, who answered and whose reply was refused: known to the server, not "
    "released, nor may it be. Whoever watches the network learns it, and for them sampling gains "
    "nothing.",
    "Rows that the model was judged on: loss and accuracy of each round are told without noise.",
)


def _units(name: str, phase: Phase) -> list[str]:
    """Clip units of a phase, in the order of its parts; each is one release."""
    units: list[str] = []
    for part in phase.parts:
        if part.clip_unit is None or part.binary or part.kept or not part.additive:
            errors.refuse(
                "ClientPrivacy",
                "algorithm",
                "one whose parts can be bounded, summed and noised",
                f"{name} with its {part.name}",
                "What is read off a client's data without a bound no noise hides.",
            )
        if part.clip_unit not in units:
            units.append(part.clip_unit)
    return units


def _norms(given: float | Mapping[str, float]) -> float | dict[str, float]:
    if isinstance(given, Mapping):
        return {
            unit: float(errors.positive("ClientPrivacy", f"clip_norm of {unit}", norm))
            for unit, norm in given.items()
        }
    return float(errors.positive("ClientPrivacy", "clip_norm", given))


def _start(norms: float | dict[str, float], unit: str) -> float:
    if isinstance(norms, float):
        return norms
    if unit not in norms:
        errors.refuse("ClientPrivacy", "clip_norm", f"given for {unit}", sorted(norms))
    return norms[unit]


def _joined(reply: Payload, names: list[str]) -> Vector:
    return np.concatenate([np.asarray(reply.parts[name], dtype=np.float64) for name in names])
