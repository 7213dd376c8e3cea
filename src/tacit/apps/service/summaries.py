"""Results of campaigns for their owners: computed once for each state, and not all the time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import Any

from tacit.apps.service import results
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.privacy import errors

OLDEST = 60.0
"""Seconds after which results are computed again: another process may have withdrawn something."""


@dataclass(frozen=True)
class _Known:
    """What was found, in which state and when, and how long it took."""

    state: Any
    generation: int
    when: float
    took: float
    found: dict[str, Any]

    def holds(self, state: Any, generation: int) -> bool:
        """Whether it is still to be shown; what was withdrawn since must not be in it."""
        age = time.monotonic() - self.when
        fresh = state == self.state and age < OLDEST
        return generation == self.generation and (fresh or age < 10 * self.took)


class Summaries:
    """Results of campaigns, computed once for each state and not more often than is bearable."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = Lock()
        self._last: dict[tuple[str, float], _Known] = {}
        self._generation = 0

    def forget(self) -> None:
        """What was computed so far, or is being computed, is not shown again."""
        self._generation += 1

    def of(self, name: str, confidence: float) -> dict[str, Any]:
        """What the owner may see."""
        errors.probability("results", "confidence", confidence, zero=False)
        with self._lock:
            generation, now = self._generation, self.store.status(name)
            self.store.campaign(name).must_be_enough(now.reports)
            known = self._last.get((name, confidence))
            if known is not None and known.holds(now, generation):
                return known.found
            began = time.monotonic()
            found = self._compute(name, now, confidence)
            ended = time.monotonic()
            if len(self._last) > 100:
                self._last.clear()
            self._last[name, confidence] = _Known(now, generation, ended, ended - began, found)
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
