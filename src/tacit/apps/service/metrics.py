"""Counters of the service in Prometheus' text format, which takes a dozen lines to write."""

from __future__ import annotations

from collections import Counter
from threading import Lock

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP = {
    "tacit_requests_total": "Requests by route, method and status.",
    "tacit_stored_total": "Answers that were stored or confirmed, by kind.",
    "tacit_refused_total": "Answers that were refused, by reason.",
    "tacit_request_seconds_sum": "Seconds that requests took.",
    "tacit_request_seconds_count": "Requests that were timed.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._lock = Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += amount  # type: ignore[assignment]

    def text(self) -> str:
        """Return all counters as text."""
        lines = []
        with self._lock:
            counts = sorted(self._counts.items())
        for name, text in _HELP.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            lines += [
                f"{name}{_braces(labels)} {value:g}"
                for (counted, labels), value in counts
                if counted == name
            ]
        return "\n".join(lines) + "\n"


def _braces(labels: Labels) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""
