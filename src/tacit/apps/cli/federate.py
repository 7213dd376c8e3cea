"""`tacit federate`: train a model on rows that stay where they are."""

from __future__ import annotations

import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tacit.apps.cli.console import must_exist, print_values
from tacit.apps.cli.files import must_be_new, opened_ledger
from tacit.apps.cli.groups import command, group
from tacit.apps.cli.options import NETWORK, Account, AsJson, LedgerFile, Out
from tacit.privacy import errors
from tacit.privacy.decimals import above

if TYPE_CHECKING:
    from tacit.apps.cli.federate_data import FederationSetup
    from tacit.federated.app.deployment import Certificates
    from tacit.federated.app.job import Job
    from tacit.federated.model import Data

app = group(
    "Train a model on rows that stay with their owners.",
    "tacit federate run federation.toml --out federated",
)
ENGINES = ("local", "deploy", "ray")

OnRound = Callable[[dict[str, Any]], object]

Config = Annotated[Path, typer.Argument(help="Configuration: TOML or JSON.", metavar="CONFIG")]
Engine = Annotated[
    str, typer.Option(help="local (this process), deploy (processes on loopback) or ray.")
]
Patience = Annotated[float, typer.Option(help="Seconds to wait for clients and for their answers.")]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="PEM certificate of the authority, for TLS.")
]
Certificate = Annotated[
    Path | None,
    typer.Option("--cert", help="PEM certificate of the server.", rich_help_panel=NETWORK),
]
Key = Annotated[
    Path | None, typer.Option("--key", help="PEM key of the server.", rich_help_panel=NETWORK)
]
Tls = tuple[Path | None, Path | None, Path | None]


@command(app, "Servers", "tacit federate run federation.toml --out federated")
def run(
    config: Config,
    out: Out,
    engine: Engine = "local",
    ledger: LedgerFile = None,
    account: Account = None,
    patience: Patience = 120.0,
    authority: Authority = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Train a model over clients on this machine, and write it with its certificate."""
    from tacit.apps.cli.federate_data import read_run

    errors.choice("command line", "--engine", engine, ENGINES)
    must_be_new(out)
    tls = (authority, certificate, key)
    if any(tls) and (engine != "deploy" or not all(tls)):
        remedy = "They are for --engine deploy."
        errors.refuse("command line", "--ca, --cert and --key", "given together", tls, remedy)
    setup = read_run(config)
    _check_record(setup, engine, ledger)
    with opened_ledger(ledger, account) as opened, _progress(setup, as_json) as show:
        if engine == "deploy":
            paid = None if ledger is None or account is None else (ledger, account)
            _deploy(setup, out, show, patience, tls, paid)
        else:
            _here(setup, out, show, engine, opened, account)
    _print_result(out, as_json)


@command(
    app,
    "Servers",
    "tacit federate serve federation.toml --out federated --host 0.0.0.0 --ca ca.pem "
    "--cert server.pem --key server.key --nodes keys",
)
def serve(
    config: Config,
    out: Out,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    authority: Authority = None,
    certificate: Certificate = None,
    key: Key = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do without TLS, as without --ca; loopback only.")
    ] = False,
    nodes: Annotated[
        Path | None,
        typer.Option(help="Folder of public keys, NAME.pub each: only these clients may join."),
    ] = None,
    ledger: LedgerFile = None,
    account: Account = None,
    patience: Patience = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Serve a federation whose clients join from their own machines, and write its model."""
    from tacit.apps.cli.federate_data import read_served

    must_be_new(out)
    tls = (authority, certificate, key)
    if any(tls) != all(tls):
        errors.refuse("command line", "--ca, --cert and --key", "given together", tls)
    if insecure and any(tls):
        errors.refuse("command line", "--insecure", "left out with --ca", insecure)
    must_exist(*tls)
    setup = read_served(config)
    known = None if nodes is None else _public_keys(nodes, setup.job.clients)
    if setup.job.secure and known is None:
        remedy = "Clients of secure sums sign what they send."
        errors.refuse("command line", "--nodes", "given for secure sums", None, remedy)
    _check_record(setup, "serve", ledger)
    with opened_ledger(ledger, account), _progress(setup, as_json) as show:
        paid = None if ledger is None or account is None else (ledger, account)
        _serve(setup, out, show, (host, port), tls, known, patience, paid)
    _print_result(out, as_json)


@command(
    app,
    "Clients",
    "tacit federate node --superlink fed.example:8000 --name north --data rows.npz --state state "
    "--ca ca.pem --key north --ledger budget.sqlite --account records",
)
def node(
    superlink: Annotated[str, typer.Option(help="Address and port of the server.")],
    name: Annotated[str, typer.Option(help="Name of this client, the same after a restart.")],
    data: Annotated[Path, typer.Option(help="npz file with the arrays rows and labels.")],
    state: Annotated[Path, typer.Option(help="Folder that is kept between restarts.")],
    authority: Authority = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do without TLS; loopback only.")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            help="This client's private key (ECDSA, OpenSSH), if the server asks for one.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(
            help="Folder of all clients' public keys, NAME.pub each, for secure sums.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Ledger to charge for this client's records, or for secure sums; refuses other "
            "jobs."
        ),
    ] = None,
    account: Account = None,
    require: Annotated[
        str | None,
        typer.Option(
            help="Refuse jobs without a guarantee for this unit, client or record; or those "
            "without secure sums: secure."
        ),
    ] = None,
) -> None:
    """Take part in a federation with rows that stay on this machine, until stopped."""
    from tacit.federated.app.joining import Terms
    from tacit.federated.app.joining import node as command
    from tacit.federated.app.nodes import read_data
    from tacit.federated.app.processes import keep, own_folder

    must_exist(data, authority, key, roster)
    with opened_ledger(ledger, account):
        terms = Terms(require, ledger, account)
    read_data(data)  # errors are shown here, not in the log of another process
    host = superlink.rsplit(":", 1)[0]
    if insecure and host not in ("127.0.0.1", "localhost"):
        errors.refuse("command line", "--insecure", "for loopback only", superlink, "Give --ca.")
    line = command(
        superlink,
        name=name,
        data=data,
        work=own_folder(state) / "node",
        state=state,
        authority=authority,
        insecure=insecure,
        key=key,
        roster=roster,
        terms=terms,
    )
    keep(line, state / "node")


