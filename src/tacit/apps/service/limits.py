"""How often somebody may ask: a bucket that fills at a rate, for every address and every token."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from tacit.apps.service.problems import Problem

_MOST_BUCKETS = 100_000


class Buckets:
    """Token buckets by name, in memory; the ones that were not asked for longest are forgotten.

    Parameters
    ----------
    rate : float
        Requests a second in the long run; ∞ for no limit.
    burst : float
        Requests at once.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._levels: OrderedDict[object, tuple[float, float]] = OrderedDict()

    @property
    def limited(self) -> bool:
        """Whether anything is ever refused."""
        return not math.isinf(self.rate)

    def take(self, name: object) -> None:
        """One request of this name; refused where there were too many."""
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
        """As if it had never asked: made-up names must not push out those of others."""
        self._levels.pop(name, None)
