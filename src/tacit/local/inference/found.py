"""What a private search found: the winner, every candidate's estimate, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.local.inference.error_votes import ErrorEstimate, as_error
from tacit.local.inference.selection import Precision
from tacit.local.inference.validation import Estimate
from tacit.local.inhouse import Protection
from tacit.local.reports import Reports
from tacit.privacy import errors, events
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee


@dataclass(frozen=True)
class Standing:
    """A candidate's estimate from the first votes; intervals of all candidates hold at once."""

    name: str
    reports: int
    votes: int
    estimate: Estimate
    limit: float | None = None

    @property
    def error(self) -> ErrorEstimate:
        """The mean absolute error of a regressor."""
        return _error(self.estimate, self.limit)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        estimate = _plain(self.estimate, self.limit)
        estimate.pop("voters")
        return {"name": self.name, "reports": self.reports, "votes": self.votes, **estimate}


@dataclass(frozen=True)
class Found:
    """The winner, its estimated accuracy, and the cost for each person.

    `estimate` is the winner's: of fresh voters alone, or with simultaneous coverage. `mechanism`,
    `reports` and `model` are the winner's, `models` those of all candidates in order; `inhouse_` is
    the protection of the in-house rows by all of them together, as trying a candidate costs as much
    as keeping it.

    For regressors, estimates are of 1 − error/limit, and `error` is the mean absolute error.
    """

    winner: str
    estimate: Estimate
    candidates: tuple[Standing, ...]
    composition: str
    confirm: str
    precision: Precision
    certificate: Certificate
    inhouse_: Protection
    mechanism: Any = field(repr=False)
    reports: Reports = field(repr=False)
    model: Any = field(repr=False)
    models: tuple[Any, ...] = field(repr=False)
    limit: float | None = None

    @property
    def event(self) -> events.Event:
        """The event that ran on reporters and voters."""
        return self.certificate.event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee towards each of them."""
        return self.certificate.guarantee

    @property
    def error(self) -> ErrorEstimate:
        """The mean absolute error of the winner, if it is a regressor."""
        return _error(self.estimate, self.limit)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "winner": self.winner,
            **_plain(self.estimate, self.limit),
            "confidence": self.estimate.confidence,
            "confirm": self.confirm,
            "composition": self.composition,
            "candidates": [one.to_dict() for one in self.candidates],
            "guarantee": str(self.guarantee),
            "inhouse_guarantee": str(self.inhouse_.guarantee),
            "seeded": self.certificate.seeded,
        }


def _error(estimate: Estimate, limit: float | None) -> ErrorEstimate:
    if limit is None:
        remedy = "Classifiers have an accuracy: use estimate."
        errors.refuse("search", "error", "of regressors", "classifiers", remedy)
    return as_error(estimate, limit)


def _plain(estimate: Estimate, limit: float | None) -> dict[str, Any]:
    return (estimate if limit is None else as_error(estimate, limit)).to_dict()
