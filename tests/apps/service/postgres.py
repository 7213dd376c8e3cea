"""A PostgreSQL of one's own: started for the tests where its programs are here, and stopped again.

Data are in a temporary folder, it listens on the loopback address alone, and writes are flushed as
in service: nothing is turned off for the sake of speed.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

ABSENT = "PostgreSQL's binaries are not here: apt-get install postgresql"
_USER = "postgres"
_PATIENCE = 60


def binary(name):
    """Where a program of PostgreSQL is, or None."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(versions[0]) if versions else shutil.which(name)


def present():
    return all(map(binary, ("initdb", "postgres", "pg_ctl"))) and (
        os.geteuid() != 0 or _other_user() is not None
    )


class Postgres:
    """One server process group; `stop` and `start` take it away and bring it back."""

    def __init__(self, folder):
        self.folder, self.port = Path(folder), free_port()
        self.data, self.log = self.folder / "data", self.folder / "log"
        self._run("initdb", "-D", self.data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        self._count = 0

    @property
    def url(self):
        """Of the database that every such server has."""
        return self.url_of("postgres")

    def url_of(self, database):
        return f"postgresql+psycopg://{_USER}@127.0.0.1:{self.port}/{database}"

    def create(self):
        """The address of a new, empty database."""
        import psycopg

        self._count += 1
        name = f"campaign_{os.getpid()}_{self._count}"
        where = f"host=127.0.0.1 port={self.port} user={_USER} dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def start(self):
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder}"
        self._run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-o", options, "start")

    def stop(self, mode="fast"):
        """Gone: "fast" rolls back what runs, "immediate" is as if the machine had died."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    @property
    def running(self):
        return (self.data / "postmaster.pid").exists()

    def _run(self, name, *arguments):
        done = subprocess.run(
            [*_as_other_user(), binary(name), *map(str, arguments)],
            stdout=subprocess.DEVNULL,  # a pipe would stay open as long as the server runs
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            said = self.log.read_text() if self.log.exists() else ""
            raise RuntimeError(f"{name} failed ({done.returncode}): {said[-2000:]}")


@contextmanager
def started():
    """A running server, gone with its data afterwards."""
    with tempfile.TemporaryDirectory(prefix="tacit-postgres-") as folder:
        _hand_over(folder)
        server = Postgres(folder)
        try:
            server.start()
            yield server
        finally:
            if server.running:
                server.stop("immediate")


@pytest.fixture(scope="session")
def postgres():
    if not present():
        pytest.skip(ABSENT)
    with started() as server:
        yield server


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _other_user():
    """PostgreSQL refuses to run as root: its own user, or nobody, has to."""
    import pwd

    for name in (_USER, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _as_other_user():
    if os.geteuid() != 0:
        return []
    user = _other_user()
    # setpriv replaces itself by the program; no shell, no login, no session in between.
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--"]


def _hand_over(folder):
    os.chmod(folder, 0o700)
    if os.geteuid() == 0:
        user = _other_user()
        os.chown(folder, user.pw_uid, user.pw_gid)
