"""`tacit campaign take-part`, `budget`, `crowd`: one participant, or many simulated ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from tacit.apps.cli.campaign.surveys import read_answers
from tacit.apps.cli.console import (
    REFUSED,
    must_exist,
    print_json,
    print_table,
    print_text,
    print_values,
)
from tacit.apps.cli.files import rows_progress
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import SETTINGS, AsJson, InhousePublic
from tacit.data.tables import naming, words_of
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.apps.service.campaign import Campaign
    from tacit.apps.service.client import Client
    from tacit.privacy.accounting.device_ledger import DeviceLedger

Url = Annotated[
    str,
    typer.Argument(help="Address of the campaign or its page, or an invitation.", metavar="URL"),
]
OwnerKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Owner's key; safer in the environment variable.",
        envvar="TACIT_KEY",
        rich_help_panel=SETTINGS,
    ),
]
PersonLedger = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="File of your budget over all campaigns.",
        show_default="ledger.sqlite in a user folder",
    ),
]
_IN_THE_CLEAR = (
    "tacit: http without TLS: anyone on the network path can read the token, and change what you "
    "are asked."
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app,
        "For participants",
        "tacit campaign take-part https://host/c/CAMPAIGN --token - --data me.csv",
    )(take_part)
    command(app, "For participants", "tacit campaign budget")(budget)
    command(
        app,
        "For trials",
        "tacit campaign crowd http://localhost:8000/c/CAMPAIGN --data digits --people 1000",
    )(crowd)


def take_part(
    url: Url,
    token: Annotated[
        str | None,
        typer.Option(
            help="Token of the invitation; - reads it from standard input.",
            envvar="TACIT_TOKEN",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="File with your row, or your answers: CSV (with a header), Parquet or JSON."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column of the label.", show_default="the only column not a feature"),
    ] = None,
    vote: Annotated[
        bool, typer.Option("--vote", help="Vote on the published model instead.")
    ] = False,
    withdraw: Annotated[str | None, typer.Option(help="Receipt of an answer to delete.")] = None,
    at_most: Annotated[
        float | None,
        typer.Option(help="Largest ε of report and vote together; a campaign above it is refused."),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="SHA-256 of the expected mechanism; any other is refused."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps what was drawn.", show_default="a user folder"),
    ] = None,
    ledger: PersonLedger = None,
    largest: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="Set your budget: the largest sum of ε over all campaigns.",
            show_default="as it was set, or 8",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Consent without being asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take part with your own row: see what would be sent, consent, send one noised report.

    Its ε is charged to your budget before it is drawn; beyond the budget nothing is drawn.
    """
    with connected(url, state=state, ledger=_ledger(ledger, largest)) as client:
        if withdraw is not None:
            client.withdraw(withdraw)
            return print_values({"withdrawn": True}, as_json, "Withdrawn")
        person = _Person(client, _token(token, client), vote)
        terms = client.terms()
        _must_agree(terms, at_most, mechanism, person)
        if not person.drawn:
            client.must_be_unused(person.token, person.kind)
            person.must_afford()
            if data is None:
                condition = f"given: no {person.kind} has been drawn with this token"
                errors.refuse("take-part", "--data", condition, None)
            with _said(as_json):
                _show(terms, vote, client)
            if not yes and not typer.confirm(f"Draw and send one {person.kind}?", err=True):
                print("tacit: nothing was drawn, and nothing was sent.", file=sys.stderr)
                raise typer.Exit(REFUSED)
        sent = person.answer(terms, data, label)
        if as_json:
            return print_values(sent, as_json, "")
        receipt = sent.pop("receipt")
        print_values(sent, as_json, "Sent")
        # No table, which would break the line.
        print(f"Receipt, which lets you withdraw it (--withdraw):\n{receipt}")


