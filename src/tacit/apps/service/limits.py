"""Rate limits: one token bucket per address, and one per participant's token."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from tacit.apps.service.problems import Problem

_MOST_BUCKETS = 100_000


class Buckets:
    """Token buckets by name, in memory; the least recently used ones are forgotten.

    Parameters
    ----------
    rate : float
        Requests per second in the long run; ∞ for no limit.
    burst : float
        Requests that may arrive at once.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._levels: OrderedDict[object, tuple[float, float]] = OrderedDict()

    @property
    def limited(self) -> bool:
        """Whether any request can be refused."""
        return not math.isinf(self.rate)

    def take(self, name: object) -> None:
        """Count one request under this name, and refuse it if there were too many."""
        if not self.limited:
            return
        now = time.monotonic()
        level, then = self._levels.pop(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        allowed = level >= 1
        self._levels[name] = level - allowed, now
        if len(self._levels) > _MOST_BUCKETS:
            self._levels.popitem(last=False)
        if not allowed:
            wait = math.ceil((1 - level) / self.rate)
            raise Problem("too-fast", f"Try again in {wait} s.", retry_after=wait)

    def forget(self, name: object) -> None:
        """Remove a name's bucket, so that invented names cannot push out real ones."""
        self._levels.pop(name, None)
