"""Invitations in memory, so that large batches of answers need not look them up one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.tokens import ROW_BYTES

_HALVES = np.dtype([("high", ">u8"), ("low", ">u8")])
assert _HALVES.itemsize == ROW_BYTES
MOST = 20_000_000
"""Invitations of one campaign beyond which they are looked up in the database after all."""
_PAUSE = 30.0
"""Seconds between two readings of a campaign's invitations, which other processes may add to."""
_BLOCK = 100_000


class Invited:
    """The rows of invitations, by campaign, in sorted arrays of 16 bytes each.

    They are read in a thread of their own. Until then, and for rows that are not found, `covers` is
    False, and the caller asks the database: invitations are only ever added, so a row that was
    found stays invited.

    Parameters
    ----------
    engine
        SQLAlchemy engine.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._known: dict[str, npt.NDArray[np.void]] = {}
        self._read: dict[str, float] = {}

    def covers(self, campaign: str, rows: Sequence[bytes]) -> bool:
        """Whether all rows are known to be invitations of this campaign."""
        known = self._known.get(campaign)
        asked = np.frombuffer(b"".join(rows), _HALVES)
        if known is not None and len(known):
            at = np.searchsorted(known["high"], asked["high"])
            found = known[np.minimum(at, len(known) - 1)]
            if bool((found == asked).all()):
                return True
        self._read_soon(campaign)
        return False

    def add(self, campaign: str, rows: Sequence[bytes]) -> None:
        """Take note of new invitations, if the campaign's others are known."""
        with self._lock:
            if (known := self._known.get(campaign)) is not None:
                self._put(campaign, [known, np.frombuffer(b"".join(rows), _HALVES)])

    def read(self, campaign: str) -> None:
        """Read all invitations of a campaign."""
        i = tables.invitations.c
        query = sql.select(i.row).where(i.campaign == tables.number_of(campaign))
        found, count = [], 0
        with self.engine.connect() as connection:
            result = connection.execution_options(yield_per=_BLOCK).execute(query)
            for part in result.scalars().partitions():
                count += len(part)
                if count > MOST:
                    return
                found.append(np.frombuffer(b"".join(map(bytes, part)), _HALVES))
        with self._lock:
            self._put(campaign, found)

    def _put(self, campaign: str, parts: list[npt.NDArray[np.void]]) -> None:
        rows = np.unique(np.concatenate(parts)) if parts else np.empty(0, _HALVES)
        self._known[campaign] = rows

    def _read_soon(self, campaign: str) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._read.get(campaign, -_PAUSE) < _PAUSE:
                return
            self._read[campaign] = now
        threading.Thread(target=self._try_to_read, args=(campaign,), daemon=True).start()

    def _try_to_read(self, campaign: str) -> None:
        try:
            self.read(campaign)
        except sql.exc.SQLAlchemyError:
            return  # the database is asked, and says what is wrong
