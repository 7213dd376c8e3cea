"""Readiness: whether the database stores what is written, tried at most a few times a second."""

from __future__ import annotations

import asyncio
import time
from threading import Lock

from starlette.concurrency import run_in_threadpool

from tacit.apps.service.inbox import Inbox
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store

OLDEST = 0.2
"""Seconds for which an outcome is repeated, so that asking costs the database next to nothing."""

PATIENCE = 2.0
"""Seconds that metrics wait for an outcome: they must be there when the database is not."""


class Readiness:
    """Tries a write, and remembers for a moment how that went.

    A small write may still succeed where answers fail, as on a disk that is almost full. So the
    server is not ready either while the last answers could not be stored.
    """

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self.store, self.inbox = store, inbox
        self._lock = Lock()
        self._when = -OLDEST
        self._problem: Problem | None = None
        self._asking: asyncio.Task[bool] | None = None

    async def soon(self) -> bool:
        """Whether the server is ready; not ready if that is not known within `PATIENCE`.

        However often it is called, one check at a time is made for it.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(run_in_threadpool(self._succeeds))
        await asyncio.wait({self._asking}, timeout=PATIENCE)
        done = self._asking.done() and self._asking.exception() is None
        return done and self._asking.result()

    def _succeeds(self) -> bool:
        try:
            self.check()
        except Problem:
            return False
        return True

    def check(self) -> None:
        """Raise the problem if nothing can be written now."""
        if (trouble := self.inbox.trouble) is not None:
            raise trouble
        with self._lock:
            if time.monotonic() - self._when >= OLDEST:
                self._problem = self._try()
                self._when = time.monotonic()
            if self._problem is not None:
                raise self._problem

    def _try(self) -> Problem | None:
        try:
            self.store.try_writing()
        except Problem as problem:
            return problem
        return None
