"""Results of campaigns for their owners: computed once for each state, and not all the time."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

from tacit import errors
from tacit.service import results
from tacit.service.problems import Problem
from tacit.service.store import Store


class Summaries:
    """Results of campaigns, computed once for each state and not more often than is bearable."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = Lock()
        self._last: dict[tuple[str, float], tuple[Any, float, float, dict[str, Any]]] = {}

    def of(self, name: str, confidence: float) -> dict[str, Any]:
        """What the owner may see."""
        errors.probability("results", "confidence", confidence, zero=False)
        with self._lock:
            now = self.store.status(name)
            known = self._last.get((name, confidence))
            if known is not None:
                state, when, took, found = known
                if state == now or time.monotonic() - when < 10 * took:
                    return found
            began = time.monotonic()
            found = self._compute(name, now, confidence)
            ended = time.monotonic()
            if len(self._last) > 100:
                self._last.clear()
            self._last[name, confidence] = now, ended, ended - began, found
            return found

    def _compute(self, name: str, now: Any, confidence: float) -> dict[str, Any]:
        campaign, reports = self.store.campaign(name), self.store.reports(name)
        found = results.summarise(
            campaign, reports, self.store.votes(name), now.model, confidence=confidence
        )
        return {**found, "minimum": campaign.minimum}

    def learn(self, name: str) -> dict[str, Any]:
        """Learn a model from the reports so far, and publish it."""
        with self._lock:
            if self.store.status(name).votes:
                raise Problem("votes-exist")
            reports = self.store.reports(name)
            if not reports.labelled:
                raise Problem("bad-request", "A model is learned from labels; none are reported.")
            return self.store.publish(name, results.learn(reports), len(reports))
