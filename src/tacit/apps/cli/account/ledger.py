"""`tacit account ledger`: a budget that refuses what would overdraw it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.console import must_exist, print_json, print_table, print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command, group
from tacit.apps.cli.options import PRIVACY, AsJson, Key
from tacit.privacy import decimals as digits
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.privacy.accounting.ledger import Account, BudgetChange, Receipt

app = group(
    "Keep a budget: open accounts, charge them, raise, show and certify their budgets.",
    "tacit account ledger open budget.sqlite patients --epsilon 1 --adjacency zero-out",
)
LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file; `open` makes it.")]
AccountName = Annotated[str, typer.Argument(help="The account, such as a data set.")]
BudgetEpsilon = Annotated[float | None, typer.Option(help="Budget: sum of ε.")]
BudgetDelta = Annotated[float, typer.Option(help="Budget: sum of δ.")]
BudgetRho = Annotated[
    float | None, typer.Option(help="Budget: sum of ρ (zCDP), instead of --epsilon.")
]
BudgetOrder = Annotated[
    float | None, typer.Option(help="With --epsilon: a Rényi budget at this order instead.")
]


@command(
    app,
    "Commands",
    "tacit account ledger open budget.sqlite patients --epsilon 1 --adjacency zero-out "
    "--unit person",
    name="open",
)
def ledger_open(
    path: LedgerPath,
    name: AccountName,
    adjacency: Annotated[
        str,
        typer.Option(
            help="Neighbours: zero-out (accepts every central charge at its own price), "
            "replace-one (accepts the others at the price of two), add-remove or any-two-inputs "
            "(accept only their own)."
        ),
    ],
    unit: Annotated[str, typer.Option(help="Unit: record, label, person or client.")] = "record",
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = 0.0,
    rho: BudgetRho = None,
    order: BudgetOrder = None,
    as_json: AsJson = False,
) -> None:
    """Open an account with a budget."""
    from tacit.privacy.accounting.ledger import Ledger, line_of_text

    budget = _budget(epsilon, delta, rho, order, {"adjacency": adjacency, "unit": unit})
    line_of_text("ledger open", "account", name)  # before the file is made
    with Ledger(path) as ledger:
        ledger.open(name, budget)
    print_values({"account": name, "budget": str(budget)}, as_json, "Opened")


@command(
    app,
    "Commands",
    "tacit account ledger charge budget.sqlite patients --epsilon 0.5 --key query-17",
    name="charge",
)
def ledger_charge(
    path: LedgerPath,
    name: AccountName,
    epsilon: Annotated[float | None, typer.Option(help="ε to charge.")] = None,
    delta: Annotated[float, typer.Option(help="δ to charge, or at which to state it.")] = 0.0,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="Charge the events of this certificate, instead of --epsilon.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Charge an account, unless that would overdraw it.

    If it would, nothing is charged and the exit code is 1.
    """
    from tacit.privacy import events
    from tacit.privacy.accounting import filters
    from tacit.privacy.accounting.ledger import Ledger
    from tacit.privacy.certificate import Certificate

    must_exist(path, certificate)
    with Ledger(path) as ledger:
        scope = ledger.show(name).budget.scope
        if (epsilon is None) == (certificate is None):
            given = "neither" if epsilon is None else "both"
            errors.refuse("charge", "exactly one of --epsilon, --certificate", "given", given)
        event: events.Event
        if certificate is not None:
            event = Certificate.load(certificate).event
        else:
            event = events.Declared(_budget(epsilon, delta, None, None, scope))
        receipt = ledger.charge(name, event, key=key, delta=delta or None)
        state = ledger.show(name)
    result = {"account": name, "key": receipt.key, "repeated": receipt.repeated}
    stated = {"spent": filters.shown(state.spent), "guarantee": str(state.guarantee)}
    print_values(result | stated, as_json, "Charged")


@command(
    app,
    "Commands",
    'tacit account ledger raise budget.sqlite patients --epsilon 2 --reason "board, 12 May"',
    name="raise",
)
def ledger_raise(
    path: LedgerPath,
    name: AccountName,
    reason: Annotated[str, typer.Option(help="Reason for the change; kept in the ledger.")],
    epsilon: BudgetEpsilon = None,
    delta: Annotated[
        float | None,
        typer.Option(help="δ of the account, which cannot change.", show_default="unchanged"),
    ] = None,
    rho: BudgetRho = None,
    order: BudgetOrder = None,
    as_json: AsJson = False,
) -> None:
    """Set another budget, and record why.

    The δ stays as the account was opened. A ρ or Rényi account that was raised has a guarantee only
    at a given δ.
    """
    from tacit.privacy.accounting.ledger import Ledger

    must_exist(path)
    with Ledger(path) as ledger:
        old = ledger.show(name).budget
        _given_as(old, epsilon, rho, order)
        if delta is None:
            delta = getattr(old, "delta", 0.0)
        budget = _budget(epsilon, delta, rho, order, old.scope)
        ledger.raise_budget(name, budget, reason)
    print_values({"account": name, "budget": str(budget), "reason": reason}, as_json, "Budget set")


