"""The apps of a deployment, which Flower's processes import on the server and on nodes.

They are controlled by configuration. The job comes with the run. A node's own configuration gives
its name, its rows and the folder of its states (`name`, `data`, `state`), and the owner's terms
(`joining.Terms`). The run's configuration names the server's folder, `work`, which holds results
and settings that only the server reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit.federated import flower
from tacit.federated.app import owner, result, secure_client
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.engines import drive
from tacit.federated.app.job import Job
from tacit.federated.app.joining import Terms
from tacit.federated.app.keeping import Keeper
from tacit.federated.app.polling import Polling
from tacit.federated.app.roster import Named
from tacit.federated.app.secure_strategy import SecureFederation
from tacit.federated.app.strategy import Federation
from tacit.federated.client_level.distributed import SecureClientPrivacy
from tacit.federated.model import Data
from tacit.federated.payment import Payment
from tacit.federated.rounds import RunResult, Server
from tacit.federated.secure.participant import Terms as SecureTerms
from tacit.federated.secure.primitives import load_identity, load_public
from tacit.federated.secure.session import Roster as Keys
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger

if TYPE_CHECKING:
    from tacit.federated.record_level.silo import Silo
    from tacit.federated.torch_model import TorchModel

PROGRESS, RESULT, TEST, SERVER = "progress.jsonl", "result", "test.npz", "server.json"


def read_data(path: Path) -> Data:
    """Read rows and labels from an npz file.

    Raises
    ------
    InvalidData
        If the file is not such a file.
    """
    try:
        # From bytes: numpy leaves a file open that it cannot read.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return Data(arrays["rows"], arrays["labels"])
    except (ValueError, KeyError, EOFError, BadZipFile, AttributeError):
        raise errors.InvalidData(
            f"{path}: it must be an npz file with the arrays rows and labels."
        ) from None


def write_data(path: Path, data: Data) -> None:
    """Write rows and labels to an npz file that only its owner can read."""
    path.touch(mode=0o600)
    np.savez(path, rows=data.rows, labels=data.labels, allow_pickle=False)


@lru_cache(maxsize=4)
def _read(job: str, path: str) -> tuple[Job, TorchModel, Data]:
    read = Job.from_json(job)
    return read, read.model(), read_data(Path(path))


def client_of(context: Context) -> FederatedClient:
    """Build the client of a node from the node's configuration.

    Raises
    ------
    InvalidData
        If the job violates the owner's terms, or does not fit the rows.
    """
    node_config, terms = context.node_config, Terms.of(context.node_config)
    job, model, data = _read(str(context.run_config["job"]), str(node_config["data"]))
    admit(job, terms)
    job.check_rows("data", data.rows)
    guarded = None
    if job.unit == "record":
        run = str(context.run_id)
        guarded = lambda: _silo(job, model, data, terms, run)  # noqa: E731
    name = str(node_config["name"])
    joined = membership(job, name, node_config, terms) if job.secure else None
    return FederatedClient(job.chosen, job.config(), model, name, data, guarded, joined)


def membership(
    job: Job, name: str, node_config: Mapping[str, Any], terms: Terms
) -> secure_client.Membership:
    """Return what a node has joined: the job's setting, and the roster that its owner gave.

    Raises
    ------
    InvalidData
        If the owner gave no roster, or one without this node.
    """
    if "roster" not in node_config:
        raise errors.InvalidData("client: a node must have a roster for a job of secure sums.")
    keys = public_keys(Path(str(node_config["roster"])))
    if name not in keys or len(keys) != job.clients:
        raise errors.InvalidData("client: the roster must name this node, and all of the job's.")
    identity = load_identity(Path(str(node_config["identity"])).read_bytes())
    pay: Callable[[str, int], None] = secure_client.unpaid
    if terms.ledger is not None and terms.account is not None:
        pay = _paying(job, terms.ledger, terms.account)
    roster = Keys(tuple(load_public(keys[one]) for one in sorted(keys)))
    own = SecureTerms()
    number = sorted(keys).index(name)
    return secure_client.Membership(job.setting(), roster, number, identity, own, pay)


def public_keys(folder: Path) -> dict[str, bytes]:
    """Read the public keys in a folder, NAME.pub each, by name."""
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.pub"))}


def _paying(job: Job, path: Path, account: str) -> Callable[[str, int], None]:
    """Return how a client charges its own ledger for a sum, each once."""

    def pay(run: str, number: int) -> None:
        plan = job.setting().plan
        with Ledger(path) as ledger:
            payment = Payment("client", plan.event(), plan.delta, ledger, account, run)
            payment.begin("sum", number, plan.one_sum)

    return pay


def admit(job: Job, terms: Terms) -> None:
    """Refuse a job that violates the terms of a node's owner."""
    if terms.require == "secure" and not job.secure:
        raise errors.InvalidData("client: a job must be one of secure sums here.")
    if terms.require not in (None, "secure", job.unit):
        raise errors.InvalidData(f"client: a job must have a guarantee for {terms.require}s here.")
    if terms.ledger is not None and job.unit != "record" and not job.secure:
        raise errors.InvalidData(
            "client: a job must be one that its ledger can charge, with a guarantee for records "
            "or secure sums."
        )
    # Without one, whoever starts jobs could ask this node for as many runs as they like.
    if terms.ledger is None and (job.unit == "record" or job.secure):
        raise errors.InvalidData(
            "client: a node must have a ledger for a job of secure sums, or with a guarantee for "
            "records."
        )


