"""Migrations of a database to the current version of its tables: all in one transaction.

Each version has a revision of Alembic. `tacit_schema` states the version of a database, as it did
before there were migrations; Alembic's own table is set from it. SQLite and PostgreSQL both undo a
migration that does not reach its end, so the database is of the old version or of the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import database, tables
from tacit.privacy import artifact, errors

_EARLIER_HASHES = (
    "The tables were of version 1, which two versions of Tacit wrote. Invitations and receipts of "
    "the earlier one were hashed in another way, which cannot be converted: if they are from it, "
    "links that were not used are refused as unknown, and receipts no longer delete. All reports "
    "are kept, and nobody can report twice. Invite again those who have not taken part, and delete "
    "a report on request by deleting its campaign."
)


@dataclass(frozen=True)
class Migration:
    """What a migration did.

    Parameters
    ----------
    before, after : int
        Versions of the tables.
    counts : dict of str to int
        Campaigns, invitations, answers and withdrawn answers, which are the same before and after.
    notes : list of str
        What the operator must know.
    """

    before: int
    after: int
    counts: dict[str, int]
    notes: list[str]


def migrate(url: str) -> Migration:
    """Bring a database to the current version of its tables, or leave it as it is.

    Stop servers that use the database before.
    """
    engine = database.connect(url, make=False)
    try:
        with database.named_errors(), _alone(engine) as connection:
            before = database.version_of(connection)
            if before is None:
                errors.refuse("migrate", "database", "one with campaigns", "none")
            if not 1 <= before <= tables.SCHEMA:
                remedy = "Use the version of Tacit that wrote it, or a later one."
                errors.refuse("migrate", "schema", f"at most {tables.SCHEMA}", before, remedy)
            counted = counts_of(connection)
            notes = [_EARLIER_HASHES] if before == 1 and counted["invitations"] else []
            if before < tables.SCHEMA:
                _upgrade(connection, before)
                tables.metadata.create_all(connection)
            if counts_of(connection) != counted:
                raise errors.InvalidData(
                    "migrate: the database must keep every row, and did not. Nothing was changed; "
                    "report this."
                )
            notes += _unreadable(connection)
        return Migration(before, tables.SCHEMA, counted, notes)
    finally:
        engine.dispose()


def _upgrade(connection: sql.Connection, before: int) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent))
    command.stamp(config, str(before), purge=True)
    command.upgrade(config, str(tables.SCHEMA))


@contextmanager
def _alone(engine: sql.Engine) -> Iterator[sql.Connection]:
    """Yield a connection in a transaction that nobody else writes in.

    Python's driver for SQLite begins transactions for some statements only, and not for those that
    change tables; here it begins one before the first statement.
    """
    if engine.dialect.name == "sqlite":
        sql.event.listen(engine, "connect", _begin_nothing)
        sql.event.listen(engine, "begin", _begin_at_once)
    with engine.begin() as connection:
        yield connection


def _begin_nothing(driver: Any, _: Any) -> None:
    driver.isolation_level = None


def _begin_at_once(connection: sql.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def counts_of(connection: sql.Connection) -> dict[str, int]:
    """Count what must not get lost, whatever the version of the tables."""
    columns = {one["name"] for one in sql.inspect(connection).get_columns("invitations")}

    def count(of: str) -> int:
        return int(connection.execute(sql.text(f"SELECT count(*) FROM {of}")).scalar_one())

    first_layout = "kind" in columns
    withdrawn = "invitations WHERE withdrawn" if first_layout else "answers WHERE content IS NULL"
    return {
        "campaigns": count("campaigns"),
        "invitations": count("invitations" + " WHERE kind = 'report'" * first_layout),
        "answers": count("answers WHERE content IS NOT NULL"),
        "withdrawn": count(withdrawn),
    }


def _unreadable(connection: sql.Connection) -> list[str]:
    """Name the campaigns whose mechanism this version cannot read."""
    r = tables.rounds.c
    notes = []
    for name, number, content in connection.execute(sql.select(r.campaign, r.number, r.artifact)):
        try:
            artifact.unpack(bytes(content), f"campaign {name}")
        except errors.TacitError as error:
            notes.append(
                f"The mechanism of campaign {name}, round {number}, cannot be read by this "
                f"version of Tacit ({error}) Its rows are kept, and receipts still delete them; "
                "to fetch its reports, use the version that made it, on a copy of the database "
                "from before the migration."
            )
    return notes
