"""A mechanism, a database, and a real server on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sklearn.datasets import load_digits

from tacit.apps.service import keeping
from tacit.apps.service.invited import Invited
from tacit.apps.service.store import Store
from tacit.local.learned.codebook import Codebook

from .postgres import postgres  # noqa: F401 - a fixture

TITLE = "Digits"
SETTINGS = {
    "title": TITLE,
    "purpose": "To learn how people write digits.",
    "labelled": True,
    "vote_epsilon": 2.0,
    "minimum": 20,
}

_SERVE = """
import sys
from pathlib import Path
from tacit.service.app import Limits
from tacit.service.server import Listener, serve
from tacit.service.store import Store
url, secret, port, rate = sys.argv[1:]
limits = Limits(rate=float(rate), token_rate=float(rate))
serve(Store.open(url, Path(secret)), Listener(port=int(port)), limits=limits)
"""


@pytest.fixture(autouse=True)
def state_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep draws and ledgers of commands out of the folder of whoever runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user"))


@pytest.fixture(scope="session")
def digits() -> tuple[Any, Any]:
    return load_digits(return_X_y=True)


@pytest.fixture(scope="session")
def mechanism(digits: Any) -> Codebook:
    """Fitted on 500 digits, which are public."""
    images, _ = digits
    made = Codebook(epsilon=4, people=1200, classes=10, unit="person")
    return made.fit(images[:500], image=(8, 8), inhouse_public=True)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Store.open(f"sqlite:///{tmp_path}/campaign.db")
    yield made
    made.engine.dispose()


def always_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store any number of answers in the way that is meant for thousands of them."""
    covers = Invited.covers

    def read_first(self: Invited, campaign: str, rows: Any) -> bool:
        self.read(campaign)
        return covers(self, campaign, rows)

    monkeypatch.setattr(keeping, "MANY", 1)
    monkeypatch.setattr(Invited, "covers", read_first)


@dataclass
class Server:
    """A server process, and the campaign that it was started with."""

    db: str
    secret: Path
    port: int
    campaign_id: str
    key: str
    rate: float = float("inf")
    process: Any = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def campaign_url(self) -> str:
        return f"{self.url}/v1/campaigns/{self.campaign_id}"

    def start(self) -> Server:
        arguments = [self.db, str(self.secret), str(self.port), str(self.rate)]
        self.process = subprocess.Popen([sys.executable, "-c", _SERVE, *arguments])
        for _ in range(600):
            assert self.process.poll() is None, "the server ended"
            try:
                if httpx.get(f"{self.url}/v1/health", timeout=5).status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError("the server did not answer")

    def kill(self) -> None:
        """As a loss of power would: nothing is written on the way out."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> Server:
        if self.process.poll() is None:
            self.kill()
        return self.start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def new_server(db: str, secret: Path, mechanism: Any, **settings: Any) -> Server:
    """A started server with one campaign in a new database."""
    store = Store.open(db, secret)
    campaign, key = store.create(mechanism, **{**SETTINGS, **settings})
    store.engine.dispose()
    return Server(db, secret, free_port(), campaign.id, key).start()


@pytest.fixture
def server(tmp_path: Path, mechanism: Codebook) -> Any:
    """A real server on SQLite."""
    os.environ.pop("HTTP_PROXY", None)
    made = new_server(f"sqlite:///{tmp_path}/campaign.db", tmp_path / "secret", mechanism)
    yield made
    if made.process.poll() is None:
        made.stop()