@contextmanager
def _silo(job: Job, model: TorchModel, data: Data, terms: Terms, run: str) -> Iterator[Silo]:
    """Provide the silo for one message; the ledger holds the state between messages."""
    from tacit.federated.record_level.silo import Silo

    privacy = job.record_privacy()
    if privacy is None or terms.ledger is None:
        raise errors.InvalidData("client: a job must have a guarantee for records to ask this.")
    with Ledger(terms.ledger) as ledger:
        payment: dict[str, Any] = {"ledger": ledger, "account": terms.account, "run": run}
        yield Silo(model, data, privacy, job.chosen, job.config(), **payment)


def keeper_of(context: Context) -> Keeper:
    """Return a keeper, which writes to disk if the node's owner named a folder."""
    folder = context.node_config.get("state")
    return Keeper(None if folder is None else Path(str(folder)))


client = client_app(client_of, keeper_of=keeper_of, notify=owner.tell)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the clients, run the job, save the model."""
    work = Path(str(context.run_config["work"]))
    try:
        job = Job.from_json(str(context.run_config["job"]))
        settings = json.loads((work / SERVER).read_text(encoding="utf-8"))
        with _opened(settings) as ledger:
            told = float(settings["patience"]), ledger, _known(settings)
            run = str(context.run_id)
            serve(Polling(grid), job, work, *told, keys=settings.get("keys", {}), run=run)
    except errors.TacitError as error:
        _tell(work, {"error": str(error), "kind": type(error).__name__})
    except Exception as error:  # so that whoever waits is told
        said = f"federation: {type(error).__name__} on the server. See its log."
        _tell(work, {"error": said, "kind": "TacitError"})
        raise


@contextmanager
def _opened(node_config: Mapping[str, Any]) -> Iterator[tuple[Ledger, str] | None]:
    if "ledger" not in node_config:
        yield None
        return
    with Ledger(Path(str(node_config["ledger"]))) as ledger:
        yield ledger, str(node_config["account"])


def _known(run_settings: Mapping[str, Any]) -> dict[int, str] | None:
    """Return the names of nodes by id, if nodes are authenticated."""
    if "nodes" not in run_settings:
        return None
    return {int(node): str(name) for node, name in run_settings["nodes"].items()}


def serve(
    grid: Grid,
    job: Job,
    work: Path,
    patience: float,
    ledger: tuple[Ledger, str] | None = None,
    known: Mapping[int, str] | None = None,
    *,
    keys: Mapping[str, str] = MappingProxyType({}),
    run: str = "",
) -> None:
    """Run a job over the nodes of a grid, and save its result in a folder.

    For secure sums `keys` has the clients' public keys, by name, and `run` is the name of the run.
    """
    test = read_data(work / TEST) if (work / TEST).is_file() else None
    coordinator, model, roster = job.coordinator(*(ledger or ())), job.model(), Named(known)
    roster.meet(grid, job.clients, patience, arrived=lambda here: _tell(work, {"here": here}))
    core = Server(job.chosen, job.config(), model, roster.sizes, coordinator)
    questions = job.questions()
    tell = lambda one: _tell(work, result.line(one, job, coordinator, questions))  # noqa: E731
    strategy: Federation | SecureFederation
    if isinstance(coordinator, SecureClientPrivacy):
        coordinator.simulated = False
        members = _members(roster, keys)
        strategy = SecureFederation(
            core, roster, members, run, seed=job.seed, test=test, callback=tell
        )
    else:
        strategy = Federation(
            core, roster, seed=job.seed, test=test, callback=tell, questions=questions
        )
    with flower.quiet():
        stopped = drive(strategy, grid, job.rounds, patience)
    outcome = RunResult(core.state, {}, tuple(strategy.history), stopped)
    result.save(outcome, job, model.layout, coordinator, work / RESULT, questions)


def _members(roster: Named, keys: Mapping[str, str]) -> Keys:
    """Return the clients' public keys, in the order of their names."""
    if roster.names != sorted(keys):
        raise errors.TacitError(
            "federation: secure sums must have the public key of every client, under its name. "
            "Give them with --nodes."
        )
    return Keys(tuple(load_public(keys[one].encode()) for one in roster.names))


def _tell(work: Path, line: dict[str, Any]) -> None:
    """Append a line of progress to a file that only its owner can read."""
    path = work / PROGRESS
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
