"""Silos join from processes of their own: on their owners' terms, and under names tied to keys."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("safetensors")
pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flwr.app import ConfigRecord, Message, RecordDict
from safetensors.numpy import load_file

from tacit.federated import Data, flower, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.app import deployment, nodes, processes, wire
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.grid import LocalGrid
from tacit.federated.app.job import Job
from tacit.federated.app.joining import Terms
from tacit.federated.app.polling import Polling
from tacit.federated.app.roster import Named
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors

pytestmark = pytest.mark.heavy

PEM = serialization.Encoding.PEM
BARE = serialization.NoEncryption()


def signed(name: str, key: Any, issuer: Any, by: Any, *extensions: Any) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer or subject)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(hours=1))
    made = made.not_valid_after(now + datetime.timedelta(hours=1))
    for extension in extensions:
        made = made.add_extension(extension, critical=False)
    return made.sign(by, hashes.SHA256())


def certificates(folder: Path) -> deployment.Certificates:
    """An authority of the test's own, and a certificate for loopback."""
    own, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    basic = x509.BasicConstraints(ca=True, path_length=None)
    authority = signed("authority", own, None, own, basic)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    alternatives = x509.SubjectAlternativeName(names)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key())
    leaf = signed("server", server, authority.subject, own, alternatives, identifier)
    (folder / "ca.pem").write_bytes(authority.public_bytes(PEM))
    (folder / "server.pem").write_bytes(leaf.public_bytes(PEM))
    form = serialization.PrivateFormat.PKCS8
    (folder / "server.key").write_bytes(server.private_bytes(PEM, form, BARE))
    return deployment.Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")


def keys(folder: Path, name: str) -> Path:
    """A node's private key; its public one lies in the folder `public`."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    (folder / "public").mkdir(exist_ok=True)
    (folder / "public" / f"{name}.pub").write_bytes(public)
    path = folder / name
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, BARE))
    return path


def held(count: int = 2) -> list[Data]:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    return [
        Data(rng.normal(2 * labels[:, None] - 1, 1, (40, 3)).astype(np.float32), labels)
        for _ in range(count)
    ]


@pytest.mark.slow
def test_three_processes_over_tls_with_keys(tmp_path: Path) -> None:
    """Through the commands. A stranger who claims a client's name has no part in the model."""
    tls, parts = certificates(tmp_path), held()
    job = {"algorithm": "fedavg", "rounds": 2, "layers": [3, 2], "clients": 2}
    config = tmp_path / "fed.json"
    config.write_text(json.dumps({"job": job}))
    port = processes.free_port()
    tacit = [str(Path(sys.executable).parent / "tacit"), "federate"]
    secure = ["--ca", str(tls.authority)]
    with ExitStack() as running:

        def start(name: str, *line: str) -> subprocess.Popen[bytes]:
            given = (tmp_path / f"{name}.log", tmp_path / f"{name}.home")
            return running.enter_context(processes.running([*tacit, *line], *given))

        for name, data in zip(("north", "south"), parts, strict=True):
            nodes.write_data(tmp_path / f"{name}.npz", data)
            keys(tmp_path, name)
        stranger = keys(tmp_path, "stranger")
        (tmp_path / "public" / "stranger.pub").unlink()
        server = start(
            "server",
            *("serve", str(config), "--out", str(tmp_path / "out"), "--port", str(port), *secure),
            *("--cert", str(tls.certificate), "--key", str(tls.key), "--patience", "200"),
            *("--nodes", str(tmp_path / "public")),
        )
        for who, key in (("north", stranger), ("north", None), ("south", None)):
            own = tmp_path / who if key is None else key
            start(
                own.name,
                *("node", "--superlink", f"localhost:{port}", "--name", who, *secure),
                *("--data", str(tmp_path / f"{who}.npz"), "--key", str(own)),
                *("--state", str(tmp_path / f"{own.name}.state")),
            )
        assert server.wait(400) == 0, (tmp_path / "server.log").read_text()
    found = load_file(tmp_path / "out" / "model.safetensors")
    read = Job.from_plain(job)
    plain = rounds.run(read.chosen, read.model(), parts, 2, RunOptions(config=read.config()))
    for name, array in read.model().layout.unflatten(plain.model).items():
        np.testing.assert_array_equal(found[name], array)
    said = (tmp_path / "stranger.log").read_text()
    assert "Failed to activate SuperNode" in said
    assert "SuperNode ID" not in said