def _here(
    setup: FederationSetup, out: Path, show: OnRound, engine: str, opened: Any, account: str | None
) -> None:
    """Run in this process, or on Ray."""
    from tacit.federated.app import engines, result
    from tacit.federated.rounds import RunOptions

    job = setup.job
    coordinator, model, questions = job.coordinator(opened, account), job.model(), job.questions()

    def heard(one: Any) -> None:
        counts = {"asked": one.asked, "counted": one.counted}  # for the terminal, not for a file
        show({**counts, **result.line(one, job, coordinator, questions)})

    options = RunOptions(
        config=job.config(),
        seed=job.seed,
        test=setup.test,
        coordinator=coordinator,
        callback=heard,
    )
    if engine == "ray":
        from tacit.federated.app import simulation

        outcome = simulation.run(job.chosen, job.model, setup.clients, job.rounds, options)
    else:
        clients = [_guarded(job, data) for data in setup.clients]
        transport = engines.Transport(setup.faults)
        outcome = engines.run(
            job.chosen,
            model,
            clients,
            job.rounds,
            options,
            transport=transport,
            questions=questions,
        )
    result.save(outcome, job, model.layout, coordinator, out, questions)


def _guarded(job: Job, data: Data) -> Any:
    """Return the rows, or a silo around them that records in memory what it spends."""
    privacy = job.record_privacy()
    if privacy is None:
        return data
    from tacit.federated.record_level.silo import Silo

    return Silo(job.model(), data, privacy, job.chosen, job.config())


def _check_record(setup: FederationSetup, engine: str, ledger: Path | None) -> None:
    """Check that a guarantee for records is left to each silo."""
    if setup.job.unit != "record":
        return
    if ledger is not None:
        remedy = "Each silo charges its own: tacit federate node --ledger."
        where = "left out where records are protected"
        errors.refuse("command line", "--ledger", where, str(ledger), remedy)
    if engine == "ray":
        remedy = "Copies of a silo in Ray's workers would spend twice."
        errors.refuse("command line", "--engine", "local or deploy", engine, remedy)


def _deploy(
    setup: FederationSetup,
    out: Path,
    show: OnRound,
    patience: float,
    tls: Tls,
    ledger: tuple[Path, str] | None,
) -> None:
    """Run as processes on loopback, and keep only the result."""
    from tacit.federated.app import deployment

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # processes end with this one
    with tempfile.TemporaryDirectory(prefix="tacit-federation-") as folder:
        written = deployment.deploy(
            setup.job,
            setup.clients,
            Path(folder),
            test=setup.test,
            on_round=show,
            certificates=_secure(tls),
            patience=patience,
            ledger=ledger,
        )
        shutil.move(written, out)


