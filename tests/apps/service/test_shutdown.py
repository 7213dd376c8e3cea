"""A server that is told to stop under load: whatever it acknowledged is stored, and it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.apps.service.store import Store

from .conftest import SETTINGS, free_port

pytestmark = pytest.mark.heavy

GRACE, BATCH, SENDERS = 10, 50, 8


class Running:
    """`tacit campaign serve`, and a campaign that was there before."""

    def __init__(self, db: str, secret: Path, mechanism: Any) -> None:
        self.store = Store.open(db, secret)
        self.campaign, _ = self.store.create(mechanism, **SETTINGS)
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        limits = ("limits.rate=inf", "limits.token_rate=inf", f"shutdown_seconds={GRACE}")
        command = [sys.executable, "-c", "from tacit.apps.cli import run; run()", "campaign"]
        command += ["serve", "--db", db, "--secret", str(secret), "--port", str(port), "--json"]
        for one in limits:
            command += ["--set", one]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["pages"]
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=30) as client:
            assert client.get(f"{self.url}/v1/ready").status_code == 200

    def batch(self, drawn: list[Any]) -> dict[str, Any]:
        words = self.store.invite(self.campaign.id, len(drawn))
        items = [
            {"token": word, "report": {"symbols": symbols}}
            for word, symbols in zip(words, drawn, strict=True)
        ]
        return {"artifact": self.campaign.fingerprint, "reports": items}


@pytest.fixture(params=["sqlite", "postgresql"])
def running(request: Any, tmp_path: Path, mechanism: Any) -> Iterator[Running]:
    db = f"sqlite:///{tmp_path}/campaign.db"
    if request.param == "postgresql":
        db = request.getfixturevalue("postgres").create()
    made = Running(db, tmp_path / "secret", mechanism)
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.communicate()
    made.store.engine.dispose()


class Load:
    """Senders of batches, each over a connection of its own, until the server refuses them."""

    def __init__(self, running: Running, batches: list[list[dict[str, Any]]]) -> None:
        self.running, self.batches = running, batches
        self.receipts: list[str] = []
        self.others: list[tuple[int, str]] = []
        self.broken = 0
        self.threads = [threading.Thread(target=self._send, args=(mine,)) for mine in batches]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()

    def _send(self, mine: list[dict[str, Any]]) -> None:
        where = f"{self.running.url}/v1/campaigns/{self.running.campaign.id}/reports/batch"
        with httpx.Client(timeout=30) as client:
            for body in mine:
                try:
                    answer = client.post(where, json=body)
                except httpx.TransportError:
                    self.broken += 1
                    return
                if answer.status_code != 200:
                    self.others.append((answer.status_code, answer.json()["type"]))
                    return
                self.receipts += [one["receipt"] for one in answer.json()["results"]]


def test_whatever_is_acknowledged_is_stored_and_the_server_ends(
    running: Running, mechanism: Any, digits: Any
) -> None:
    images, labels = digits
    drawn = mechanism.release(images[:BATCH], labels[:BATCH]).columns["symbols"].tolist()
    batches = [[running.batch(drawn) for _ in range(40)] for _ in range(SENDERS)]
    load = Load(running, batches)
    load.start()
    while not load.receipts:
        time.sleep(0.01)
    running.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert running.process.wait(GRACE + 30) == 0
    ended = time.monotonic() - began
    load.join()
    assert ended < GRACE + 20  # the rest is for a slow machine
    # Whoever was not answered was refused with a reason, or lost an idle connection.
    assert {kind for _, kind in load.others} <= {"tacit:database-away"}
    assert len(load.others) + load.broken > 0
    stored = running.store.status(running.campaign.id).reports
    acknowledged = len(load.receipts)
    assert len(set(load.receipts)) == acknowledged
    assert acknowledged % BATCH == 0
    # A batch may be stored although its connection broke before the answer; none the other way.
    assert acknowledged <= stored <= acknowledged + load.broken * BATCH
    assert len(running.store.reports(running.campaign.id)[0]) == stored
    for receipt in load.receipts[:: max(1, acknowledged // 20)]:
        assert running.store.withdraw(running.campaign.id, receipt)


def begun(running: Running, length: int) -> socket.socket:
    """A connection whose request is being answered: the server asks for the body."""
    link = socket.create_connection(where(running), 60)
    path = f"/v1/campaigns/{running.campaign.id}/reports/batch"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    link.sendall(head.encode())
    assert link.recv(100).startswith(b"HTTP/1.1 100")
    return link


def where(running: Running) -> tuple[str, int]:
    return "127.0.0.1", int(running.url.rpartition(":")[2])


def test_a_request_that_has_begun_is_answered(
    running: Running, mechanism: Any, digits: Any
) -> None:
    """Its body is not here yet when the server is told to stop; what has not begun is closed."""
    images, labels = digits
    drawn = mechanism.release(images[:BATCH], labels[:BATCH]).columns["symbols"].tolist()
    body = json.dumps(running.batch(drawn)).encode()
    idle = socket.create_connection(where(running), 60)
    with idle, begun(running, len(body)) as link:
        idle.sendall(b"GET /v1/live HTTP/1.1\r\nHost: x\r\n")
        running.process.send_signal(signal.SIGTERM)
        assert idle.recv(100) == b""
        with suppress(ConnectionError), socket.create_connection(where(running), 60) as late:
            assert late.recv(1) == b""  # nobody listens any more
        link.sendall(body)
        assert link.recv(1 << 20).startswith(b"HTTP/1.1 200")
    assert running.process.wait(GRACE + 30) == 0
    assert running.store.status(running.campaign.id).reports == BATCH


@pytest.mark.parametrize("running", ["sqlite"], indirect=True)
def test_whoever_never_finishes_does_not_keep_the_server(running: Running) -> None:
    with begun(running, 900_000) as stalled:
        stalled.sendall(b"{")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(GRACE + 30) == 0