def test_names_of_authenticated_nodes_are_those_of_their_keys(quadratic: Any) -> None:
    chosen = algorithm("fedavg")
    there = [
        FederatedClient(chosen, chosen.config(), quadratic.model, name, data)
        for name, data in zip(["south", "x", "x", "south", "b"], quadratic.held, strict=True)
    ]
    app = client_app(lambda context: there[int(context.node_config["partition-id"])])
    roster = Named({2: "north", 3: "south", 9: "away"})
    with flower.identity(1):
        grid = LocalGrid(app, 5, 1)
        roster.meet(grid, 2, patience=1.0)
        assert roster.there(grid, [0, 1]) == {0: 2, 1: 3}
    assert roster.sizes == [len(quadratic.held[1]), len(quadratic.held[2])]
    assert [roster.client(node) for node in (1, 2, 3, 4)] == [None, 0, 1, None]


def test_authentication_needs_tls_and_keys_that_exist(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidParameter, match="certificates must be given with auth"):
        deployment.SuperLink(tmp_path, authenticated={})
    with pytest.raises(errors.InvalidParameter, match="key must be left out without TLS"):
        deployment.node(
            "127.0.0.1:1",
            name="a",
            data=tmp_path / "a",
            work=tmp_path,
            insecure=True,
            key=tmp_path / "key",
        )
    given: dict[str, Any] = {"name": "a", "data": tmp_path / "a", "work": tmp_path}
    given["authority"] = tmp_path / "ca.pem"
    (tmp_path / "key").write_text("no key")
    with pytest.raises(errors.InvalidData, match="must be an ECDSA key in OpenSSH format"):
        deployment.node("fed.example:1", key=tmp_path / "key", **given)
    line = deployment.node("fed.example:1", key=keys(tmp_path, "north"), **given)
    assert line[line.index("--auth-supernode-private-key") + 1] == str(tmp_path / "north")


RECORD = {"unit": "record", "epsilon": 2, "delta": 1e-3}


def answer(job: Job, tmp_path: Path, **config: str) -> Message:
    """What a node says that is asked for its name."""
    nodes.write_data(tmp_path / "rows.npz", held(1)[0])
    config = {"name": "north", "data": str(tmp_path / "rows.npz"), **config}
    context: Any = SimpleNamespace(node_config=config, run_config={"job": job.to_json()}, run_id=3)
    app = client_app(lambda _: nodes.client_of(context))
    with flower.identity(3), flower.quiet():
        (reply,) = LocalGrid(app, 1, 3).send_and_receive(
            [Message(RecordDict(), 1, "query.describe")]
        )
    return reply


@pytest.mark.parametrize(
    ("privacy", "terms", "message"),
    [
        (None, {"require": "client"}, "client: a job must have a guarantee for clients here."),
        (RECORD, {"require": "client"}, "client: a job must have a guarantee for clients here."),
        (None, {"ledger": "b.db", "account": "a"}, "client: a job must be one that its ledger"),
        (
            RECORD,
            {},
            "client: a node must have a ledger for a job of secure sums, or with a guarantee "
            "for records.",
        ),
    ],
)
def test_a_node_refuses_jobs_that_are_not_on_its_terms(
    privacy: Any, terms: dict[str, str], message: str, tmp_path: Path
) -> None:
    job = Job("fedavg", 1, 2, (3, 2), privacy=privacy)
    reply = answer(job, tmp_path, **terms)
    assert message in str(reply.error.reason)


def test_terms_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    for given, message in [
        ({"require": "person"}, "require must be one of client, record"),
        ({"account": "a"}, "ledger and account must be given together"),
        ({"require": "client", "ledger": tmp_path / "b", "account": "a"}, "ledger must be left"),
    ]:
        with pytest.raises(errors.InvalidParameter, match=message):
            Terms(**given)  # type: ignore[arg-type]
    terms = Terms("record", tmp_path / "b", "a")
    assert Terms.of(terms.plain()) == terms


def test_errors_that_reach_the_server_hold_no_path_and_no_number_of_rows(tmp_path: Path) -> None:
    """A file that is none, and rows without labels: the text stays with the node."""
    job = Job("fedavg", 1, 1, (3, 2))
    (tmp_path / "secret.npz").write_bytes(b"none")
    np.savez(tmp_path / "odd.npz", rows=np.zeros((41, 3)), labels=np.zeros(7))
    for name in ("secret", "odd", "missing"):
        reason = str(answer(job, tmp_path, data=str(tmp_path / f"{name}.npz")).error.reason)
        assert "client: " in reason
        assert not any(part in reason for part in (str(tmp_path), name, "41", "7"))


