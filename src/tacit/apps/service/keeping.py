"""Storage of each answer exactly once, or not at all.

A token has a row for its report and one for its vote. The same answer again gets the same receipt.
Any other answer with the same token is refused, even after a withdrawal: a second draw would reveal
more than the campaign stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sql

from tacit.apps.service import copying, days, tables
from tacit.apps.service.arrivals import Arrivals, NotAllNew
from tacit.apps.service.campaign import CLOSED, DRAFT, EARLY, FULL, OPEN, Campaign
from tacit.apps.service.invited import Invited
from tacit.apps.service.problems import Problem
from tacit.apps.service.tables import REPORT, VOTE

_AGAIN = {REPORT: "already-reported", VOTE: "already-voted"}
BLOCK = 10_000
"""Largest number of rows in an insert, or of names in a query: databases limit both."""
MANY = 512
"""Number of answers from which a commit is appended to a log (SQLite) or copied (PostgreSQL)."""

_WHEN = {
    CLOSED: "The campaign has ended.",
    DRAFT: "The campaign is a draft: it takes no answers yet.",
    EARLY: "The campaign has not opened yet.",
    FULL: "The campaign has all the reports that it asked for.",
}


@dataclass(frozen=True)
class Status:
    """The part of a campaign that changes while it runs."""

    closed: bool
    reports: int
    votes: int
    model: dict[str, Any] | None
    round: int = 1

    @property
    def model_sha256(self) -> str | None:
        return None if self.model is None else str(self.model["sha256"])

    @property
    def final(self) -> bool:
        """Whether a model that is learned now is the first result of one closed batch.

        Of several rounds, an earlier one takes reports after the next one has shown its cells.
        """
        return self.closed and self.model is None and self.round == 1

    @classmethod
    def of(cls, row: Any) -> Status:
        """Read a row of `STATUS`."""
        model = None
        if row.model_sha256 is not None:
            model = {
                "sha256": row.model_sha256,
                "reports": row.model_reports,
                "published": row.published,
            }
        return cls(row.closed, row.reports, row.votes, model, row.round)


_C = tables.campaigns.c
STATUS = (
    *(_C.closed, _C.round, _C.reports, _C.votes),
    *(_C.model_sha256, _C.model_reports, _C.published),
)


class Place(NamedTuple):
    """The place of an answer: the row of its invitation, and its own row."""

    invited: bytes
    row: bytes


class Answers:
    """The answers in a database.

    Parameters
    ----------
    engine
        SQLAlchemy engine.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self.engine = engine
        self.invited = Invited(engine)
        self._log = Arrivals() if engine.dialect.name == "sqlite" else None

    def keep(
        self,
        campaign: Campaign,
        kind: str,
        places: Sequence[Place],
        contents: Sequence[bytes | Problem],
        about: str | None,
    ) -> list[Problem | None]:
        """Store contents in their places; return None for each that is stored, else the problem.

        Reports are of the campaign's round; `about` is the model that the votes are about.
        """
        given = {
            place.row: (place.invited, content)
            for place, content in zip(places, contents, strict=True)
            if isinstance(content, bytes)
        }
        if len(given) == len(places) and campaign.state(False, 0) == OPEN:
            # The usual case. If it stores nothing, each answer is handled below.
            with suppress(sql.exc.IntegrityError, NotAllNew):
                self._keep_all(campaign, kind, given, about)
                return [None] * len(places)
        with self.engine.begin() as connection:
            self._merge_if_held(connection, [place.row for place in places])
            one = _OneByOne(connection, campaign, kind, about)
            one.look_up(places)
            return [one.keep(*pair) for pair in zip(places, contents, strict=True)]

    def _keep_all(
        self, campaign: Campaign, kind: str, given: tables.Given, about: str | None
    ) -> None:
        """Store answers in one transaction if all are new; else raise, and store none."""
        number = _round(campaign, kind)
        if self._can_be_many(campaign.id, given):
            code = {"kind": tables.CODES[kind], "round": number}
            with self.engine.begin() as connection:
                short = tables.count(connection, campaign.id, kind, len(given), about)
                if short is None:
                    raise NotAllNew
                if self._log is None:
                    copying.copy(connection, short, code, given)
                else:
                    self._log.append(connection, short, code, given)
            return
        arguments = (campaign.id, kind, given, about)
        with _quick(self.engine).begin() as connection:
            if tables.keep(connection, *arguments, number=number, all_new=True) != len(given):
                raise NotAllNew
            if self._log is not None and self._log.holds(connection, given):
                raise NotAllNew

    def _can_be_many(self, campaign: str, given: tables.Given) -> bool:
        """Whether answers may be stored by the way for large numbers of them."""
        if len(given) < MANY or len({len(content) for _, content in given.values()}) != 1:
            return False
        return self.invited.covers(campaign, [who for who, _ in given.values()])

    def _merge_if_held(self, connection: sql.Connection, rows: Sequence[bytes]) -> None:
        if self._log is not None and self._log.holds(connection, rows):
            self._log.merge(connection)

    @property
    def wait(self) -> float | None:
        """Seconds until `merge` is due; None if there is nothing to merge."""
        return None if self._log is None else self._log.wait

    def merge(self) -> None:
        """Move what arrived into the table; after that it is the only place of answers."""
        if self._log is None:
            return
        with self.engine.connect() as connection:
            empty = self._log.is_empty(connection)
        if not empty:
            with self.engine.begin() as connection:
                self._log.merge(connection)
        self._log.merged()

    def states(self, campaign: Campaign, places: dict[str, Place]) -> dict[str, str]:
        """Return "none", "stored" or "withdrawn" for one invitation's places, by kind."""
        with self.engine.begin() as connection:
            self._merge_if_held(connection, [place.row for place in places.values()])
            by_kind = {}
            for kind, place in places.items():
                one = _OneByOne(connection, campaign, kind, None)
                one.look_up([place])
                by_kind[kind] = one.state(place)
            return by_kind

    def withdraw(self, name: str, kind: str, row: bytes) -> bool:
        """Delete the content of a row and keep the row as used; return whether it had any."""
        a = tables.answers.c
        mark = {"row": row, "campaign": tables.number_of(name), "kind": tables.CODES[kind]}
        with self.engine.begin() as connection:
            # Lock the campaign first, as `keep` does, so that the two never wait for each other.
            _lock(connection, name)
            self._merge_if_held(connection, [row])
            emptied = tables.answers.update().where(a.row == row, a.content.is_not(None))
            deleted = bool(connection.execute(emptied.values(content=None)).rowcount)
            if deleted:
                _count_withdrawn(connection, name, kind, stored=1)
            elif connection.execute(sql.select(a.row).where(a.row == row)).first() is None:
                # The row is missing, as after restoring a backup: it must not come back.
                connection.execute(tables.answers.insert().values(mark))
                _count_withdrawn(connection, name, kind, stored=0)
        if deleted:
            truncate_log(self.engine)
        return deleted


