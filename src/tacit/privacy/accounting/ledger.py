r"""Ledger: privacy budgets in accounts that several processes may charge at once.

Charges are chosen adaptively, so an account is a privacy filter. It adds up (ε, δ), which is valid
by Rogers, Roth, Ullman, Vadhan 2016; or ρ, by Whitehouse, Ramdas, Rogers, Wu 2023; or Rényi
divergences at each fixed order, by Feldman, Zrnic 2021, hence a curve that holds at every order.
`tacit.accounting.odometer` states what holds once a budget was raised. Advanced, optimal and PLD
composition need a list fixed beforehand and are not offered here: charge such a list as one event.
The sums and the references are in `tacit.accounting.filters`.

Notes
-----
Sums are exact: a float is read as the shortest decimal that denotes it, so ten charges of 0.1 use
up 1.0 and the eleventh is refused. A charge is on disk before `charge` returns, completely or not
at all, even if a process is killed. A ledger detects totals and entries that disagree; it cannot
detect that someone with write access to the file has changed both consistently.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

from tacit.privacy import canonical, errors, events, guarantees
from tacit.privacy.accounting import filters, odometer
from tacit.privacy.accounting.filters import Amounts, digits
from tacit.privacy.accounting.ledger_file import LedgerFile
from tacit.privacy.guarantees import ApproxDP, Guarantee, Unproven
from tacit.privacy.plain import event_from_plain, guarantee_from_plain, to_plain

T = TypeVar("T")

_ENTRIES = "SELECT key, event, delta, amount, budget, reason, time FROM entries WHERE account = ?"


@dataclass(frozen=True)
class Receipt:
    """A charge: what ran, and what it cost, exactly. `repeated`: its key was charged before."""

    account: str
    key: str
    event: events.Event
    delta: float | None
    amount: Amounts
    time: str
    repeated: bool = False


@dataclass(frozen=True)
class BudgetChange:
    """A budget that was set, and the reason; the first one is the opening."""

    budget: Guarantee
    reason: str
    time: str


@dataclass(frozen=True)
class Account:
    """State of an account: `spent` and `remaining` are exact sums; `guarantee` is what holds."""

    name: str
    budget: Guarantee
    spent: Amounts
    remaining: Amounts
    entries: tuple[Receipt | BudgetChange, ...]

    @property
    def charges(self) -> tuple[Receipt, ...]:
        """Return the entries that are charges, oldest first."""
        return tuple(entry for entry in self.entries if isinstance(entry, Receipt))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all charges together, though each may depend on earlier releases.

        It is the sums of ε, at the δ of the budget; else the budget itself, and `Unproven` if it
        was raised.
        """
        return odometer.guarantee(self.budget, self.spent, self._history)

    def at_delta(self, delta: float) -> Guarantee:
        """Return what holds at a δ chosen without looking at releases; raises are paid for."""
        return odometer.at_delta(self.budget, self.spent, self._history, delta)

    @property
    def event(self) -> events.Event:
        """Event whose natural guarantee is that of the account: all charges, composed.

        A charge is its own event where the event's natural guarantee is what was charged. Otherwise
        (for example a Gaussian that was charged at a δ, or a charge about other neighbours at a
        price) it is `Declared`, with the amount charged, as only sums hold for charges chosen
        adaptively. What remains of a δ, ρ or Rényi budget is `Declared` too, as it counts as spent.

        Raises
        ------
        LedgerError
            Nothing was charged, or the account has no guarantee without a δ.
        """
        charged = [one for one in self.charges if any(one.amount.values())]
        if not charged or isinstance(self.guarantee, Unproven):
            state = "charges" if not charged else "a guarantee without a delta"
            remedy = "Charge it first." if not charged else "Its budget was raised: see at_delta."
            raise errors.LedgerError(
                f"Account.event: account {self.name!r} must have {state}, got none. {remedy}"
            )
        parts = [filters.part_of(one.event, self.budget, one.amount) for one in charged]
        unspent = odometer.unspent(self.budget, self.remaining)
        if any(unspent.values()):
            parts.append(events.Declared(filters.spent_as(self.budget, unspent)))
        return parts[0] if len(parts) == 1 else events.Composed(tuple(parts))

    @property
    def _history(self) -> list[Guarantee | Amounts]:
        return [
            entry.amount if isinstance(entry, Receipt) else entry.budget for entry in self.entries
        ]


