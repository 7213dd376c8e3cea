"""The budget of a curator, in memory or in a ledger account; charged before anything is read.

Both are privacy filters (`tacit.accounting.filters`): queries may be chosen after seeing earlier
answers.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tacit.privacy import errors, events
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.filters import Amounts
from tacit.privacy.accounting.ledger import Ledger, LedgerLike
from tacit.privacy.guarantees import ZCDP, Adjacency, ApproxDP, Guarantee, PureDP, Unit

_WHERE = "Curator"


def budget_of(budget: Any, unit: str | None) -> Guarantee:
    """Check a budget; a number is an ε for add-remove neighbours (one row, or one person)."""
    kind = Unit.RECORD if unit is None else Unit.PERSON
    if not isinstance(budget, Guarantee):
        epsilon = errors.epsilon_in_range(_WHERE, budget, name="budget")
        return PureDP(epsilon=float(epsilon), adjacency=Adjacency.ADD_REMOVE, unit=kind)
    if not isinstance(budget, PureDP | ApproxDP | ZCDP):
        errors.refuse(_WHERE, "budget", "a number, PureDP, ApproxDP or ZCDP", str(budget))
    if budget.adjacency.model != "central":
        words = "add-remove, zero-out or replace-one"
        errors.refuse(_WHERE, "adjacency", words, str(budget.adjacency))
    if (budget.unit is Unit.RECORD) != (unit is None) or budget.unit is Unit.LABEL:
        remedy = "It is record without a unit column, and person or client with one"
        if unit is None and budget.unit is not Unit.LABEL:
            remedy += ": pass unit=COLUMN"
        remedy += "."
        errors.refuse(_WHERE, "unit of the budget", "that of the table", str(budget.unit), remedy)
    filters.limits_of(_WHERE, budget)
    return budget


def with_neighbours_of(budget: Guarantee, ledger: LedgerLike | None, account: str) -> Guarantee:
    """Return a budget that names no neighbours of its own with those of an existing account."""
    if isinstance(ledger, str | os.PathLike):
        if not os.path.isfile(ledger):
            return budget
        with Ledger(ledger) as opened:
            return with_neighbours_of(budget, opened, account)
    if not isinstance(ledger, Ledger) or account not in ledger.accounts():
        return budget
    adjacency = ledger.show(account).budget.adjacency
    return replace(budget, adjacency=adjacency) if adjacency.model == "central" else budget


class QueryBudget:
    """The remaining budget, and the one way to spend it."""

    def __init__(
        self,
        budget: Guarantee,
        ledger: LedgerLike | None,
        account: str,
    ) -> None:
        self.budget, self.account = budget, account
        self._owned = ledger is not None and not isinstance(ledger, Ledger)
        self._ledger = Ledger(ledger) if self._owned else ledger  # type: ignore[arg-type]
        self._spent: Amounts = dict.fromkeys(filters.limits_of(_WHERE, budget), Fraction(0))
        if isinstance(self._ledger, Ledger):
            self._open(self._ledger)

    def _open(self, ledger: Ledger) -> None:
        if self.account not in ledger.accounts():
            ledger.open(self.account, self.budget)
        budget = ledger.show(self.account).budget
        if budget != self.budget:
            errors.refuse(
                _WHERE,
                "budget",
                f"that of account {self.account!r}, {budget}",
                str(self.budget),
                "Pass that budget (Ledger.show(account).budget), or another account.",
            )

    @property
    def remaining(self) -> Amounts:
        """The remaining budget, exactly."""
        if isinstance(self._ledger, Ledger):
            return self._ledger.show(self.account).remaining
        limits = filters.limits_of(_WHERE, self.budget)
        return {name: limits[name] - self._spent[name] for name in limits}

    def afford(self, event: events.Event) -> tuple[Guarantee, Amounts]:
        """Return the price of an event and what would remain; raise if too little remains."""
        price = filters.price_of(_WHERE, event, self.budget)
        remaining = self.remaining
        limits = filters.limits_of(_WHERE, self.budget)
        spent = {name: limits[name] - remaining[name] for name in limits}
        cost = filters.afford(_WHERE, self.account, self.budget, spent, price)
        return price, {name: remaining[name] - cost[name] for name in remaining}

    def charge(self, event: events.Event) -> Amounts:
        """Charge for an event and return what remains, or refuse and charge nothing."""
        _, remaining = self.afford(event)
        if isinstance(self._ledger, Ledger):
            self._ledger.charge(self.account, event)
            return self.remaining
        limits = filters.limits_of(_WHERE, self.budget)
        self._spent = {name: limits[name] - remaining[name] for name in limits}
        return remaining

    def close(self) -> None:
        if self._owned and isinstance(self._ledger, Ledger):
            self._ledger.close()


def shown(remaining: Amounts) -> dict[str, float]:
    """Convert remaining amounts to floats that are not above them."""
    return {name: _float_below(amount) for name, amount in remaining.items()}


def _float_below(amount: Fraction) -> float:
    nearest = float(amount)
    if Fraction(repr(nearest)) <= amount:
        return nearest
    return math.nextafter(nearest, -math.inf)
