"""Read a federation's configuration, and the rows that it names or splits over clients."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.apps.cli.console import must_exist
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.federated.app.grid import Faults
    from tacit.federated.app.job import Job
    from tacit.federated.model import Data

_TABLES = ("job", "data", "faults")
_OF_PARTITIONS = ("per_client", "concentration", "spread")
_DATA = ("name", "rows", "test", "clients", "seed", "partition", *_OF_PARTITIONS)
_PARTITIONS = ("iid", "shards", "dirichlet", "unbalanced")


@dataclass(frozen=True)
class FederationSetup:
    """A configuration: the job, every client's rows, the test rows, and simulated faults."""

    job: Job
    clients: list[Data]
    test: Data | None
    faults: Faults


def read_run(path: Path) -> FederationSetup:
    """Read a configuration, TOML or JSON, and the data that it names."""
    from tacit.federated.app.grid import Faults
    from tacit.federated.app.job import Job

    config = _read(path)
    _known(path, "table", config, _TABLES)
    data = _table(path, config, "data")
    _known(path, "setting of data", data, _DATA)
    clients, test = _held(path, data)
    job = dict(_table(path, config, "job"))
    job.setdefault("clients", len(clients))
    if "layers" not in job and job.get("network", "dense") == "dense":
        if job.get("privacy") is not None and "rows" in data:
            remedy = (
                "The number of classes would be read off the clients' labels, which is a release."
            )
            errors.refuse(str(path), "layers of job", "given under a guarantee", None, remedy)
        job["layers"] = _layers(clients)
    if job["clients"] != len(clients):
        errors.refuse(str(path), "clients of job", str(len(clients)), job["clients"])
    faults = config.get("faults", {})
    _known(path, "setting of faults", faults, ("dropout", "latency", "seed"))
    checked_job = Job.from_plain(job)
    for number, one in enumerate(clients, start=1):
        checked_job.check_rows(f"{path}, client {number}", one.rows)
    if test is not None:
        checked_job.check_rows(f"{path}, test", test.rows)
    return FederationSetup(checked_job, clients, test, Faults(**faults))


def read_served(path: Path) -> FederationSetup:
    """Read the configuration of a server: the whole job, and at most a file of test rows.

    Clients hold the rows, so no setting of the job can be read off them here.
    """
    from tacit.federated.app.grid import Faults
    from tacit.federated.app.job import Job

    config = _read(path)
    _known(path, "table", config, ("job", "data"))
    data = config.get("data", {})
    _known(path, "setting of data", data, ("test",))
    job = _table(path, config, "job")
    if "clients" not in job:
        errors.refuse(str(path), "clients of job", "given", None)
    checked_job, test = Job.from_plain(job), None
    if "test" in data:
        test = _file(path, "test", data["test"])
        checked_job.check_rows(f"{path}, test", test.rows)
    return FederationSetup(checked_job, [], test, Faults())


def _read(path: Path) -> dict[str, Any]:
    must_exist(path)
    try:
        text = path.read_text(encoding="utf-8")
        config = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise errors.InvalidData(f"{path}: it must be TOML or JSON ({error}).") from None
    if not isinstance(config, dict):
        raise errors.InvalidData(f"{path}: it must hold the tables {', '.join(_TABLES)}.")
    return config


