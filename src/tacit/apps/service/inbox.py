"""Answers of many requests in one transaction: a commit of many rows costs as much as one row.

A request waits for the commit with its rows, so whatever is acknowledged is stored.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import keeping
from tacit.apps.service.logs import Rarely
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Item, ReceiptOrProblem, Store

_MOST_ITEMS = 3200
"""Largest number of answers in one transaction: more would make each request wait too long."""
_IDLE = 0.3
"""Seconds without answers after which those in the log are merged."""

RECENT = 10.0
"""Seconds for which answers that could not be stored make the server not ready."""

Group = tuple[str, str, str | None]
"""The kind of answer, the campaign, and the model that the votes are about."""


@dataclass
class _Waiting:
    group: Group
    items: Sequence[Item]
    future: asyncio.Future[list[ReceiptOrProblem]]


class Inbox:
    """A queue of answers with one writing thread, which any number of requests wait for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._log = Rarely(10.0)
        self._trouble: tuple[Problem, float] | None = None

    @property
    def trouble(self) -> Problem | None:
        """The problem with the database that the last answers met, if that was just now."""
        trouble = self._trouble
        recent = trouble is not None and time.monotonic() - trouble[1] < RECENT
        return trouble[0] if trouble is not None and recent else None

    async def submit(self, group: Group, items: Sequence[Item]) -> list[ReceiptOrProblem]:
        """Wait until these answers are stored; return a receipt or a problem for each."""
        one = _Waiting(group, items, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._stopped:
                raise Problem("database-away", "The server is stopping. Try again later.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._waiting.append(one)
            self._changed.notify()
        return await one.future

    def stop(self) -> None:
        """Write the answers that are waiting, and end the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._merge()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            if not taken or self.store.answers.wait == 0:
                self._merge()
            done = list(zip(taken, self._write(taken), strict=True)) if taken else []
            for loop in {one.future.get_loop() for one in taken}:
                mine = [pair for pair in done if pair[0].future.get_loop() is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, mine)

    def _merge(self) -> None:
        """Merge the log; if that fails, answers stay in the log, where they are as safe."""
        try:
            self.store.answers.merge()
            if not self._waiting:
                keeping.truncate_log(self.store.engine)  # which shows the order of commits
        except sql.exc.SQLAlchemyError as error:
            self._log.warning("answers could not be merged", error)

    def _take(self) -> list[_Waiting] | None:
        """Take the waiting answers of the first one's group, up to one transaction's worth.

        Return nothing if none came for a moment and there are some to merge; None at the end.
        """
        with self._changed:
            while not self._waiting and not self._stopped:
                unmerged = self.store.answers.wait is not None
                if not self._changed.wait(_IDLE if unmerged else None) and unmerged:
                    return []
            if not self._waiting:
                return None
            taken: list[_Waiting] = []
            rest: list[_Waiting] = []
            room = _MOST_ITEMS
            for one in self._waiting:
                fits = one.group == self._waiting[0].group and (len(one.items) <= room or not taken)
                (taken if fits else rest).append(one)
                room -= len(one.items) * fits
            self._waiting = rest
        return taken

    def _write(self, taken: Sequence[_Waiting]) -> list[Any]:
        """Return the outcomes of each request, or one exception for all requests."""
        kind, name, about = taken[0].group
        items = [item for one in taken for item in one.items]
        try:
            outcomes = self.store.submit(kind, name, items, about)
        except Exception as error:  # a request must never wait for a thread that has died
            failed = error if isinstance(error, Problem) else Problem("failed")
            if failed.status >= 500:
                self._log.warning("answers could not be stored", error)
                self._trouble = failed, time.monotonic()
            return [failed] * len(taken)
        self._trouble = None
        done, start = [], 0
        for one in taken:
            done.append(outcomes[start : start + len(one.items)])
            start += len(one.items)
        return done


def _settle(done: Sequence[tuple[_Waiting, Any]]) -> None:
    for one, outcome in done:
        if one.future.done():  # the request was cancelled
            continue
        if isinstance(outcome, Exception):
            one.future.set_exception(outcome)
        else:
            one.future.set_result(outcome)
