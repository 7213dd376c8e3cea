"""Connections to the database of campaigns: its address, its version and its secret."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.logs import Rarely
from tacit.apps.service.problems import Problem
from tacit.apps.service.tokens import Secret
from tacit.privacy import errors

_log = Rarely(10.0)


@contextmanager
def named_errors() -> Iterator[None]:
    """Turn an unresponsive database into a problem that quotes nothing of it, and log it."""
    try:
        yield
    except (sql.exc.OperationalError, sql.exc.InterfaceError, sql.exc.TimeoutError) as error:
        _log.warning("the database does not respond", error)
        raise Problem("database-away", "The database does not respond. Try again.") from None


def must_be_current(engine: sql.Engine) -> None:
    """Refuse a database of another version before any of its tables is changed."""
    with engine.connect() as connection:
        version = version_of(connection)
    if version is not None and version != tables.SCHEMA:
        remedy = "Use the version of Tacit that wrote it, or a new database."
        if version < tables.SCHEMA:
            remedy = "Make a backup, stop the servers, and run tacit campaign migrate --db ADDRESS."
        errors.refuse("database", "schema", str(tables.SCHEMA), version, remedy)


def version_of(connection: sql.Connection) -> int | None:
    """Return the version of the tables; None for a new database."""
    if not sql.inspect(connection).has_table(tables.versions.name):
        return None
    version = connection.execute(sql.select(tables.versions.c.version)).scalar()
    return None if version is None else int(version)


def matching_secret(connection: sql.Connection, path: Path) -> Secret:
    """Return the secret that this database was created with; make one for a new database."""
    version = connection.execute(sql.select(tables.versions)).first()
    wrong = "database: the secret must be the one that it was created with"
    if version is not None and not path.exists():
        raise errors.InvalidParameter(f"{wrong}; {path} does not exist. Give --secret FILE.")
    secret = Secret.of_file(path)
    if version is None:
        stated = {"version": tables.SCHEMA, "secret_mark": secret.mark()}
        connection.execute(tables.versions.insert(), stated)
    elif not hmac.compare_digest(version.secret_mark, secret.mark()):
        raise errors.InvalidParameter(f"{wrong}. Give --secret FILE.")
    return secret


def connect(url: str, *, make: bool = True) -> sql.Engine:
    """Connect to SQLite so that commits survive a power failure, or to PostgreSQL.

    Without `make`, an SQLite file must exist.
    """
    try:
        address = sql.make_url(url)
    except sql.exc.ArgumentError:
        errors.refuse("database", "address", "like sqlite:///campaign.db or postgresql://…", "…")
    if address.get_backend_name() == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
        return sql.create_engine(address, hide_parameters=True, connect_args={"connect_timeout": 5})
    if address.get_backend_name() != "sqlite" or not address.database:
        condition = "an SQLite file or PostgreSQL"
        errors.refuse("database", "address", condition, address.get_backend_name())
    if not make and not Path(address.database).is_file():
        errors.refuse("database", "file", "an existing one", address.database)
    try:  # readable by its owner only; SQLite gives the files beside it the same mode
        os.close(os.open(address.database, os.O_CREAT, 0o600))
    except OSError as error:
        errors.refuse("database", "file", "writable", error.strerror)
    engine = sql.create_engine(address, hide_parameters=True)
    sql.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # an acknowledged answer survives a power failure
        "busy_timeout=10000",
        "secure_delete=ON",  # withdrawn answers are overwritten
        # Rows are in random order, so a commit touches many pages: they are cached, and written
        # back in larger pieces than by default.
        "cache_size=-65536",
        "wal_autocheckpoint=4000",
    ):
        connection.execute(f"PRAGMA {pragma}")


def secret_file(address: sql.URL, given: Path | None) -> Path:
    """Return the file with the key of all hashes: by default beside an SQLite database."""
    if given is not None:
        return given
    if address.get_backend_name() != "sqlite":
        remedy = "The file is made if it does not exist; keep a copy of it."
        errors.refuse("database", "secret", "given for PostgreSQL, as --secret FILE", None, remedy)
    return Path(f"{address.database}.secret")
