"""A real deployment: Flower's SuperLink and SuperNodes as separate processes.

`SuperLink` starts a SuperLink and submits jobs to it; `joining.node` builds the command of one
SuperNode, which a silo runs on its own machine. On loopback both are started and stopped here.

Notes
-----
Whoever reaches a SuperLink's control interface may submit a run, and so execute code on its nodes:
that is how Flower works. The interface shares the port that nodes use, under the path
`/v1/control`, and node authentication does not cover it. Over a network use TLS (`Certificates`),
and expose only `/v1/fleet` to nodes: by a proxy, or by admitting only known addresses.

With `authenticated`, a name is tied to a key as follows. Flower assigns each registered key a node
id, and nobody can act under that id without a signature by the key. The run gets the client of each
id; every other node is unknown, is never asked, and its replies never count, even if its key was
registered later by somebody else. A signature covers the time, not the content: in transit only TLS
protects what is sent.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tacit.federated import flower
from tacit.federated.app.job import Job
from tacit.federated.app.joining import Terms, toml
from tacit.federated.app.joining import node as node
from tacit.federated.app.nodes import PROGRESS, RESULT, SERVER, TEST, write_data
from tacit.federated.app.processes import (
    LOOPBACK,
    DeploymentError,
    await_port,
    environment,
    free_port,
    own_folder,
    program,
    running,
)
from tacit.federated.model import Data
from tacit.privacy import errors, files

_EVERYWHERE = ("0.0.0.0", "::")
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


@dataclass(frozen=True)
class Certificates:
    """PEM files for TLS: the authority that nodes trust, the server's certificate and its key.

    The certificate must name the address that nodes connect to, and also 127.0.0.1 if the server
    listens on all interfaces.
    """

    authority: Path
    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        for path in (self.authority, self.certificate, self.key):
            if not path.is_file():
                errors.refuse("Certificates", "path", "an existing file", str(path))


class SuperLink:
    """A SuperLink on this machine, and the jobs that are submitted to it.

    Parameters
    ----------
    work : Path
        An empty folder for its state, logs and results. Logs contain which clients were asked and
        which replied, so only its owner can read the folder.
    host : str
        Address on which it listens.
    port : int, optional
        Port on which it listens; by default a free one.
    certificates : Certificates, optional
        Files for TLS, required except on loopback.
    authenticated : mapping of str to Path, optional
        Public keys (ECDSA, OpenSSH format) by client name. Only nodes with these keys take part,
        each under the name of its key whatever name it states. This requires TLS.
    """

    def __init__(
        self,
        work: Path,
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        certificates: Certificates | None = None,
        authenticated: Mapping[str, Path] | None = None,
    ) -> None:
        if certificates is None and host not in (LOOPBACK, "localhost"):
            remedy = "Give certificates."
            errors.refuse("SuperLink", "host", "127.0.0.1 without TLS", host, remedy)
        if certificates is None and authenticated is not None:
            remedy = "Flower authenticates nodes only over TLS."
            errors.refuse("SuperLink", "certificates", "given with authenticated", None, remedy)
        for path in (authenticated or {}).values():
            if not path.is_file():
                errors.refuse("SuperLink", "key of authenticated", "an existing file", str(path))
        self.work, self.certificates, self.authenticated = work, certificates, authenticated
        chosen = port or free_port()
        self.address = f"{host}:{chosen}"
        self._near = f"{LOOPBACK if host in _EVERYWHERE else host}:{chosen}"
        self._known: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._home = own_folder(own_folder(work) / "flower")

    @contextmanager
    def serving(self) -> Iterator[SuperLink]:
        """Run the SuperLink inside this block."""
        host, port = self.address.rsplit(":", 1)
        tls = self.certificates
        secure = ["--insecure"] if tls is None else _tls_options(tls)
        command = [
            *(program("flower-superlink"), *secure, "--host", host, "--port", port),
            *(() if self.authenticated is None else ("--enable-supernode-auth",)),
            "--disable-runtime-dependency-installation",
        ]
        files.replace(self._home / "config.toml", self._connection().encode(), files.OWN)
        log = self.work / "superlink.log"
        with running(command, log, self._home, flower.HUSHED) as process:
            self._process = process
            await_port(self._near.rsplit(":", 1)[0], int(port), process)
            for name, key in sorted((self.authenticated or {}).items()):
                output = self._flwr("supernode", "register", str(key), "here", "--name", name)
                node_id = re.search(r'"node-id": "?(\d+)', output)
                if node_id is None:
                    raise DeploymentError(f"federation: Flower must register the key of {name}.")
                self._known[node_id[1]] = name
            yield self

    def submit(
        self,
        job: Job,
        patience: float,
        ledger: tuple[Path, str] | None = None,
        roster: Path | None = None,
    ) -> None:
        """Start a run of a job; the server waits `patience` seconds for clients and for replies.

        For secure sums `roster` is the folder of the clients' public keys, if these are not those
        that it authenticates them with.
        """
        app = self.work / "app"
        (app / "tacit_federation").mkdir(parents=True)
        (app / "tacit_federation" / "__init__.py").touch()
        (app / "tacit_federation" / "apps.py").write_text(_MODULE, encoding="utf-8")
        settings: dict[str, Any] = {"patience": patience}
        if ledger is not None:
            settings |= {"ledger": str(ledger[0].resolve()), "account": ledger[1]}
        if self.authenticated is not None:
            settings |= {"nodes": self._known}
        if job.secure:
            known = self.authenticated if roster is None else _keys_in(roster)
            settings |= {"keys": {name: key.read_text() for name, key in (known or {}).items()}}
        # For the server alone; the configuration below goes to every node.
        files.replace(self.work / SERVER, json.dumps(settings).encode(), files.OWN)
        text = _APP + toml({"job": job.to_json(), "work": str(self.work.resolve())})
        (app / "pyproject.toml").write_text(text, encoding="utf-8")
        self._flwr("run", str(app), "here")

    def follow(
        self,
        on_round: Callable[[dict[str, Any]], object],
        limit: float,
        needed: Mapping[str, subprocess.Popen[bytes]] = MappingProxyType({}),
        arrived: Callable[[int], object] = lambda here: None,
    ) -> Path:
        """Follow a run until it ends, and return the folder of its result.

        `on_round` is called with every round, `arrived` with the number of clients that are online.

        Raises
        ------
        DeploymentError
            If it has not ended after `limit` seconds, or a needed process ended by itself.
        """
        heard, end = 0, time.monotonic() + limit
        if self._process is not None:
            needed = {"the SuperLink": self._process, **needed}
        while time.monotonic() < end:
            lines = _lines(self.work / PROGRESS)
            for line in lines[heard:]:
                if "error" in line:
                    kind = getattr(errors, line["kind"], DeploymentError)
                    raise kind(line["error"])
                if "here" in line:
                    arrived(line["here"])
                else:
                    on_round(line)
            heard = len(lines)
            if (self.work / RESULT).is_dir():
                return self.work / RESULT
            if gone := [name for name, process in needed.items() if process.poll() is not None]:
                raise DeploymentError(f"federation: {gone[0]} must keep running. See its log.")
            time.sleep(0.3)
        raise DeploymentError(
            f"federation: a run must end within {limit:g} s. See {self.work / 'superlink.log'}."
        )

    def _flwr(self, *arguments: str) -> str:
        """Run Flower's own command, and return its output if it succeeded."""
        done = subprocess.run(
            [program("flwr"), *arguments, "--format", "json"],
            env=environment(self._home),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or '"success": true' not in done.stdout:
            reason = " ".join((done.stdout + done.stderr).split())[:300]
            raise DeploymentError(f"federation: Flower must accept {arguments[0]}, got {reason}")
        return done.stdout

    def _connection(self) -> str:
        tls = self.certificates
        trust = (
            {"insecure": True}
            if tls is None
            else {"root-certificates": str(tls.authority.resolve())}
        )
        return "[superlink.here]\n" + toml({"address": self._near, **trust})


def deploy(
    job: Job,
    clients: Sequence[Data],
    work: Path,
    *,
    test: Data | None = None,
    on_round: Callable[[dict[str, Any]], object] = lambda line: None,
    certificates: Certificates | None = None,
    patience: float = 120.0,
    limit: float = 3600.0,
    ledger: tuple[Path, str] | None = None,
) -> Path:
    """Run a job on loopback, with a separate process for the server and for every client.

    Parameters
    ----------
    job : Job
        The job.
    clients : sequence of Data
        Rows of each client. They are written to the work folder, where a silo would hold its own.
    work : Path
        An empty folder.
    test : Data, optional
        The server's own rows, for evaluation.
    on_round : callable
        Called with every round.
    certificates : Certificates, optional
        Files for TLS.
    patience : float
        Seconds that the server waits for clients to appear, and for the replies of an exchange.
    limit : float
        Seconds for the whole run.
    ledger : tuple of Path and str, optional
        A ledger file and the account that the server charges. With a guarantee for records each
        silo instead has its own ledger in its folder, with the cost of the job as budget.

    Returns
    -------
    Path
        The folder with model, certificate and history.
    """
    link = SuperLink(work, certificates=certificates)
    if test is not None:
        write_data(work / TEST, test)
    with link.serving(), ExitStack() as nodes:
        names = {f"client-{number:05d}": data for number, data in enumerate(clients)}
        keys = own_keys(work, names) if job.secure else {}
        roster = work / "roster" if job.secure else None
        needed = {}
        for name in names:
            budget = own_budget(job, work, name)
            own = silo(link, name, names[name], key=keys.get(name), roster=roster, terms=budget)
            needed[name] = nodes.enter_context(own)
        link.submit(job, patience, ledger, roster)
        return link.follow(on_round, limit, needed)


def own_keys(work: Path, names: Iterable[str]) -> dict[str, Path]:
    """Create a key for each silo on this machine, and a roster of the public ones."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    keys, roster = {}, own_folder(work / "roster")
    for name in names:
        made = ec.generate_private_key(ec.SECP384R1())
        private = made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = made.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        keys[name] = own_folder(work / name) / "key"
        files.replace(keys[name], private, files.OWN)
        (roster / f"{name}.pub").write_bytes(public)
    return keys


def _keys_in(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.pub"))}


def own_budget(job: Job, work: Path, name: str) -> Terms:
    """Create the ledger of a silo on this machine, with the cost of the job as budget."""
    budget = job.record_budget()
    if budget is None:
        return Terms()
    from tacit.privacy.accounting.ledger import Ledger

    path = own_folder(work / name) / "ledger.db"
    if not path.exists():
        path.touch(mode=0o600)
        with Ledger(path) as ledger:
            ledger.open(name, budget)
    return Terms("record", path, name)


@contextmanager
def silo(
    link: SuperLink,
    name: str,
    data: Data,
    *,
    key: Path | None = None,
    roster: Path | None = None,
    terms: Terms = Terms(),  # noqa: B008
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a node on this machine inside this block; run again, it continues from its states."""
    folder = own_folder(link.work / name)
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
        key=key,
        roster=roster,
        terms=terms,
    )
    with running(command, folder / "node.log", folder / "flower") as process:
        yield process


def _tls_options(tls: Certificates) -> list[str]:
    return [
        *("--ssl-ca-certfile", str(tls.authority)),
        *("--ssl-certfile", str(tls.certificate)),
        *("--ssl-keyfile", str(tls.key)),
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines of progress; a line that is still being written comes next time."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
