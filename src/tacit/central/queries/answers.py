"""Answers: value, interval, guarantee, and what is left of the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.central.queries import model
from tacit.central.queries.estimates import Estimate
from tacit.privacy import events, plain, shown
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from tacit.privacy.randomness import Seeded

Key = Any
"""The key of a group: that of its one column, or a tuple of keys where there are several."""

_PUBLIC = "Bounds, keys and conditions were chosen without the rows, or from earlier answers."
_FIXED = "The questions did not depend on answers; where they did, what holds is the whole budget."
_ROWS = "A record is a row: who has several rows in the table is protected less with each."
_SIDES = "How long a question took, that it was asked, and that memory or disk did not suffice."
_READABLE = (
    "The engine can read every row: files are whole, text in Parquet is UTF-8, and no row is "
    "stored so that reading it fails. Each row is there once."
)


@dataclass(frozen=True)
class Price:
    """What a question would cost, before anything is read or charged."""

    event: events.Event
    guarantee: Guarantee
    left_after: dict[str, float]


@dataclass(frozen=True)
class Answer:
    """One released answer.

    `value` and `interval` where there are no groups, else `groups`; `parts` are the answers to the
    questions of a `Several`. `guarantee` is that of the whole release, `left` what the account had
    after it.
    """

    query: model.Query | model.Several
    estimate: Estimate | None
    groups: Mapping[Key, Estimate] | None
    parts: tuple[Answer, ...]
    guarantee: Guarantee
    left: dict[str, float]
    event: events.Event
    seeded: bool

    @property
    def value(self) -> Any:
        """The noisy value; of a histogram the counts, of top-k the keys."""
        return None if self.estimate is None else self.estimate.value

    @property
    def interval(self) -> Any:
        """Holds the true value in 95 % of draws, or more."""
        return None if self.estimate is None else self.estimate.interval

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: `value` and `interval`, or `groups`; `guarantee`; `budget_left`."""
        return {
            **self._content(),
            "guarantee": stated(self.guarantee),
            "budget_left": dict(self.left),
        }

    def _content(self) -> dict[str, Any]:
        if self.parts:
            return _together(self.parts)
        if self.groups is not None:
            return {"groups": {key_text(key): one.to_dict() for key, one in self.groups.items()}}
        return self.estimate.to_dict() if self.estimate is not None else {}

    def _repr_html_(self) -> str:
        content = self._content()
        (values,) = content.values() if set(content) in ({"groups"}, {"values"}) else (content,)
        return shown.table("Answer", {**values, "guarantee": self.guarantee})

    def certificate(self, *, artifact: str | None = None) -> Certificate:
        """The guarantee of this release, its event and its assumptions."""
        return certify(self.event, self.guarantee, self.seeded, artifact)


def _chosen(event: events.Event, guarantee: Guarantee) -> bool:
    """Whether several answers were summed in a notion whose sums hold for fixed lists only."""
    return isinstance(event, events.Composed) and not isinstance(guarantee, PureDP | ApproxDP)


def certify(
    event: events.Event, guarantee: Guarantee, seeded: bool, artifact: str | None = None
) -> Certificate:
    """A certificate with what every curator assumes and does not protect."""
    rows = (_ROWS,) if str(guarantee.unit) == "record" else ()
    return Certificate.issue(
        event,
        guarantee=guarantee,
        artifact=artifact,
        assumptions=(_PUBLIC, _READABLE, *((_FIXED,) if _chosen(event, guarantee) else ())),
        not_protected=(_SIDES, *rows),
        rng=Seeded(0) if seeded else None,
    )


def stated(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON-ready data, with its own sentence; ε and δ where it has them."""
    found = plain.to_plain(guarantee)
    if isinstance(guarantee, PureDP | ApproxDP):
        found |= {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    return found | {"text": str(guarantee)}


def _together(parts: tuple[Answer, ...]) -> dict[str, Any]:
    """The answers of several questions, by label; under each group where there are groups."""
    if parts[0].groups is None:
        return {
            "values": {part.query.label: part.estimate.to_dict() for part in parts if part.estimate}
        }
    groups: dict[str, dict[str, Any]] = {}
    for part in parts:
        for key, one in (part.groups or {}).items():
            groups.setdefault(key_text(key), {})[part.query.label] = one.to_dict()
    return {"groups": groups}


def key_text(key: Key) -> str:
    """Several keys are joined by commas; a comma inside one of them has a backslash before it."""
    if not isinstance(key, tuple):
        return str(key)
    return ",".join(str(part).replace("\\", "\\\\").replace(",", "\\,") for part in key)