@command(
    app,
    "Commands",
    "tacit account ledger show budget.sqlite patients --entries --delta 1e-6",
    name="show",
)
def ledger_show(
    path: LedgerPath,
    name: Annotated[
        str | None, typer.Argument(help="The account.", show_default="all accounts")
    ] = None,
    entries: Annotated[
        bool, typer.Option("--entries", help="List every charge and every budget.")
    ] = False,
    delta: Annotated[
        float | None,
        typer.Option(help="State the guarantee at this δ, which must be fixed beforehand."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show budgets, and how much of them is spent and remaining.

    A mark is a charge of nothing: a federation leaves one for each exchange of a run that was paid
    for as a whole. A ρ or Rényi account that was raised has a guarantee only at a δ: give --delta.
    """
    from tacit.privacy.accounting.ledger import Ledger

    must_exist(path)
    with Ledger(path) as ledger:
        accounts = [ledger.show(one) for one in ([name] if name else ledger.accounts())]
    summary = [_summary(one, delta) for one in accounts]
    if as_json:
        listed = [
            {"entries": [_entry(e) for e in one.entries]} if entries else {} for one in accounts
        ]
        return print_json({"accounts": [a | b for a, b in zip(summary, listed, strict=True)]})
    if not accounts:
        print("No account yet: open one with tacit account ledger open.")
    for one, values in zip(accounts, summary, strict=True):
        print_values(values, False, "Ledger")
        if entries:
            _print_entries(one)


@command(
    app,
    "Commands",
    "tacit account ledger certificate budget.sqlite patients --out patients.certificate.json",
    name="certificate",
)
def ledger_certificate(
    path: LedgerPath,
    name: AccountName,
    out: Annotated[Path, typer.Option(help="File for the certificate.")],
    as_json: AsJson = False,
) -> None:
    """Certify everything that was charged to an account, by whichever process or command."""
    from tacit.privacy.accounting.ledger import Ledger
    from tacit.privacy.certificate import Certificate

    must_exist(path)
    must_be_new(out)
    with Ledger(path) as ledger:
        certificate = Certificate.of_account(ledger.show(name))
    certificate.save(out)
    values = {"account": name, "guarantee": str(certificate.guarantee), "certificate": str(out)}
    print_values(values, as_json, "Certified")


def _summary(account: Account, delta: float | None) -> dict[str, Any]:
    from tacit.privacy.accounting import filters

    priced = sum(any(one.amount.values()) for one in account.charges)
    return {
        "account": account.name,
        "budget": str(account.budget),
        "spent": filters.shown(account.spent),
        "remaining": filters.shown(account.remaining, digits.below),
        "guarantee": str(account.guarantee if delta is None else account.at_delta(delta)),
        "charges": priced,
        "marks": len(account.charges) - priced,
    }


def _entry(entry: Receipt | BudgetChange) -> dict[str, Any]:
    """Write a charge exactly, or a budget with its reason."""
    from tacit.privacy.accounting.ledger import BudgetChange

    if isinstance(entry, BudgetChange):
        return {"time": entry.time, "budget": str(entry.budget), "reason": entry.reason}
    amount = {name: str(value) for name, value in entry.amount.items()}
    return {"time": entry.time, "key": entry.key, "amount": amount}


def _print_entries(account: Account) -> None:
    from tacit.privacy.accounting import filters
    from tacit.privacy.accounting.ledger import BudgetChange

    rows = []
    for entry in account.entries:
        if isinstance(entry, BudgetChange):
            rows.append((entry.time[:19], f"budget: {entry.reason}", str(entry.budget)))
            continue
        cost = filters.shown(entry.amount)
        rows.append((entry.time[:19], entry.key, "nothing (a mark)" if cost == "nothing" else cost))
    print_table(f"Entries of {account.name}", ("time (UTC)", "key", "amount"), rows)


def _given_as(budget: Any, epsilon: float | None, rho: float | None, order: float | None) -> None:
    """Refuse a budget in another notion than the account's, and name the options to use."""
    from tacit.privacy.guarantees import ZCDP, RenyiDP

    if isinstance(budget, RenyiDP):
        fits, options = order is not None, "--epsilon and --order"
    elif isinstance(budget, ZCDP):
        fits, options = rho is not None, "--rho"
    else:
        fits, options = epsilon is not None and order is None, "--epsilon"
    if not fits:
        given = [("--epsilon", epsilon), ("--rho", rho), ("--order", order)]
        names = ", ".join(name for name, value in given if value is not None) or "nothing"
        condition = f"given by {options}, as the account is {budget}"
        errors.refuse("ledger raise", "budget", condition, names)


def _budget(
    epsilon: float | None,
    delta: float,
    rho: float | None,
    order: float | None,
    scope: dict[str, Any],
) -> Any:
    from tacit.privacy.guarantees import ZCDP, ApproxDP, PureDP, RenyiDP

    if (epsilon is None) == (rho is None):
        errors.refuse("budget", "exactly one of --epsilon, --rho", "given", (epsilon, rho))
    if delta and (rho is not None or order is not None):
        errors.refuse("budget", "--delta", "left out of a ρ or Rényi budget", delta)
    if rho is not None:
        if order is not None:
            errors.refuse("budget", "--order", "left out of a ρ budget", order)
        return ZCDP(0.0, rho, **scope)
    assert epsilon is not None
    if order is not None:
        return RenyiDP((order,), (epsilon,), **scope)
    return ApproxDP(epsilon, delta, **scope) if delta else PureDP(epsilon, **scope)
