"""Backups of a database of campaigns, and new databases from them.

A backup is one SQLite file, whichever kind of database it is made from: a snapshot of one moment,
taken while servers run. Its rows are in the order of their keys, which for answers are hashes, so
unlike a database's own files and dumps it does not show in which order answers arrived. The secret
is not in it.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sql

from tacit.apps.service import database, tables
from tacit.apps.service.keeping import BLOCK, Answers
from tacit.apps.service.migrations import counts_of
from tacit.privacy import errors, files

_DAMAGED = "backup: the file must be undamaged. Use another backup."


def back_up(url: str, path: Path) -> dict[str, int]:
    """Write a new file with all that a database holds now; return how many rows of each kind.

    The database may be of an earlier version if it is an SQLite file.
    """
    if path.exists():
        errors.refuse("backup", "file", "new", str(path), "Choose another.")
    engine = database.connect(url, make=False)
    try:
        with database.named_errors(), _placed(path) as part:
            version = _version(engine, "backup")
            if engine.dialect.name == "sqlite":
                _copy_file(engine, part)
                if version == tables.SCHEMA:
                    _merge(part)
            elif version == tables.SCHEMA:
                _read_all(engine, part)
            else:
                errors.refuse("backup", "schema", str(tables.SCHEMA), version, "Use pg_dump.")
            return _checked(part)
    finally:
        engine.dispose()


def restore(path: Path, url: str) -> dict[str, int]:
    """Write what a backup holds into a new database; return how many rows of each kind.

    A restore that does not reach its end leaves no database, or an empty one.
    """
    counted, source = _checked(path), _reader(path)
    try:
        if (version := _version(source, "restore")) != tables.SCHEMA:
            remedy = f"Migrate it first: tacit campaign migrate --db sqlite:///{path}."
            errors.refuse("restore", "schema", str(tables.SCHEMA), version, remedy)
        address = sql.make_url(url)
        if address.get_backend_name() == "sqlite":
            made = Path(str(address.database))
            _must_be_new(not made.exists(), str(made))
            with _placed(made) as part:
                _copy_file(source, part)
        else:
            _write_all(source, url)
    finally:
        source.dispose()
    return counted


@contextmanager
def _placed(path: Path) -> Iterator[Path]:
    """Provide a path in a hidden folder; what is there in the end becomes `path`."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        part = Path(folder) / path.name
        yield part
        os.chmod(part, files.OWN)
        files.move(part, path)


def _reader(path: Path) -> sql.Engine:
    """Open a backup without changing it."""
    where = f"file:{quote(str(path))}?mode=ro"
    return sql.create_engine("sqlite://", creator=lambda: sqlite3.connect(where, uri=True))


def _checked(path: Path) -> dict[str, int]:
    """Read a backup through, and count what it holds; refuse a damaged one."""
    engine = _reader(path)
    try:
        _version(engine, "backup")
        with engine.connect() as connection:
            if connection.exec_driver_sql("PRAGMA integrity_check").scalar() != "ok":
                raise errors.InvalidData(_DAMAGED)
            return counts_of(connection)
    except sql.exc.DatabaseError:
        raise errors.InvalidData(_DAMAGED) from None
    finally:
        engine.dispose()


def _version(engine: sql.Engine, where: str) -> int:
    with engine.connect() as connection:
        version = database.version_of(connection)
    if version is None:
        errors.refuse(where, "database", "one with campaigns", "none")
    if version > tables.SCHEMA:
        errors.refuse(where, "schema", f"at most {tables.SCHEMA}", version, "Use a later version.")
    return version


def _must_be_new(new: bool, what: str) -> None:
    if not new:
        errors.refuse("restore", "database", "new", what, "Restore into another, and serve that.")


def _copy_file(engine: sql.Engine, path: Path) -> None:
    """Let SQLite write a snapshot of one file into a new one, in the order of keys."""
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        connection.execute(sql.text("VACUUM INTO :path"), {"path": str(path)})


def _merge(path: Path) -> None:
    """Merge the log in a copy: its entries show which answers arrived together."""
    engine = sql.create_engine(f"sqlite:///{path}")
    try:
        Answers(engine).merge()
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql("VACUUM")
    finally:
        engine.dispose()


def _read_all(engine: sql.Engine, path: Path) -> None:
    """Copy a snapshot of PostgreSQL into a new file."""
    made = sql.create_engine(f"sqlite:///{path}")
    snapshot = engine.execution_options(isolation_level="REPEATABLE READ")
    try:
        with snapshot.connect() as source, made.begin() as target:
            tables.metadata.create_all(target)
            _copy(source, target)
    finally:
        made.dispose()


def _write_all(source: sql.Engine, url: str) -> None:
    """Copy a backup into an empty PostgreSQL database, in one transaction."""
    engine = database.connect(url)
    try:
        with database.named_errors(), source.connect() as held, engine.begin() as target:
            there = set(sql.inspect(target).get_table_names()) & set(tables.metadata.tables)
            _must_be_new(not there, engine.url.database or "")
            tables.metadata.create_all(target)
            _copy(held, target)
            for table in tables.metadata.tables.values():
                _go_on_counting(target, table)
    finally:
        engine.dispose()


def _copy(source: sql.Connection, target: sql.Connection) -> None:
    for table in tables.metadata.sorted_tables:
        query = sql.select(table).order_by(*table.primary_key.columns)
        found = source.execution_options(yield_per=BLOCK).execute(query)
        for part in found.mappings().partitions():
            target.execute(table.insert(), [dict(row) for row in part])


def _go_on_counting(target: sql.Connection, table: sql.Table) -> None:
    """Let PostgreSQL number new rows after those that were copied."""
    column = table.autoincrement_column
    if column is None:
        return
    last = target.execute(sql.select(sql.func.max(column))).scalar()
    if last is not None:
        sequence = sql.func.pg_get_serial_sequence(table.name, column.name)
        target.execute(sql.select(sql.func.setval(sequence, last)))
