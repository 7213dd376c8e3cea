"""A campaign: what people are asked, with which mechanism, until when, and what it costs them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tacit.apps.service.notice import TEXTS, Notice, must_be_a_line
from tacit.apps.service.problems import Problem
from tacit.local.channels import ReportChannel
from tacit.local.inference.votes import Ballot
from tacit.local.persons import ASSUMED_ONE
from tacit.local.reports import REFUSED, certify
from tacit.privacy import artifact, errors, events
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee

SEEN = (
    "That somebody used this invitation, when, and from which network address: the server sees "
    "this. It stores neither time nor address, but its database may show the order in which "
    "answers arrived."
)
INVITED = "Whose invitation it is: whoever handed it out may know."
LINKED = (
    "That report and vote come from the same person: the server can see this when they arrive. "
    "The stated total covers both together."
)

LARGEST_DELTA = 1e-5
MOST_ROUNDS = 100
OPEN, EARLY, CLOSED, FULL, DRAFT = "open", "early", "closed", "full", "draft"


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """The fixed part of a campaign, with the mechanism of one of its rounds.

    Parameters
    ----------
    id : str
        Identifier, part of the campaign's addresses.
    title, purpose : str
        Who asks, and for which purpose: shown to people before they decide.
    mechanism
        Mechanism that runs on their devices. It must be one that may leave the organisation.
    labelled : bool
        Whether people also report a label.
    round : int
        Number of the round whose mechanism this is, from 1.
    question : str, optional
        Question that the label answers, shown above the choices.
    vote_epsilon : float, optional
        Local ε of one vote on the published model; without it there are no votes.
    vote_by_class : bool
        Whether the noised vote includes the voter's class.
    opens, closes : datetime, optional
        When the campaign starts and stops taking answers.
    minimum : int
        Smallest number of reports with results; below it, only their number is shown.
    quota : int, optional
        Largest number of reports.
    about : Notice
        Who asks, how long answers are kept, and the texts in other languages.
    draft : bool
        Whether the owner still prepares the campaign: then it takes no answers.
    """

    id: str
    title: str
    purpose: str
    mechanism: Any
    labelled: bool
    vote_epsilon: float | None = None
    vote_by_class: bool = False
    opens: datetime | None = None
    closes: datetime | None = None
    minimum: int = 100
    quota: int | None = None
    question: str | None = None
    round: int = 1
    about: Notice = field(default_factory=Notice)
    draft: bool = False

    def __post_init__(self) -> None:
        where = "campaign"
        for name, longest in TEXTS.items():
            text = getattr(self, name)
            if text is not None or name != "question":
                must_be_a_line(name, text, longest)
        errors.whole(where, "minimum", self.minimum, least=1)
        if self.quota is not None:
            errors.whole(where, "quota", self.quota, least=self.minimum)
        if getattr(self.mechanism, "outcome", None) is not None:
            remedy = "Collect numeric outcomes with privatize, without a service."
            errors.refuse(where, "mechanism", "one of labels", "a numeric outcome", remedy)
        if self.vote_epsilon is not None and not self.labelled:
            remedy = "Without labels there is no model to vote on."
            errors.refuse(where, "vote_epsilon", "omitted", self.vote_epsilon, remedy)
        for moment in (self.opens, self.closes):
            _must_be_a_time(where, moment)
        if self.opens and self.closes and not self.opens < self.closes:
            errors.refuse(where, "closes", f"after {self.opens}", str(self.closes))
        errors.whole(where, "round", self.round, least=1, most=MOST_ROUNDS)
        self.mechanism.shared("collection")
        _epsilon(self.certificate.guarantee)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the mechanism."""
        return artifact.fingerprint(self.mechanism)

    @cached_property
    def channel(self) -> ReportChannel:
        """The channel of a report."""
        channel: ReportChannel = self.mechanism.channel(self.labelled)
        return channel

    @cached_property
    def ballot(self) -> Ballot | None:
        """The ballot of a vote; None if there are no votes."""
        if self.vote_epsilon is None:
            return None
        classes = self.mechanism.classes if self.vote_by_class else None
        unit = self.channel.guarantee.unit
        return Ballot(epsilon=self.vote_epsilon, classes=classes, unit=unit)

    @cached_property
    def event(self) -> Event:
        """Everything that runs on one person's row: the report, and the vote if there is one."""
        report = self.channel.event
        return report if self.ballot is None else events.Composed((report, self.ballot.event))

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate of everything that one token can send."""
        if self.ballot is None:
            return certify(self.mechanism, self.channel, further=(SEEN, INVITED))
        return Certificate.issue(
            self.event,
            delta=self.channel.delta,
            assumptions=(*self.channel.assumptions, *ASSUMED_ONE.assumptions(self.channel)),
            not_protected=(*self.mechanism.not_protected, REFUSED, SEEN, INVITED, LINKED),
        )

    def state(self, closed: bool, reports: int, now: datetime | None = None) -> str:
        """Return `OPEN`, or the reason why the campaign takes no answers."""
        now = now or datetime.now(UTC)
        if self.draft and not closed:
            return DRAFT
        if closed or (self.closes is not None and now >= self.closes):
            return CLOSED
        if self.opens is not None and now < self.opens:
            return EARLY
        return FULL if self.quota is not None and reports >= self.quota else OPEN

    @property
    def adaptive(self) -> bool:
        """Whether later rounds may have other cells: those of partitions can be adapted."""
        return bool(self.mechanism.kind == "partitions")

    def next(self, mechanism: Any) -> Campaign:
        """Return the next round with this mechanism; refuse one that changes what people are told.

        Reports of all rounds have one law and one cost; only the cells may be others.
        """
        if not hasattr(mechanism, "release"):
            raise errors.InvalidData("campaign: the artifact must be a mechanism, got a model.")
        made = replace(self, mechanism=mechanism, round=self.round + 1)
        if not self.adaptive:
            remedy = "Only campaigns with partitions have rounds."
            errors.refuse("campaign", "mechanism", "partitions", self.mechanism.kind, remedy)
        if made.channel != self.channel or mechanism.schema != self.mechanism.schema:
            raise errors.InvalidParameter(
                "campaign: the mechanism of the next round must have the same epsilon, classes, "
                "columns and numbers of cells and partitions. Adapt the one of this round."
            )
        return made

    def must_be_enough(self, reports: int, what: str = "results need") -> None:
        """Refuse to show results of too few reports, or to adapt cells to them."""
        if reports < self.minimum:
            counted = "is 1 report" if reports == 1 else f"are {reports} reports"
            text = f"There {counted}, and {what} at least {self.minimum}."
            raise Problem("too-few", text, reports=reports, minimum=self.minimum)

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        alone, total = self.channel.guarantee, self.certificate.guarantee
        classes = self.channel.classes
        return {
            "id": self.id,
            "title": self.title,
            "purpose": self.purpose,
            "about": self.about.to_plain(),
            "round": self.round,
            "artifact": {"sha256": self.fingerprint, "kind": self.mechanism.kind},
            "labelled": self.labelled,
            "question": self.question,
            "classes": None if classes is None else list(classes),
            "epsilon": _epsilon(alone),
            "vote_epsilon": self.vote_epsilon,
            "total_epsilon": _epsilon(total),
            "delta": float(getattr(total, "delta", 0)),
            "opens": None if self.opens is None else self.opens.isoformat(),
            "closes": None if self.closes is None else self.closes.isoformat(),
            "minimum": self.minimum,
            "quota": self.quota,
            "certificate": json.loads(self.certificate.to_json()),
            "explanation": self.certificate.explain(),
        }

    def describe(
        self, closed: bool, reports: int, votes: int, model: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Describe the campaign to participants."""
        state = {"state": self.state(closed, reports), "closed": closed}
        counts = {**state, "reports": reports, "votes": votes}
        return {**self._fixed, **counts, "model": model}


def _must_be_a_time(where: str, moment: datetime | None) -> None:
    """Refuse a time without a zone, and one that is no time in UTC: years have four digits."""
    if moment is None:
        return
    if moment.tzinfo is None:
        errors.refuse(where, "time", "with a zone, as in 2026-12-01T08:00Z", str(moment))
    try:
        moment.astimezone(UTC)
    except OverflowError:
        errors.refuse(where, "time", "in the years 1 to 9999 of UTC", str(moment))


def _epsilon(guarantee: Guarantee) -> float:
    """Return the ε that people are told; refuse a guarantee without one, or with a large δ."""
    if not hasattr(guarantee, "epsilon"):
        errors.refuse("campaign", "guarantee", "one with an ε", str(guarantee))
    if not getattr(guarantee, "delta", 0) <= LARGEST_DELTA:
        remedy = "A larger delta would protect nobody."
        errors.refuse("campaign", "delta", f"at most {LARGEST_DELTA:g}", str(guarantee), remedy)
    return float(guarantee.epsilon)
