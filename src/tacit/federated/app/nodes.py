"""The apps of a deployment, which Flower's processes import on the server and on nodes.

They are controlled by configuration. The job comes with the run. A node's own configuration gives
its name, its rows and the folder of its states (`name`, `data`, `state`), and the owner's terms
(`joining.Terms`). The run's configuration names the server's folder, `work`, which holds results
and settings that only the server reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit.federated import flower
from tacit.federated.app import owner, result
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.engines import drive
from tacit.federated.app.job import Job
from tacit.federated.app.joining import Terms
from tacit.federated.app.keeping import Keeper
from tacit.federated.app.polling import Polling
from tacit.federated.app.roster import Named
from tacit.federated.app.strategy import Federation
from tacit.federated.model import Data
from tacit.federated.rounds import RunResult, Server
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
    return FederatedClient(job.chosen, job.config(), model, str(node_config["name"]), data, guarded)


def admit(job: Job, terms: Terms) -> None:
    """Refuse a job that violates the terms of a node's owner."""
    if terms.require not in (None, job.unit):
        raise errors.InvalidData(f"client: a job must have a guarantee for {terms.require}s here.")
    if terms.ledger is not None and job.unit != "record":
        raise errors.InvalidData(
            "client: a job must be one that its ledger can charge, with a guarantee for records."
        )
    if terms.ledger is None and job.unit == "record":
        raise errors.InvalidData(
            "client: a node must have a ledger for a job with a guarantee for records."
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
            serve(Polling(grid), job, work, float(settings["patience"]), ledger, _known(settings))
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
) -> None:
    """Run a job over the nodes of a grid, and save its result in a folder."""
    test = read_data(work / TEST) if (work / TEST).is_file() else None
    coordinator, model, roster = job.coordinator(*(ledger or ())), job.model(), Named(known)
    roster.meet(grid, job.clients, patience, arrived=lambda here: _tell(work, {"here": here}))
    core = Server(job.chosen, job.config(), model, roster.sizes, coordinator)
    questions = job.questions()
    strategy = Federation(
        core,
        roster,
        seed=job.seed,
        test=test,
        callback=lambda one: _tell(work, result.line(one, job, coordinator, questions)),
        questions=questions,
    )
    with flower.quiet():
        stopped = drive(strategy, grid, job.rounds, patience)
    outcome = RunResult(core.state, {}, tuple(strategy.history), stopped)
    result.save(outcome, job, model.layout, coordinator, work / RESULT, questions)


def _tell(work: Path, line: dict[str, Any]) -> None:
    """Append a line of progress to a file that only its owner can read."""
    path = work / PROGRESS
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
