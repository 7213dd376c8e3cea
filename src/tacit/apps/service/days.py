"""How many people were invited, opened the page, answered and withdrew, over time.

A day on which one person did something is a fact about that person for whoever knows who they are.
So days are neither kept nor shown one by one: a total is written down at the end of a day (UTC)
only if at least `LEAST` more people have done the same since the last one that was written down.
Whatever is known of days is then about at least `LEAST` people together, in the database too; the
running totals have no day. This is a precaution and no guarantee: on which day a total is written
down may depend on one person.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from threading import Lock
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.database import named_errors

LEAST = 10
INVITED, OPENED, ANSWERED, WITHDRAWN = WHAT = ("invited", "opened", "answered", "withdrawn")
VOTES_WITHDRAWN = "unvoted"
"""A running total alone: how many votes were withdrawn."""
WORDS = (
    f"Totals at the end of a day (UTC), each with at least {LEAST} people more than the one "
    "before. No other time is stored, so the days of the latest people, and of fewer people, are "
    "not known. How many opened the page is counted approximately: again after the server was "
    "restarted, and not if it crashed."
)

_ALWAYS = ""
"""The day of running totals."""
_SERVER, _TURNED = 0, "turned"
_MOST_PENDING, _MOST_SEEN = 100, 100_000
_ADD = sql.text(
    "INSERT INTO days (campaign, day, what, people) VALUES (:campaign, '', :what, :more) "
    "ON CONFLICT (campaign, day, what) DO UPDATE SET people = days.people + :more"
)
_ONCE = sql.text(
    "INSERT INTO days (campaign, day, what, people) VALUES (:campaign, :day, :what, :people) "
    "ON CONFLICT (campaign, day, what) DO NOTHING"
)
_D, _C, _I = tables.days.c, tables.campaigns.c, tables.invitations.c


def count(connection: sql.Connection, number: int, what: str, more: int) -> None:
    """Add to a running total of the campaign with this number."""
    connection.execute(_ADD, {"campaign": number, "what": what, "more": more})


def count_invited(connection: sql.Connection, number: int, more: int) -> None:
    """Add invitations that were just stored; those of an older database are counted now."""
    if _running(connection, number, INVITED) is None:
        more = _invitations(connection, number)
    count(connection, number, INVITED, more)


class Days:
    """Running totals of a database's campaigns, and their values at the end of days.

    Parameters
    ----------
    engine
        SQLAlchemy engine.
    today
        Returns the date (UTC); for tests.
    """

    def __init__(self, engine: sql.Engine, today: Callable[[], date] | None = None) -> None:
        self.engine = engine
        self._today = today or (lambda: datetime.now(UTC).date())
        self._known: date | None = None
        self._lock = Lock()
        self._key = secrets.token_bytes(32)
        self._seen: set[bytes] = set()
        self._pending: Counter[str] = Counter()

    def turn(self) -> None:
        """Write down the totals of all campaigns if a new day has begun; call it before any count.

        Of all processes on a database, the first one does it.
        """
        today = self._today()
        if today == self._known:
            return
        self.flush()
        with named_errors(), self.engine.begin() as connection:
            if _is_first(connection, today):
                for number in connection.execute(sql.select(_C.number)).scalars().all():
                    _write_down(connection, number, today - timedelta(days=1))
        self._known = today

    def opened(self, name: str, token: str) -> None:
        """Count that somebody opened the page who has not answered, once while this process runs.

        The token is remembered as a hash with a key that only this process has.
        """
        mark = hashlib.blake2b(f"{name} {token}".encode(), key=self._key).digest()
        self.turn()
        with self._lock:
            if mark in self._seen or len(self._seen) >= _MOST_SEEN:
                return
            self._seen.add(mark)
            self._pending[name] += 1
            waiting = self._pending.total()
        if waiting >= _MOST_PENDING:
            self.flush()

    def flush(self) -> None:
        """Store how many have opened the page; a write for each of them would be a burden."""
        with self._lock:
            pending, self._pending = self._pending, Counter()
        if not pending:
            return
        with named_errors(), self.engine.begin() as connection:
            for name, more in pending.items():
                number = connection.execute(sql.select(tables.number_of(name))).scalar_one()
                count(connection, number, OPENED, more)

    def timeline(self, name: str) -> dict[str, Any]:
        """Return the totals, now and at the ends of days."""
        self.turn()
        self.flush()
        with named_errors(), self.engine.connect() as connection:
            number = connection.execute(sql.select(tables.number_of(name))).scalar_one()
            now, then = totals(connection, number), _written(connection, number)
        found = {what: {"people": now[what], "days": then[what]} for what in WHAT}
        return {**found, "least": LEAST, "words": WORDS}


def totals(connection: sql.Connection, number: int) -> dict[str, int]:
    """Return how many people have done each thing so far; answers that were withdrawn count."""
    query = sql.select(_C.reports, _C.withdrawn).where(_C.number == number)
    reports, withdrawn = connection.execute(query).one()
    invited = _running(connection, number, INVITED)
    return {
        INVITED: _invitations(connection, number) if invited is None else invited,
        OPENED: _running(connection, number, OPENED) or 0,
        ANSWERED: reports + withdrawn,
        WITHDRAWN: withdrawn,
    }


def votes_withdrawn(connection: sql.Connection, number: int) -> int:
    """Return how many votes were withdrawn."""
    return _running(connection, number, VOTES_WITHDRAWN) or 0


def _running(connection: sql.Connection, number: int, what: str) -> int | None:
    query = sql.select(_D.people).where(_D.campaign == number, _D.day == _ALWAYS, _D.what == what)
    found = connection.execute(query).scalar()
    return None if found is None else int(found)


def _invitations(connection: sql.Connection, number: int) -> int:
    query = sql.select(sql.func.count()).where(_I.campaign == number)
    return int(connection.execute(query).scalar_one())


def _is_first(connection: sql.Connection, today: date) -> bool:
    """Take this day for the database; return False if another process has."""
    server = {"campaign": _SERVER, "day": _ALWAYS, "what": _TURNED}
    connection.execute(_ONCE, {**server, "people": 0})
    mine = tables.days.update().where(
        *(_D[name] == value for name, value in server.items()), _D.people < today.toordinal()
    )
    return connection.execute(mine.values(people=today.toordinal())).rowcount == 1


def _write_down(connection: sql.Connection, number: int, day: date) -> None:
    now, then = totals(connection, number), _written(connection, number)
    for what in WHAT:
        before = then[what][-1]["people"] if then[what] else 0
        if now[what] - before >= LEAST:
            row = {"campaign": number, "day": day.isoformat(), "what": what, "people": now[what]}
            connection.execute(_ONCE, row)


def _written(connection: sql.Connection, number: int) -> dict[str, list[dict[str, Any]]]:
    """Return the totals that were written down, by what was done, in the order of days."""
    query = sql.select(_D.what, _D.day, _D.people).where(_D.campaign == number, _D.day != _ALWAYS)
    found: dict[str, list[dict[str, Any]]] = {what: [] for what in WHAT}
    for what, day, people in connection.execute(query.order_by(_D.day)):
        found[what].append({"day": day, "people": people})
    return found
