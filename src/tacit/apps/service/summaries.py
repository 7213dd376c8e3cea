"""Results of campaigns for their owners, computed at most once per state of a campaign."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import Any

from tacit.apps.service import results, surveys
from tacit.apps.service.campaign import Campaign
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.privacy import artifact, errors

OLDEST = 60.0
"""Seconds after which results are recomputed: another process may have withdrawn an answer."""


_KINDS = {True: ("proportions",), False: ("student", "noise-aware")}
"""Models that owners may publish, of partitions and of other mechanisms."""


@dataclass(frozen=True)
class _Cached:
    """A summary, the state it describes, when it was computed and how long that took."""

    state: Any
    generation: int
    when: float
    seconds: float
    summary: dict[str, Any]

    def holds(self, state: Any, generation: int) -> bool:
        """Whether it may still be shown: it must not include an answer withdrawn since."""
        age = time.monotonic() - self.when
        fresh = state == self.state and age < OLDEST
        return generation == self.generation and (fresh or age < 10 * self.seconds)


class Summaries:
    """Results of campaigns, cached so that a busy campaign is not summarized all the time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = Lock()
        self._last: dict[tuple[str, float], _Cached] = {}
        self._generation = 0

    def forget(self) -> None:
        """Discard all summaries, including any that is being computed now."""
        self._generation += 1

    def of(self, name: str, confidence: float) -> dict[str, Any]:
        """Return what the owner may see."""
        errors.probability("results", "confidence", confidence, zero=False)
        with self._lock:
            generation, now = self._generation, self.store.status(name)
            self.store.campaign(name).must_be_enough(now.reports)
            cached = self._last.get((name, confidence))
            if cached is not None and cached.holds(now, generation):
                return cached.summary
            began = time.monotonic()
            summary = self._compute(name, now, confidence)
            ended = time.monotonic()
            if len(self._last) > 100:
                self._last.clear()
            self._last[name, confidence] = _Cached(now, generation, ended, ended - began, summary)
            return summary

    def _compute(self, name: str, now: Any, confidence: float) -> dict[str, Any]:
        campaign = self.store.campaign(name)
        if surveys.is_survey(campaign.mechanism):
            (reports,) = self.store.reports(name)
            summary = surveys.summarize(reports, confidence, now.closed)
            return {**summary, "minimum": campaign.minimum}
        published = None if now.model is None else artifact.unpack(self.store.model(name))
        summary = results.summarize(
            campaign,
            self.store.reports(name),
            self.store.votes(name),
            now.model,
            confidence=confidence,
            # Whether people resemble in-house rows is tested where a model of partitions is taught.
            shift=float(published.shift_.p_value) if published and campaign.adaptive else None,
        )
        if published is not None:
            summary["notes"] = [*summary["notes"], *results.notes(published)]
        return {**summary, "minimum": campaign.minimum}

    def answer(self, name: str, question: str, **options: Any) -> dict[str, Any]:
        """Answer an owner's question about a survey, from the reports so far."""
        if not surveys.is_survey(self.store.campaign(name).mechanism):
            raise Problem("bad-request", "Questions can be asked of surveys; others have results.")
        closed = self.store.status(name).closed  # first: then no report can come between the two
        (reports,) = self.store.reports(name)
        return surveys.answer(reports, question, closed, **options)

    def learn(self, name: str) -> dict[str, Any]:
        """Learn a model from the reports so far, and publish it."""
        with self._lock:
            if self.store.status(name).votes:
                raise Problem("votes-exist")
            campaign = self.store.campaign(name)
            _must_be_labelled(campaign)
            if campaign.adaptive:
                detail = (
                    "A model of partitions is learned with in-house rows, where these are. Run "
                    "tacit campaign learn with --inhouse FILE."
                )
                raise Problem("bad-request", detail)
            (reports,) = self.store.reports(name)
            return self.store.publish(name, results.learn(reports), len(reports))

    def publish(self, name: str, content: bytes) -> dict[str, Any]:
        """Publish a model that was learned elsewhere from reports of this campaign's rounds."""
        model = artifact.unpack(content, "model")
        wanted = _KINDS[self.store.campaign(name).adaptive]
        if getattr(model, "kind", None) not in wanted:
            raise Problem("bad-request", f"The model must be of kind {' or '.join(wanted)}.")
        self.store.round_of(name, artifact.fingerprint(model.mechanism_))
        _must_be_labelled(self.store.campaign(name))
        with self._lock:
            self.store.campaign(name).must_be_enough(self.store.status(name).reports)
            return self.store.publish(name, model, model.reports_)


def _must_be_labelled(campaign: Campaign) -> None:
    if not campaign.labelled:
        detail = "A model is learned from labels, and this campaign collects none."
        raise Problem("bad-request", detail)