def _serve(
    setup: FederationSetup,
    out: Path,
    show: OnRound,
    address: tuple[str, int],
    tls: Tls,
    known: dict[str, Path] | None,
    patience: float,
    ledger: tuple[Path, str] | None,
) -> None:
    """Run the server; clients join from elsewhere."""
    from tacit.federated.app import deployment
    from tacit.federated.app.nodes import TEST, write_data

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # processes end with this one
    with tempfile.TemporaryDirectory(prefix="tacit-federation-") as folder:
        work, (host, port) = Path(folder), address
        security = {"certificates": _secure(tls), "authenticated": known}
        link = deployment.SuperLink(work, host=host, port=port, **security)  # type: ignore[arg-type]
        if setup.test is not None:
            write_data(work / TEST, setup.test)
        wanted = setup.job.clients
        with link.serving():
            link.submit(setup.job, patience, ledger)
            _say(f"listening on {link.address}, waiting for {wanted} clients")
            arrived = lambda here: _say(f"{here} of {wanted} clients have joined")  # noqa: E731
            shutil.move(link.follow(show, math.inf, arrived=arrived), out)


def _say(text: str) -> None:
    """Print on standard error, whether or not it is a terminal."""
    print(f"tacit: {text}", file=sys.stderr, flush=True)


def _secure(tls: Tls) -> Certificates | None:
    from tacit.federated.app import deployment

    authority, certificate, key = tls
    if authority is None or certificate is None or key is None:
        return None
    return deployment.Certificates(authority, certificate, key)


def _public_keys(folder: Path, clients: int) -> dict[str, Path]:
    """Read the public keys, one per client, by the clients' names."""
    keys = {path.stem: path for path in sorted(folder.glob("*.pub"))}
    if len(keys) != clients:
        remedy = "Name each NAME.pub."
        errors.refuse("command line", "--nodes", f"{clients} public keys", len(keys), remedy)
    return keys


@contextmanager
def _progress(setup: FederationSetup, as_json: bool) -> Iterator[OnRound]:
    """Show a table that grows with the rounds on standard error, if that is a terminal."""
    console = Console(stderr=True)
    table = Table(title=f"{setup.job.algorithm}, {setup.job.clients} clients", title_justify="left")
    for column in ("round", "clients", "accuracy", "MCC", "ε spent"):
        table.add_column(column, justify="right")
    live = console.is_terminal and not as_json

    def show(line: dict[str, Any]) -> None:
        if not live:
            return
        silos, spent = line.get("silos") or {}, line["epsilon"]
        accuracy = line["accuracy"] if line["accuracy"] is not None else silos.get("accuracy")
        mcc = silos.get("mcc")
        table.add_row(
            f"{line['number']} of {setup.job.rounds}",
            f"{line['counted']} of {line['asked']}" if "asked" in line else "–",
            "–" if accuracy is None else f"{accuracy:.4f}",
            "–" if mcc is None else f"{mcc:.4f}",
            "not private" if spent is None else above(spent, 4),
        )

    if not live:
        yield show
        return
    with Live(table, console=console, vertical_overflow="visible"):
        yield show


def _print_result(out: Path, as_json: bool) -> None:
    import json

    from tacit.federated.app.result import HISTORY

    history = json.loads((out / HISTORY).read_text(encoding="utf-8"))
    last = history["rounds"][-1]
    values = {
        "rounds": len(history["rounds"]),
        **_took_part(history, last, as_json),
        **_judged(last, as_json),
        "guarantee": history["guarantee"],
        "stopped": history["stopped"] or None,
        "written": str(out),
    }
    print_values(values, as_json, "Federated")


def _took_part(history: dict[str, Any], last: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Count who made the last model; a guarantee for clients keeps this secret."""
    if "asked" not in last:
        return {}
    ended = history.get("ended_budgets", 0)
    if as_json:
        counts = {"asked": last["asked"], "counted": last["counted"]}
        return {**counts, **({"ended_budgets": ended} if "ended_budgets" in history else {})}
    row = {"clients_that_counted": f"{last['counted']} of {last['asked']} in the last round"}
    return {**row, **({"silos_with_ended_budgets": ended} if ended else {})}


def _judged(last: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Report the accuracy of the last model: on test rows, and on rows that silos held out."""
    silos = last.get("silos")
    own = {"accuracy": last["accuracy"]}
    if silos is None:
        return own
    held_out = {"accuracy_silos": silos["accuracy"], "mcc": silos["mcc"]}
    held_out["rows_held_out_about"] = silos["rows"]
    return {**({} if last["accuracy"] is None and not as_json else own), **held_out}