def test_a_roster_says_why_a_node_refused(quadratic: Any) -> None:
    def refuses(context: Any) -> FederatedClient:
        raise errors.InvalidData("client: a job must have a guarantee for clients here.")

    with flower.identity(1), flower.quiet():
        grid = LocalGrid(client_app(refuses), 1, 1)
        with pytest.raises(errors.TacitError, match=r"0 names and a refusal \(a job must have"):
            Named().meet(grid, 1, patience=0.0)


def test_a_refusal_is_an_answer_and_no_answer_is_lost_for_a_line_to_the_owner(
    quadratic: Any,
) -> None:
    """What is raised Flower prints with a traceback, and the server gets the same words."""

    def refuses(context: Any) -> FederatedClient:
        raise errors.BudgetExceeded("Ledger.charge: epsilon must be less, left 0.25.")

    def broken(message: Message, context: Any, refusal: errors.TacitError | None) -> None:
        heard.append(str(refusal))
        raise OSError("no standard error")

    heard: list[str] = []
    chosen = algorithm("fedavg")
    one = FederatedClient(chosen, chosen.config(), quadratic.model, "one", quadratic.held[0])
    with flower.identity(1):
        message = flower.delivered(Message(RecordDict(), 1, "query.describe"), "1")
        context: Any = SimpleNamespace()
        refused = client_app(refuses, notify=broken)(message, context)
        answered = client_app(lambda _: one, notify=broken)(message, context)
    assert wire.spent(refused)
    assert "left" not in str(refused.error.reason)
    assert "remaining" not in str(refused.error.reason)
    assert not answered.has_error()
    assert heard == ["Ledger.charge: epsilon must be less, left 0.25.", "None"]


def test_whoever_waits_hears_how_many_clients_are_here(tmp_path: Path) -> None:
    link, here, told = deployment.SuperLink(tmp_path / "work"), [], []
    for line in ({"here": 1}, {"here": 2}, {"number": 1}):
        nodes._tell(link.work, line)
    (link.work / nodes.RESULT).mkdir()
    link.follow(told.append, 1.0, arrived=here.append)
    assert (here, told) == ([1, 2], [{"number": 1}])


def test_files_of_a_server_are_its_owners_alone(tmp_path: Path) -> None:
    """And progress of a run with a guarantee for clients does not say who answered."""
    link = deployment.SuperLink(tmp_path / "work")
    nodes._tell(link.work, {"number": 1})
    for path in (link.work, link.work / "flower", link.work / nodes.PROGRESS):
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0
    config = {"name": "a", "data": "rows.npz"}
    line = deployment.node(
        "127.0.0.1:1", name="a", data=tmp_path / "a", work=tmp_path / "n", insecure=True
    )
    told = Path(line[line.index("--node-config") + 1])
    assert config["name"] in told.read_text()
    assert stat.S_IMODE(told.stat().st_mode) == 0o600


@pytest.mark.parametrize("private", [True, False])
def test_progress_holds_no_counts_under_a_guarantee_for_clients(
    private: bool, tmp_path: Path
) -> None:
    privacy = {"epsilon": 8, "delta": 1e-2, "accountant": "rdp"} if private else None
    job = Job("fedavg", 2, 1, (3, 2), privacy=privacy)
    parts = held()
    clients = [
        FederatedClient(job.chosen, job.config(), job.model(), f"silo {k}", data)
        for k, data in enumerate(parts)
    ]
    app = client_app(lambda context: clients[int(context.node_config["partition-id"])])
    with flower.identity(5):
        nodes.serve(Polling(LocalGrid(app, 2, 5)), job, tmp_path, patience=5.0)
    told = (tmp_path / nodes.PROGRESS).read_text().splitlines()
    here, line = (json.loads(text) for text in told)
    assert here == {"here": 2}
    assert ("asked" in line) is ("counted" in line) is ("rejected" in line) is (not private)
    assert (line["epsilon"] is None) is (not private)


def test_a_polling_grid_gives_what_the_other_does(quadratic: Any) -> None:
    chosen = algorithm("fedavg")
    one = FederatedClient(chosen, chosen.config(), quadratic.model, "one", quadratic.held[0])
    with flower.identity(1):
        grid = LocalGrid(client_app(lambda context: one), 3, 1)
        asked = [Message(RecordDict(), node, "query.describe") for node in (1, 2, 3)]
        found = list(Polling(grid).send_and_receive(asked, timeout=1))
        assert [reply.content["node"] for reply in found] == [
            ConfigRecord({"name": "one", "rows": len(one.data)})
        ] * 3
        assert list(Polling(grid).send_and_receive([])) == []
        lost = Polling(LocalGrid(client_app(lambda context: one), 1, 1), pause=0.01)
        lost.pull_messages = lambda names: []  # type: ignore[method-assign]
        assert lost.send_and_receive(asked[:1], timeout=0.05) == []
