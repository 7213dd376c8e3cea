"""Processes of a deployment: they end together with their children, and their files are private."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from tacit.federated import flower
from tacit.privacy import errors

LOOPBACK = "127.0.0.1"
OWN = 0o077
"""The umask of processes of a deployment: only their owner can read their files."""


class DeploymentError(errors.TacitError):
    """A failure of a process of a deployment."""


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    home: Path,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process inside this block, and end it and its children afterwards.

    `more` adds to its environment.
    """
    own_folder(home)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as out:
        process = subprocess.Popen(
            command,
            env={**environment(home), **more},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            umask=OWN,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], grace: float = 3.0) -> None:
    """Terminate a process and its children, and kill them after a grace period."""
    for sign, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait)


def keep(command: Sequence[str], home: Path, pause: float = 5.0) -> None:
    """Run a program until this process is told to end, and restart it whenever it ends by itself.

    A node that is started before its server, or before the server knows its key, ends at once; so
    does one whose server was restarted. Its owner should not have to watch it.
    """
    own_folder(home)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    while True:
        process = subprocess.Popen(
            command, env=environment(home), start_new_session=True, umask=OWN
        )
        try:
            process.wait()
            time.sleep(pause)
        except KeyboardInterrupt:
            return
        finally:
            end(process, grace=1.5)


def own_folder(path: Path) -> Path:
    """Make a folder that only its owner can read, even if it exists: logs name clients."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def free_port() -> int:
    """Find a free port on loopback."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """Build the environment: Flower stays offline, and programs are those beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    usual = {**flower.PROMPT, "OMP_NUM_THREADS": "1"}
    return {**usual, **os.environ, **flower.OFFLINE, "FLWR_HOME": str(home), "PATH": path}


def program(name: str) -> str:
    """Return the path of one of Flower's programs."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise DeploymentError(
            f"federation: {name} must be installed. pip install 'tacit[federated]'."
        )
    return str(path)


def await_port(host: str, port: int, process: subprocess.Popen[bytes], limit: float = 60) -> None:
    """Wait until a process listens on a port.

    Raises
    ------
    DeploymentError
        If it does not within `limit` seconds, or ends.
    """
    end_at = time.monotonic() + limit
    while time.monotonic() < end_at and process.poll() is None:
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.1)
    raise DeploymentError(f"federation: the SuperLink must listen on {host}:{port}. See its log.")
