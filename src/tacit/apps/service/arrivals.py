"""A log of answers that arrive together in large numbers, and its merge into their table.

SQLite keeps answers in the order of keyed hashes, which are random, so a commit of thousands of
answers would write thousands of pages. Such a commit is appended here instead, as one entry of a
few pages. Later, many entries are merged into the table in one transaction, in sorted order, which
writes each page once.

An answer is either in an entry or in the table, never in both: entries are removed in the
transaction that merges them. A commit is appended only if, under the database's write lock, none of
its rows is in the table or in an entry. Whoever needs one of these rows merges first.

Rows within an entry are sorted, so an entry shows which answers arrived together, but not their
order.
"""

from __future__ import annotations

import threading
import time
from itertools import groupby
from typing import Any

import numpy as np
import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.tokens import ROW_BYTES

MOST = 262_144
"""Answers in the log beyond which they are merged: fewer would write more pages for each of them,
more would let requests wait longer for the merge. A table of a million rows has 11,000 pages, all
of which are written in a merge, so that four times as many answers cost a third less each."""
OLDEST = 5.0
"""Seconds after which answers in the log are merged, even if others keep arriving."""

_EVEN = (
    "WITH RECURSIVE n(at) AS "
    "(SELECT 0 UNION ALL SELECT at + 1 FROM n WHERE at + 1 < :count) SELECT "
)
_USED = (
    _EVEN + "EXISTS (SELECT 1 FROM n CROSS JOIN answers a "
    'ON a."row" = substr(:rows, at * :size + 1, :size))'
)
_MERGE = (
    'INSERT INTO answers ("row", campaign, kind, round, content) '
    + _EVEN
    + "substr(:rows, at * :size + 1, :size), :campaign, :kind, :round, "
    "substr(:contents, at * :width + 1, :width) FROM n"
)
_TAKE = 'DELETE FROM arrivals RETURNING campaign, kind, round, "rows", contents'


class NotAllNew(Exception):
    """Answers that cannot be stored together, in one step; nothing was stored."""


class Arrivals:
    """The log of one SQLite database, as this process knows it.

    Other processes may write to the same log: what they appended is read, under the database's
    lock, before anything is decided.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: set[bytes] = set()
        self._seen = 0
        self._since: float | None = None

    @property
    def wait(self) -> float | None:
        """Seconds until a merge is due; None without answers in the log."""
        since = self._since
        if since is None:
            return None
        return 0.0 if len(self._rows) >= MOST else max(0.0, since + OLDEST - time.monotonic())

    def append(
        self, connection: sql.Connection, number: int, code: dict[str, int], given: tables.Given
    ) -> None:
        """Append invited answers of one size to the campaign of this number, if all are new.

        The transaction must have the write lock.
        """
        if self.holds(connection, given):
            raise NotAllNew
        count, rows = len(given), sorted(given)
        joined = b"".join(rows)
        used = {"count": count, "rows": joined, "size": ROW_BYTES}
        if connection.exec_driver_sql(_USED, used).scalar():
            raise NotAllNew
        entry = {
            "campaign": number,
            "rows": joined,
            "contents": b"".join([given[row][1] for row in rows]),
            **code,
        }
        connection.execute(tables.arrivals.insert(), entry)
        if self._since is None:
            self._since = time.monotonic()

    def holds(self, connection: sql.Connection, rows: Any) -> bool:
        """Whether any of these rows is in the log, as far as this transaction sees it."""
        with self._lock:
            self._read(connection)
            return not self._rows.isdisjoint(rows)

    def is_empty(self, connection: sql.Connection) -> bool:
        """Whether the log is empty, whoever wrote it."""
        return connection.execute(sql.select(tables.arrivals.c.sequence).limit(1)).first() is None

    def merge(self, connection: sql.Connection) -> int:
        """Move all answers from the log to their table; return how many there were.

        The rows are forgotten later, when the next transaction finds the log empty: until then
        they are looked up in the table in vain at most.
        """
        taken = [tuple(entry) for entry in connection.exec_driver_sql(_TAKE).all()]
        for (campaign, kind, number, _), same in groupby(sorted(taken, key=_alike), _alike):
            entries = list(same)
            rows = np.frombuffer(b"".join(entry[3] for entry in entries), f"S{ROW_BYTES}")
            contents = b"".join(entry[4] for entry in entries)
            width = len(contents) // len(rows)
            order = np.argsort(rows)
            values = {
                "campaign": campaign,
                "kind": kind,
                "round": number,
                "count": len(rows),
                "size": ROW_BYTES,
                "width": width,
                "rows": rows[order].tobytes(),
                "contents": np.frombuffer(contents, f"V{width}")[order].tobytes(),
            }
            connection.exec_driver_sql(_MERGE, values)
        return sum(len(entry[3]) for entry in taken) // ROW_BYTES

    def merged(self) -> None:
        """Forget the log after a merge was committed, so that it is read anew."""
        with self._lock:
            self._rows.clear()
            self._seen, self._since = 0, None

    def _read(self, connection: sql.Connection) -> None:
        """Read the entries that were appended since the last time, by whichever process."""
        a = tables.arrivals.c
        query = sql.select(a.sequence, a.rows).where(a.sequence > self._seen).order_by(a.sequence)
        for sequence, joined in connection.execute(query):
            parts = range(0, len(joined), ROW_BYTES)
            self._rows.update(joined[start : start + ROW_BYTES] for start in parts)
            self._seen = sequence
            if self._since is None:
                self._since = time.monotonic()


def _alike(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what entries that are merged together share, with the size of their contents."""
    campaign, kind, number, rows, contents = entry
    return campaign, kind, number, len(contents) * ROW_BYTES // len(rows)