def _count_withdrawn(connection: sql.Connection, name: str, kind: str, *, stored: int) -> None:
    """Count a withdrawal, and one answer less if it was `stored`."""
    counted = {_C[f"{kind}s"]: _C[f"{kind}s"] - stored}
    if kind == REPORT:
        counted[_C.withdrawn] = _C.withdrawn + 1
    connection.execute(tables.campaigns.update().where(_C.id == name).values(counted))
    if kind == VOTE:
        number = connection.execute(sql.select(tables.number_of(name))).scalar_one()
        days.count(connection, number, days.VOTES_WITHDRAWN, 1)


def _lock(connection: sql.Connection, name: str) -> None:
    """Lock a campaign on PostgreSQL, and SQLite's file for writing."""
    if connection.dialect.name == "sqlite":
        connection.execute(tables.campaigns.update().where(_C.id == name).values(id=name))
    else:
        connection.execute(sql.select(_C.id).where(_C.id == name).with_for_update())


def _round(campaign: Campaign, kind: str) -> int:
    """Return the round that an answer is stored with; votes have none."""
    return campaign.round if kind == REPORT else 0


def truncate_log(engine: sql.Engine) -> None:
    """Truncate SQLite's own log, which keeps old pages with withdrawn answers until then."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _quick(engine: sql.Engine) -> sql.Engine:
    """Let PostgreSQL commit its one statement by itself, which saves two round trips.

    SQLite needs several statements, and so a transaction.
    """
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="AUTOCOMMIT")
    return engine


class _OneByOne:
    """Answers that are not all new and valid, handled one by one in one transaction."""

    def __init__(
        self, connection: sql.Connection, campaign: Campaign, kind: str, about: str | None
    ) -> None:
        self.connection, self.campaign, self.kind, self.about = connection, campaign, kind, about
        self._invited: set[bytes] = set()
        self._round = _round(campaign, kind)
        self._stored: dict[bytes, tuple[int, bytes | None]] = {}

    def look_up(self, places: Sequence[Place]) -> None:
        """Read which tokens were invited and what is stored; None stands for withdrawn."""
        i, a = tables.invitations.c, tables.answers.c
        for start in range(0, len(places), BLOCK):
            some = places[start : start + BLOCK]
            invited = sql.select(i.row).where(
                i.row.in_([place.invited for place in some]),
                i.campaign == tables.number_of(self.campaign.id),
            )
            self._invited |= set(map(bytes, self.connection.execute(invited).scalars()))
            stored = sql.select(a.row, a.round, a.content)
            stored = stored.where(a.row.in_([place.row for place in some]))
            for row, number, content in self.connection.execute(stored):
                self._stored[bytes(row)] = number, None if content is None else bytes(content)

    def state(self, place: Place) -> str:
        """Return "none", "stored" or "withdrawn"; refuse a token that was never invited."""
        if place.invited not in self._invited:
            raise Problem("unknown-token")
        if place.row not in self._stored:
            return "none"
        return "withdrawn" if self._stored[place.row][1] is None else "stored"

    def keep(self, place: Place, content: bytes | Problem) -> Problem | None:
        """Store one answer; return None, or the problem if it is refused."""
        if place.invited not in self._invited:
            return Problem("unknown-token")
        state = self.state(place)
        if state == "withdrawn":
            return Problem("withdrawn")
        if isinstance(content, Problem):
            return content
        mine = self._round, content
        if state == "stored":
            # The same bytes in another round are another report.
            return None if self._stored[place.row] == mine else Problem(_AGAIN[self.kind])
        given = {place.row: (place.invited, content)}
        if self.campaign.state(False, 0) == OPEN and tables.keep(
            self.connection, self.campaign.id, self.kind, given, self.about, number=self._round
        ):
            self._stored[place.row] = mine
            return None
        return self._refusal()

    def _refusal(self) -> Problem:
        """Return the reason why the campaign takes no further answer."""
        query = sql.select(*STATUS).where(_C.id == self.campaign.id)
        now = Status.of(self.connection.execute(query).one())
        state = self.campaign.state(now.closed, now.reports if self.kind == REPORT else 0)
        if state != OPEN:
            return Problem("full" if state == FULL else "not-open", _WHEN[state])
        if self.kind == VOTE and now.model is None:
            return Problem("no-model")
        if self.kind == VOTE and now.model_sha256 != self.about:
            return Problem("other-model")
        # Another process was faster: the sender tries again, and gets the reason then.
        return Problem("database-away", "The database was busy. Try again.")
