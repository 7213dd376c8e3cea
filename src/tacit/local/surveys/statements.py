"""What holds of answers besides their numbers: the guarantees, and the certificate of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tacit.local import origins
from tacit.local.reports import Reports
from tacit.local.shuffling import readers
from tacit.privacy import errors
from tacit.privacy.accounting.readers import Readers
from tacit.privacy.certificate import Artifact, Certificate

DIFFERENT = (
    "Nobody is in two of the rounds that are compared. Beyond copies of one release, nothing here "
    "has checked it."
)
_MOST_TOLD = 100
"""Numbers of answers that a certificate lists."""


def towards_readers(rounds: Sequence[Reports], delta: float, fake: int) -> Readers:
    """Return what readers of answers learn; no report may be there twice."""
    origins.must_be_once("answer", [one for each in rounds for one in each.releases])
    return readers(list(rounds), delta, fake)


def certified(rounds: Sequence[Reports], towards: Readers) -> Certificate:
    """Certify what is answered from one closed batch of reports, or from one of each round."""
    worst = max(rounds, key=lambda one: one.per_person.most)
    others = [one.certificate for one in rounds if one is not worst]
    own = worst.certify(readers=towards)
    further = (DIFFERENT,) if others else ()
    return replace(
        own,
        assumptions=_all([own, *others], "assumptions") + further,
        not_protected=_all([own, *others], "not_protected"),
        seeded=any(one.seeded for one in rounds),
    )


def _all(certificates: Sequence[Certificate], what: str) -> tuple[str, ...]:
    """List the sentences of all certificates, each once."""
    return tuple(dict.fromkeys(one for own in certificates for one in getattr(own, what)))


def of_answers(found: Sequence[Any], file: Any = None) -> Certificate:
    """Join the certificates of answers from the same reports, and name the numbers.

    `file` is what the answers were written to, which the certificate is then bound to.
    """
    first: Certificate | None = found[0].certificate if found else None
    if first is None:
        remedy = "Rows without noise protect nobody."
        errors.refuse("certificate", "answers", "from reports", "none", remedy)
    for one in found:
        other = one.certificate
        if other is None or (other.event, other.readers) != (first.event, first.readers):
            errors.refuse("certificate", "answers", "from the same reports", one.question)
    told = [line for one in found for line in _lines(one)]
    if len(told) > _MOST_TOLD:
        told = [*told[:_MOST_TOLD], f"{len(told) - _MOST_TOLD:,} more numbers."]
    bound = None if file is None else Artifact.of(file)
    return replace(first, about=(*first.about, *told), artifact=bound)


def _lines(found: Any) -> list[str]:
    return [
        f"Answered: {found.question}: {one.label} {found.said(one.value)}, between "
        f"{found.said(low)} and {found.said(high)}."
        for one in found.estimates
        for low, high in (one.interval,)
    ]
