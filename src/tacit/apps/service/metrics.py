"""Counters, histograms and gauges in Prometheus' text format, which takes a few lines to write.

They are of one process. Where several serve one database, Prometheus asks each of them and tells
them apart by `instance`.
"""

from __future__ import annotations

import math
import os
import resource
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from threading import Lock

from tacit import __version__

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
_GAUGES = {
    "tacit_build_info": "1, with the version of Tacit.",
    "tacit_connections": "Connections that are open.",
    "tacit_connections_limit": "Connections beyond which the longest waiting one is closed.",
    "tacit_ready": "1 if the database stores what is written, else 0.",
    "process_start_time_seconds": "When the process started, in seconds since 1970.",
    "process_cpu_seconds_total": "Processor time that the process has used, in seconds.",
    "process_resident_memory_bytes": "Memory that the process holds.",
    "process_open_fds": "Descriptors that the process has open.",
    "process_max_fds": "Descriptors that the process may have open.",
}
_STARTED = time.time()
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels, and the times of requests by route."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()
        self._gauges: dict[str, Callable[[], float]] = {}
        self._lock = Lock()

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Read a gauge whenever the metrics are asked for."""
        self._gauges[name] = read

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

    def text(self, ready: bool | None = None) -> str:
        """Return everything as text; `ready` says whether the database stores what is written."""
        lines = self._now(ready)
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

    def _now(self, ready: bool | None) -> list[str]:
        values = {name: read() for name, read in self._gauges.items()} | _of_process()
        if ready is not None:
            values["tacit_ready"] = float(ready)
        lines = []
        for name in sorted(values):
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_GAUGES[name]}", f"# TYPE {name} {kind}"]
            labels = (("version", __version__),) if name == "tacit_build_info" else ()
            lines.append(f"{name}{_braces(labels)} {values[name]:.17g}")
        return lines


def _of_process() -> dict[str, float]:
    """Measure this process, under the names that Prometheus' own clients use."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = {
        "tacit_build_info": 1.0,
        "process_start_time_seconds": _STARTED,
        "process_cpu_seconds_total": used.ru_utime + used.ru_stime,
        "process_max_fds": math.inf if most == resource.RLIM_INFINITY else float(most),
    }
    with suppress(OSError):  # another system than Linux has no such files
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["process_resident_memory_bytes"] = float(pages * os.sysconf("SC_PAGE_SIZE"))
        found["process_open_fds"] = float(len(os.listdir("/proc/self/fd")))
    return found


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
