"""Answers: value, interval, guarantee, and the remaining budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.central.queries import model
from tacit.central.queries.estimates import NoisyValue
from tacit.privacy import events, plain, shown
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from tacit.privacy.randomness import Seeded

Key = Any
"""The key of a group: a single key, or a tuple if the query groups by several columns."""

_PUBLIC = "Bounds, keys and conditions were chosen without the rows, or from earlier answers."
_FIXED = "The queries did not depend on earlier answers; if they did, only the whole budget holds."
_ROWS = "A record is a row: the more rows a person has in the table, the less they are protected."
_SIDES = "That a query was asked, how long it took, and whether memory or disk ran out."
_READABLE = (
    "The engine can read every row: files are complete, text in Parquet files is UTF-8, and no row "
    "is stored in a way that makes reading it fail. Each row is stored once."
)


@dataclass(frozen=True)
class Price:
    """Price of a query and the budget that would remain; nothing is read or charged."""

    event: events.Event
    guarantee: Guarantee
    remaining_after: dict[str, float]


@dataclass(frozen=True)
class Answer:
    """One released answer.

    Without groups it has `value` and `interval`; with groups it has `groups`. `parts` holds the
    answers to the queries of a `Several`. `guarantee` covers the whole release; `remaining` is the
    budget of the account after it.
    """

    query: model.Query | model.Several
    estimate: NoisyValue | None
    groups: Mapping[Key, NoisyValue] | None
    parts: tuple[Answer, ...]
    guarantee: Guarantee
    remaining: dict[str, float]
    event: events.Event
    seeded: bool

    @property
    def value(self) -> Any:
        """The noisy value; the list of counts for a histogram, the list of keys for top-k."""
        return None if self.estimate is None else self.estimate.value

    @property
    def interval(self) -> Any:
        """An interval that contains the value without noise in at least 95 % of draws."""
        return None if self.estimate is None else self.estimate.interval

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data: `value` and `interval`, or `groups`; `guarantee`; `remaining`."""
        return {
            **self._content(),
            "guarantee": stated(self.guarantee),
            "remaining": dict(self.remaining),
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

    def certificate(self, *, artifact: str | Path | None = None) -> Certificate:
        """Certify this release, and bind the certificate to the file that holds it, if given."""
        return certify(self.event, self.guarantee, self.seeded, artifact)


def _chosen(event: events.Event, guarantee: Guarantee) -> bool:
    """Check whether answers were summed in a notion whose sums hold only for fixed queries."""
    return isinstance(event, events.Composed) and not isinstance(guarantee, PureDP | ApproxDP)


def certify(
    event: events.Event, guarantee: Guarantee, seeded: bool, artifact: str | Path | None = None
) -> Certificate:
    """Issue a certificate with what every curator assumes and does not protect."""
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
    """Return a guarantee as JSON-ready data with its text, and with ε and δ if it has them."""
    data = plain.to_plain(guarantee)
    if isinstance(guarantee, PureDP | ApproxDP):
        data |= {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    return data | {"text": str(guarantee)}


def _together(parts: tuple[Answer, ...]) -> dict[str, Any]:
    """Return the answers to several queries by label, or by group and label."""
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
    """Write a key as text: several keys joined by commas, a comma inside a key escaped."""
    if not isinstance(key, tuple):
        return str(key)
    return ",".join(str(part).replace("\\", "\\\\").replace(",", "\\,") for part in key)
