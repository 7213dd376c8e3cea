r"""What it costs to resume a training, and who pays.

Theorem. Somebody watches the results of a mechanism that could go on for T steps, and decides after
which step L it ends. If L were fixed beforehand, let it be :math:`(\varepsilon_L, \delta/T)`-DP.
Then :math:`\varepsilon_L` may be stated afterwards, at δ: for every set S of results, with
:math:`S_L` those of L steps, :math:`P(S) \le \sum_L e^{\varepsilon_L} Q(S_L) + \delta`.

Proof. :math:`S_L` is a set of results of the first L steps, so :math:`P(S_L) \le e^{\varepsilon_L}
Q(S_L) + \delta/T`; add up over T values of L. (With ε at δ itself this would be wrong: who stops
when results say most exceeds δ severalfold, `test_resuming`.) ∎
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.central.training.journal import Journal
from tacit.privacy import canonical, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import LedgerLike, pay
from tacit.privacy.plain import to_plain

EventOf = Callable[..., events.Event]
"""The event of a number of steps; with `alone=True`, without what ran beside them."""


@dataclass(frozen=True)
class Payment:
    """The account that pays, if there is one, and the δ at which the guarantee is stated."""

    where: str
    ledger: LedgerLike | None
    account: str | None
    delta: float

    def pay(self, event: events.Event, key: str | None) -> None:
        """Charge an event that was not charged before."""
        pay(self.where, self.ledger, self.account, event, key=key, delta=self.delta)

    def pay_once(self, event: events.Event, key: str) -> None:
        """Charge an event, unless it was charged under this key before."""
        pay(self.where, self.ledger, self.account, event, key=key, delta=self.delta, again=True)


@dataclass(frozen=True)
class Lost:
    """Steps that were drawn and are not on the path to the weights (`journal`)."""

    unseen: int = 0
    charged: tuple[int, ...] = ()

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Lost:
        """Read what `Resuming.resume` has returned."""
        return cls(numbers[0], tuple(numbers[1:]))

    def event_with(self, event_of: EventOf, steps: int, delta: float) -> events.Event:
        """Return the event of a training with what was charged again.

        How much was lost may depend on what was seen, so only sums of (ε, δ) hold.
        """
        event = event_of(steps)
        if not self.charged:
            return event
        parts = [watched(event_of, count, steps, delta) for count in self.charged]
        return events.Composed((events.Declared(guarantee_of(event, delta)), *parts))

    def assumptions(self) -> tuple[str, ...]:
        """List what the guarantee rests on since training was resumed."""
        said = []
        if self.unseen:
            said.append(
                f"Training was resumed. {self.unseen} steps were drawn and not used; nobody saw "
                "anything of them, and they had no part in the decision to stop or to resume."
            )
        for count in self.charged:
            said.append(
                f"Training was resumed. {count} steps of the same kind were drawn and not used; "
                "what they cost is declared beside what the training costs, and added."
            )
        return tuple(said)


def watched(event_of: EventOf, count: int, steps: int, delta: float) -> events.Event:
    """Return what `count` steps cost, of at most `steps`, if whoever saw them chose the count."""
    stated = guarantee_of(event_of(count, alone=True), delta / steps)
    return events.Declared(replace(stated, delta=delta))  # type: ignore[call-arg]


@dataclass(frozen=True)
class Resuming:
    """A training that resumes, with its journal and its account."""

    journal: Journal
    payment: Payment
    event_of: EventOf

    def resume(self, state: dict[str, Any], shown: bool) -> list[int]:
        """Charge what is to be charged and start a new branch.

        Returns the step to go on from, the number of unseen steps, and those that were charged.
        """
        steps, payment = self.journal.steps, self.payment
        event = self.event_of(steps)
        found = self.journal.look(state, canonical.text(to_plain(event)), payment.account)
        payment.pay_once(event, f"training {found.id}")  # a ledger that has not paid for it, pays
        charged = found.lost > 0 and (shown or found.again)
        if charged:
            key = f"training {found.id}: {found.lost} steps lost before resume {found.branch}"
            payment.pay_once(watched(self.event_of, found.lost, steps, payment.delta), key)
        self.journal.resume(found, charged)
        every = (*found.earlier, (found.lost, charged))
        unseen = sum(lost for lost, paid in every if not paid)
        return [found.step, unseen, *(lost for lost, paid in every if paid and lost)]
