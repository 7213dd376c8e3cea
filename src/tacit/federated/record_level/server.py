r"""The server of silos that train privately: the mean of their replies, and its cost per record.

Every reply is already private for the records of its silo, so the mean of replies and every model
computed from it are post-processing. The server adds the accounting: with each reply a silo states
the (ε, δ) that it has spent so far.

Theorem. If each statement is true and no person has records in two silos, all global models are
(max ε_k, max δ_k)-DP for records, under the silos' zero-out neighbours. If a person may have
records in several silos, (Σ ε_k, Σ δ_k) holds.

Proof. One record lies in one silo; everything else is a function of other silos' replies and of
that silo's, which is (ε_k, δ_k)-DP whatever the others send it. A person with a record in every
silo is covered by composition over silos.

Notes
-----
The server checks that a statement is a pair of numbers within limits. It cannot check that it is
true: each ε is a claim of its silo, and certificates say so. The largest statement that a silo ever
made counts, since spending never decreases.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tacit.federated.algorithms import server_updates as aggregation
from tacit.federated.algorithms.registry import Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.coordinator import Coordinator, PlainMean
from tacit.federated.payload import Layout, Payload, Rejected, read_statement
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP, Unit


class SiloServer(Coordinator):
    """A server of silos: the weighted mean of replies that state their cost.

    Parameters
    ----------
    delta : float
        δ at which silos state their ε. A reply that states a larger δ does not count.
    overlapping : bool
        Whether a person may have records in several silos. Costs are then summed.
    epsilon : float, optional
        Largest ε that a reply may state. A reply that states more does not count.
    participation : float
        The fraction of the silos that are asked in a round.
    seed : int
        Seed of the choice of silos. It is not secret and amplifies nothing.
    unit : Unit or str
        The unit that the silos protect.

    Examples
    --------
    >>> server = SiloServer(delta=1e-4)
    >>> server.state(0, (2.0, 1e-4)), server.state(1, (3.0, 1e-4)), server.spent
    (True, True, 3.0)
    """

    def __init__(
        self,
        delta: float,
        *,
        overlapping: bool = False,
        epsilon: float | None = None,
        participation: float = 1.0,
        seed: int = 0,
        unit: Unit | str = Unit.RECORD,
    ) -> None:
        self.delta = errors.delta_in_range("SiloServer", delta)
        self.overlapping = bool(overlapping)
        if epsilon is not None:
            epsilon = float(errors.epsilon_in_range("SiloServer", epsilon))
        self.epsilon, self.unit = epsilon, Unit.of("SiloServer", unit)
        self._plain = PlainMean(seed, participation)
        self.stated: dict[int, tuple[float, float]] = {}
        """The largest accepted statement of every silo."""
        self.silent: tuple[tuple[int, int, str], ...] = ()
        """Round, silo and reason of replies that did not count because of their statement."""

    def choose(self, number: int, clients: int) -> list[int]:
        return self._plain.choose(number, clients)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        """Average the replies that state their cost; None if there are none."""
        counted = []
        for client, reply in taken.items():
            if not self.refuses(number, client, reply):
                self._remember(client, reply.stated)
                counted.append(reply)
        return aggregation.average(counted) if counted else None

    def refuses(self, number: int, client: int, reply: Payload) -> str:
        """Return why a reply is refused: it states no cost, or more than was agreed on."""
        why = self._refusal(reply.stated)
        if why:
            self.silent += ((number, client, why),)
        return why

    def state(self, client: int, stated: object) -> bool:
        """Record a statement that came without a model, e.g. with statistics; False if refused."""
        read = read_statement(stated)
        if isinstance(read, Rejected) or self._refusal(read):
            return False
        self._remember(client, read)
        return True

    def _refusal(self, stated: tuple[float, float] | None) -> str:
        if stated is None:
            return "it does not state what it cost"
        # The tolerance allows for rounding on the way.
        if self.epsilon is not None and stated[0] > self.epsilon * (1 + 1e-9):
            return "it states more than the epsilon that was agreed on"
        return "it states a larger delta" if stated[1] > self.delta * (1 + 1e-9) else ""

    def _remember(self, client: int, stated: tuple[float, float] | None) -> None:
        assert stated is not None
        before = self.stated.get(client, (0.0, 0.0))
        self.stated[client] = max(before[0], stated[0]), max(before[1], stated[1])

    @property
    def event(self) -> events.Event | None:
        """The event of what silos stated; None before the first accepted reply."""
        if not self.stated:
            return None
        scope = {"adjacency": Adjacency.ZERO_OUT, "unit": self.unit}
        said: list[events.Event] = []
        for _, (epsilon, delta) in sorted(self.stated.items()):
            kind: Guarantee = (
                ApproxDP(epsilon, delta, **scope) if delta else PureDP(epsilon, **scope)  # type: ignore[arg-type]
            )
            said.append(events.Declared(kind))
        return (events.Composed if self.overlapping else events.Parallel)(tuple(said))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the global model: the largest statement, or the sum of all."""
        return guarantee_of(self._ran())

    @property
    def spent(self) -> float:
        """ε of the global model."""
        return 0.0 if not self.stated else float(getattr(self.guarantee, "epsilon", "inf"))

    def certificate(self, artifact: str | Path | None = None) -> Certificate:
        """Issue a certificate of the current global model, or of a file that holds it."""
        people = _SUMMED if self.overlapping else _DISJOINT
        return Certificate.issue(
            self._ran(),
            guarantee=self.guarantee,
            artifact=artifact,
            assumptions=(_WORD, people, _SETTLED),
            not_protected=_LIMITS,
        )

    def _ran(self) -> events.Event:
        if self.event is None:
            raise errors.TacitError("SiloServer: no reply has counted yet, so there is no release.")
        return self.event


_WORD = "Each silo's epsilon is its own claim, which the server cannot check."
_DISJOINT = "No person has records in two silos: the largest epsilon of a silo is stated."
_SUMMED = "A person may have records in several silos: the epsilons of all silos are summed."
_SETTLED = "The decision to end training after this round did not depend on what was released."
_LIMITS = (
    "Rows from their own silo. Everyone else, including the server and other silos, sees only "
    "noisy replies.",
    "The number of records of each silo: its weight in the mean, its sampling probability and its "
    "number of steps were set from it.",
    "Which silos took part in which round.",
    "The server's own rows on which the model was evaluated: those scores have no noise.",
)
