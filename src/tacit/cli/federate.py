"""Commands of a federation: run one, or take part in one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tacit import errors
from tacit.cli.console import AsJson, must_exist, print_values
from tacit.cli.files import must_be_new
from tacit.cli.votes import opened_ledger

if TYPE_CHECKING:
    from tacit.cli.federate_data import Run

app = typer.Typer(
    help="Train where the rows stay: run a federation, or take part in one.", no_args_is_help=True
)
ENGINES = ("local", "deploy", "ray")

Told = Callable[[dict[str, Any]], object]

Config = Annotated[Path, typer.Argument(help="TOML or JSON.", metavar="CONFIG")]
Engine = Annotated[
    str, typer.Option(help="local (this process), deploy (processes on loopback) or ray.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist yet.")]
LedgerFile = Annotated[Path | None, typer.Option("--ledger", help="Ledger to charge.")]
Account = Annotated[str | None, typer.Option("--account", help="Of the ledger.")]
Patience = Annotated[
    float, typer.Option(help="Seconds to wait for clients and for their answers (deploy).")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="PEM certificate of the authority, for TLS.")
]
Certificate = Annotated[Path | None, typer.Option("--cert", help="PEM certificate of the server.")]
Key = Annotated[Path | None, typer.Option("--key", help="PEM key of the server.")]


@app.command()
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
    """Train a model over clients, and write it with its certificate.

    Example: tacit federate run federation.toml --engine local --out federated
    """
    from tacit.cli.federate_data import read_run

    errors.choice("command line", "--engine", engine, ENGINES)
    must_be_new(out)
    tls = (authority, certificate, key)
    if any(tls) and (engine != "deploy" or not all(tls)):
        remedy = "They are for --engine deploy."
        errors.refuse("command line", "--ca, --cert and --key", "given together", tls, remedy)
    told = read_run(config)
    with opened_ledger(ledger, account) as opened, _progress(told, as_json) as show:
        if engine == "deploy":
            paid = None if ledger is None or account is None else (ledger, account)
            _deploy(told, out, show, patience, tls, paid)
        else:
            _here(told, out, show, engine, opened, account)
    _print_result(out, as_json)


@app.command()
def node(
    superlink: Annotated[str, typer.Option(help="Address and port of the server.")],
    name: Annotated[str, typer.Option(help="Under which this client takes part.")],
    data: Annotated[Path, typer.Option(help="npz file with the arrays rows and labels.")],
    state: Annotated[Path, typer.Option(help="Folder that is kept over restarts.")],
    authority: Authority = None,
    insecure: Annotated[bool, typer.Option(help="Without TLS; loopback only.")] = False,
) -> None:
    """Take part with rows that stay here, until stopped.

    Example: tacit federate node --superlink fed.example:8000 --name north --data rows.npz
    --state state --ca ca.pem
    """
    from tacit.federated.app.deployment import environment
    from tacit.federated.app.deployment import node as command
    from tacit.federated.app.nodes import read_data

    must_exist(data, authority)
    read_data(data)  # what does not fit is said here, not in the log of another process
    host = superlink.rsplit(":", 1)[0]
    if insecure and host not in ("127.0.0.1", "localhost"):
        errors.refuse("command line", "--insecure", "for loopback only", superlink, "Give --ca.")
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    line = command(
        superlink,
        name=name,
        data=data,
        work=state / "node",
        state=state,
        authority=authority,
        insecure=insecure,
    )
    code = subprocess.run(line, env=environment(state / "node"), check=False).returncode
    if code not in (0, 130, -2, -15):
        raise errors.TacitError(f"node: Flower's SuperNode must end well, got code {code}.")


def _here(told: Run, out: Path, show: Told, engine: str, opened: Any, account: str | None) -> None:
    """In this process, or on Ray."""
    from tacit.federated.app import engines, result

    job = told.job
    gathering, model = job.gathering(opened, account), job.model()

    def heard(one: Any) -> None:
        spent = getattr(gathering, "spent", None)
        show({**result.plain(one, private=False), "epsilon": spent})

    given: dict[str, Any] = {
        "config": job.config(),
        "seed": job.seed,
        "test": told.test,
        "gathering": gathering,
        "callback": heard,
    }
    if engine == "ray":
        from tacit.federated.app import simulation

        outcome = simulation.run(job.chosen, job.model, told.clients, job.rounds, **given)
    else:
        given["faults"] = told.faults
        outcome = engines.run(job.chosen, model, told.clients, job.rounds, **given)
    result.save(outcome, job, model.layout, gathering, out)


def _deploy(
    told: Run,
    out: Path,
    show: Told,
    patience: float,
    tls: tuple[Path | None, ...],
    ledger: tuple[Path, str] | None,
) -> None:
    """As processes on loopback; what they leave is removed but the result."""
    from tacit.federated.app import deployment

    authority, certificate, key = tls
    secure = None
    if authority is not None and certificate is not None and key is not None:
        secure = deployment.Certificates(authority, certificate, key)
    with tempfile.TemporaryDirectory(prefix="tacit-federation-") as folder:
        found = deployment.deploy(
            told.job,
            told.clients,
            Path(folder),
            test=told.test,
            told=show,
            certificates=secure,
            patience=patience,
            ledger=ledger,
        )
        shutil.move(found, out)


@contextmanager
def _progress(told: Run, as_json: bool) -> Iterator[Told]:
    """A table that grows with the rounds; on standard error, where that is a terminal."""
    console = Console(stderr=True)
    table = Table(title=f"{told.job.algorithm}, {told.job.clients} clients", title_justify="left")
    for column in ("round", "clients", "accuracy", "ε spent"):
        table.add_column(column, justify="right")
    live = console.is_terminal and not as_json

    def show(line: dict[str, Any]) -> None:
        if not live:
            return
        accuracy, spent = line["accuracy"], line["epsilon"]
        table.add_row(
            f"{line['number']} of {told.job.rounds}",
            f"{line['counted']} of {line['asked']}",
            "–" if accuracy is None else f"{accuracy:.4f}",
            "not private" if spent is None else f"{spent:.4g}",
        )

    if not live:
        yield show
        return
    with Live(table, console=console, vertical_overflow="visible"):
        yield show


def _print_result(out: Path, as_json: bool) -> None:
    import json

    from tacit.federated.app.result import HISTORY

    told = json.loads((out / HISTORY).read_text(encoding="utf-8"))
    last = told["rounds"][-1]
    values = {
        "rounds": len(told["rounds"]),
        "accuracy": last["accuracy"],
        "guarantee": told["guarantee"],
        "stopped": told["stopped"] or None,
        "written": str(out),
    }
    print_values(values, as_json, "Federated")
