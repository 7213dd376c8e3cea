"""A real deployment: Flower's SuperLink and SuperNodes as processes of their own.

`Link` starts a SuperLink and submits jobs to it; `node` gives the command of one SuperNode, which a
silo runs on its own machine. On loopback both are started and stopped here.

Notes
-----
Whoever may submit a run to a SuperLink has code executed on its nodes: that is how Flower works.
Over a network use TLS (`Certificates`), and let known nodes alone connect.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tacit import errors
from tacit.federated import flower
from tacit.federated.app.job import Job
from tacit.federated.app.nodes import PROGRESS, RESULT, TEST, write_data
from tacit.federated.model import Data

LOOPBACK = "127.0.0.1"
_APP = """[project]
name = "tacit-federation"
version = "1.0.0"
description = "A federation of Tacit"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "tacit"

[tool.flwr.app.components]
serverapp = "tacit_federation.apps:server"
clientapp = "tacit_federation.apps:client"

[tool.flwr.app.config]
"""
_MODULE = '''"""What the nodes run is in the installed library."""

from tacit.federated.app import nodes

client = nodes.client
server = nodes.server
'''


class DeploymentError(errors.TacitError):
    """A process of a deployment did not do what it should."""


@dataclass(frozen=True)
class Certificates:
    """Files for TLS, in PEM: the authority that nodes trust, the server's certificate and key.

    The certificate must name the address that nodes connect to.
    """

    authority: Path
    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        for path in (self.authority, self.certificate, self.key):
            if not path.is_file():
                errors.refuse("Certificates", "path", "an existing file", str(path))


def node(
    superlink: str,
    *,
    name: str,
    data: Path,
    work: Path,
    state: Path | None = None,
    authority: Path | None = None,
    insecure: bool = False,
    port: int | None = None,
) -> list[str]:
    """Command of a silo's own process.

    Parameters
    ----------
    superlink : str
        Address and port of the server.
    name : str
        Under which this client takes part; the same after a restart.
    data : Path
        Its rows and labels, an npz file.
    work : Path
        A folder for what the process itself needs.
    state : Path, optional
        Folder where states are kept, so that they survive a restart.
    authority : Path, optional
        Certificate of the authority that signed the server's.
    insecure : bool
        Without TLS: on loopback only.
    port : int, optional
        Of the process's own interface on loopback; a free one without it.
    """
    if insecure == (authority is not None):
        remedy = "Without TLS everyone on the way reads and changes what is sent."
        errors.refuse("node", "exactly one of authority, insecure", "given", insecure, remedy)
    if insecure and superlink.rsplit(":", 1)[0] not in (LOOPBACK, "localhost"):
        errors.refuse("node", "superlink", "on loopback without TLS", superlink, "Give authority.")
    given = {"name": name, "data": str(data.resolve())}
    if state is not None:
        given["state"] = str(state.resolve())
    work.mkdir(parents=True, exist_ok=True)
    told = work / f"node-{free_port()}.toml"
    told.write_text(_toml(given), encoding="utf-8")
    secure = ["--insecure"] if insecure else ["--root-certificates", str(authority)]
    return [
        *(_program("flower-supernode"), *secure),
        *("--superlink", superlink, "--host", LOOPBACK, "--port", str(port or free_port())),
        *("--node-config", str(told)),
    ]


class Link:
    """A SuperLink on this machine, and what is submitted to it.

    Parameters
    ----------
    work : Path
        An empty folder for its state, logs and results.
    host : str
        Where it listens.
    port : int, optional
        A free one without it.
    certificates : Certificates, optional
        For TLS; loopback alone may do without.
    """

    def __init__(
        self,
        work: Path,
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        if certificates is None and host not in (LOOPBACK, "localhost"):
            remedy = "Give certificates."
            errors.refuse("Link", "host", "127.0.0.1 without TLS", host, remedy)
        self.work, self.certificates = work, certificates
        self.address = f"{host}:{port or free_port()}"
        self._home = work / "flower"
        self._home.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def serving(self) -> Iterator[Link]:
        """The SuperLink runs inside this block."""
        host, port = self.address.rsplit(":", 1)
        tls = self.certificates
        secure = ["--insecure"] if tls is None else _tls_options(tls)
        command = [
            *(_program("flower-superlink"), *secure, "--host", host, "--port", port),
            "--disable-runtime-dependency-installation",
        ]
        with running(command, self.work / "superlink.log", self._home) as process:
            _await_port(host, int(port), process)
            yield self

    def submit(self, job: Job, patience: float, ledger: tuple[Path, str] | None = None) -> None:
        """Start a run of this job; the server waits so long for clients and for answers."""
        app = self.work / "app"
        (app / "tacit_federation").mkdir(parents=True)
        (app / "tacit_federation" / "__init__.py").touch()
        (app / "tacit_federation" / "apps.py").write_text(_MODULE, encoding="utf-8")
        given: dict[str, Any] = {"work": str(self.work.resolve()), "patience": patience}
        if ledger is not None:
            given |= {"ledger": str(ledger[0].resolve()), "account": ledger[1]}
        text = _APP + _toml({"job": job.to_json(), **given})
        (app / "pyproject.toml").write_text(text, encoding="utf-8")
        (self._home / "config.toml").write_text(self._connection(), encoding="utf-8")
        found = subprocess.run(
            [_program("flwr"), "run", str(app), "here", "--format", "json"],
            env=environment(self._home),
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode != 0 or '"success": true' not in found.stdout:
            reason = " ".join((found.stdout + found.stderr).split())[:300]
            raise DeploymentError(f"federation: Flower must accept the run, got {reason}")

    def follow(
        self,
        told: Callable[[dict[str, Any]], object],
        limit: float,
        needed: Mapping[str, subprocess.Popen[bytes]] = MappingProxyType({}),
    ) -> Path:
        """Hear every round until the run ends; the folder of its result.

        Raises
        ------
        DeploymentError
            If there is none within so many seconds, or a process that is needed ended by itself.
        """
        heard, end = 0, time.monotonic() + limit
        while time.monotonic() < end:
            lines = _lines(self.work / PROGRESS)
            for line in lines[heard:]:
                if "error" in line:
                    kind = getattr(errors, line["kind"], DeploymentError)
                    raise kind(line["error"])
                told(line)
            heard = len(lines)
            if (self.work / RESULT).is_dir():
                return self.work / RESULT
            if gone := [name for name, process in needed.items() if process.poll() is not None]:
                raise DeploymentError(f"federation: {gone[0]} must keep running. See its log.")
            time.sleep(0.3)
        raise DeploymentError(
            f"federation: a run must end within {limit:g} s. See {self.work / 'superlink.log'}."
        )

    def _connection(self) -> str:
        tls = self.certificates
        trust = (
            {"insecure": True}
            if tls is None
            else {"root-certificates": str(tls.authority.resolve())}
        )
        return "[superlink.here]\n" + _toml({"address": self.address, **trust})


def deploy(
    job: Job,
    clients: Sequence[Data],
    work: Path,
    *,
    test: Data | None = None,
    told: Callable[[dict[str, Any]], object] = lambda line: None,
    certificates: Certificates | None = None,
    patience: float = 120.0,
    limit: float = 3600.0,
    ledger: tuple[Path, str] | None = None,
) -> Path:
    """Run a job on loopback, with a process of its own for the server and every client.

    Parameters
    ----------
    job : Job
        What runs.
    clients : sequence of Data
        Rows of each; they are written to the work folder, as every silo would hold its own.
    work : Path
        An empty folder.
    test : Data, optional
        The server's own rows.
    told : callable
        Hears every round.
    certificates : Certificates, optional
        For TLS.
    patience : float
        Seconds that the server waits for clients to appear, and for the answers of an exchange.
    limit : float
        Seconds for everything.
    ledger : tuple of Path and str, optional
        A ledger file and its account, charged by the server.

    Returns
    -------
    Path
        The folder with model, certificate and history.
    """
    link = Link(work, certificates=certificates)
    if test is not None:
        write_data(work / TEST, test)
    with link.serving(), ExitStack() as nodes:
        names = {f"client-{number:05d}": data for number, data in enumerate(clients)}
        needed = {name: nodes.enter_context(silo(link, name, names[name])) for name in names}
        link.submit(job, patience, ledger)
        return link.follow(told, limit, needed)


@contextmanager
def silo(link: Link, name: str, data: Data) -> Iterator[subprocess.Popen[bytes]]:
    """A node on this machine, inside this block; entered again it goes on from its states."""
    folder = link.work / name
    folder.mkdir(exist_ok=True)
    if not (folder / "data.npz").exists():
        write_data(folder / "data.npz", data)
    tls = link.certificates
    command = node(
        link.address,
        name=name,
        data=folder / "data.npz",
        work=folder,
        state=folder / "state",
        authority=None if tls is None else tls.authority,
        insecure=tls is None,
    )
    with running(command, folder / "node.log", folder / "flower") as process:
        yield process


@contextmanager
def running(command: Sequence[str], log: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with all that it starts, ended with the block."""
    home.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], grace: float = 3.0) -> None:
    """Ask a process and its children to end, and make them after a while."""
    for sign, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait)


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """Nothing is fetched or told, and programs are those beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return {**os.environ, **threads, **flower.OFFLINE, "FLWR_HOME": str(home), "PATH": path}


def _program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise DeploymentError(f"federation: {name} must be there. pip install 'tacit[federated]'.")
    return str(path)


def _tls_options(tls: Certificates) -> list[str]:
    return [
        *("--ssl-ca-certfile", str(tls.authority)),
        *("--ssl-certfile", str(tls.certificate)),
        *("--ssl-keyfile", str(tls.key)),
    ]


def _toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML: its strings and numbers are written as in JSON."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def _await_port(host: str, port: int, process: subprocess.Popen[bytes], limit: float = 60) -> None:
    end_at = time.monotonic() + limit
    while time.monotonic() < end_at and process.poll() is None:
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.1)
    raise DeploymentError(f"federation: the SuperLink must listen on {host}:{port}. See its log.")


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of progress; one that is being written comes with the next look."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
