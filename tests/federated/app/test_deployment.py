"""Flower's own processes on loopback: the plain loop's arrays, also past a killed node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("safetensors")

from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from tacit.federated import Data, partition, rounds
from tacit.federated.app import deployment, processes
from tacit.federated.app.job import Job
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate

pytestmark = pytest.mark.heavy

LAYERS = (64, 32, 10)


@pytest.fixture(scope="module")
def held() -> list[Data]:
    digits = load_digits()
    rows = (digits.data / 8 - 1).astype(np.float32)
    parts = partition.shards(digits.target, 2, per_client=4)
    return [Data(rows[part], digits.target[part]) for part in parts]


def must_equal(folder: Path, job: Job, model: np.ndarray) -> None:
    found = load_file(folder / "model.safetensors")
    for name, array in job.model().layout.unflatten(model).items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.slow
def test_two_nodes_come_to_the_arrays_of_the_plain_loop(held: list[Data], tmp_path: Path) -> None:
    job = Job("fedavg", clients=2, rounds=2, layers=LAYERS, settings={"epochs": 2}, seed=3)
    told: list[dict[str, Any]] = []
    folder = deployment.deploy(job, held, tmp_path, test=held[0], on_round=told.append, limit=500)
    plain = rounds.run(
        job.chosen, job.model(), held, 2, RunOptions(config=job.config(), seed=3, test=held[0])
    )
    must_equal(folder, job, plain.model)
    assert [one["accuracy"] for one in told] == [one.accuracy for one in plain.history]
    Certificate.load(folder / "certificate.json").verify(folder / "model.safetensors")
    assert json.loads((folder / "history.json").read_text())["guarantee"].startswith("not private")


@pytest.mark.slow
def test_a_node_killed_in_a_round_comes_back_with_its_state(
    held: list[Data], tmp_path: Path
) -> None:
    """Answers that it did not give are missing; nothing else is."""
    job = Job("feddyn", clients=2, rounds=4, layers=LAYERS, settings={"epochs": 1})
    link = deployment.SuperLink(tmp_path)
    told: list[dict[str, Any]] = []
    with link.serving(), ExitStack() as nodes:
        nodes.enter_context(deployment.silo(link, "north", held[0]))
        south = nodes.enter_context(deployment.silo(link, "south", held[1]))

        def hear(line: dict[str, Any]) -> None:
            told.append(line)
            if len(told) == 1:
                os.killpg(south.pid, signal.SIGKILL)
                nodes.enter_context(deployment.silo(link, "south", held[1]))

        link.submit(job, patience=60)
        folder = link.follow(hear, limit=580)
    counted = [one["counted"] for one in told]
    assert counted[0] == counted[-1] == 2
    plain = rounds.run(
        job.chosen,
        job.model(),
        held,
        4,
        RunOptions(
            config=job.config(),
            intercept=lambda number, client, reply: (
                None if client == 1 and counted[number - 1] == 1 else reply
            ),
        ),
    )
    must_equal(folder, job, plain.model)


ON_RAY = """
import numpy as np
from tacit.federated import Data, rounds
from tacit.federated.app import simulation
from tacit.federated.app.job import Job
from tacit.federated.rounds import RunOptions

rng = np.random.default_rng(0)
held = [Data(rng.normal(k, 1, (20, 4)).astype(np.float32), np.arange(20) % 3) for k in range(3)]
job = Job("feddyn", clients=3, rounds=3, layers=(4, 3))
found = simulation.run(job.chosen, job.model, held, 3, RunOptions(test=held[0]))
plain = rounds.run(job.chosen, job.model(), held, 3, RunOptions(test=held[0]))
np.testing.assert_array_equal(found.model, plain.model)
assert found.history == plain.history
"""


@pytest.mark.slow
def test_ray_comes_to_the_arrays_of_the_plain_loop() -> None:
    pytest.importorskip("ray")
    done = subprocess.run([sys.executable, "-c", ON_RAY], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_without_tls_only_loopback_is_served(tmp_path: Path) -> None:
    message = r"^SuperLink: host must be 127.0.0.1 without TLS"
    with pytest.raises(errors.InvalidParameter, match=message):
        deployment.SuperLink(tmp_path, host="0.0.0.0")
    given: dict[str, Any] = {"name": "a", "data": tmp_path / "a.npz", "work": tmp_path}
    with pytest.raises(errors.InvalidParameter, match="exactly one of authority, insecure"):
        deployment.node("fed.example:8000", **given)
    with pytest.raises(errors.InvalidParameter, match="exactly one of authority, insecure"):
        deployment.node("fed.example:8000", **given, insecure=True, authority=tmp_path / "ca.pem")
    line = deployment.node("fed.example:8000", **given, authority=tmp_path / "ca.pem")
    assert "--insecure" not in line
    assert line[line.index("--root-certificates") + 1] == str(tmp_path / "ca.pem")
    with pytest.raises(errors.InvalidParameter, match=r"^Certificates: path must be an existing"):
        deployment.Certificates(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_processes_end_with_their_block(tmp_path: Path) -> None:
    line = ["sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait"]
    with processes.running(line, tmp_path / "log", tmp_path / "home") as process:
        while not (tmp_path / "log").read_text().strip():
            assert process.poll() is None
        child = int((tmp_path / "log").read_text())
        processes.end(process, grace=0.2)
    assert process.poll() is not None
    until = time.monotonic() + 5  # a signal to a whole group reaches each in its own time
    while alive(child):
        assert time.monotonic() < until


def test_jobs_travel_as_json_and_name_no_data() -> None:
    pruning = {"kind": "structured", "target": 0.3}
    jobs = [
        Job("subfedavg", 3, 2, (4, 2), settings={"pruning": pruning}),
        Job("fsvrg", 5, 2, (4, 3, 2), privacy={"epsilon": 1, "delta": 1e-3, "cohort": 2}, seed=9),
    ]
    for job in jobs:
        assert Job.from_json(job.to_json()) == job
    assert jobs[0].config().pruning.kind == "structured"
    assert jobs[1].config().weighted is False
    refused: list[tuple[dict[str, Any], str]] = [
        ({"layers": [4]}, "layers must be at least two sizes"),
        ({"rows": "x"}, "setting of job must be one of"),
        ({"privacy": {"epsilon": 1}}, "delta of privacy must be given"),
        ({"privacy": {"epsilon": 1, "delta": 0.1, "sigma": 1}}, "setting of privacy must be"),
        ({"settings": {"alpha": 1}}, "alpha must be left out"),
        (
            {"participation": 0.5, "privacy": {"epsilon": 1, "delta": 0.1}},
            "participation must be left out",
        ),
    ]
    usual = {"algorithm": "fedavg", "clients": 2, "rounds": 1, "layers": [4, 2]}
    for given, message in refused:
        with pytest.raises(errors.InvalidParameter, match=message):
            Job.from_plain({**usual, **given})
