"""`tacit federate`: a configuration in, a model with its certificate out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("safetensors")

from safetensors.numpy import load_file
from typer.testing import CliRunner

from tacit.apps import cli
from tacit.apps.cli import federate
from tacit.federated import Data, rounds
from tacit.federated.app.nodes import write_data
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate

RUNNER = CliRunner()


def write(path: Path, **tables: dict[str, Any]) -> Path:
    path.write_text(json.dumps(tables))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Data:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    rows = (np.eye(3)[labels] @ rng.normal(size=(3, 4)) + rng.normal(0, 0.3, (60, 4))) / 3
    data = Data(rows.astype(np.float32), labels)
    write_data(tmp_path / "rows.npz", data)
    return data


JOB = {"algorithm": "fedavg", "rounds": 2, "layers": [4, 3], "settings": {"epochs": 1}}
DATA = {"rows": "rows.npz", "clients": 4, "test": 12}


def test_a_run_writes_model_certificate_and_history(table: Data, tmp_path: Path) -> None:
    config = write(tmp_path / "fed.json", job=JOB, data=DATA)
    out = tmp_path / "out"
    found = RUNNER.invoke(federate.app, ["run", str(config), "--out", str(out), "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["guarantee"] == "not private (central, zero-out, unit: client)"
    certificate = Certificate.load(out / "certificate.json")
    certificate.verify(out / "model.safetensors")
    for command in ("verify", "explain"):
        assert RUNNER.invoke(cli.app, ["account", command, str(out)]).exit_code == 0
    checked = RUNNER.invoke(cli.app, ["account", "verify", str(out), "--json"]).stdout
    assert json.loads(checked)["declared"] == 1
    with (out / "model.safetensors").open("ab") as file:
        file.write(b" ")
    assert RUNNER.invoke(cli.app, ["account", "verify", str(out)]).exit_code != 0
    (out / "model.safetensors").write_bytes((out / "model.safetensors").read_bytes()[:-1])
    history = json.loads((out / "history.json").read_text())
    assert [one["counted"] for one in history["rounds"]] == [4, 4]

    from tacit.apps.cli.federate_data import read_run

    read = read_run(config)
    assert sum(map(len, read.clients)) == 48
    assert read.test is not None
    assert len(read.test) == 12
    given = {"config": read.job.config(), "test": read.test}
    plain = rounds.run("fedavg", read.job.model(), read.clients, 2, RunOptions(**given))
    assert told["accuracy"] == plain.history[-1].accuracy
    for name, array in read.job.model().layout.unflatten(plain.model).items():
        np.testing.assert_array_equal(load_file(out / "model.safetensors")[name], array)


def test_a_guarantee_hides_the_cohorts_and_says_what_it_costs(table: Data, tmp_path: Path) -> None:
    privacy = {"epsilon": 4, "delta": 1e-2, "accountant": "rdp"}
    tables = {"job": {**JOB, "privacy": privacy}, "data": DATA, "faults": {"dropout": 0.3}}
    config = write(tmp_path / "fed.json", **tables)
    out = tmp_path / "out"
    found = RUNNER.invoke(federate.app, ["run", str(config), "--out", str(out), "--json"])
    assert found.exit_code == 0, found.output
    certificate = Certificate.load(out / "certificate.json")
    certificate.verify(out / "model.safetensors")
    assert certificate.guarantee.at_delta(1e-2).epsilon <= 4
    assert not certificate.seeded
    rounds_told = json.loads((out / "history.json").read_text())["rounds"]
    assert all(set(one) == {"number", "skipped", "loss", "accuracy"} for one in rounds_told)


def test_every_client_may_have_a_file_of_its_own(table: Data, tmp_path: Path) -> None:
    from tacit.apps.cli.federate_data import read_run

    few = Data(table.rows[:7], table.labels[:7])
    write_data(tmp_path / "few.npz", few)
    rows = {"rows": ["few.npz", "rows.npz"], "test": "few.npz"}
    config = write(tmp_path / "fed.json", job=JOB, data=rows)
    read = read_run(config)
    assert read.job.clients == 2
    for one, own in zip(read.clients, (few, table), strict=True):
        np.testing.assert_array_equal(one.rows, own.rows)
    out = tmp_path / "out"
    found = RUNNER.invoke(federate.app, ["run", str(config), "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert "2 of 2 in the last round" in found.stdout


def test_toml_and_named_data(tmp_path: Path) -> None:
    from tacit.apps.cli.federate_data import read_run

    config = tmp_path / "fed.toml"
    config.write_text(
        '[job]\nalgorithm = "feddyn"\nrounds = 3\n[job.settings]\nalpha = 0.2\n'
        '[data]\nname = "digits"\nclients = 5\npartition = "shards"\ntest = 100\n'
    )
    read = read_run(config)
    assert (read.job.clients, read.job.layers) == (5, (64, 32, 10))
    assert read.job.config().alpha == 0.2
    rows = np.concatenate([one.rows for one in read.clients])
    assert (rows.min(), rows.max(), rows.dtype) == (-1, 1, np.float32)
    assert len(rows) == 1697


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"job": JOB}, "table data must be given"),
        ({"job": JOB, "data": DATA, "x": {}}, "table must be one of job, data, faults"),
        ({"job": JOB, "data": {**DATA, "shards": 2}}, "setting of data must be one of"),
        ({"job": JOB, "data": {**DATA, "name": "digits"}}, "exactly one of name and rows"),
        ({"job": JOB, "data": {**DATA, "partition": "x"}}, "partition of data must be one of"),
        ({"job": JOB, "data": {**DATA, "test": 60}}, "test of data must be an integer"),
        ({"job": {**JOB, "clients": 3}, "data": DATA}, "clients of job must be 4"),
        ({"job": {**JOB, "algorithm": "x"}, "data": DATA}, "name must be one of fedsgd"),
        ({"job": JOB, "data": DATA, "faults": {"x": 1}}, "setting of faults must be one of"),
        ({"job": JOB, "data": {**DATA, "rows": "fed.json"}}, "must be an npz file"),
        ({"job": JOB, "data": {**DATA, "rows": ["rows.npz"]}}, "clients must be left out where"),
        ({"job": JOB, "data": {"rows": ["rows.npz", "b.npz"]}}, "an existing file, got 'b.npz'"),
        ({"job": JOB, "data": {"rows": ["rows.npz"], "test": 3}}, "test of data must be a file"),
        ({"job": JOB, "data": {"rows": []}}, "rows of data must be at least one file"),
        ({"job": {**JOB, "layers": [5, 3]}, "data": DATA}, "layers must begin with 4, the number"),
    ],
)
def test_bad_configurations_are_refused_in_one_line(
    tables: dict[str, Any], message: str, table: Data, tmp_path: Path
) -> None:
    config = write(tmp_path / "fed.json", **tables)
    found = RUNNER.invoke(federate.app, ["run", str(config), "--out", str(tmp_path / "out")])
    assert isinstance(found.exception, errors.TacitError)
    assert message in str(found.exception)
    assert "\n" not in str(found.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "cloud"], "--engine must be one of local, deploy, ray"),
        (["--ca", "ca.pem"], "--ca, --cert and --key must be given together"),
        (["--account", "a"], "--ledger and --account must be given together"),
    ],
)
def test_bad_options_are_refused(
    arguments: list[str], message: str, table: Data, tmp_path: Path
) -> None:
    config = write(tmp_path / "fed.json", job=JOB, data=DATA)
    line = ["run", str(config), "--out", str(tmp_path / "out"), *arguments]
    found = RUNNER.invoke(federate.app, line)
    assert isinstance(found.exception, errors.TacitError)
    assert message in str(found.exception)


@pytest.mark.parametrize(
    ("tables", "arguments", "message"),
    [
        ({"job": JOB}, [], "clients of job must be given"),
        ({"job": {**JOB, "clients": 2}, "data": DATA}, [], "setting of data must be one of test"),
        ({"job": {**JOB, "clients": 2}}, ["--key", "rows.npz"], "must be given together"),
        ({"job": {**JOB, "clients": 2}}, ["--nodes", "."], "--nodes must be 2 public keys, got 0"),
        ({"job": {**JOB, "clients": 2}}, ["--host", "0.0.0.0"], "host must be 127.0.0.1 without"),
        (
            {"job": {**JOB, "clients": 2}},
            ["--insecure", *("--ca", "rows.npz", "--cert", "rows.npz", "--key", "rows.npz")],
            "--insecure must be left out with --ca",
        ),
        (
            {"job": {**JOB, "clients": 2}},
            ["--insecure", "--host", "0.0.0.0"],
            "host must be 127.0.0.1 without TLS",
        ),
    ],
)
def test_a_server_checks_what_it_is_told_before_it_listens(
    tables: dict[str, Any],
    arguments: list[str],
    message: str,
    table: Data,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write(tmp_path / "fed.json", **tables)
    line = ["serve", str(config), "--out", str(tmp_path / "out"), *arguments]
    found = RUNNER.invoke(federate.app, line)
    assert isinstance(found.exception, errors.TacitError)
    assert message in str(found.exception)


def test_a_node_checks_its_rows_and_its_way_before_it_starts(table: Data, tmp_path: Path) -> None:
    line = ["node", "--name", "a", "--state", str(tmp_path / "state"), "--insecure"]
    far = [*line, "--superlink", "fed.example:8000", "--data", str(tmp_path / "rows.npz")]
    found = RUNNER.invoke(federate.app, far)
    assert "--insecure must be for loopback only" in str(found.exception)
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    near = [*line, "--superlink", "127.0.0.1:8000", "--data", str(tmp_path / "bad.npz")]
    found = RUNNER.invoke(federate.app, near)
    assert "must be an npz file with the arrays rows and labels" in str(found.exception)
    good = [*line, "--superlink", "127.0.0.1:8000", "--data", str(tmp_path / "rows.npz")]
    for more, message in [
        (["--require", "person"], "require must be one of client, record"),
        (["--account", "a"], "--ledger and --account must be given together"),
        (
            ["--ledger", str(tmp_path / "none"), "--account", "a"],
            "--ledger must be an existing file",
        ),
        (["--key", str(tmp_path / "rows.npz")], "key must be left out without TLS"),
    ]:
        found = RUNNER.invoke(federate.app, [*good, *more])
        assert message in str(found.exception)