class Ledger:
    """Accounts in one SQLite file. A `Ledger` belongs to one thread: open one in each.

    Parameters
    ----------
    path
        The file, created if missing. Its folder must exist, on a local disk.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.privacy.events import Laplace
    >>> from tacit.privacy.guarantees import PureDP
    >>> scope = {"adjacency": "replace-one", "unit": "person"}
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/ledger") as ledger:
    ...     ledger.open("survey", PureDP(epsilon=1.0, **scope))
    ...     receipt = ledger.charge("survey", Laplace(1, 4, **scope), key="question 1")
    ...     print(ledger.show("survey").remaining["epsilon"])
    3/4
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = LedgerFile(path)

    def close(self) -> None:
        """Close the file. Every charge is already on disk."""
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: object) -> Ledger:
        """Return the ledger itself: two copies of a budget would be two budgets."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, account: str, budget: Guarantee) -> None:
        """Open an account with a budget: `PureDP`, `ApproxDP`, `ZCDP` with ξ = 0 or `RenyiDP`.

        Its neighbours decide which events it takes. A zero-out account takes replace-one,
        add-remove and zero-out events at their own price; a replace-one account takes the other two
        at the price of a group of two; an add-remove account takes only add-remove events.
        """
        where = "Ledger.open"
        account = line_of_text(where, "account", account)
        nothing = dict.fromkeys(filters.limits_of(where, budget), Fraction(0))
        with self._file.transaction(where, write=True) as db:
            if db.execute("SELECT 1 FROM accounts WHERE name = ?", (account,)).fetchone():
                raise errors.LedgerError(
                    f"{where}: account must be new, got {account!r}. "
                    "Use raise_budget to change its budget."
                )
            row = (account, _text(budget), _amounts_text(nothing))
            db.execute("INSERT INTO accounts VALUES (?, ?, ?)", row)
            _record_budget(db, account, budget, "opened")

    def charge(
        self,
        account: str,
        event: events.Event,
        *,
        key: str | None = None,
        delta: float | None = None,
    ) -> Receipt:
        """Charge an event before its output is released, or refuse and charge nothing.

        Parameters
        ----------
        account
            The name of the account.
        event
            What is about to run.
        key
            Name of this charge: a retry with the same key, event and δ is charged once. Without a
            key, every call is a new charge.
        delta
            For accounts in (ε, δ): the δ at which to state events that have none of their own,
            such as a Gaussian.

        Raises
        ------
        BudgetExceeded
            The remaining budget is too small.
        InvalidParameter
            The event is not proved private, or needs a δ.
        IncompatibleGuarantees
            The event is about neighbours that do not convert to the account's, or has no statement
            in its notion.
        LedgerError
            There is no such account, or the key was charged for something else.
        """
        where = "Ledger.charge"
        key = uuid.uuid4().hex if key is None else line_of_text(where, "key", key)
        event = _as_stored(where, event)
        delta = None if delta is None else errors.probability(where, "delta", delta) or None
        with self._file.transaction(where, write=False) as db:
            budget, _ = _standing(db, where, account)
        # Accounting may take seconds, so it stays outside the lock. The budget may be raised
        # meanwhile, but its notion, neighbours and orders never change.
        price = filters.price_of(where, event, budget, delta)
        with self._file.transaction(where, write=True) as db:
            if earlier := _earlier(db, where, account, key, event, delta):
                return earlier
            budget, spent = _standing(db, where, account)
            cost = filters.afford(where, account, budget, spent, price)
            receipt = Receipt(account, key, event, delta, cost, _now())
            _record_charge(db, receipt)
            total = _amounts_text({name: spent[name] + cost[name] for name in cost})
            db.execute("UPDATE accounts SET spent = ? WHERE name = ?", (total, account))
        return receipt

    def raise_budget(self, account: str, budget: Guarantee, reason: str) -> None:
        """Set another budget of the same kind, at least what is spent; recorded with a reason.

        The δ of an (ε, δ) account stays as it was opened. A raised ρ or Rényi account has a
        guarantee only at a given δ (`Account.at_delta`), larger than that of the sum.
        """
        where = "Ledger.raise_budget"
        reason, limits = line_of_text(where, "reason", reason), filters.limits_of(where, budget)
        with self._file.transaction(where, write=True) as db:
            old, spent = _standing(db, where, account)
            guarantees.same_scope(where, [old, budget])
            if type(old) is not type(budget) or spent.keys() != limits.keys():
                raise errors.IncompatibleGuarantees(
                    f"{where}: budget must be of the kind (and orders) of {old}, got {budget}. "
                    "Open another account for another notion."
                )
            if isinstance(old, ApproxDP) and isinstance(budget, ApproxDP):
                _same_delta(where, old.delta, budget.delta)
            for name, limit in limits.items():
                if limit < spent[name]:
                    least = f"at least {digits(spent[name])}, which is spent"
                    errors.refuse(where, name, least, float(limit))
            db.execute("UPDATE accounts SET budget = ? WHERE name = ?", (_text(budget), account))
            _record_budget(db, account, budget, reason)

    def show(self, account: str) -> Account:
        """Return the account and its entries; raise `LedgerError` if they disagree."""
        where = "Ledger.show"
        with self._file.transaction(where, write=False) as db:
            budget, spent = _standing(db, where, account)
            rows = db.execute(f"{_ENTRIES} ORDER BY number", (account,)).fetchall()
        entries = tuple(_entry(where, account, row) for row in rows)
        limits = filters.limits_of(where, budget)
        remaining = {name: limits[name] - spent[name] for name in limits}
        state = Account(account, budget, spent, remaining, entries)
        _check_history(where, state)
        return state

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        with self._file.transaction("Ledger.accounts", write=False) as db:
            return [name for (name,) in db.execute("SELECT name FROM accounts ORDER BY name")]


