r"""Device ledger: one budget for all that a person's device sends, to whomever it is sent.

What a person sends to several servers may depend on what they sent before: a server can choose its
question after seeing answers to another. A budget for each server bounds each server's view and not
the sum; one budget over all of them is a privacy filter, and holds for all together, however the
questions were chosen [RRUV16]_:

.. math:: \sum_i \varepsilon_i \le \varepsilon, \qquad \sum_i \delta_i \le \delta .

A price is that of the mechanism, for any answer: it never depends on the answer that was given.

References
----------
.. [RRUV16] Rogers, Roth, Ullman, Vadhan. Privacy odometers and filters: pay-as-you-go composition.
   NeurIPS 2016.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.privacy import decimals, errors, events
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.ledger import Account, Ledger, Receipt
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP, Unit

WHERE = "DeviceLedger"
DEFAULT_BUDGET = 8.0
"""ε of a person whose budget was not set: four reports at ε = 2."""

LARGEST_DELTA = 1e-4
"""Sum of all δ."""

_ACCOUNT = "this person"
_SCOPE: dict[str, Any] = {"adjacency": Adjacency.ANY_TWO_INPUTS, "unit": Unit.PERSON}


@dataclass(frozen=True)
class Balance:
    """State of a device's account, in exact sums of ε."""

    budget: Fraction
    spent: Fraction
    charges: int

    @property
    def remaining(self) -> Fraction:
        return self.budget - self.spent

    def __str__(self) -> str:
        answers = "1 answer" if self.charges == 1 else f"{self.charges} answers"
        return (
            f"ε {decimals.above(self.spent)} of {decimals.below(self.budget)} is used, by "
            f"{answers}; {decimals.below(self.remaining)} is left"
        )


