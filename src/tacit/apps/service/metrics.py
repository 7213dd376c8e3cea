"""Counters and histograms in Prometheus' text format, which takes a few lines to write."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from threading import Lock

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = "tacit_request_seconds"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds."""

_HELP = {
    "tacit_requests_total": "Requests by route, method and status.",
    "tacit_stored_total": "Answers that were stored or confirmed, by kind.",
    "tacit_refused_total": "Requests and answers of batches that were refused, by reason.",
    "tacit_door_refused_total": "Connections that were closed before a request, by reason.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels, and the times of requests by route."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += amount  # type: ignore[assignment]

    def took(self, route: str, seconds: float) -> None:
        """Count a request in the histogram of its route."""
        with self._lock:
            buckets = self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))
            buckets[bisect_left(BOUNDS, seconds)] += 1
            self._sums[route] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        """Return everything as text."""
        lines = []
        with self._lock:
            counts = sorted(self._counts.items())
            times = [(route, list(row), self._sums[route]) for route, row in self._buckets.items()]
        for name, text in _HELP.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            lines += [
                f"{name}{_braces(labels)} {value:g}"
                for (counted, labels), value in counts
                if counted == name
            ]
        lines += [f"# HELP {SECONDS} Seconds that requests took, by route."]
        lines += [f"# TYPE {SECONDS} histogram"]
        for route, buckets, total in sorted(times):
            lines += _histogram(route, buckets, total)
        return "\n".join(lines) + "\n"


def _histogram(route: str, buckets: list[int], total: float) -> list[str]:
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    lines = [
        f"{SECONDS}_bucket{_braces((('route', route), ('le', bound)))} {count}"
        for bound, count in zip(bounds, accumulate(buckets), strict=True)
    ]
    own = _braces((("route", route),))
    return [*lines, f"{SECONDS}_sum{own} {total:g}", f"{SECONDS}_count{own} {sum(buckets)}"]


def _braces(labels: Labels) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""
