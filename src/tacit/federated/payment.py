"""Payment for the exchanges of a federation: the ledger is charged before anything is computed.

Theorem. Whichever process is killed at whatever time, everything that was computed in a run is in
its ledger, and nothing is computed twice on one payment.

Proof. `begin` writes, then returns; only then is anything computed. A Rényi account is charged for
every exchange under its own key. Other accounts cannot add up single exchanges without loss, so
they are charged for the whole plan under the key of the run, before the first exchange; each
exchange then leaves a mark, a charge of zero under its own key. The ledger accepts a key once, in
one transaction: a second attempt, in this process or another, is recognized and refused. So every
exchange of the plan is computed at most once, and the plan is paid.

Notes
-----
A run without a name has a random key: nobody else can begin under it, so its marks stay in memory.
An exchange that was begun and then killed is paid and lost: computing it again would be a second
release, on fresh samples and noise, for one payment.
"""

from __future__ import annotations

import os
import uuid

from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger, line_of_text
from tacit.privacy.guarantees import ApproxDP, PureDP, RenyiDP


class Payment:
    """Payment for the exchanges of one run, each once.

    Parameters
    ----------
    where : str
        Name that errors begin with.
    plan : Event
        Everything that may run, fixed beforehand.
    delta : float
        δ at which accounts in (ε, δ) state the cost.
    ledger, account : Ledger, str, optional
        The account that is charged. Without them exchanges are remembered only in this process.
    run : str, optional
        Name of the run, with which another process can continue it.
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
            alone = account if ledger is None else "a ledger alone"
            errors.refuse(where, "ledger and account", "given together", alone)
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
        """Read the account's privacy notion, and which exchanges of this run it was charged for."""
        statement = ledger.show(account)
        self._by_exchange = isinstance(statement.budget, RenyiDP)
        self._at = self._delta if isinstance(statement.budget, PureDP | ApproxDP) else None
        start = f"{self._key}, "
        keys = [one.key for one in statement.charges if one.key.startswith(start)]
        self._begun = {key.removeprefix(start) for key in keys}

    @property
    def charges(self) -> bool:
        """Whether a ledger is charged."""
        return self._ledger is not None

    def begun(self, kind: str) -> int:
        """Count the exchanges of a kind, such as "round", that any process has begun."""
        return sum(what.startswith(f"{kind} ") for what in self._begun)

    def has(self, kind: str, number: int) -> bool:
        """Return whether this exchange was begun."""
        return f"{kind} {number}" in self._begun

    def begin(self, kind: str, number: int, event: events.Event) -> None:
        """Pay for an exchange; the charge is on disk before this returns.

        Raises
        ------
        BudgetExceeded
            If it was begun before, or the account has too little remaining.
        """
        what = f"{kind} {number}"
        on_disk = self._named and self._ledger is not None
        if not on_disk:
            self.stay()
        if what in self._begun or not self._charged(what, event):
            self._begun.add(what)
            raise errors.BudgetExceeded(
                f"{self._where}: {what} of this run must be new, got one that was begun before. "
                "It is paid and, if it was interrupted, lost."
            )
        self._begun.add(what)
        if on_disk and self._ledger is not None and self._account is not None:
            self._look(self._ledger, self._account)  # with what others began meanwhile

    def stay(self) -> None:
        """Refuse to run in a fork of the process that created this: it would spend twice."""
        if os.getpid() != self._process:
            raise errors.TacitError(
                f"{self._where}: a copy of a process must not spend what was paid once. "
                "Give the run a ledger and a name, or make another one."
            )

    def _charged(self, what: str, event: events.Event) -> bool:
        """Charge the ledger; return whether this exchange is new."""
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
