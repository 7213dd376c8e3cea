"""Processes of a deployment: started with their children, ended with them, read by nobody else."""

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
"""What others may not do with files that a process of a deployment writes."""


class DeploymentError(errors.TacitError):
    """A process of a deployment did not do what it should."""


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    home: Path,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with all that it starts, ended with the block; with more in its environment."""
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
    """Ask a process and its children to end, and make them after a while."""
    for sign, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait)


def keep(command: Sequence[str], home: Path, pause: float = 5.0) -> None:
    """Run a program until this one is told to end; one that ends by itself is started again.

    A node that comes before its server, or before the server knows its key, ends at once; so does
    one whose server was started anew. Its owner should not have to watch.
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
    """A folder that its owner alone can look into, new or not: logs name who was asked."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """Nothing is fetched or told, and programs are those beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    usual = {**flower.PROMPT, "OMP_NUM_THREADS": "1"}
    return {**usual, **os.environ, **flower.OFFLINE, "FLWR_HOME": str(home), "PATH": path}


def program(name: str) -> str:
    """The path of a program of Flower's."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise DeploymentError(f"federation: {name} must be there. pip install 'tacit[federated]'.")
    return str(path)


def await_port(host: str, port: int, process: subprocess.Popen[bytes], limit: float = 60) -> None:
    """Until a process listens.

    Raises
    ------
    DeploymentError
        If it does not within so many seconds, or ended.
    """
    end_at = time.monotonic() + limit
    while time.monotonic() < end_at and process.poll() is None:
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.1)
    raise DeploymentError(f"federation: the SuperLink must listen on {host}:{port}. See its log.")