def _table(path: Path, config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = config.get(name)
    if not isinstance(table, Mapping):
        errors.refuse(str(path), f"table {name}", "given", table)
    return table


def _known(path: Path, what: str, settings: Any, names: tuple[str, ...]) -> None:
    for name in settings if isinstance(settings, Mapping) else [settings]:
        errors.choice(str(path), what, name, names)


def _held(path: Path, settings: Mapping[str, Any]) -> tuple[list[Data], Data | None]:
    """Read the rows of clients and the test rows."""
    from tacit.federated.model import Data

    if isinstance(settings.get("rows"), list):
        return _own_files(path, settings)
    everything, test = _rows(path, settings)
    rows, labels = everything.rows, everything.labels
    count = errors.whole(str(path), "clients of data", settings.get("clients"), least=1)
    parts = _parts(path, settings, labels, count)
    return [Data(rows[part], labels[part]) for part in parts], test


def _own_files(path: Path, settings: Mapping[str, Any]) -> tuple[list[Data], Data | None]:
    """Read one file per client, without splitting."""
    for name in ("name", "clients", "seed", "partition", *_OF_PARTITIONS):
        if name in settings:
            remedy = "Each file belongs to one client: nothing is split."
            errors.refuse(str(path), name, "left out where rows is a list", settings[name], remedy)
    if not settings["rows"]:
        errors.refuse(str(path), "rows of data", "at least one file", settings["rows"])
    test = settings.get("test", 0)
    if test != 0 and not isinstance(test, str):
        errors.refuse(str(path), "test of data", "a file where rows is a list", test)
    clients = [_file(path, "rows", name) for name in settings["rows"]]
    return clients, _file(path, "test", test) if isinstance(test, str) else None


def _file(path: Path, what: str, name: Any) -> Data:
    """Read a file that the configuration names, relative to its folder."""
    from tacit.federated.app.nodes import read_data

    file = path.parent / str(name)
    if not file.is_file():
        remedy = "Paths begin at the configuration's folder."
        errors.refuse(str(path), f"{what} of data", "an existing file", str(name), remedy)
    return read_data(file)


def _rows(path: Path, settings: Mapping[str, Any]) -> tuple[Data, Data | None]:
    """Read the rows to split, and the test rows: a file, or a number of held-out rows."""
    import numpy as np

    from tacit.federated.model import Data

    if ("name" in settings) == ("rows" in settings):
        errors.refuse(str(path), "exactly one of name and rows", "given for data", sorted(settings))
    if "name" in settings:
        everything = _named(path, str(settings["name"]))
    else:
        everything = _file(path, "rows", settings["rows"])
    test = settings.get("test", 0)
    if isinstance(test, str):
        return everything, _file(path, "test", test)
    held_back = errors.whole(str(path), "test of data", test, least=0, most=len(everything) - 1)
    if held_back == 0:
        return everything, None
    order = np.random.default_rng(int(settings.get("seed", 0))).permutation(len(everything))
    one, other = order[held_back:], order[:held_back]
    rows, labels = everything.rows, everything.labels
    return Data(rows[one], labels[one]), Data(rows[other], labels[other])


def _named(path: Path, name: str) -> Data:
    """Load a data set by name, scaled to [−1, 1] by its public bounds."""
    import numpy as np

    from tacit.data import datasets
    from tacit.data.schema import ArraySchema
    from tacit.federated.model import Data

    dataset = datasets.load(errors.choice(str(path), "name of data", name, datasets.NAMES))
    if not isinstance(dataset.schema, ArraySchema):
        errors.refuse(str(path), "name of data", "a data set of images", name, "Or give rows.")
    lower, upper = float(dataset.schema.lower), float(dataset.schema.upper)
    flat = np.asarray(dataset.rows).reshape(len(dataset.rows), -1).astype(np.float32)
    scaled = (flat - np.float32((lower + upper) / 2)) / np.float32((upper - lower) / 2)
    return Data(scaled, np.asarray(dataset.labels))


def _parts(path: Path, settings: Mapping[str, Any], labels: Any, count: int) -> Any:
    from tacit.federated import partition

    kind = errors.choice(
        str(path), "partition of data", settings.get("partition", "iid"), _PARTITIONS
    )
    seed = errors.whole(str(path), "seed of data", settings.get("seed", 0), least=0)
    if kind == "iid":
        return partition.iid(len(labels), count, seed=seed)
    if kind == "shards":
        per_client = int(settings.get("per_client", 2))
        return partition.shards(labels, count, per_client=per_client, seed=seed)
    if kind == "dirichlet":
        concentration = float(settings.get("concentration", 0.5))
        return partition.dirichlet(labels, count, concentration=concentration, seed=seed)
    return partition.unbalanced(
        len(labels), count, spread=float(settings.get("spread", 1)), seed=seed
    )


def _layers(clients: list[Data]) -> list[int]:
    """Choose a network with one hidden layer that fits the rows."""
    classes = 1 + max(int(one.labels.max()) for one in clients)
    return [int(clients[0].rows.reshape(len(clients[0]), -1).shape[1]), 32, classes]
