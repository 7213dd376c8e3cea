"""Readiness: whether the database stores what is written, tried at most a few times a second."""

from __future__ import annotations

import time
from threading import Lock

from tacit.apps.service.inbox import Inbox
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store

OLDEST = 0.2
"""Seconds for which an outcome is repeated, so that asking costs the database next to nothing."""


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
