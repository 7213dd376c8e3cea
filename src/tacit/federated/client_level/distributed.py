r"""A guarantee for clients towards the server, too: secure sums of updates with noise from clients.

In every round each client clips and encodes its update in whole numbers (`grid`), adds its share of
the noise (`shares`, which has the theorem), and takes part in a secure sum (`tacit.federated.
secure`). The server learns the noisy sum over the survivors, and divides by their number.

Notes
-----
A client whose computation fails sends a vector of zeros with its noise: that it was silent would
tell the server of its rows. Everybody is asked in every round, since a server that sees the cohort
is not kept from anything by sampling.

`SecureClientPrivacy` runs the protocol with all clients in one process, all messages as bytes: it
is a simulation of clients on machines of their own, and its certificate says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.client_level import statements
from tacit.federated.client_level.noisy_sum import WHERE, NoisySum, Setting
from tacit.federated.client_level.shares import share_plan
from tacit.federated.client_level.units import norms_by_unit
from tacit.federated.config import Config
from tacit.federated.coordinator import Coordinator
from tacit.federated.payload import Layout, Payload, Vector
from tacit.federated.payment import Payment
from tacit.federated.secure import residues
from tacit.federated.secure.client import Client, Stage
from tacit.federated.secure.exchange import secure_sum
from tacit.federated.secure.participant import Participant, Terms
from tacit.federated.secure.primitives import Refused, new_identity
from tacit.federated.secure.server import Server
from tacit.federated.secure.session import Roster
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness, source

Losses = Callable[[int], Mapping[int, Stage]]
"""Called with the number of a sum; returns at which step which client is lost, in a simulation."""


class SecureClientPrivacy(Coordinator):
    r"""An (ε, δ)-DP guarantee for clients, towards the server and up to c clients who side with it.

    Parameters
    ----------
    clients : int
        n, the number of clients, which is public. All are asked in every round.
    size : int
        Number of parameters of the model.
    epsilon, delta : float
        Budget of each client for all rounds together.
    rounds : int
        Number of rounds, to which the noise is calibrated.
    corrupt : int
        c, the number of clients who may side with the server, or look at results on their own.
    lost : int
        l, the number of clients that may be lost in a round. With more the round is skipped. Those
        who stay must be more than (n + c)/2, up to 128 clients.
    clip_norm : float or mapping
        C, chosen without looking at the data: one for every reply, or one per clip unit.
    ledger, account : Ledger, str, optional
        The account that is charged before the first release.
    masks : bool
        Whether masks are added, and taken away again. Without them a simulation of many clients is
        faster, and its sums are the same; the certificate says that they were left out.
    losses : callable, optional
        Simulated losses: at which step which client is lost, for each sum by its number.
    about : str
        What else clients and server must agree on, such as the whole job: it goes into every key.
    rng : Randomness, optional
        Source of the noise for tests. The default is the operating system's.

    Examples
    --------
    >>> privacy = SecureClientPrivacy(100, size=650, epsilon=8, delta=1e-5, rounds=8, lost=10)
    >>> privacy.plan.honest, privacy.plan.epsilon() <= 8
    (89, True)
    """

    hides_failures = True

    def __init__(
        self,
        clients: int,
        *,
        size: int,
        epsilon: float,
        delta: float,
        rounds: int,
        corrupt: int = 1,
        lost: int = 0,
        clip_norm: float | Mapping[str, float] = 1.0,
        ledger: Ledger | None = None,
        account: str | None = None,
        masks: bool = True,
        losses: Losses | None = None,
        about: str = "",
        rng: Randomness | np.random.Generator | None = None,
    ) -> None:
        budget = {"epsilon": epsilon, "delta": delta, "rounds": rounds}
        self._told: dict[str, Any] = {**budget, "size": size, "corrupt": corrupt, "lost": lost}
        self.plan = share_plan(clients, **self._told)
        """The plan; a run of an algorithm with several sums a round has more noise."""
        self.run, self._norms = 0, norms_by_unit(WHERE, clip_norm)
        self._paying = ledger, account
        self._masks, self._losses, self._about = masks, losses, about
        self._rng = source(rng)
        self._phases: tuple[Phase, ...] = ()
        self._open: list[Phase] = []
        self._sums = 0
        self._shown: dict[str, Vector] = {}
        self.survivors: list[int] = []
        """How many clients are in each sum that was had; the server knows who."""
        self.simulated = True
        """Whether clients share a process; engines whose clients do not set it to False."""

    def __copy__(self) -> SecureClientPrivacy:
        """Return itself: two copies of a budget would be two budgets on one charge."""
        return self

    def __deepcopy__(self, memo: object) -> SecureClientPrivacy:
        return self

    def __reduce__(self) -> Any:
        raise errors.TacitError(f"{WHERE}: it must stay in its process. A copy would spend twice.")

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse what cannot be protected, and settle the noise of each sum of a round."""
        if self._phases:
            remedy = "Make another one for another run."
            errors.refuse(WHERE, "algorithm", "settled once", algorithm.name, remedy)
        if clients != self.plan.clients:
            remedy = "Their number is public and fixed beforehand."
            errors.refuse(WHERE, "clients", str(self.plan.clients), clients, remedy)
        if config.weighted:
            remedy = "A client's number of rows would be a release. Weight all clients equally."
            errors.refuse(WHERE, "weighted", "False", True, remedy)
        told = {**self._told, "clip_norm": self._norms, "about": self._about}
        self.setting = Setting.of(algorithm, config, clients, **told)
        self.plan = self.setting.plan
        ledger, account = self._paying
        self._payment = Payment(WHERE, self.plan.event(), self.plan.delta, ledger, account)
        self.name = self._rng.words(4).tobytes().hex()
        self._phases = algorithm.phases

    def _joined(self) -> list[Participant]:
        """Create every client's long-term key, and let it join with the terms of the plan."""
        keys = [new_identity() for _ in range(self.plan.clients)]
        roster = Roster(tuple(key.public_key() for key in keys))
        plan, setup = self.plan, self.plan.setup()
        terms = Terms(plan.corrupt, plan.honest, plan.sums)
        return [Participant(setup, roster, self.name, k, key, terms) for k, key in enumerate(keys)]

    def choose(self, number: int, clients: int) -> list[int]:
        """Return all clients, after paying for the round.

        Raises
        ------
        BudgetExceeded
            After the planned rounds, or if the account has too little remaining.
        """
        if not self._phases or clients != self.plan.clients:
            raise errors.TacitError(f"{WHERE}: a run must be admitted before its first round.")
        if self.run >= self.plan.rounds:
            raise errors.BudgetExceeded(
                f"{WHERE}: rounds must be at most {self.plan.rounds}, the plan at this epsilon, "
                f"got {self.run + 1}. Plan for more, with more noise."
            )
        self._payment.stay()
        if self._payment.charges:
            self._payment.begin("round", self.run + 1, self.plan.event(1))
        self.run += 1
        self._open = list(self._phases)
        return list(range(clients))

    def sends(self, received: Mapping[str, Vector]) -> None:
        """Note what clients compute their updates from: the keys of the sum depend on it."""
        self._shown = dict(received)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        """Return the mean over the survivors of a secure sum; None if there are too few of them."""
        if not self._open or self._open.pop(0) != phase:
            raise errors.TacitError(f"{WHERE}: each phase of a round must be released once.")
        if layout.size != self.plan.grid.size:
            wanted = f"{layout.size}, that of the model"
            errors.refuse(WHERE, "size", wanted, self.plan.grid.size)
        one = self.next(phase)
        vectors = {}
        for client in range(self.plan.clients):
            update = taken[client].parts[one.part] if client in taken else None
            vectors[client] = one.vector(update, self._rng)
        gone = {} if self._losses is None else self._losses(one.number)
        found = self._sum(vectors, one, gone)
        return None if found is None else self.released(one, *found)

    def next(self, phase: Phase) -> NoisySum:
        """Begin the next sum, of what clients were sent last."""
        self._sums += 1
        return self.setting.sum_of(phase, self.name, self._sums, self._shown)

    def released(self, one: NoisySum, total: Any, survivors: int) -> Averaged:
        """Return the mean of a sum that was had."""
        self.survivors.append(survivors)
        return Averaged({one.part: one.mean(total, survivors)}, float(survivors))

    def _sum(
        self, vectors: dict[int, Any], one: NoisySum, gone: Mapping[int, Stage]
    ) -> tuple[Any, int] | None:
        """Sum the vectors of those who survive, and count them."""
        if not self._masks:
            return self._plain_sum(vectors, gone)
        clients: dict[int, Client] = {
            k: member.begin(one.number, one.about) for k, member in enumerate(self._members)
        }
        try:
            result = secure_sum(Server(clients[0].session), clients, vectors, gone)
        except Refused:
            return None
        return result.total, len(result.survivors)

    def _plain_sum(
        self, vectors: dict[int, Any], gone: Mapping[int, Stage]
    ) -> tuple[Any, int] | None:
        """Sum as the protocol does, but without masks."""
        there = [k for k in vectors if gone.get(k, Stage.OVER) > Stage.MASKED]
        answering = [k for k in there if gone.get(k, Stage.OVER) is Stage.OVER]
        setup = self.plan.setup()
        if len(there) < setup.fewest or len(answering) < setup.threshold:
            return None
        total = residues.residues(np.sum([vectors[k] for k in there], axis=0), setup.bits)
        return residues.centred(total, setup.bits), len(there)

    @cached_property
    def _members(self) -> list[Participant]:
        return self._joined()

    @property
    def event(self) -> events.Event | None:
        """The event of the rounds so far; None before the first round."""
        return self.plan.event(self.run) if self.run else None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee towards the server after the rounds so far."""
        self._ran()
        return self.plan.guarantee(self.run)

    @property
    def spent(self) -> float:
        """ε towards the server of the rounds so far."""
        return self.plan.epsilon(self.run) if self.run else 0.0

    def certificate(
        self, artifact: str | Path | None = None, *, whole_plan: bool = False
    ) -> Certificate:
        """Issue a certificate of the current global model, or of a file that holds it.

        It states the guarantee towards the server, and that towards readers of the model.

        Parameters
        ----------
        artifact : path, optional
            The file.
        whole_plan : bool
            State the cost of all planned rounds. Use it if somebody looked at models to decide when
            to stop.
        """
        self._ran()
        rounds = self.plan.rounds if whole_plan else self.run
        return statements.certify(
            self.plan,
            rounds,
            artifact,
            assumptions=(
                *(() if whole_plan else (statements.SETTLED,)),
                self._where(),
            ),
            rng=self._rng,
        )

    def _where(self) -> str:
        """State where the clients' part ran."""
        if not self.simulated:
            return statements.OWN_MACHINES
        return statements.ONE_PROCESS if self._masks else statements.NO_MASKS

    def _ran(self) -> None:
        if not self.run:
            raise errors.TacitError(f"{WHERE}: no round has run yet, so there is no release.")