LedgerLike = Ledger | str | os.PathLike[str]
"""A ledger, or the path of its file."""


def pay(
    where: str,
    ledger: LedgerLike | None,
    account: str | None,
    event: events.Event,
    *,
    key: str | None = None,
    delta: float | None = None,
    again: bool = False,
) -> None:
    """Charge an account before something is drawn, if a ledger, or the path of one, is given.

    With `again` a key that was charged before is accepted, and not charged a second time: for
    callers who know by themselves that nothing is drawn twice.

    Raises
    ------
    InvalidParameter
        For a ledger without an account, or an account without a ledger.
    LedgerError
        For a key that was charged before: what it paid for was drawn then.
    """
    if (ledger is None) != (account is None):
        given = "account" if ledger is None else "ledger"
        remedy = "Pass the ledger too: a pickle does not contain it." if ledger is None else ""
        errors.refuse(where, "ledger and account", "given together", given, remedy)
    if ledger is None or account is None:
        return
    if isinstance(ledger, str | os.PathLike):
        if not os.path.isfile(ledger):
            remedy = "Open an account in it first."
            errors.refuse(where, "ledger", "an existing file", str(ledger), remedy)
        with Ledger(ledger) as opened:
            return pay(where, opened, account, event, key=key, delta=delta, again=again)
    if not isinstance(ledger, Ledger):
        remedy = "Open it with Ledger(path)."
        errors.refuse(where, "ledger", "a Ledger or its path", type(ledger).__name__, remedy)
    if ledger.charge(account, event, key=key, delta=delta).repeated and not again:
        # A key is for sending the same bytes again; here everything would be drawn again.
        raise errors.LedgerError(
            f"{where}: key must be new, got {key!r}. It was charged before, and what it paid for "
            "was drawn then. Use that, or another key."
        )


def _standing(db: sqlite3.Connection, where: str, account: str) -> tuple[Guarantee, Amounts]:
    """Return budget and running total of an account."""
    query = "SELECT budget, spent FROM accounts WHERE name = ?"
    row = db.execute(query, (line_of_text(where, "account", account),)).fetchone()
    if row is None:
        raise errors.LedgerError(
            f"{where}: account must exist, got {account!r}. Open it with a budget first."
        )
    budget = _read(where, account, guarantee_from_plain, row[0])
    spent = _read(where, account, _amounts, row[1])
    if spent.keys() != filters.limits_of(where, budget).keys():
        _tampered(where, account, "a total in the notion of its budget", row[1])
    return budget, spent