def budget(
    ledger: PersonLedger = None,
    largest: Annotated[
        float | None,
        typer.Option("--set", help="Set it to this sum of ε.", show_default="unchanged"),
    ] = None,
    entries: Annotated[
        bool, typer.Option("--entries", help="List every charge and every change.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the budget of everything that you send with take-part, and what is left of it.

    It covers all campaigns together, on whichever server; web pages keep another one per site.
    """
    account = _ledger(ledger, largest)
    balance = account.balance()
    values: dict[str, Any] = {
        "budget": float(balance.budget),
        "spent": float(balance.spent),
        "remaining": float(balance.remaining),
        "answers": balance.charges,
        "ledger": str(account.path),
    }
    listed = account.entries() if entries else []
    if as_json:
        return print_json({**values, "entries": listed} if entries else values)
    print_values({"balance": str(balance), "ledger": str(account.path)}, False, "Your budget")
    if entries:
        lines = [(one["time"][:19], *_entry(one)) for one in listed]
        print_table("Charges and changes", ("time (UTC)", "what", "epsilon"), lines)


def _entry(one: dict[str, str]) -> tuple[str, str]:
    if "key" in one:
        return one["key"], one["epsilon"]
    return f"budget {one['reason']}", one["budget"]


def _ledger(path: Path | None, largest: float | None) -> DeviceLedger:
    """Open the person's ledger: one for all campaigns and folders of draws, unless it is named."""
    from tacit.apps.service.kept import state_folder
    from tacit.privacy.accounting.device_ledger import DeviceLedger

    if path is None:
        path = state_folder() / "ledger.sqlite"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return DeviceLedger(path, largest)


def crowd(
    url: Url,
    data: Annotated[
        str,
        typer.Option(
            help="Data set by name (digits, mnist, …), or a file; of a survey, a file of answers."
        ),
    ],
    people: Annotated[int, typer.Option(help="Number of people to invite and simulate.")],
    key: OwnerKey = None,
    schema: Annotated[
        Path | None, typer.Option(help="Columns, bounds, categories and label of a file (JSON).")
    ] = None,
    vote: Annotated[
        bool, typer.Option("--vote", help="Vote on the published model, with other rows.")
    ] = False,
    batch: Annotated[int, typer.Option(help="Answers per request.")] = 100,
    single: Annotated[bool, typer.Option("--single", help="Send one answer per request.")] = False,
    rounds: Annotated[
        int, typer.Option(help="Rounds that they report in; later ones have adapted cells.")
    ] = 1,
    inhouse_public: InhousePublic = False,
    as_json: AsJson = False,
) -> None:
    """Try a campaign out with simulated people: each row of a data set takes part over HTTP.

    The noise comes from the operating system, so there is no seed.
    """
    from tacit.apps.service import crowd as crowds
    from tacit.apps.service.surveys import is_survey
    from tacit.data import datasets

    with connected(url, key=key) as client:
        mechanism = client.mechanism() if Path(data).is_file() else None
        with rows_progress(people) as advance:
            settings: dict[str, Any] = {"batch": batch, "single": single, "advance": advance}
            if is_survey(mechanism):
                answers = read_answers(Path(data), mechanism)
                result = crowds.answer(client, answers, people, **settings)
            else:
                settings |= {"vote": vote, "rounds": rounds, "inhouse_public": inhouse_public}
                result = crowds.run(client, datasets.load(data, schema), people, **settings)
    values = result.to_dict()
    print_values(
        values if as_json else {**values, "refused": _reasons(values)}, as_json, "The crowd"
    )
    if result.refused:
        raise typer.Exit(REFUSED)


def _reasons(values: dict[str, Any]) -> str | None:
    return ", ".join(f"{count} {code}" for code, count in values["refused"].items()) or None


@contextmanager
def connected(url: str, **settings: Any) -> Iterator[Client]:
    """Connect to a campaign, and warn if the connection is not encrypted."""
    from tacit.apps.service.client import Client

    with Client(url, **settings) as client:
        if client.address.in_the_clear:
            print(_IN_THE_CLEAR, file=sys.stderr)
        yield client


@contextmanager
def _said(as_json: bool) -> Iterator[None]:
    """Print for people on standard error if a program reads standard output."""
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        yield


def _token(given: str | None, client: Client) -> str:
    token = client.address.token if given is None else given
    if token == "-":
        token = sys.stdin.readline()
    if not token or not token.strip():
        remedy = "It is part of the invitation."
        errors.refuse("take-part", "--token", "given, or TACIT_TOKEN set", None, remedy)
    return token.strip()


def _must_agree(
    terms: Campaign, at_most: float | None, mechanism: str | None, person: _Person
) -> None:
    """Refuse terms that exceed what the person has decided beforehand."""
    from tacit.apps.service.terms import epsilon

    where, remedy, cost = "take-part", "Nothing was drawn.", epsilon(terms)
    if at_most is not None and not cost <= errors.positive(where, "--at-most", at_most):
        errors.refuse(where, "ε of report and vote", f"at most {at_most}", cost, remedy)
    # A report that was drawn in an earlier round is of that round's mechanism.
    used = person.stored.about if person.stored and not person.vote else terms.fingerprint
    if mechanism is not None and mechanism.lower() != used:
        errors.refuse(where, "the mechanism", mechanism, used, remedy)


def _show(terms: Campaign, vote: bool, client: Client) -> None:
    """Show what would be sent and its cost, derived here and not taken from the server."""
    from tacit.apps.service.surveys import is_survey

    folder, account = client.kept.folder, client.ledger
    assert account is not None
    what = "your row and its label" if terms.labelled else "your row"
    if is_survey(terms.mechanism):
        what = "your answers to one sheet of questions, drawn at random"
    report = f"one noised report of {what}: {terms.channel.guarantee}"
    own = "answers themselves stay" if is_survey(terms.mechanism) else "row itself stays"
    now, later = f"{report}. The {own} on this machine", ""
    if terms.ballot is not None:
        voted = "one noised vote on whether the learned model is right about your row: "
        voted += str(terms.ballot.guarantee)
        now, later = (voted, report) if vote else (now, voted)
    lines = [
        terms.title,
        terms.purpose,
        "",
        *(f"  - {name}: {said}" for name, said in _stated(terms)),
        f"  - To be sent now: {now}.",
        *([f"  - The same token also allows {later}."] if later else []),
        f"  - Mechanism: {terms.mechanism.kind}{_round(terms)}, SHA-256 {terms.fingerprint}",
        f"  - Stored in {folder}: what was drawn, so that it is not drawn twice. Never the row.",
        f"  - Your budget over all campaigns, before this answer: {account.balance()}.",
    ]
    print_text("\n".join([*lines, "", terms.certificate.explain()]))


def _stated(terms: Campaign) -> list[tuple[str, str]]:
    """Return what the owner states, with what they do not state named as such."""
    from tacit.apps.service.notice import STATEMENTS

    names = [name for name in STATEMENTS if name != "legal_basis"]
    missing = "the owner has not stated it"
    return [(name.capitalize(), getattr(terms.about, name) or missing) for name in names]


def _round(terms: Campaign) -> str:
    return f" (round {terms.round})" if terms.adaptive else ""


class _Person:
    """A participant with a token."""

    def __init__(self, client: Client, token: str, vote: bool) -> None:
        self.client, self.token, self.vote = client, token, vote
        self.kind = "vote" if vote else "report"
        self.stored = client.kept.find(client.address.campaign, token, self.kind)
        self.drawn = self.stored is not None

    def must_afford(self) -> None:
        """Refuse, before the person is asked, what their budget does not allow."""
        assert self.client.ledger is not None
        with _raising():
            self.client.ledger.must_afford(self.client.price(self.kind))

    def answer(self, terms: Campaign, data: Path | None, label: str | None) -> dict[str, Any]:
        """Draw an answer if none was drawn before, and send it."""
        row, truth = None, None
        if not self.drawn and data is not None:
            row, truth = read_row(data, terms, label, labelled=terms.labelled or self.vote)
        send = self.client.vote if self.vote else self.client.report
        with naming(data or "take-part"), _raising():
            receipt = send(self.token, row, truth)
        voted = terms.ballot is not None and self.vote
        spent = terms.ballot.guarantee if voted else terms.channel.guarantee  # type: ignore[union-attr]
        return {
            "sent": self.kind,
            "drawn_before": self.drawn,
            "guarantee": str(spent),
            "budget": str(self.client.ledger.balance()),  # type: ignore[union-attr]
            "receipt": receipt,
        }


@contextmanager
def _raising() -> Iterator[None]:
    """Add what a person can do whose budget is too small."""
    try:
        yield
    except errors.BudgetExceeded as error:
        raise errors.BudgetExceeded(f"{error} To decide on more, set --budget.") from None


def read_row(path: Path, terms: Campaign, label: str | None, labelled: bool) -> tuple[Any, Any]:
    """Read the one row of a file as the mechanism takes it, and its label if asked for."""
    from tacit.apps.service.surveys import is_survey
    from tacit.data import tables

    if is_survey(terms.mechanism):
        answers = read_answers(path, terms.mechanism)
        if (count := len(next(iter(answers.values())))) != 1:
            errors.refuse("take-part", "--data", "the answers of one person, in one row", count)
        return answers, None
    schema, classes = terms.mechanism.schema, terms.mechanism.classes
    table = _table(path, schema, words_of(classes, label))
    if table.num_rows != 1:
        errors.refuse("take-part", "--data", "a file of one row", table.num_rows)
    truth = None
    if labelled:
        label = label or _surplus(table, schema.names, path)
        table, values = tables.split_label(table, label, path)
        assert values is not None
        with naming(path):
            truth = tables.as_classes(values, classes, f"column {label!r}")
    if path.suffix == ".json" and set(table.schema.names) == set(schema.names):
        table = table.select(list(schema.names))  # objects have no order
    if getattr(schema, "width", None) is None or schema.columns is not None:
        return table, truth
    return _array(table), truth


def _surplus(table: Any, names: tuple[str, ...], path: Path) -> str:
    """Find the one column that the mechanism does not know."""
    surplus = [name for name in table.schema.names if name not in names]
    if len(surplus) != 1 and len(table.schema.names) != len(names) + 1:
        condition = f"given: {path.name} has {len(surplus)} columns besides the mechanism's"
        errors.refuse("take-part", "--label", condition, None)
    return str(surplus[-1])


def _table(path: Path, schema: Any, words: str | None) -> Any:
    import pyarrow as pa

    from tacit.data import tables

    if path.suffix != ".json":
        return pa.Table.from_batches(list(tables.batches(path, schema, words=words)))
    must_exist(path)
    try:
        given = json.loads(path.read_bytes())
        row = np.asarray(given.pop("row")).ravel().tolist() if "row" in given else []
        values = dict(zip(schema.names, row, strict=True)) if row else {}
        return pa.table({name: [value] for name, value in (values | given).items()})
    except (ValueError, TypeError, AttributeError, RecursionError, pa.ArrowException):
        # `from None`: the original message may quote the row.
        raise errors.InvalidData(
            f"{path}: the file must hold a JSON object with one value per column, or with the "
            "numbers of an array under 'row'."
        ) from None


def _array(table: Any) -> Any:
    """Return the numbers in the order of the file, without names."""
    from tacit.data.columns import columns_of, stack

    return stack(columns_of(table) or [], "take-part")
