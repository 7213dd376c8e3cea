r"""Silos that train privately, from the server: their mean, and what it costs a record.

Every reply is private towards the records of its silo already, so the mean of replies and every
model made of it are post-processing. What the server adds is the account: each silo says with each
reply what (ε, δ) it has spent so far.

Theorem. If each statement is true and no person has records in two silos, all global models are
(max ε_k, max δ_k)-DP towards records, under the silos' zero-out neighbours. Where persons may be in
several, (Σ ε_k, Σ δ_k) holds.

Proof. One record lies in one silo; all the rest is a function of other silos' replies and of that
silo's, which is (ε_k, δ_k)-DP whatever the others send it. A person with a record in every silo is
covered by composition over silos.

Notes
-----
The server checks that a statement is a pair of numbers within limits. It cannot check that it is
true: each ε is its silo's own word, and certificates say so. What counts is the largest statement
that a silo ever made, as spending never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tacit.federated.algorithms import server_updates as aggregation
from tacit.federated.algorithms.registry import Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.coordinator import Coordinator, Plain
from tacit.federated.payload import Layout, Payload, Rejected, read_statement
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP, Unit


class SiloServer(Coordinator):
    """The weighted mean of silos' replies, each with a statement of its cost.

    Parameters
    ----------
    delta : float
        At which silos state their ε; a reply that states a larger δ does not count.
    overlapping : bool
        Whether a person may have records in several silos: costs are then summed.
    epsilon : float, optional
        A reply that states more does not count.
    participation : float
        The share of the silos that are asked in a round.
    seed : int
        Of who is asked: no secret, it amplifies nothing.
    unit : Unit or str
        What the silos protect.

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
        self.epsilon, self.unit = (
            epsilon,
            Unit(errors.choice("SiloServer", "unit", unit, list(Unit))),
        )
        self._plain = Plain(seed, participation)
        self.stated: dict[int, tuple[float, float]] = {}
        """The largest statement of every silo that counted."""
        self.silent: tuple[tuple[int, int, str], ...] = ()
        """Round, silo and reason of replies that did not count for what they stated."""

    def choose(self, number: int, clients: int) -> list[int]:
        return self._plain.choose(number, clients)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        """The mean of replies that state what they cost; None where there is none."""
        counted = []
        for client, reply in taken.items():
            if not self.refuses(number, client, reply):
                self._remember(client, reply.stated)
                counted.append(reply)
        return aggregation.average(counted) if counted else None

    def refuses(self, number: int, client: int, reply: Payload) -> str:
        """A reply that states nothing, or more than was agreed on."""
        why = self._refusal(reply.stated)
        if why:
            self.silent += ((number, client, why),)
        return why

    def state(self, client: int, stated: object) -> bool:
        """Remember what came without a model, with statistics say; False where it is refused."""
        read = read_statement(stated)
        if isinstance(read, Rejected) or self._refusal(read):
            return False
        self._remember(client, read)
        return True

    def _refusal(self, stated: tuple[float, float] | None) -> str:
        if stated is None:
            return "it does not state what it cost"
        # A hair more is rounding on the way.
        if self.epsilon is not None and stated[0] > self.epsilon * (1 + 1e-9):
            return "it states more than the epsilon that was agreed on"
        return "it states a larger delta" if stated[1] > self.delta * (1 + 1e-9) else ""

    def _remember(self, client: int, stated: tuple[float, float] | None) -> None:
        assert stated is not None
        before = self.stated.get(client, (0.0, 0.0))
        self.stated[client] = max(before[0], stated[0]), max(before[1], stated[1])

    @property
    def event(self) -> events.Event | None:
        """What silos declared; None before the first reply that counted."""
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
        """Of the global model: the largest statement, or their sum."""
        return guarantee_of(self._ran())

    @property
    def spent(self) -> float:
        """Its ε."""
        return 0.0 if not self.stated else float(getattr(self.guarantee, "epsilon", "inf"))

    def certificate(self, artifact: str | Path | None = None) -> Certificate:
        """Certify the global model as it is, or a file that holds it."""
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


_WORD = "Each silo's epsilon is its own word: the server has no way to check it."
_DISJOINT = "No person has records in two silos: the largest epsilon of a silo is stated."
_SUMMED = "A person may have records in several silos: the epsilons of all silos are summed."
_SETTLED = "That training ended after this round was not decided by looking at what was released."
_LIMITS = (
    "Rows from their own silo. Everyone else, the server and other silos too, meets noisy answers "
    "alone.",
    "How many records each silo has: its weight in the mean, its sampling rate and its number of "
    "steps were set from it.",
    "Which silos took part in which round.",
    "Rows of the server's own that the model was judged on: those scores have no noise.",
)
