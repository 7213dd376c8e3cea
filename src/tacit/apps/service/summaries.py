"""Results of campaigns for their owners, computed at most once per state of a campaign."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from tacit.apps.service import frozen, holding, results, surveys, withdrawals
from tacit.apps.service.campaign import Campaign
from tacit.apps.service.keeping import Status
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.privacy import artifact, errors
from tacit.privacy.certificate import Certificate

CONFIDENCE = 0.95
"""Confidence of the results that are kept when a campaign is closed."""
READERS = (
    "The model's certificate must state no guarantee towards readers: that takes reports of one "
    "round and a campaign that was closed before its first model. Learn it again with this version."
)
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
        """Return what the owner may see; of a closed campaign, as it was computed first."""
        errors.probability("results", "confidence", confidence, zero=False)
        with self._lock:
            now = self.store.status(name)
            return self._closed(name, confidence) if now.closed else self._open(name, confidence)

    def close(self, name: str) -> None:
        """Compute and keep the results of a campaign that was just closed."""
        self.forget()  # those of an open campaign are for its owner alone
        with suppress(Problem):  # too few reports
            self.of(name, CONFIDENCE)

    def _open(self, name: str, confidence: float) -> dict[str, Any]:
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

    def _closed(self, name: str, confidence: float) -> dict[str, Any]:
        """Return the frozen results, with what may still change: the model, and withdrawals."""
        engine, asked = self.store.engine, ["results", confidence]
        summary = frozen.find(engine, name, asked)
        now = self.store.status(name)
        if summary is None:
            self.store.campaign(name).must_be_enough(now.reports)
            summary = frozen.keep(engine, name, asked, self._compute(name, now, confidence))
        reports, votes = self.store.withdrawn(name)
        before = summary["withdrawn"]
        later = withdrawals.since_closing(reports - before["reports"], votes - before["votes"])
        told = {**before, "words": f"{before['words']} {later}".strip(), "later": bool(later)}
        return {**summary, "model": now.model, "withdrawn": told}

    def _compute(self, name: str, now: Any, confidence: float) -> dict[str, Any]:
        campaign, gone = self.store.campaign(name), self.store.withdrawn(name)
        if surveys.is_survey(campaign.mechanism):
            (reports,) = self.store.reports(name)
            summary = surveys.summarize(reports, confidence, now.closed)
            told = surveys.withdrawn(reports, gone)
            return {**summary, "minimum": campaign.minimum, "withdrawn": told}
        published = None if now.model is None else artifact.unpack(self.store.model(name))
        rounds, votes = self.store.reports(name), self.store.votes(name)
        summary = results.summarize(
            campaign,
            rounds,
            votes,
            now.model,
            confidence=confidence,
            # Whether people resemble in-house rows is tested where a model of partitions is taught.
            shift=float(published.shift_.p_value) if published and campaign.adaptive else None,
        )
        if published is not None:
            summary["notes"] = [*summary["notes"], *results.notes(published)]
        told = results.withdrawn(campaign, sum(map(len, rounds)), votes, gone)
        return {**summary, "minimum": campaign.minimum, "withdrawn": told}

    def answer(self, name: str, question: str, **options: Any) -> dict[str, Any]:
        """Answer an owner's question about a survey; of a closed one, as it was answered first."""
        if not surveys.is_survey(self.store.campaign(name).mechanism):
            raise Problem("bad-request", "Questions can be asked of surveys; others have results.")
        closed = self.store.status(name).closed  # first: then no report can come between the two
        engine, asked = self.store.engine, ["answer", question, options]
        if closed and (found := frozen.find(engine, name, asked)) is not None:
            return dict(found)
        (reports,) = self.store.reports(name)
        given = surveys.answer(reports, question, closed, **options)
        return dict(frozen.keep(engine, name, asked, given)) if closed else given

    def robust(self, name: str, forged: int, confidence: float) -> dict[str, Any]:
        """Estimate shares that hold out against forged reports; of a closed campaign, once."""
        now, engine = self.store.status(name), self.store.engine
        asked = ["robust", forged, confidence]
        if now.closed and (found := frozen.find(engine, name, asked)) is not None:
            return dict(found)
        self.store.campaign(name).must_be_enough(now.reports)
        given = holding.shares(self.store.reports(name), forged, confidence)
        return dict(frozen.keep(engine, name, asked, given)) if now.closed else given

    def learn(self, name: str) -> dict[str, Any]:
        """Learn a model from the reports so far, and publish it."""
        with self._lock:
            now = self._replaceable(name)
            campaign = self.store.campaign(name)
            _must_be_labelled(campaign)
            if campaign.adaptive:
                detail = (
                    "A model of partitions is learned with in-house rows, where these are. Run "
                    "tacit campaign learn with --inhouse FILE."
                )
                raise Problem("bad-request", detail)
            (reports,) = self.store.reports(name)
            model, final = results.learn(reports), now.final
            if not final:
                model.certificate_ = without_readers(model.certificate_)
            return self.store.publish(name, model, len(reports), final=final)

    def publish(self, name: str, content: bytes) -> dict[str, Any]:
        """Publish a model that was learned elsewhere from reports of this campaign's rounds."""
        model = artifact.unpack(content, "model")
        wanted = _KINDS[self.store.campaign(name).adaptive]
        if getattr(model, "kind", None) not in wanted:
            raise Problem("bad-request", f"The model must be of kind {' or '.join(wanted)}.")
        self.store.round_of(name, artifact.fingerprint(model.mechanism_))
        _must_be_labelled(self.store.campaign(name))
        with self._lock:
            now = self._replaceable(name)
            self.store.campaign(name).must_be_enough(now.reports)
            if model.certificate_.readers is not None and not now.final:
                raise Problem("bad-request", READERS)
            return self.store.publish(name, model, model.reports_, final=now.final)

    def _replaceable(self, name: str) -> Status:
        """Return the status of a campaign whose model may be published or replaced."""
        now = self.store.status(name)
        if now.votes:
            raise Problem("votes-exist")
        if now.closed and now.model is not None:
            raise Problem("published")
        return now


def without_readers(certificate: Certificate) -> Certificate:
    """Return a certificate that states nothing towards readers of results.

    What is learned while reports may still come, or beside something else that was, does not hide
    a person among the others: two models, with a report and without it, differ by this report.
    """
    return replace(certificate, readers=None)


def _must_be_labelled(campaign: Campaign) -> None:
    if not campaign.labelled:
        detail = "A model is learned from labels, and this campaign collects none."
        raise Problem("bad-request", detail)
