"""The SQLite file of a ledger: opening, checks, locks, and errors in one line."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.privacy import errors

SCHEMA_VERSION = 1
BUSY_SECONDS = 60.0
"""How long to wait for another process that is charging."""

_APPLICATION_ID = 0x54616369  # "Taci": tells a ledger from any other SQLite file.
_SCHEMA = (
    "CREATE TABLE accounts (name TEXT PRIMARY KEY, budget TEXT NOT NULL, spent TEXT NOT NULL)",
    # One list, so that the order of charges and budgets is on record. A row holds an event and
    # its amount, or a budget and its reason.
    "CREATE TABLE entries (number INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL,"
    " key TEXT NOT NULL, event TEXT, delta TEXT, amount TEXT, budget TEXT, reason TEXT,"
    " time TEXT NOT NULL, UNIQUE (account, key))",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_REMEDIES = {
    "SQLITE_BUSY": "Another process holds it: try again, with the same key.",
    "SQLITE_READONLY": "Make the file and its folder writable.",
    "SQLITE_CANTOPEN": "Check that it is a file that may be read and written.",
    "SQLITE_NOTADB": "Choose a ledger, or a file that does not exist yet.",
}


class LedgerFile:
    """A connection to a ledger's file. It belongs to one thread of one process.

    Parameters
    ----------
    path
        The file, created if missing. Its folder must exist, on a local disk: SQLite's locks are
        not safe on most network file systems.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _absolute(path)
        self._process = os.getpid()
        with self._errors("Ledger"):
            self.db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.db.close()
            raise

    def _prepare(self) -> None:
        with self.transaction("Ledger", write=False):
            is_new = self._is_new()
        if is_new:
            with self.transaction("Ledger", write=True):
                # Checked again under the lock: another process may have been first.
                for statement in _SCHEMA if self._is_new() else ():
                    self.db.execute(statement)
        with self._errors("Ledger"):
            # Only now: a file that is not a ledger has been refused, unchanged.
            self._switch_to_wal()
            self.db.execute("PRAGMA synchronous = FULL")

    def _switch_to_wal(self) -> None:
        """Switch to WAL, once in the life of a file. SQLite may not wait for its lock, so we do."""
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
                if not is_busy or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)

    def _is_new(self) -> bool:
        """Return whether the file is empty; raise if it contains anything but a ledger."""
        application = self.db.execute("PRAGMA application_id").fetchone()[0]
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        tables = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == version == tables == 0:
            return True
        if application != _APPLICATION_ID:
            raise errors.LedgerError(
                f"Ledger: path must be a ledger, got another database at {str(self.path)!r}. "
                + _REMEDIES["SQLITE_NOTADB"]
            )
        if version != SCHEMA_VERSION:
            raise errors.LedgerError(
                f"Ledger: schema version must be {SCHEMA_VERSION}, got {version} at "
                f"{str(self.path)!r}. Open it with the version of Tacit that wrote it."
            )
        return False

    @contextmanager
    def transaction(self, where: str, *, write: bool) -> Iterator[sqlite3.Connection]:
        """Run all or nothing. To write, the lock is taken before the first read, so that nobody
        else can spend what we have seen to be left.
        """
        if os.getpid() != self._process:
            raise errors.LedgerError(
                f"{where}: a ledger must be used by the process that opened it, got a fork. "
                "Open it again there."
            )
        with self._errors(where):
            try:
                self.db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                # After some failures SQLite has already rolled back.
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._errors("Ledger.close"):
            self.db.close()

    @contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Report problems with the file in one line, instead of a traceback from sqlite3."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            remedy = next((text for code, text in _REMEDIES.items() if name.startswith(code)), "")
            raise errors.LedgerError(
                f"{where}: path must be a ledger that can be read and written, got "
                f"{str(self.path)!r} ({error}). {remedy}".rstrip()
            ) from None


def _absolute(path: str | os.PathLike[str]) -> Path:
    try:
        # SQLite's special names (":memory:", "") become ordinary files.
        file = Path(os.path.abspath(Path(path)))
        is_a_name = b"\0" not in os.fsencode(file)
    except (TypeError, ValueError):
        is_a_name = False
    if not is_a_name:
        errors.refuse("Ledger", "path", "the path of a file", path)
    if not os.path.isdir(file.parent):
        raise errors.LedgerError(
            f"Ledger: path must be in a folder that exists, got {str(file)!r}. Create it first."
        )
    return file
