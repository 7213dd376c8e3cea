"""Jobs of secure sums: what server and nodes agree on, and what a node's owner refuses or pays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("safetensors")

from tacit.apps import cli
from tacit.federated import Data, SecureClientPrivacy
from tacit.federated.app import deployment, nodes
from tacit.federated.app.job import Job
from tacit.federated.app.joining import Terms, node
from tacit.federated.app.roster import Named
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP

NAMES = ("east", "north", "south", "west")
PRIVACY: dict[str, Any] = {"epsilon": 4, "delta": 1e-5, "clip_norm": 0.5, "secure": True}


def job(**privacy: Any) -> Job:
    told = {**PRIVACY, **privacy}
    return Job("fedavg", clients=4, rounds=2, layers=(4, 2), settings={"epochs": 1}, privacy=told)


def config(work: Path, name: str = "north", **told: Any) -> dict[str, Any]:
    if not (work / "roster").exists():
        deployment.own_keys(work, NAMES)
    paths = {"roster": str(work / "roster"), "identity": str(work / name / "key")}
    return {"name": name, **paths, **told}


def test_clients_and_server_compute_one_setting() -> None:
    one = job(lost=1)
    assert Job.from_json(one.to_json()) == one
    coordinator = one.coordinator()
    assert isinstance(coordinator, SecureClientPrivacy)
    coordinator.admit(one.chosen, one.config(), 4)
    assert str(coordinator.setting) == str(Job.from_json(one.to_json()).setting())
    other = replace(one, seed=1)  # other initial weights
    assert str(other.setting()) != str(one.setting())
    assert str(one.setting()) != str(job().setting())
    assert one.setting().plan.epsilon() <= 4
    fsvrg = Job("fsvrg", clients=4, rounds=2, layers=(4, 2), privacy=PRIVACY)
    assert fsvrg.setting().plan.releases == 2


@pytest.mark.parametrize(
    ("privacy", "match"),
    [
        ({"secure": "yes"}, "secure must be true or false"),
        ({"cohort": 3}, "cohort must be left out with secure"),
        ({"adaptive": {}}, "adaptive must be left out with secure"),
        ({"noise_multiplier": 1}, "noise_multiplier must be left out with secure"),
        ({"secure": False, "corrupt": 1}, "corrupt must be given with secure alone"),
        ({"secure": False, "lost": 0}, "lost must be given with secure alone"),
        ({"unit": "record"}, "setting of privacy must be one of"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(privacy: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=match):
        job(**privacy)


def test_a_node_joins_with_its_owners_roster(tmp_path: Path) -> None:
    told = config(tmp_path)
    joined = nodes.membership(job(), "north", told, Terms())
    assert joined.number == 1
    assert len(joined.roster) == 4
    with pytest.raises(errors.InvalidData, match="must have a roster"):
        nodes.membership(job(), "north", {}, Terms())
    with pytest.raises(errors.InvalidData, match="must name this node"):
        nodes.membership(job(), "someone", told, Terms())
    (tmp_path / "roster" / "west.pub").unlink()
    with pytest.raises(errors.InvalidData, match="must name this node, and all"):
        nodes.membership(job(), "north", told, Terms())


def test_the_server_needs_the_key_of_every_client(tmp_path: Path) -> None:
    config(tmp_path)
    keys = {name: key.decode() for name, key in nodes.public_keys(tmp_path / "roster").items()}
    roster = Named()
    roster._names = sorted(NAMES)
    assert len(nodes._members(roster, keys)) == 4
    del keys["west"]
    with pytest.raises(errors.TacitError, match="the public key of every client"):
        nodes._members(roster, keys)


def test_owners_refuse_what_is_not_secure() -> None:
    plain = job(secure=False)
    paying = Path("ledger"), "clients"
    nodes.admit(job(), Terms("secure", *paying))
    for terms in (Terms(), Terms("client"), Terms("secure")):
        with pytest.raises(errors.InvalidData, match="must have a ledger for a job of secure sums"):
            nodes.admit(job(), terms)
    with pytest.raises(errors.InvalidData, match="must be one of secure sums here"):
        nodes.admit(plain, Terms("secure", *paying))
    with pytest.raises(errors.InvalidData, match="guarantee for records here"):
        nodes.admit(job(), Terms("record", *paying))


def test_a_node_pays_from_its_own_ledger_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        scope = {"adjacency": "zero-out", "unit": "client"}
        ledger.open("clients", ApproxDP(epsilon=5, delta=1e-4, **scope))
    terms = Terms("secure", path, "clients")
    nodes.admit(job(), terms)
    with pytest.raises(errors.InvalidData, match="its ledger can charge"):
        nodes.admit(job(secure=False), Terms(None, path, "clients"))
    pay = nodes.membership(job(), "north", config(tmp_path), terms).pay
    pay("run", 1)
    pay("run", 2)
    with Ledger(path) as ledger:
        assert ledger.show("clients").spent["epsilon"] == pytest.approx(4, rel=1e-3)
    for run, number in (("run", 2), ("another", 1)):  # a sum again, and a second budget
        with pytest.raises(errors.BudgetExceeded):
            pay(run, number)


def test_commands_of_nodes_name_key_and_roster(tmp_path: Path) -> None:
    told = config(tmp_path)
    (tmp_path / "rows.npz").touch()
    usual = {"name": "north", "data": tmp_path / "rows.npz", "work": tmp_path / "w"}
    roster, key = Path(told["roster"]), Path(told["identity"])
    line = node("127.0.0.1:1", insecure=True, key=key, roster=roster, **usual)
    assert "--auth-supernode-private-key" not in line
    written = Path(line[line.index("--node-config") + 1]).read_text()
    assert f'roster = "{roster}"' in written
    assert f'identity = "{key}"' in written
    with pytest.raises(errors.InvalidParameter, match="key must be given with roster"):
        node("127.0.0.1:1", insecure=True, roster=roster, **usual)
    with pytest.raises(errors.InvalidParameter, match="key must be left out without TLS"):
        node("127.0.0.1:1", insecure=True, key=key, **usual)


def test_a_job_runs_on_the_local_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = np.random.default_rng(0)
    files = []
    for name in NAMES:
        rows = drawn.normal(size=(12, 4)).astype(np.float32)
        nodes.write_data(tmp_path / f"{name}.npz", Data(rows, np.arange(12) % 2))
        files.append(f"{name}.npz")
    told = {"job": {**json.loads(job().to_json())}, "data": {"rows": files}}
    for name in ("clients", "image", "classes", "network", "participation", "seed"):
        told["job"].pop(name)
    (tmp_path / "fed.json").write_text(json.dumps(told))
    monkeypatch.chdir(tmp_path)
    cli_run = getattr(cli, "run", None)
    monkeypatch.setattr("sys.argv", ["tacit", "federate", "run", "fed.json", "--out", "made"])
    with pytest.raises(SystemExit) as ended:
        cli_run()
    assert ended.value.code in (0, None), capsys.readouterr()
    certificate = Certificate.load(tmp_path / "made" / "certificate.json")
    certificate.verify(tmp_path / "made" / "model.safetensors")
    assert certificate.guarantee.epsilon <= 4
    assert certificate.readers is not None
    assert any("within one process" in line for line in certificate.assumptions)


@pytest.mark.slow
@pytest.mark.heavy
def test_three_processes_come_to_a_secure_sum(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    held = [
        Data(drawn.normal(size=(20, 4)).astype(np.float32), drawn.integers(0, 2, 20))
        for _ in range(3)
    ]
    three = Job("fedavg", clients=3, rounds=1, layers=(4, 2), privacy={**PRIVACY, "epsilon": 50})
    told: list[dict[str, Any]] = []
    folder = deployment.deploy(three, held, tmp_path, on_round=told.append, limit=500)
    assert [one["skipped"] for one in told] == [False]
    certificate = Certificate.load(folder / "certificate.json")
    certificate.verify(folder / "model.safetensors")
    said = " ".join(certificate.explain().split())
    assert "from the server too, as long as at least 2 of those who answered are honest" in said
    assert "Each client's part ran on a machine that its owner trusts" in said
