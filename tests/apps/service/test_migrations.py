"""Databases that earlier versions made: real ones, from `old/`, brought to the current version.

Each was written by that version's own code: a campaign with 12 invitations, 10 reports of which one
was withdrawn, a published model and two votes. `1a` to `1d` are the layouts of version 1.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sql

from tacit.apps.service import database, tables
from tacit.apps.service.migrations import migrate
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import REPORT, VOTE, Store
from tacit.privacy import errors

OLD = Path(__file__).parent / "old"
VERSIONS = ("1a", "1b", "1c", "1d", "2", "3", "4")
EARLIER_HASHES = ("1a", "1b", "1c")
"""Written before tokens were hashed as they are now."""
READABLE = ("3", "4")
"""With a mechanism that this version reads: the certificates in older ones have another format."""

_MIGRATE_AND_DIE = """
import os, signal, sys
import sqlalchemy as sql
from tacit.apps.service.migrations import migrate
left = int(sys.argv[2])
@sql.event.listens_for(sql.Engine, "after_cursor_execute")
def count(connection, cursor, statement, parameters, context, many):
    global left
    if statement.startswith(("CREATE", "INSERT", "DROP", "ALTER", "UPDATE")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
migrate(sys.argv[1])
"""


class OldDatabase:
    def __init__(self, version, url, folder):
        self.version, self.url = version, url
        self.facts = json.loads((OLD / f"{version}.json").read_text())
        self.secret = folder / "secret"
        self.secret.write_bytes(bytes.fromhex(self.facts["secret"]))
        self.name = self.facts["campaign"]

    def content(self):
        """Everything that is in it, as bytes and numbers."""
        engine = database.connect(self.url)
        found = {}
        reflected = sql.MetaData()
        with engine.connect() as connection:
            reflected.reflect(connection)
            for name, table in sorted(reflected.tables.items()):
                found[name] = sorted(map(repr, connection.execute(sql.select(table)).all()))
        engine.dispose()
        return found

    def open(self):
        return Store.open(self.url, self.secret)


def write_sqlite(path, version):
    connection = sqlite3.connect(path)
    connection.executescript((OLD / f"{version}.sql").read_text())
    connection.close()


def write_postgresql(url, version, source):
    """The tables as that version made them on PostgreSQL, with the rows that it wrote on SQLite."""
    engine = database.connect(url)
    held = sqlite3.connect(source)
    with engine.begin() as connection:
        for statement in (OLD / f"{version}.postgresql.sql").read_text().split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
        reflected = sql.MetaData()
        reflected.reflect(connection)
        for name, table in reflected.tables.items():
            columns = list(table.columns)
            named = ", ".join(f'"{column.name}"' for column in columns)
            for row in held.execute(f"SELECT {named} FROM {name}"):
                values = {
                    column.name: bool(value) if isinstance(column.type, sql.Boolean) else value
                    for column, value in zip(columns, row, strict=True)
                }
                connection.execute(table.insert(), values)
        if "number" in reflected.tables["campaigns"].c:
            connection.exec_driver_sql("SELECT nextval('campaigns_number_seq')")
    held.close()
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request):
    return request.param


@pytest.fixture
def old(request, kind, tmp_path):
    """How to make the database of a version."""

    def make(version):
        write_sqlite(tmp_path / f"{version}.db", version)
        url = f"sqlite:///{tmp_path}/{version}.db"
        if kind == "postgresql":
            url = request.getfixturevalue("postgres").create()
            write_postgresql(url, version, tmp_path / f"{version}.db")
        return OldDatabase(version, url, tmp_path)

    return make


@pytest.mark.parametrize("version", VERSIONS)
def test_all_data_are_there_and_the_campaign_goes_on(old, version):
    made = old(version)
    with pytest.raises(errors.InvalidParameter, match="tacit campaign migrate"):
        made.open()
    done = migrate(made.url)
    assert (done.before, done.after) == (made.facts["schema"], tables.SCHEMA)
    assert done.counts == {"campaigns": 1, "invitations": 12, "answers": 11, "withdrawn": 1}
    notes = " ".join(done.notes)
    assert ("hashed in another way" in notes) == (made.facts["schema"] == 1)
    assert ("cannot be read by this version of Tacit" in notes) == (version not in READABLE)
    store = made.open()
    assert set(sql.inspect(store.engine).get_table_names()) >= set(tables.metadata.tables)
    assert "files" not in sql.inspect(store.engine).get_table_names()
    try:
        _goes_on(store, made)
    finally:
        store.engine.dispose()


def _goes_on(store, made):
    facts, name = made.facts, made.name
    status = store.status(name)
    assert (status.reports, status.votes, status.model_sha256) == (9, 2, facts["model"])
    assert stored(store) == {
        (0, 1, json.dumps(one, sort_keys=True, separators=(",", ":")).encode())
        for at, one in enumerate(facts["reports"][:10])
        if at != 1
    } | {(1, 0, bytes(8)), (1, 0, bytes([1]) + bytes(7))}
    assert store.model(name)
    store.must_own(name, facts["key"])
    if made.version in READABLE:
        _takes_answers(store, made)
    else:
        assert store.campaigns() == []
        with pytest.raises(errors.TacitError, match="tacit-certificate/1"):
            store.submit(REPORT, name, [(facts["tokens"][11], facts["reports"][11])])
    if made.version in EARLIER_HASHES:
        with pytest.raises(Problem, match="receipt"):
            store.withdraw(name, facts["receipts"][0])
    else:
        before = store.status(name).reports
        assert store.withdraw(name, facts["receipts"][0])
        assert store.status(name).reports == before - 1


def stored(store):
    """Kind, round and content of every answer that was not withdrawn."""
    a = tables.answers.c
    query = sql.select(a.kind, a.round, a.content).where(a.content.is_not(None))
    with store.engine.connect() as connection:
        return {(kind, number, bytes(one)) for kind, number, one in connection.execute(query)}


def _takes_answers(store, made):
    facts, name = made.facts, made.name
    (reports,) = store.reports(name)
    assert len(reports) == 9
    assert len(store.votes(name).symbols) == 2
    given = list(zip(facts["tokens"], facts["reports"], strict=True))
    outcomes = store.submit(REPORT, name, given)
    codes = [one.code if isinstance(one, Problem) else one for one in outcomes]
    assert codes[:10] == [facts["receipts"][0], "withdrawn", *facts["receipts"][2:10]]
    assert store.status(name).reports == 11  # the two who had not reported yet
    again = store.submit(VOTE, name, [(facts["tokens"][0], 1)], facts["model"])
    assert again == [facts["vote_receipts"][0]]


@pytest.mark.parametrize("version", ["1a", "1c"])
def test_no_token_of_an_earlier_hash_reports_twice(old, version, mechanism, digits):
    """Even if the campaign could be read: its tokens lead to no row of this database."""
    made = old(version)
    migrate(made.url)
    store = made.open()
    known, _ = store.create(mechanism, title="New", purpose="A trial.", labelled=True)
    place = store._places(made.name, REPORT, made.facts["tokens"])
    rows = {row for one in place for row in one}
    with store.engine.connect() as connection:
        for table in (tables.invitations, tables.answers):
            assert not rows & set(map(bytes, connection.execute(sql.select(table.c.row)).scalars()))
    (found,) = store.answers.keep(known, REPORT, place[:1], [b"abc"], None)
    assert found.code == "unknown-token"
    store.engine.dispose()


@pytest.mark.parametrize("version", ["1a", "2"])
def test_a_migration_that_is_killed_leaves_the_old_database(old, version):
    """Killed after each of its statements in turn, until it comes to its end."""
    made = old(version)
    before = made.content()
    steps = range(1, 60) if made.url.startswith("sqlite") else (1, 4, 9, 14, 18)
    killed = 0
    for step in steps:
        arguments = [sys.executable, "-c", _MIGRATE_AND_DIE, made.url, str(step)]
        if killed >= 3 and step % 7:  # a process each: not all of them
            continue
        ended = subprocess.run(arguments, env={**os.environ}, check=False, timeout=120)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        assert made.content() == before
        killed += 1
    assert killed >= 4
    migrate(made.url)
    store = made.open()
    assert store.status(made.name).reports == 9
    store.engine.dispose()


def test_a_current_database_is_left_alone(old):
    made = old("4")
    migrate(made.url)
    before = made.content()
    done = migrate(made.url)
    assert (done.before, done.after) == (tables.SCHEMA, tables.SCHEMA)
    assert made.content() == before


def test_what_cannot_be_migrated_is_refused(tmp_path, store):
    with pytest.raises(errors.InvalidParameter, match="existing"):
        migrate(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(errors.InvalidParameter, match="one with campaigns"):
        migrate(f"sqlite:///{tmp_path}/empty.db")
    with store.engine.begin() as connection:
        connection.execute(tables.versions.update().values(version=99))
    with pytest.raises(errors.InvalidParameter, match=f"at most {tables.SCHEMA}, got 99"):
        migrate(str(store.engine.url))


def test_a_mechanism_that_cannot_be_read_is_kept_and_named(old):
    made = old("3")
    engine = database.connect(made.url)
    with engine.begin() as connection:
        rounds = sql.table("rounds", sql.column("artifact"))
        connection.execute(sql.update(rounds).values(artifact=b"of a format that is not read"))
    engine.dispose()
    done = migrate(made.url)
    assert done.counts["answers"] == 11
    assert made.name in " ".join(done.notes)


def test_revisions_end_at_the_tables_that_are_declared(old):
    """A migrated database has the columns of a new one."""
    made = old("1a")
    migrate(made.url)
    engine = database.connect(made.url)
    inspector = sql.inspect(engine)
    for name, table in tables.metadata.tables.items():
        found = {one["name"]: one["nullable"] for one in inspector.get_columns(name)}
        declared = {column.name: column.nullable for column in table.columns}
        assert found == declared, name
    engine.dispose()
