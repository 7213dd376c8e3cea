"""Reports of several rounds of one collection: whether they fit, and what protects their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.local import origins
from tacit.local.inhouse import Protection
from tacit.local.reports import Reports
from tacit.privacy import errors


def protections(rounds: Sequence[Reports]) -> list[Protection]:
    """Return the protections of all rounds; one release that several rounds follow counts once."""
    first = rounds[0].mechanism
    found = [first.inhouse_]
    for reports in rounds[1:]:
        other = reports.mechanism
        same = first.synthetic_ is not None and first.synthetic_.same(other.synthetic_)
        found.append(other.inhouse_.sharing(first.inhouse_) if same else other.inhouse_)
    return found


def must_belong_together(where: str, rounds: Sequence[Reports]) -> None:
    """Refuse rounds that do not share their vectors, or that hold a report twice."""
    if not rounds:
        errors.refuse(where, "reports", "at least one table", 0)
    origins.must_be_once(where, [release for reports in rounds for release in reports.releases])
    first = rounds[0].mechanism
    for reports in rounds[1:]:
        other = reports.mechanism
        same = (
            reports.channel == rounds[0].channel
            and other.classes == first.classes
            and other.outcome == first.outcome
            and np.array_equal(other.projection_.matrix, first.projection_.matrix)
            and np.array_equal(other.projection_.mean, first.projection_.mean)
        )
        if not same:
            raise errors.InvalidData(
                f"{where}: reports must be rounds of one collection: the same epsilon, classes and "
                "features. Use adapt to make the next round."
            )
