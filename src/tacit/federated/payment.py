"""Who pays for what a federation runs: a ledger, before anything is computed.

Theorem. Whatever is killed when, what was computed under a run is in its ledger, and nothing is
computed twice on one payment.

Proof. `begin` writes, then returns; only then is anything computed. A Rényi account is charged for
every exchange under its own key. Other accounts cannot add up single exchanges without loss, so
they are charged for the whole plan under the key of the run, before the first exchange; exchanges
then leave a mark each, a charge of nothing under a key of its own. The ledger takes a key once, in
one transaction: whoever comes second, in this process or another, is told so and refused. So every
exchange of the plan is computed at most once, and the plan is paid.

Notes
-----
A run without a name has a random key: nobody else can begin under it, so its marks stay in memory.
An exchange that was begun and killed is paid and lost: to compute it again would be a second
release, on fresh samples and noise, of what was paid once.
"""

from __future__ import annotations

import os
import uuid

from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger, line_of_text
from tacit.privacy.guarantees import ApproxDP, PureDP, RenyiDP


class Till:
    """Pays for the exchanges of one run, each once.

    Parameters
    ----------
    where : str
        Whom an error should name.
    plan : Event
        All that may run, fixed beforehand.
    delta : float
        At which accounts in (ε, δ) state it.
    ledger, account : Ledger, str, optional
        What is charged. Without them exchanges are remembered in this process alone.
    run : str, optional
        Names the run, so that another process can go on with it.
    """

    def __init__(
        self,
        where: str,
        plan: events.Event,
        delta: float,
        ledger: Ledger | None = None,
        account: str | None = None,
        run: str | None = None,
    ) -> None:
        if (ledger is None) != (account is None):
            given = account if ledger is None else "a ledger alone"
            errors.refuse(where, "ledger and account", "given together", given)
        self._where, self._plan, self._delta = where, plan, delta
        self._ledger, self._account = ledger, account
        self._named = run is not None
        own = uuid.uuid4().hex if run is None else line_of_text(where, "run", run)
        self._key = f"federated {own}"
        self._begun: set[str] = set()
        self._process = os.getpid()
        self._by_exchange, self._paid = False, False
        self._at: float | None = None
        if ledger is not None and account is not None:
            self._look(ledger, account)

    def _look(self, ledger: Ledger, account: str) -> None:
        """What notion the account has, and what of this run it has seen."""
        found = ledger.show(account)
        self._by_exchange = isinstance(found.budget, RenyiDP)
        self._at = self._delta if isinstance(found.budget, PureDP | ApproxDP) else None
        start = f"{self._key}, "
        keys = [one.key for one in found.charges if one.key.startswith(start)]
        self._begun = {key.removeprefix(start) for key in keys}

    @property
    def charges(self) -> bool:
        """Whether there is a ledger."""
        return self._ledger is not None

    def begun(self, kind: str) -> int:
        """How many exchanges of a kind were begun, by this process or another: "round", say."""
        return sum(what.startswith(f"{kind} ") for what in self._begun)

    def has(self, kind: str, number: int) -> bool:
        """Whether this one was begun."""
        return f"{kind} {number}" in self._begun

    def begin(self, kind: str, number: int, event: events.Event) -> None:
        """Pay for an exchange: on disk before this returns.

        Raises
        ------
        BudgetExceeded
            Where it was begun before, or the account has too little left.
        """
        what = f"{kind} {number}"
        on_disk = self._named and self._ledger is not None
        if not on_disk:
            self.stay()
        if what in self._begun or not self._charged(what, event):
            self._begun.add(what)
            raise errors.BudgetExceeded(
                f"{self._where}: {what} of this run must be new, got one that was begun before. "
                "It is paid and, where it was interrupted, lost."
            )
        self._begun.add(what)
        if on_disk and self._ledger is not None and self._account is not None:
            self._look(self._ledger, self._account)  # with what others began meanwhile

    def stay(self) -> None:
        """Refuse a copy of the process that this was made in: it would spend twice."""
        if os.getpid() != self._process:
            raise errors.TacitError(
                f"{self._where}: a copy of a process must not spend what was paid once. "
                "Give the run a ledger and a name, or make another one."
            )

    def _charged(self, what: str, event: events.Event) -> bool:
        """Whether this is the first time."""
        if self._ledger is None or self._account is None:
            return True
        key = f"{self._key}, {what}"
        if self._by_exchange:
            return not self._ledger.charge(self._account, event, key=key).repeated
        if not self._paid:
            self._ledger.charge(self._account, self._plan, key=self._key, delta=self._at)
            self._paid = True
        if not self._named:
            return True
        nothing = events.Declared(PureDP(epsilon=0.0, **events.scope_of(self._plan)))
        return not self._ledger.charge(self._account, nothing, key=key).repeated
