"""Every answer once, or not at all.

A token has a row for its report and one for its vote. Sending the same again is answered as before;
anything else under the same token is refused, also after a withdrawal: a second draw would tell
more than the campaign said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from tacit.service import tables
from tacit.service.campaign import CLOSED, EARLY, FULL, OPEN, Campaign
from tacit.service.problems import Problem
from tacit.service.tables import REPORT, VOTE

_AGAIN = {REPORT: "already-reported", VOTE: "already-voted"}
BLOCK = 10_000
"""Rows of an insert, or names in a query: databases limit both."""

_WHEN = {
    CLOSED: "The campaign has ended.",
    EARLY: "The campaign has not begun yet.",
    FULL: "The campaign has as many reports as it asked for.",
}


@dataclass(frozen=True)
class Status:
    """What changes while a campaign runs."""

    closed: bool
    reports: int
    votes: int
    model: dict[str, Any] | None

    @property
    def model_sha256(self) -> str | None:
        return None if self.model is None else str(self.model["sha256"])

    @classmethod
    def of(cls, row: Any) -> Status:
        """From a row of `STATUS`."""
        model = None
        if row.model_sha256 is not None:
            model = {
                "sha256": row.model_sha256,
                "reports": row.model_reports,
                "published": row.published,
            }
        return cls(row.closed, row.reports, row.votes, model)


_C = tables.campaigns.c
STATUS = (_C.closed, _C.reports, _C.votes, _C.model_sha256, _C.model_reports, _C.published)


def keep(
    engine: sql.Engine,
    campaign: Campaign,
    kind: str,
    rows: Sequence[bytes],
    contents: Sequence[bytes | Problem],
    about: str | None,
) -> list[Problem | None]:
    """Store contents under rows; None for each that is stored now, else why it is not.

    `about` is the model that was voted on.
    """
    given = {row: one for row, one in zip(rows, contents, strict=True) if isinstance(one, bytes)}
    if len(given) == len(rows) and campaign.state(False, 0) == OPEN:
        # The usual case at once; what it did not store is looked at below.
        with _quick(engine).begin() as connection:
            if tables.keep(connection, campaign.id, kind, given, about) == len(given):
                return [None] * len(rows)
    with engine.begin() as connection:
        one = _OneByOne(connection, campaign, kind, about)
        one.look_up(rows)
        return [one.keep(row, content) for row, content in zip(rows, contents, strict=True)]


def withdraw(engine: sql.Engine, name: str, row: bytes) -> None:
    """Delete what is stored under a row; it stays spent."""
    i, a = tables.invitations.c, tables.answers.c
    with engine.begin() as connection:
        query = sql.select(i.kind).where(i.row == row, i.campaign == name)
        kind = connection.execute(query).scalar()
        if kind is None:
            raise Problem("unknown-receipt")
        if connection.execute(tables.answers.delete().where(a.row == row)).rowcount:
            spent = tables.invitations.update().where(i.row == row)
            connection.execute(spent.values(withdrawn=True))
            counted = _C[f"{kind}s"]
            less = tables.campaigns.update().where(_C.id == name)
            connection.execute(less.values({counted: counted - 1}))


def _quick(engine: sql.Engine) -> sql.Engine:
    """PostgreSQL commits a statement by itself, without two journeys more; SQLite needs several."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="AUTOCOMMIT")
    return engine


class _OneByOne:
    """Answers that are not all new and well: each has its own outcome, in one transaction."""

    def __init__(
        self, connection: sql.Connection, campaign: Campaign, kind: str, about: str | None
    ) -> None:
        self.connection, self.campaign, self.kind, self.about = connection, campaign, kind, about
        self._known: dict[bytes, tuple[bool, bytes | None]] = {}

    def look_up(self, rows: Sequence[bytes]) -> None:
        """Whether each invited row was withdrawn, and what is stored under it."""
        i, a = tables.invitations.c, tables.answers.c
        joined = tables.invitations.outerjoin(tables.answers, i.row == a.row)
        for start in range(0, len(rows), BLOCK):
            chosen = i.row.in_(rows[start : start + BLOCK])
            query = sql.select(i.row, i.withdrawn, a.content).select_from(joined)
            query = query.where(chosen, i.campaign == self.campaign.id, i.kind == self.kind)
            for row, withdrawn, content in self.connection.execute(query):
                stored = None if content is None else bytes(content)
                self._known[bytes(row)] = withdrawn, stored

    def keep(self, row: bytes, content: bytes | Problem) -> Problem | None:
        """One of them."""
        if row not in self._known:
            return Problem("unknown-token")
        withdrawn, stored = self._known[row]
        if withdrawn:
            return Problem("withdrawn")
        if isinstance(content, Problem):
            return content
        if stored is not None:
            return None if stored == content else Problem(_AGAIN[self.kind])
        given = {row: content}
        if self.campaign.state(False, 0) == OPEN and tables.keep(
            self.connection, self.campaign.id, self.kind, given, self.about
        ):
            self._known[row] = False, content
            return None
        return self._refusal()

    def _refusal(self) -> Problem:
        """Why the campaign takes no further answer."""
        query = sql.select(*STATUS).where(_C.id == self.campaign.id)
        now = Status.of(self.connection.execute(query).one())
        state = self.campaign.state(now.closed, now.reports if self.kind == REPORT else 0)
        if state != OPEN:
            return Problem("full" if state == FULL else "not-open", _WHEN[state])
        if self.kind == VOTE and now.model is None:
            return Problem("no-model")
        if self.kind == VOTE and now.model_sha256 != self.about:
            return Problem("other-model")
        # Another process was quicker: the sender asks again, and is told.
        return Problem("database-away", "The database was busy. Try again.")
