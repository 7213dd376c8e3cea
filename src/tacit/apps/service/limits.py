"""Limits by sender: token buckets per address and per participant's token, and requests at once."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from tacit.apps.service.problems import Problem

_MOST_BUCKETS = 100_000
_NETWORK_BITS = 64
_NO_ADDRESS = "no address"


@lru_cache(4096)
def sender_of(address: str) -> str:
    """Return the address that limits count under: of IPv6 the network, which one person has.

    Whatever is no address counts as one sender: a proxy that passes on what senders invent must
    not let each of them have limits of their own, nor fill the memory with names.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return _NO_ADDRESS
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> _NETWORK_BITS << _NETWORK_BITS))


class AtOnce:
    """Counts what is being done for each name, and refuses more than so many at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._now: Counter[str] = Counter()

    def enter(self, name: str) -> None:
        """Begin one more; refuse it if there are too many."""
        if self._now[name] >= self.most:
            raise Problem("too-fast", "Too many requests at once. Try again.", retry_after=1)
        self._now[name] += 1

    def leave(self, name: str) -> None:
        """End one."""
        self._now[name] -= 1
        if self._now[name] <= 0:
            del self._now[name]


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

    def take(self, name: object, count: int = 1) -> None:
        """Count requests under this name, and refuse them if there were too many before."""
        if not self.limited:
            return
        now = time.monotonic()
        level, then = self._levels.pop(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        allowed = level >= 1
        self._levels[name] = level - allowed * count, now
        if len(self._levels) > _MOST_BUCKETS:
            self._levels.popitem(last=False)
        if not allowed:
            wait = math.ceil((1 - level) / self.rate)
            raise Problem("too-fast", f"Try again in {wait} s.", retry_after=wait)

    def forget(self, name: object) -> None:
        """Remove a name's bucket, so that invented names cannot push out real ones."""
        self._levels.pop(name, None)
