"""The apps that a deployment runs: what Flower's processes import, on the server and on nodes.

They are told by configuration what to do. The job comes with the run. A node's own configuration
says which rows it has, where it keeps states, and under which name it takes part: `name`, `data`
and `state`. The server's says where results go: `work`, a folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit import errors
from tacit.accounting.ledger import Ledger
from tacit.federated import flower
from tacit.federated.app import result
from tacit.federated.app.client import Client, client_app
from tacit.federated.app.engines import drive
from tacit.federated.app.job import Job
from tacit.federated.app.keeping import Keeper
from tacit.federated.app.roster import Named
from tacit.federated.app.strategy import Federation
from tacit.federated.model import Data
from tacit.federated.rounds import Outcome, Round, Server

PROGRESS, RESULT, TEST = "progress.jsonl", "result", "test.npz"


def read_data(path: Path) -> Data:
    """Rows and labels of an npz file.

    Raises
    ------
    InvalidData
        If the file is no such file.
    """
    try:
        # From bytes: numpy leaves a file open that it cannot read.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as found:
            return Data(found["rows"], found["labels"])
    except (ValueError, KeyError, EOFError, BadZipFile, AttributeError):
        raise errors.InvalidData(
            f"{path}: it must be an npz file with the arrays rows and labels."
        ) from None


def write_data(path: Path, data: Data) -> None:
    """Rows and labels as an npz file that its owner alone can read."""
    path.touch(mode=0o600)
    np.savez(path, rows=data.rows, labels=data.labels, allow_pickle=False)


@lru_cache(maxsize=4)
def _client(job: str, name: str, path: str) -> Client:
    read = Job.from_json(job)
    return Client(read.chosen, read.config(), read.model(), name, read_data(Path(path)))


def client_of(context: Context) -> Client:
    """The client of a node, by the node's configuration."""
    given = context.node_config
    return _client(str(context.run_config["job"]), str(given["name"]), str(given["data"]))


def keeper_of(context: Context) -> Keeper:
    """On disk where the node's owner named a folder."""
    folder = context.node_config.get("state")
    return Keeper(None if folder is None else Path(str(folder)))


client = client_app(client_of, keeper_of=keeper_of)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the clients, run the job, save the model."""
    given = context.run_config
    work = Path(str(given["work"]))
    try:
        with _opened(given) as ledger:
            serve(grid, Job.from_json(str(given["job"])), work, float(given["patience"]), ledger)
    except errors.TacitError as error:
        _tell(work, {"error": str(error), "kind": type(error).__name__})
    except Exception as error:  # whoever waits must hear of it
        said = f"federation: {type(error).__name__} on the server. Its log says more."
        _tell(work, {"error": said, "kind": "TacitError"})
        raise


@contextmanager
def _opened(given: Mapping[str, Any]) -> Iterator[tuple[Ledger, str] | None]:
    if "ledger" not in given:
        yield None
        return
    with Ledger(Path(str(given["ledger"]))) as ledger:
        yield ledger, str(given["account"])


def serve(
    grid: Grid, job: Job, work: Path, patience: float, ledger: tuple[Ledger, str] | None = None
) -> None:
    """Run a job over the nodes of a grid, and leave its result in a folder."""
    test = read_data(work / TEST) if (work / TEST).is_file() else None
    gathering, model, roster = job.gathering(*(ledger or ())), job.model(), Named()
    roster.meet(grid, job.clients, patience)
    core = Server(job.chosen, job.config(), model, roster.sizes, gathering)

    def told(one: Round) -> None:
        spent = getattr(gathering, "spent", None)
        _tell(work, {**result.plain(one, private=False), "epsilon": spent})

    strategy = Federation(core, roster, seed=job.seed, test=test, callback=told)
    with flower.quiet():
        stopped = drive(strategy, grid, job.rounds, patience)
    outcome = Outcome(core.state, {}, tuple(strategy.history), stopped)
    result.save(outcome, job, model.layout, gathering, work / RESULT)


def _tell(work: Path, line: dict[str, Any]) -> None:
    """One more line of progress, for whoever started the run."""
    with (work / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