class DeviceLedger:
    """The privacy budget of one person, over all servers and campaigns, in an SQLite file.

    Parameters
    ----------
    path
        The file, created if missing. Its folder must exist, on a local disk.
    budget : float, optional
        The largest sum of ε. The file keeps it: by default it stays as it was set, and is 8 in a
        new file. It may be raised, and lowered down to what is spent; each change is recorded.

    Notes
    -----
    Everything that was charged is (ε, δ)-DP together for any two inputs of the person, with the
    sums of ε and δ, though each question may depend on earlier answers. That holds for what is
    charged here: one file per person, on one device, which is not set back to an older copy. Sums
    are exact, and a charge is on disk before `charge` returns; several threads and processes may
    charge at once.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> report = PureDP(epsilon=2, adjacency="any-two-inputs", unit="person")
    >>> with TemporaryDirectory() as folder:
    ...     ledger = DeviceLedger(f"{folder}/ledger.sqlite", budget=5)
    ...     charged = [ledger.charge(report, key=key) for key in ("one", "two", "one")]
    ...     print(ledger.balance())
    ε 4 of 5 is used, by 2 answers; 1 is left
    """

    def __init__(self, path: str | os.PathLike[str], budget: float | None = None) -> None:
        self.path = path
        wanted = None if budget is None else _budget(budget)
        with Ledger(path) as ledger:
            if _ACCOUNT not in ledger.accounts():
                _open(ledger, wanted or _budget(DEFAULT_BUDGET))
            opened = ledger.show(_ACCOUNT).budget
            if opened.scope != _SCOPE or not isinstance(opened, ApproxDP):
                remedy = "It was made by something else."
                errors.refuse(WHERE, "path", "a device ledger", str(path), remedy)
            if wanted is not None and opened != wanted:
                _must_hold_spent(ledger, wanted)
                ledger.raise_budget(_ACCOUNT, wanted, "set by the person")

    def charge(self, price: Guarantee, *, key: str) -> bool:
        """Charge before anything is drawn, or refuse and charge nothing.

        Parameters
        ----------
        price : PureDP or ApproxDP
            Local guarantee of the mechanism that is about to run.
        key : str
            Name of what is about to be drawn, with the hash of its mechanism. The same key and
            price again is not charged again: it is for the same draw, never for a new one.

        Returns
        -------
        bool
            Whether this call charged it; False if it was charged before.

        Raises
        ------
        BudgetExceeded
            More than what is left.
        """
        event = events.Declared(_of_person(price))
        try:
            with Ledger(self.path) as ledger:
                return not ledger.charge(_ACCOUNT, event, key=key).repeated
        except errors.BudgetExceeded:
            self._refuse(price)
            raise

    def must_afford(self, price: Guarantee) -> None:
        """Refuse a price above what is left, and charge nothing."""
        stated, account = _of_person(price), self._account()
        try:
            filters.afford(WHERE, _ACCOUNT, account.budget, account.spent, stated)
        except errors.BudgetExceeded:
            self._refuse(price)
            raise

    def balance(self) -> Balance:
        """Return budget, sum and number of charges."""
        account = self._account()
        budget = account.spent["epsilon"] + account.remaining["epsilon"]
        return Balance(budget, account.spent["epsilon"], len(account.charges))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all that was charged, towards everybody together."""
        return self._account().guarantee

    def entries(self) -> list[dict[str, str]]:
        """List charges and budgets, oldest first, as text."""
        return [
            {"time": one.time, "key": one.key, "epsilon": filters.digits(one.amount["epsilon"])}
            if isinstance(one, Receipt)
            else {"time": one.time, "budget": str(one.budget), "reason": one.reason}
            for one in self._account().entries
        ]

    def __repr__(self) -> str:
        """Show the balance."""
        return f"DeviceLedger: {self.balance()}"

    def _account(self) -> Account:
        with Ledger(self.path) as ledger:
            return ledger.show(_ACCOUNT)

    def _refuse(self, price: Guarantee) -> None:
        """Say in one line that the budget is too small, if that is about ε."""
        balance, epsilon = self.balance(), getattr(price, "epsilon", 0.0)
        if errors.rational(WHERE, "epsilon", epsilon) > balance.remaining:
            raise errors.BudgetExceeded(
                f"{WHERE}: epsilon must be at most {decimals.below(balance.remaining)}, what is "
                f"left of this person's budget of {decimals.below(balance.budget)}, got "
                f"{epsilon!r}. Nothing was drawn."
            ) from None


def _budget(epsilon: float) -> ApproxDP:
    value = float(errors.positive(WHERE, "budget", epsilon))
    return ApproxDP(epsilon=value, delta=LARGEST_DELTA, **_SCOPE)


def _must_hold_spent(ledger: Ledger, budget: ApproxDP) -> None:
    """Refuse a budget below what is spent in this ledger's own words."""
    spent = ledger.show(_ACCOUNT).spent["epsilon"]
    if errors.rational(WHERE, "budget", budget.epsilon) < spent:
        least = f"at least {decimals.above(spent)}, which is spent"
        errors.refuse(WHERE, "budget", least, budget.epsilon)


def _open(ledger: Ledger, budget: ApproxDP) -> None:
    try:
        ledger.open(_ACCOUNT, budget)
    except errors.LedgerError:
        if _ACCOUNT not in ledger.accounts():  # else another process was first
            raise


def _of_person(price: Guarantee) -> PureDP | ApproxDP:
    """Restate a local guarantee for everything that a person has: a report is about one part."""
    if not isinstance(price, PureDP | ApproxDP):
        errors.refuse(WHERE, "price", "a guarantee in ε, or ε and δ", str(price))
    if price.adjacency is not Adjacency.ANY_TWO_INPUTS:
        errors.refuse(WHERE, "price", "a local guarantee, for any two inputs", str(price))
    if isinstance(price, ApproxDP):
        return ApproxDP(epsilon=price.epsilon, delta=price.delta, **_SCOPE)
    return PureDP(epsilon=price.epsilon, **_SCOPE)
