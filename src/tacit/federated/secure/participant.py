"""A client over a whole run: its terms, and the rounds that it has seen."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.federated.secure.client import Client
from tacit.federated.secure.primitives import Refused, SigningKey
from tacit.federated.secure.session import Roster, Session, Setup
from tacit.privacy import errors


@dataclass(frozen=True)
class Terms:
    """The least that a client's owner asks of every sum.

    Parameters
    ----------
    corrupt : int
        Number of clients who may side with the server; a setup must allow for as many.
    honest : int
        Fewest survivors besides these, the client itself included.
    sums : int, optional
        Most sums of a run. Noise is calibrated to a number of them: without a limit of its own, a
        client would take part as often as the server asks.
    """

    corrupt: int = 1
    honest: int = 2
    sums: int | None = None

    def __post_init__(self) -> None:
        if self.sums is not None:
            errors.whole("secure sum", "sums", self.sums, least=1)
        errors.whole("secure sum", "corrupt", self.corrupt, least=0)
        errors.whole("secure sum", "honest", self.honest, least=2)

    def admit(self, setup: Setup) -> None:
        """Refuse a setup that asks for less."""
        if setup.corrupt < self.corrupt:
            raise Refused(f"secure sum: a setup must allow for {self.corrupt} corrupt clients.")
        if setup.least < self.corrupt + self.honest:
            fewest = self.corrupt + self.honest
            raise Refused(f"secure sum: a setup must ask for {fewest} survivors or more.")


class Participant:
    """A client of a run, which takes part in each of its rounds at most once.

    Parameters
    ----------
    setup, roster, run
        As in `Session`; what the client's owner joined.
    number : int
        The client's number on the roster.
    identity : private key
        Its long-term key.
    terms : Terms
        The owner's terms.
    seen : int
        The last round that the client took part in, if it was restarted.
    """

    def __init__(
        self,
        setup: Setup,
        roster: Roster,
        run: str,
        number: int,
        identity: SigningKey,
        terms: Terms = Terms(),  # noqa: B008
        seen: int = 0,
    ) -> None:
        terms.admit(setup)
        self.terms = terms
        self.setup, self.roster, self.run, self.number = setup, roster, run, number
        self.seen = errors.whole("secure sum", "seen", seen, least=0)
        self._identity = identity

    def begin(self, number: int, about: bytes) -> Client:
        """Begin a round, with the digest of what the client itself computed its vector from.

        Raises
        ------
        Refused
            For a round that is not later than all before: its vector was sent already. And for one
            beyond the terms.
        """
        if self.terms.sums is not None and number > self.terms.sums:
            raise Refused(f"secure sum: a round must be one of {self.terms.sums}, got {number}.")
        if number <= self.seen:
            raise Refused(f"secure sum: a round must come after round {self.seen}, got {number}.")
        session = Session(self.setup, self.roster, self.run, number, about)
        self.seen = number
        return Client(session, self.number, self._identity)
