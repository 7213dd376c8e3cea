"""The database tables, with every column. None holds a raw value, a time or an address."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sql

SCHEMA = 5
"""Version of the tables, raised with every change; a database of another version is refused."""

REPORT, VOTE = "report", "vote"
CODES = {REPORT: 0, VOTE: 1}
"""Kinds as they are stored: short, because a commit writes a page for most rows."""

metadata = sql.MetaData()

versions = sql.Table(
    "tacit_schema",
    metadata,
    sql.Column("version", sql.Integer, primary_key=True),
    sql.Column("secret_mark", sql.LargeBinary, nullable=False),
)

campaigns = sql.Table(
    "campaigns",
    metadata,
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("id", sql.String(16), nullable=False, unique=True),
    sql.Column("title", sql.Text, nullable=False),
    sql.Column("purpose", sql.Text, nullable=False),
    sql.Column("labelled", sql.Boolean, nullable=False),
    sql.Column("question", sql.Text),
    sql.Column("vote_epsilon", sql.Text),
    sql.Column("vote_by_class", sql.Boolean, nullable=False),
    sql.Column("opens", sql.Text),
    sql.Column("closes", sql.Text),
    sql.Column("minimum", sql.Integer, nullable=False),
    sql.Column("quota", sql.Integer),
    sql.Column("owner", sql.LargeBinary, nullable=False),  # keyed hash of the owner's key
    sql.Column("closed", sql.Boolean, nullable=False, default=False),
    sql.Column("round", sql.SmallInteger, nullable=False, default=1),  # the latest one
    sql.Column("reports", sql.Integer, nullable=False, default=0),
    sql.Column("votes", sql.Integer, nullable=False, default=0),
    sql.Column("model_sha256", sql.String(64)),
    sql.Column("model_reports", sql.Integer),
    sql.Column("published", sql.Text),
    sql.Column("draft", sql.Boolean, nullable=False, server_default=sql.false()),
    sql.Column("listed", sql.Boolean, nullable=False, server_default=sql.false()),
    # Who asks, how long answers are kept, and the owner's texts by language, as JSON.
    sql.Column("about", sql.Text, nullable=False, server_default="{}"),
    sql.Column("withdrawn", sql.Integer, nullable=False, server_default="0"),
)

# How many people did something on a day (UTC): never who, and no other time is stored.
days = sql.Table(
    "days",
    metadata,
    sql.Column("campaign", sql.Integer, primary_key=True, autoincrement=False),  # its number
    sql.Column("day", sql.String(10), primary_key=True),
    sql.Column("what", sql.String(10), primary_key=True),
    sql.Column("people", sql.Integer, nullable=False),
)

# What was computed from a closed campaign, which is never computed again.
frozen = sql.Table(
    "frozen",
    metadata,
    sql.Column("campaign", sql.String(16), primary_key=True),
    sql.Column("asked", sql.String(64), primary_key=True),  # hash of what was asked
    sql.Column("content", sql.Text, nullable=False),  # JSON
)

# Tables of their own, because a row of `campaigns` is rewritten whenever an answer is counted.
rounds = sql.Table(
    "rounds",
    metadata,
    sql.Column("campaign", sql.String(16), primary_key=True),
    sql.Column("number", sql.SmallInteger, primary_key=True),
    sql.Column("fingerprint", sql.String(64), nullable=False),
    sql.Column("artifact", sql.LargeBinary, nullable=False),
    sql.Column("encoder", sql.LargeBinary),
    # A report names its round by the mechanism's hash.
    sql.UniqueConstraint("campaign", "fingerprint"),
)

models = sql.Table(
    "models",
    metadata,
    sql.Column("campaign", sql.String(16), primary_key=True),
    sql.Column("content", sql.LargeBinary, nullable=False),
)

# A person's invitation, report and vote are stored under three hashes, and never written together.
invitations = sql.Table(
    "invitations",
    metadata,
    sql.Column("row", sql.LargeBinary, primary_key=True),
    sql.Column("campaign", sql.Integer, nullable=False),  # its number
    sqlite_with_rowid=False,
)

answers = sql.Table(
    "answers",
    metadata,
    sql.Column("row", sql.LargeBinary, primary_key=True),
    sql.Column("campaign", sql.Integer, nullable=False),  # its number
    sql.Column("kind", sql.SmallInteger, nullable=False),  # of CODES
    sql.Column("round", sql.SmallInteger, nullable=False, default=0),  # of a report; 0 for a vote
    # As the mechanism released it; NULL if it was withdrawn. The row itself stays, so that a later
    # answer with the same token is refused.
    sql.Column("content", sql.LargeBinary),
    sqlite_with_rowid=False,
)

# Answers that arrived together under heavy load, sorted by their rows, until they are merged into
# `answers` (see `arrivals`). Only SQLite uses it.
arrivals = sql.Table(
    "arrivals",
    metadata,
    sql.Column("sequence", sql.Integer, primary_key=True),
    sql.Column("campaign", sql.Integer, nullable=False),  # its number
    sql.Column("kind", sql.SmallInteger, nullable=False),
    sql.Column("round", sql.SmallInteger, nullable=False),
    sql.Column("rows", sql.LargeBinary, nullable=False),  # joined, as are the contents
    sql.Column("contents", sql.LargeBinary, nullable=False),
    sqlite_autoincrement=True,  # a number must not be used again after a merge
)

Given = dict[bytes, tuple[bytes, bytes]]
"""The row of each answer, mapped to the row of its invitation and the content."""

_NUMBER = "(SELECT number FROM campaigns WHERE id = {})"
_INTO = 'INSERT INTO answers ("row", campaign, kind, round, content) '
_ONCE = ' ON CONFLICT ("row") DO NOTHING'
_TAKES = {
    REPORT: "id = :campaign AND NOT closed AND (quota IS NULL OR reports + :more <= quota)",
    VOTE: "id = :campaign AND NOT closed AND model_sha256 = :about",
}
_COUNT = "UPDATE campaigns SET {kind}s = {kind}s + {more} WHERE "

_SQLITE_KEEP = (
    _INTO
    + 'SELECT ?, campaign, ?, ?, ? FROM invitations WHERE "row" = ? AND campaign = '
    + _NUMBER.format("?")
    + _ONCE
)
# All rows in one statement: with a statement per row, Python's threads would switch at every row.
_SQLITE_KEEP_EVEN = (
    _INTO
    + "WITH RECURSIVE n(at) AS (SELECT 0 UNION ALL SELECT at + 1 FROM n WHERE at + 1 < :count) "
    "SELECT substr(:rows, at * :size + 1, :size), i.campaign, :kind, :round, "
    "substr(:contents, at * :width + 1, :width) "
    'FROM n JOIN invitations i ON i."row" = substr(:invited, at * :size + 1, :size) '
    "WHERE i.campaign = " + _NUMBER.format(":campaign") + _ONCE
)
_SQLITE_COUNT = {
    kind: sql.text(_COUNT.format(kind=kind, more=":more") + takes) for kind, takes in _TAKES.items()
}
_COUNT_MORE = {
    kind: sql.text(_COUNT.format(kind=kind, more=":more") + takes + " RETURNING number")
    for kind, takes in _TAKES.items()
}
# All in one statement: a round trip to the server costs as much as a hundred rows. The lateral
# query makes PostgreSQL look up each invitation by its key, even before it has statistics of the
# table. Hexadecimal words are faster to pass than arrays of bytes. Without ON CONFLICT, rows that
# are all new are inserted in a fifth less time; if one is not new, the database refuses all.
_POSTGRESQL = {
    (kind, once): sql.text(
        f"WITH taking AS (SELECT number FROM campaigns WHERE {takes} FOR UPDATE), kept AS ("
        + _INTO
        + "SELECT decode(u.\"row\", 'hex'), i.campaign, :kind, :round, "
        "decode(u.content, 'hex') "
        "FROM taking, "
        "unnest(string_to_array(:rows, ','), string_to_array(:invited, ','), "
        "string_to_array(:contents, ',')) AS u(\"row\", invited, content), LATERAL ("
        "SELECT campaign FROM invitations WHERE \"row\" = decode(u.invited, 'hex') "
        f"AND campaign = taking.number LIMIT 1) AS i{once} RETURNING 1), counted AS ("
        + _COUNT.format(kind=kind, more="(SELECT count(*) FROM kept)")
        + "id = :campaign AND EXISTS (SELECT 1 FROM kept)) SELECT count(*) FROM kept"
    )
    for kind, takes in _TAKES.items()
    for once in ("", _ONCE)
}
_COUNTING = {"preserve_rowcount": True}


def number_of(campaign: str) -> sql.ScalarSelect[int]:
    """Return a query for the number that rows use for a campaign."""
    return sql.select(campaigns.c.number).where(campaigns.c.id == campaign).scalar_subquery()


def count(
    connection: sql.Connection, campaign: str, kind: str, more: int, about: str | None
) -> int | None:
    """Count further answers, and lock the campaign; return its number if it takes that many."""
    scope = {"campaign": campaign, "more": more, "about": about}
    return connection.execute(_COUNT_MORE[kind], scope).scalar()


def keep(
    connection: sql.Connection,
    campaign: str,
    kind: str,
    given: Given,
    about: str | None,
    *,
    number: int = 0,
    all_new: bool = False,
) -> int:
    """Store and count contents if the campaign takes that many more; return how many were stored.

    A content is stored only if its token was invited, and if nothing is or was stored under its
    row. `number` is the round that reports were drawn in. With `all_new`, rows that are not new may
    raise `IntegrityError`; then nothing is stored.
    """
    code = {"kind": CODES[kind], "round": number}
    scope = {"campaign": campaign, "more": len(given), "about": about}
    if connection.dialect.name == "postgresql":
        once = "" if all_new else _ONCE
        return _keep_in_postgresql(connection, _POSTGRESQL[kind, once], given, {**scope, **code})
    if connection.execute(_SQLITE_COUNT[kind], scope).rowcount != 1:
        return 0
    stored = _keep_in_sqlite(connection, campaign, given, code)
    if stored < len(given):
        counted = campaigns.c[f"{kind}s"]
        fewer = campaigns.update().where(campaigns.c.id == campaign)
        connection.execute(fewer.values({counted: counted - (len(given) - stored)}))
    return stored


def _keep_in_sqlite(
    connection: sql.Connection, campaign: str, given: Given, code: dict[str, int]
) -> int:
    contents = [content for _, content in given.values()]
    statement: str = _SQLITE_KEEP
    values: Any = [
        (row, code["kind"], code["round"], content, who, campaign)
        for row, (who, content) in given.items()
    ]
    if len(set(map(len, contents))) == 1 and contents[0]:
        statement, values = (
            _SQLITE_KEEP_EVEN,
            {
                "count": len(given),
                "size": len(next(iter(given))),
                "width": len(contents[0]),
                "rows": b"".join(given),
                "invited": b"".join(who for who, _ in given.values()),
                "contents": b"".join(contents),
                "campaign": campaign,
                **code,
            },
        )
    result = connection.exec_driver_sql(statement, values, execution_options=_COUNTING)
    return int(result.rowcount)


def _keep_in_postgresql(
    connection: sql.Connection,
    statement: sql.TextClause,
    given: Given,
    scope: dict[str, Any],
) -> int:
    invited, contents = zip(*given.values(), strict=True)
    parts = {"rows": given, "invited": invited, "contents": contents}
    words = {name: ",".join(map(bytes.hex, part)) for name, part in parts.items()}
    result = connection.execute(statement, {**scope, **words})
    return int(result.scalar_one())
