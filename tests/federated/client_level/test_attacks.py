"""Attacks of a hostile reader on the guarantee for clients, kept."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("safetensors")

from flwr.app import Array
from torch import nn

from tacit.apps.cli.federate_data import read_run
from tacit.federated import ClientPrivacy, Data, TorchModel, rounds
from tacit.federated.app import deployment
from tacit.federated.app.grid import Faults, LocalGrid
from tacit.federated.app.nodes import write_data
from tacit.federated.flower import _read
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors


def test_the_number_of_classes_is_not_read_off_clients_under_a_guarantee(tmp_path: Path) -> None:
    write_data(tmp_path / "rows.npz", Data(np.zeros((8, 2), np.float32), np.arange(8)))
    privacy = {"epsilon": 8, "delta": 1e-5, "clip_norm": 1}
    job = {"algorithm": "fedavg", "rounds": 1, "privacy": privacy}
    told = {"job": job, "data": {"rows": "rows.npz", "clients": 2}}
    (tmp_path / "fed.json").write_text(json.dumps(told))
    with pytest.raises(errors.TacitError, match="layers of job must be given under a guarantee"):
        read_run(tmp_path / "fed.json")
    told["job"] = {**job, "layers": [2, 8], "settings": {"weighted": False}}
    (tmp_path / "fed.json").write_text(json.dumps(told))
    assert read_run(tmp_path / "fed.json").job.layers == (2, 8)


@pytest.mark.parametrize(
    "told",
    [
        "{",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "-" * 20_000 + "1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1+" * 20_000 + "1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1180591620717411303424)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 70 + ")}",
    ],
    ids=["half", "minuses", "sum", "large", "deep"],
)
def test_no_header_stops_the_server(told: str) -> None:
    header = told.encode() + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    body = np.float32(0).tobytes() if told.count("1, ") == 70 else b""
    assert _read(Array("float32", (1,), "numpy.ndarray", data + body)) is None


def test_a_copy_is_no_second_budget() -> None:
    one = ClientPrivacy(10, cohort=10, epsilon=8, delta=1e-5, rounds=2)
    assert copy.copy(one) is one
    assert copy.deepcopy(one) is one
    with pytest.raises(errors.TacitError, match="stay in its process"):
        pickle.dumps(one)


def test_whose_answers_are_lost_does_not_depend_on_who_else_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, int]] = []

    class Told(Faults):
        def draw(self, number: int, node: int) -> float:
            seen.append((number, node))
            return super().draw(number, node)

    monkeypatch.setattr(LocalGrid, "_answer", lambda self, message: message)
    monkeypatch.setattr("tacit.federated.flower.delivered", lambda message, name: message)

    def asked(nodes: list[int]) -> list[tuple[int, int]]:
        seen.clear()
        grid = LocalGrid(None, 5, 1, Told(dropout=0.5))  # type: ignore[arg-type]
        for _ in range(2):
            sent = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node)) for node in nodes]
            grid.push_messages(sent)  # type: ignore[arg-type]
        return sorted(one for one in seen if one[1] != 2)

    assert asked([1, 2, 3, 4]) == asked([1, 3, 4])


def test_a_node_without_tls_talks_to_loopback_alone(tmp_path: Path) -> None:
    with pytest.raises(errors.TacitError, match="on loopback without TLS"):
        deployment.node(
            "example.org:9092",
            name="a",
            data=tmp_path / "a.npz",
            work=tmp_path / "work",
            insecure=True,
        )


@pytest.mark.parametrize("part", [nn.Dropout(0.5), nn.RReLU()])
def test_draws_of_a_client_do_not_go_by_who_else_is_asked(part: nn.Module) -> None:
    """One generator of torch serves the process: client 0 with more rows takes more draws."""

    def reply(rows: int) -> np.ndarray:
        model = TorchModel(lambda: nn.Sequential(nn.Linear(2, 2), part, nn.Linear(2, 2)))
        held = [Data(np.ones((n, 2), np.float32), np.zeros(n, np.int64)) for n in (rows, 5)]
        lost = {"intercept": lambda number, client, sent: sent if client else None}
        return rounds.run("fedavg", model, held, 2, RunOptions(**lost)).model  # type: ignore[arg-type]

    assert np.array_equal(reply(3), reply(50))
