r"""Private validation of regressors: the mean absolute error with its interval, from votes alone.

With L the limit beyond which errors count as L, a vote is "right" before the noise with probability
1 − e/L for a voter whose error is e. So in a population with mean error E the share of the right is
:math:`A = 1 - E/L`, every vote is one binary draw, and what holds for the accuracy of a classifier
holds for A, the exact intervals included (`tacit.inference.validation`):

.. math:: \hat E = L \, (1 - \hat A).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.local.inference.losses import limit_of, losses
from tacit.local.inference.validation import (
    HANDED_OUT,
    Estimate,
    also_exposed,
    estimate,
    may_be_handed_out,
)
from tacit.local.inference.votes import Ballot, Votes, fingerprint
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger, pay
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.randomness import Randomness


@dataclass(frozen=True)
class ErrorEstimate:
    """A mean absolute error, held to [0, limit], and its interval.

    `voters` is the number of voters behind it: counted, or estimated if the group is private. The
    error is NaN if the votes show nobody of that group.
    """

    error: float
    interval: tuple[float, float]
    voters: float
    confidence: float
    limit: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data; an unknown error is None."""
        known = None if math.isnan(self.error) else self.error
        return {
            "voters": self.voters,
            "mean_absolute_error": known,
            "interval": list(self.interval),
        }


@dataclass(frozen=True)
class ErrorValidation:
    """The mean absolute error of a regressor by votes, and their cost for each voter.

    Errors beyond `limit` count as `limit`. The intervals of groups each hold on their own, not all
    of them at once.
    """

    error: float
    interval: tuple[float, float]
    confidence: float
    limit: float
    voters: int
    by_group: Mapping[str, ErrorEstimate]
    guarantee: Guarantee
    event: Event
    certificate: Certificate

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "voters": self.voters,
            "mean_absolute_error": self.error,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "limit": self.limit,
            "by_group": [{"group": key, **one.to_dict()} for key, one in self.by_group.items()],
            "guarantee": str(self.guarantee),
            "seeded": self.certificate.seeded,
        }


def validate_error(
    model: Any,
    rows: Any,
    truth: Any,
    *,
    epsilon: float,
    limit: float | None = None,
    groups: Any = None,
    private_groups: Sequence[str] | None = None,
    confidence: float = 0.95,
    unit: Unit | str = Unit.PERSON,
    ledger: Ledger | None = None,
    account: str | None = None,
    key: str | None = None,
    rng: Randomness | None = None,
) -> ErrorValidation:
    """Let people vote on a regressor, and estimate its mean absolute error.

    Parameters
    ----------
    model
        A regressor with `predict`, which is handed to the voters.
    rows, truth
        The voters' own rows and outcomes; only votes are computed from them. What is no number, or
        infinite, counts as an error of `limit`.
    epsilon : float
        Local privacy parameter of one vote, including the group.
    limit : float, optional
        Absolute errors beyond this count as this. Declared without looking at the voters' outcomes;
        by default the distance between the bounds of the model's outcome. The interval narrows in
        proportion to it.
    groups : sequence, optional
        The group of each voter: the error by group too.
    private_groups : sequence of str, optional
        All possible groups: groups are then private, and part of the vote. Without it they are
        assumed to be known to whoever counts.
    confidence : float
        Of every interval.
    unit : Unit
        What one vote is about.
    ledger, account, key
        Charged before anybody votes; if the charge is refused, nobody votes.
    rng
        For tests; what a seeded generator releases is marked.

    Notes
    -----
    ε-DP towards each voter, for any two rows, outcomes and groups; the estimate is post-processing.
    """
    where = "validate_error"
    errors.probability(where, "confidence", confidence, zero=False)
    if private_groups is not None and groups is None:
        errors.refuse(where, "groups", "given with private_groups", None)
    settled = limit_of(where, model, limit)
    ballot = Ballot(epsilon=epsilon, groups=private_groups, limit=settled, unit=unit)
    places = losses(model, rows, truth, settled)
    known, private = (groups, None) if private_groups is None else (None, groups)
    pay(where, ledger, account, ballot.event, key=key)
    votes = ballot.release(places, groups=private, rng=rng)
    found = estimate_error(replace(votes, groups=known, about=fingerprint(model)), confidence)
    return (
        found
        if may_be_handed_out(model)
        else replace(found, certificate=also_exposed(found.certificate, HANDED_OUT))
    )


def estimate_error(votes: Votes, confidence: float = 0.95) -> ErrorValidation:
    """Estimate the mean absolute error from votes, overall and by the groups in them."""
    limit = votes.ballot.limit
    if limit is None:
        remedy = "Use estimate for votes on classifiers."
        errors.refuse("estimate_error", "votes", "on a regressor", "votes on a classifier", remedy)
    found = estimate(votes, confidence)
    whole = as_error(
        Estimate(found.accuracy, found.interval, found.voters, found.confidence), limit
    )
    return ErrorValidation(
        whole.error,
        whole.interval,
        found.confidence,
        limit,
        found.voters,
        {group: as_error(one, limit) for group, one in found.by_group.items()},
        found.guarantee,
        found.event,
        found.certificate,
    )


def as_error(share: Estimate, limit: float) -> ErrorEstimate:
    """Return the mean absolute error that belongs to a share of right votes."""
    low, high = share.interval
    return ErrorEstimate(
        limit * (1 - share.accuracy),
        (limit * (1 - high), limit * (1 - low)),
        share.voters,
        share.confidence,
        limit,
    )