def _earlier(
    db: sqlite3.Connection,
    where: str,
    account: str,
    key: str,
    event: events.Event,
    delta: float | None,
) -> Receipt | None:
    """Return the receipt of this key if it was charged before, for the same event and δ."""
    row = db.execute(f"{_ENTRIES} AND key = ?", (account, key)).fetchone()
    if row is None:
        return None
    entry = _entry(where, account, row)
    if not isinstance(entry, Receipt) or (entry.event, entry.delta) != (event, delta):
        raise errors.LedgerError(
            f"{where}: key must be new or repeat its own event and delta, got {key!r}. "
            "Nothing was charged; choose another key for another event."
        )
    return replace(entry, repeated=True)


def _record_charge(db: sqlite3.Connection, receipt: Receipt) -> None:
    delta = None if receipt.delta is None else repr(receipt.delta)
    row = (receipt.account, receipt.key, _text(receipt.event), delta)
    db.execute(
        "INSERT INTO entries (account, key, event, delta, amount, time) VALUES (?, ?, ?, ?, ?, ?)",
        (*row, _amounts_text(receipt.amount), receipt.time),
    )


def _record_budget(db: sqlite3.Connection, account: str, budget: Guarantee, reason: str) -> None:
    db.execute(
        "INSERT INTO entries (account, key, budget, reason, time) VALUES (?, ?, ?, ?, ?)",
        (account, uuid.uuid4().hex, _text(budget), reason, _now()),
    )


def _entry(where: str, account: str, row: tuple[Any, ...]) -> Receipt | BudgetChange:
    key, event, delta, amount, budget, reason, time = row
    if budget is not None:
        return BudgetChange(_read(where, account, guarantee_from_plain, budget), reason, time)
    return Receipt(
        account,
        key,
        _read(where, account, event_from_plain, event),
        None if delta is None else _read(where, account, float, delta),
        _read(where, account, _amounts, amount),
        time,
    )


def _check_history(where: str, account: Account) -> None:
    for name, total in account.spent.items():
        charged = sum(
            (charge.amount.get(name, Fraction(0)) for charge in account.charges), Fraction(0)
        )
        if charged != total:
            promise = f"spent what its charges add up to ({name} {digits(charged)})"
            _tampered(where, account.name, promise, digits(total))
        if account.remaining[name] < 0:
            _tampered(where, account.name, f"spent no more {name} than its budget", digits(total))
    budgets = [entry.budget for entry in account.entries if isinstance(entry, BudgetChange)]
    if budgets[-1:] != [account.budget]:
        _tampered(where, account.name, "the budget that was last recorded", str(account.budget))


def _same_delta(where: str, opened: float, wanted: float) -> None:
    if wanted != opened:
        remedy = "What holds whenever one stops is proved for a delta fixed beforehand only."
        errors.refuse(where, "delta", f"{opened!r}, as the account was opened", wanted, remedy)


def _tampered(where: str, account: str, promise: str, found: str) -> NoReturn:
    raise errors.LedgerError(
        f"{where}: account {account!r} must have {promise}, got {found}. "
        "Something else has changed the file: restore a copy."
    )


def _read(where: str, account: str, parse: Callable[[Any], T], text: Any) -> T:
    try:
        return parse(json.loads(text))
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        _tampered(where, account, "entries as they were written", repr(text)[:80])


def _as_stored(where: str, event: events.Event) -> events.Event:
    """Return the event as it reads back from its text, so that the record is what is charged."""
    if not isinstance(event, events.Event):
        remedy = "Did you mean mechanism.event?"
        errors.refuse(
            where, "event", "an event of tacit.privacy.events", type(event).__name__, remedy
        )
    try:
        return event_from_plain(json.loads(_text(event)))
    except (TypeError, AttributeError):
        remedy = "Build it from plain numbers and tuples."
        errors.refuse(where, "event", "writable as JSON", type(event).__name__, remedy)


def _text(value: events.Event | Guarantee) -> str:
    return canonical.text(to_plain(value))


def _amounts_text(amounts: Amounts) -> str:
    return json.dumps({name: str(amount) for name, amount in amounts.items()})


def _amounts(data: Any) -> Amounts:
    return {name: Fraction(amount) for name, amount in data.items()}


def line_of_text(where: str, name: str, text: Any) -> str:
    """Check a name, key or reason: one printable line."""
    if not (isinstance(text, str) and text.strip() and text.isprintable()):
        errors.refuse(where, name, "a nonempty line of text", text)
    return text


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
