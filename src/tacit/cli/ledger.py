"""`tacit ledger`: a budget that refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit import errors
from tacit.cli.console import AsJson, must_exist, print_json, print_table, print_values

app = typer.Typer(
    help="A budget that refuses: accounts, charges, refusals.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file; `open` makes it.")]
AccountName = Annotated[str, typer.Argument(help="The account: a person or a data set.")]
BudgetEpsilon = Annotated[float | None, typer.Option(help="Budget: sum of ε.")]
BudgetDelta = Annotated[float, typer.Option(help="Budget: sum of δ.")]
BudgetRho = Annotated[float | None, typer.Option(help="Budget: sum of ρ (zCDP) instead.")]
BudgetOrder = Annotated[
    float | None, typer.Option(help="With --epsilon: a Rényi budget at this order instead.")
]


@app.command("open")
def ledger_open(
    path: LedgerPath,
    name: AccountName,
    adjacency: Annotated[str, typer.Option(help="replace-one, add-remove or any-two-inputs.")],
    unit: Annotated[str, typer.Option(help="record, label, person or client.")] = "record",
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = 0.0,
    rho: BudgetRho = None,
    order: BudgetOrder = None,
    as_json: AsJson = False,
) -> None:
    """Open an account with a budget.

    Example: tacit ledger open budget.sqlite patients --epsilon 1 --adjacency replace-one
    --unit person
    """
    from tacit.accounting.ledger import Ledger, line_of_text

    budget = _budget(epsilon, delta, rho, order, {"adjacency": adjacency, "unit": unit})
    line_of_text("ledger open", "account", name)  # before the file is made
    with Ledger(path) as ledger:
        ledger.open(name, budget)
    print_values({"account": name, "budget": str(budget)}, as_json, "Opened")


@app.command("charge")
def ledger_charge(
    path: LedgerPath,
    name: AccountName,
    epsilon: Annotated[float | None, typer.Option(help="Charge this ε (and δ) …")] = None,
    delta: Annotated[float, typer.Option(help="δ of the charge, or at which it is stated.")] = 0.0,
    certificate: Annotated[
        Path | None, typer.Option(help="… or the events of this certificate.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The same key is charged only once.")] = None,
    as_json: AsJson = False,
) -> None:
    """Charge an account; exit code 1 and nothing charged if that would overdraw it.

    Example: tacit ledger charge budget.sqlite patients --epsilon 0.5 --key query-17
    """
    from tacit import events
    from tacit.accounting.ledger import Ledger
    from tacit.certificate import Certificate

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
        left = ledger.show(name)
    result = {"account": name, "key": receipt.key, "repeated": receipt.repeated}
    print_values(result | {"spent": str(left.spent)}, as_json, "Charged")


@app.command("raise")
def ledger_raise(
    path: LedgerPath,
    name: AccountName,
    reason: Annotated[str, typer.Option(help="Why; kept on record.")],
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = 0.0,
    rho: BudgetRho = None,
    order: BudgetOrder = None,
    as_json: AsJson = False,
) -> None:
    """Set a larger budget: the only way to refill an account, and always on record.

    Example: tacit ledger raise budget.sqlite patients --epsilon 2 --reason "board, 12 May"
    """
    from tacit.accounting.ledger import Ledger

    must_exist(path)
    with Ledger(path) as ledger:
        budget = _budget(epsilon, delta, rho, order, ledger.show(name).budget.scope)
        ledger.raise_budget(name, budget, reason)
    print_values({"account": name, "budget": str(budget), "reason": reason}, as_json, "Raised")


@app.command("show")
def ledger_show(
    path: LedgerPath,
    name: Annotated[str | None, typer.Argument(help="The account; all if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was charged and what is left.

    Example: tacit ledger show budget.sqlite patients
    """
    from tacit.accounting.ledger import Ledger

    must_exist(path)
    with Ledger(path) as ledger:
        accounts = [ledger.show(one) for one in ([name] if name else ledger.accounts())]
    summary = [
        {
            "account": one.name,
            "budget": str(one.budget),
            "spent": str(one.spent),
            "charges": len(one.charges),
        }
        for one in accounts
    ]
    if as_json:
        return print_json({"accounts": summary})
    rows = [tuple(str(value) for value in row.values()) for row in summary]
    print_table("Ledger", ("account", "budget", "spent", "charges"), rows)


def _budget(
    epsilon: float | None,
    delta: float,
    rho: float | None,
    order: float | None,
    scope: dict[str, Any],
) -> Any:
    from tacit.guarantees import ZCDP, ApproxDP, PureDP, RenyiDP

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
