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

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.client_level.shares import SharePlan, share_plan
from tacit.federated.client_level.units import clip_units, norm_of, norms_by_unit
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
from tacit.federated.secure.session import Roster, subject
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.decimals import above
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness, source

_WHERE = "SecureClientPrivacy"

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
        rng: Randomness | np.random.Generator | None = None,
    ) -> None:
        budget = {"epsilon": epsilon, "delta": delta, "rounds": rounds}
        self._told: dict[str, Any] = {**budget, "size": size, "corrupt": corrupt, "lost": lost}
        self.plan = share_plan(clients, **self._told)
        """The plan; a run of an algorithm with several sums a round has more noise."""
        self.run, self._norms = 0, norms_by_unit(_WHERE, clip_norm)
        self._paying = ledger, account
        self._masks, self._losses = masks, losses
        self._rng = source(rng)
        self._phases: tuple[Phase, ...] = ()
        self._open: list[Phase] = []
        self._sums = 0
        self._gone: Mapping[int, Stage] = {}
        self._shown = b""
        self.survivors: list[int] = []
        """How many clients are in each sum that was had; the server knows who."""

    def __copy__(self) -> SecureClientPrivacy:
        """Return itself: two copies of a budget would be two budgets on one charge."""
        return self

    def __deepcopy__(self, memo: object) -> SecureClientPrivacy:
        return self

    def __reduce__(self) -> Any:
        raise errors.TacitError(f"{_WHERE}: it must stay in its process. A copy would spend twice.")

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse what cannot be protected, and settle the noise of each sum of a round."""
        if self._phases:
            remedy = "Make another one for another run."
            errors.refuse(_WHERE, "algorithm", "settled once", algorithm.name, remedy)
        if clients != self.plan.clients:
            remedy = "Their number is public and fixed beforehand."
            errors.refuse(_WHERE, "clients", str(self.plan.clients), clients, remedy)
        if config.weighted:
            remedy = "A client's number of rows would be a release. Weight all clients equally."
            errors.refuse(_WHERE, "weighted", "False", True, remedy)
        units = [clip_units(_WHERE, algorithm.name, phase) for phase in algorithm.phases]
        if any(len(phase.parts) != 1 for phase in algorithm.phases):
            errors.refuse(_WHERE, "algorithm", "one with one part a phase", algorithm.name)
        for (unit,) in units:
            norm_of(_WHERE, self._norms, unit)
        self.plan = share_plan(clients, **self._told, releases=len(units))
        ledger, account = self._paying
        self._payment = Payment(_WHERE, self.plan.event(), self.plan.delta, ledger, account)
        self._run_name = self._rng.words(4).tobytes().hex()
        self._setting = f"{algorithm.name} {config} {self.plan}"
        self._members = self._joined() if self._masks else []
        self._phases = algorithm.phases

    def _joined(self) -> list[Participant]:
        """Create every client's long-term key, and let it join with the terms of the plan."""
        keys = [new_identity() for _ in range(self.plan.clients)]
        roster = Roster(tuple(key.public_key() for key in keys))
        plan, setup = self.plan, self.plan.setup()
        terms = Terms(plan.corrupt, plan.honest, plan.rounds * plan.releases)
        return [
            Participant(setup, roster, self._run_name, k, key, terms) for k, key in enumerate(keys)
        ]

    def choose(self, number: int, clients: int) -> list[int]:
        """Return all clients, after paying for the round.

        Raises
        ------
        BudgetExceeded
            After the planned rounds, or if the account has too little remaining.
        """
        if not self._phases or clients != self.plan.clients:
            raise errors.TacitError(f"{_WHERE}: a run must be admitted before its first round.")
        if self.run >= self.plan.rounds:
            raise errors.BudgetExceeded(
                f"{_WHERE}: rounds must be at most {self.plan.rounds}, the plan at this epsilon, "
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
        arrays = (np.ascontiguousarray(received[name]).tobytes() for name in sorted(received))
        self._shown = subject(*sorted(received), *arrays)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        """Return the mean over the survivors of a secure sum; None if there are too few of them."""
        if not self._open or self._open.pop(0) != phase:
            raise errors.TacitError(f"{_WHERE}: each phase of a round must be released once.")
        grid = self.plan.grid
        if layout.size != grid.size:
            errors.refuse(_WHERE, "size", f"{layout.size}, that of the model", grid.size)
        self._sums += 1
        self._gone = {} if self._losses is None else self._losses(self._sums)
        part = phase.parts[0]
        norm = norm_of(_WHERE, self._norms, part.clip_unit or "")
        about = subject(self._setting, phase.name, self._shown)
        signs = grid.rotation.signs(subject(self._run_name, [self._sums]))
        zeros, vectors = np.zeros(grid.size), {}
        for client in range(self.plan.clients):
            update = taken[client].parts[part.name] if client in taken else zeros
            vectors[client] = self.plan.share(
                grid.encode(update, norm, signs, self._rng), self._rng
            )
        found = self._sum(vectors, about)
        if found is None:
            return None
        total, survivors = found
        self.survivors.append(survivors)
        mean: Vector = grid.decode(total, norm, signs) / survivors
        return Averaged({part.name: mean}, float(survivors))

    def _sum(self, vectors: dict[int, Any], about: bytes) -> tuple[Any, int] | None:
        """Sum the vectors of those who survive, and count them."""
        if not self._masks:
            there = [k for k in vectors if self._gone.get(k, Stage.OVER) > Stage.MASKED]
            answering = [k for k in there if self._gone.get(k, Stage.OVER) is Stage.OVER]
            setup = self.plan.setup()
            if len(there) < setup.fewest or len(answering) < setup.threshold:
                return None
            total = np.sum([vectors[k] for k in there], axis=0)
            bits = setup.bits
            return residues.centred(residues.residues(total, bits), bits), len(there)
        clients: dict[int, Client] = {
            k: one.begin(self._sums, about) for k, one in enumerate(self._members)
        }
        try:
            result = secure_sum(Server(clients[0].session), clients, vectors, self._gone)
        except Refused:
            return None
        return result.total, len(result.survivors)

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
        return certify(
            self.plan,
            rounds,
            artifact,
            assumptions=(
                *(() if whole_plan else (SETTLED,)),
                _ONE_PROCESS if self._masks else _NO_MASKS,
            ),
            rng=self._rng,
        )

    def _ran(self) -> None:
        if not self.run:
            raise errors.TacitError(f"{_WHERE}: no round has run yet, so there is no release.")


def certify(
    plan: SharePlan,
    rounds: int,
    artifact: str | Path | None = None,
    *,
    assumptions: tuple[str, ...] = (),
    rng: Randomness | None = None,
) -> Certificate:
    """Issue a certificate of this many rounds of a plan, with both readers."""
    issued = Certificate.issue(
        plan.event(rounds),
        delta=plan.delta,
        artifact=artifact,
        assumptions=(*_ASSUMPTIONS, _server(plan), *assumptions),
        not_protected=(_remains(plan, rounds), *_LIMITS),
        rng=rng,
    )
    return replace(issued, readers=plan.outsiders(rounds))


def _server(plan: SharePlan) -> str:
    setup = plan.setup()
    if setup.everyone:
        who = "Whatever the server does"
    else:
        who = "The server follows the protocol, and looks at all that it receives; then"
    return (
        f"{who}, it learns no more than sums: the long-term keys of the roster are the clients' "
        f"own, at most {plan.corrupt} clients side with the server, and X25519, HKDF-SHA256, "
        "AES-256, and the signatures of the roster's keys are not broken."
    )


def _remains(plan: SharePlan, rounds: int) -> str:
    """State what remains where fewer are honest than was planned."""
    parts = []
    for honest in sorted({max(plan.honest // 2, 1), 1}, reverse=True):
        stated = plan.guarantee(rounds, honest)
        epsilon = getattr(stated, "epsilon", math.inf)
        parts.append(f"with {honest} it is {above(epsilon, 4)}")
    return (
        f"Clients from the server where fewer than {plan.honest} of those who answered are "
        f"honest: {', '.join(parts)} instead of the stated epsilon, at the same delta, while at "
        f"most {plan.corrupt} side with the server."
    )


_ASSUMPTIONS = (
    "The initial model, the settings and the planned number of rounds did not depend on the "
    "clients' data.",
    "Whether a client answered did not depend on its rows: one whose computation failed sent zeros "
    "with its noise.",
)
SETTLED = "The decision to end training after this round did not depend on what was released."
_ONE_PROCESS = (
    "Clients and server exchanged all messages within one process: a simulation. What is said of "
    "the server holds where each client runs the protocol on a machine of its own."
)
_NO_MASKS = (
    "Masks were left out, in a simulation within one process: what is said of the server holds of "
    "the noise alone."
)
_LIMITS = (
    "The number of clients, who took part in a round, and who was lost.",
    "The result from clients who send made-up vectors: nobody sees a single one.",
    "Rows on which the model was evaluated: loss and accuracy of each round have no noise.",
)
