r"""Private validation: accuracy with its interval, from votes alone.

A voter for whom the classifier is right answers "right" with probability a, one for whom it is
wrong with probability b, both known exactly from the channel. Of n votes a share s is "right":

.. math:: \hat A = \frac{s - b}{a - b}, \qquad s \sim \mathrm{Binomial}(n,\; b + A(a - b))/n

With :math:`b = p`, :math:`a = 1 - p` this is Warner's estimate [War65]_.

References
----------
.. [War65] Warner. Randomized response: a survey technique for eliminating evasive answer bias.
   JASA 1965.
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [Hoe56] Hoeffding. On the distribution of the number of successes in independent trials. 1956.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from tacit.local.inference import parts
from tacit.local.inference.votes import Ballot, Law, Votes, outcomes
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger, pay
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.randomness import Randomness

HANDED_OUT = "What the classifier carries of in-house rows: it was handed to those who voted."


@dataclass(frozen=True)
class Estimate:
    """An accuracy, held to [0, 1], and its interval.

    `voters` is the number of voters behind it: counted, or estimated if the part is private. The
    accuracy is NaN if the votes show nobody of that part.
    """

    accuracy: float
    interval: tuple[float, float]
    voters: float
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data; an unknown accuracy is None."""
        known = None if math.isnan(self.accuracy) else self.accuracy
        return {"voters": self.voters, "accuracy": known, "interval": list(self.interval)}


@dataclass(frozen=True)
class Validation:
    """The accuracy of a classifier by votes, and their cost for each voter.

    The intervals of classes and groups each hold on their own, not all of them at once. The
    accuracy within a class is its recall; `balanced` is the mean of the recalls, None if votes do
    not name classes.
    """

    accuracy: float
    interval: tuple[float, float]
    confidence: float
    voters: int
    balanced: Estimate | None
    by_class: Mapping[Any, Estimate]
    by_group: Mapping[str, Estimate]
    guarantee: Guarantee
    event: Event
    certificate: Certificate

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "voters": self.voters,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "balanced_accuracy": None if self.balanced is None else self.balanced.to_dict(),
            "by_class": [{"class": key, **one.to_dict()} for key, one in self.by_class.items()],
            "by_group": [{"group": key, **one.to_dict()} for key, one in self.by_group.items()],
            "guarantee": str(self.guarantee),
            "seeded": self.certificate.seeded,
        }


def validate(
    model: Any,
    rows: Any,
    truth: Any,
    *,
    epsilon: float,
    by_class: bool = False,
    groups: Any = None,
    private_groups: Sequence[str] | None = None,
    confidence: float = 0.95,
    unit: Unit | str = Unit.PERSON,
    ledger: Ledger | None = None,
    account: str | None = None,
    key: str | None = None,
    rng: Randomness | None = None,
) -> Validation:
    """Let people vote on a classifier, and count.

    Parameters
    ----------
    model
        A classifier with `classes_` and `predict`, which is handed to the voters.
    rows, truth
        The voters' own rows and labels; only votes are computed from them.
    epsilon : float
        Local privacy parameter of one vote, including class and group.
    by_class : bool
        Accuracy by class too. A voter's class is private: it becomes part of the vote.
    groups : sequence, optional
        The group of each voter: accuracy by group too.
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
    ε-DP towards each voter, for any two rows, labels and groups; the estimate is post-processing.
    """
    errors.probability("validate", "confidence", confidence, zero=False)
    if private_groups is not None and groups is None:
        errors.refuse("validate", "groups", "given with private_groups", None)
    classes = tuple(np.asarray(model.classes_).tolist()) if by_class else None
    ballot = Ballot(epsilon=epsilon, classes=classes, groups=private_groups, unit=unit)
    right, mine = outcomes(model, rows, truth)
    known, private = (groups, None) if private_groups is None else (None, groups)
    pay("validate", ledger, account, ballot.event, key=key)
    asked = mine if by_class else None
    votes = ballot.release(right, classes=asked, groups=private, rng=rng)
    validation = estimate(replace(votes, groups=known), confidence)
    return (
        validation
        if may_be_handed_out(model)
        else replace(validation, certificate=also_exposed(validation.certificate, HANDED_OUT))
    )


def may_be_handed_out(model: Any) -> bool:
    """Test whether voters may get the model: its in-house rows are protected, public or absent."""
    protection = getattr(model, "inhouse_", None)
    return protection is None or bool(protection.may_leave)


def also_exposed(certificate: Certificate, *lines: str) -> Certificate:
    """Return the certificate with further sentences about what is not protected."""
    return replace(certificate, not_protected=(*certificate.not_protected, *lines))


def estimate(votes: Votes, confidence: float = 0.95) -> Validation:
    """Estimate the accuracy from votes, overall and by the classes and groups in them.

    Votes on a regressor give the share 1 − error/limit: see `tacit.inference.error_votes`.
    """
    confidence = errors.probability("estimate", "confidence", confidence, zero=False)
    whole = whole_estimate(votes, confidence)
    by_class = _by_part(votes.ballot.classes, 0, votes, confidence)
    by_group = _by_part(votes.ballot.groups, 1, votes, confidence)
    if votes.groups is not None:
        known = np.array(votes.groups, object)
        by_group = {
            group: whole_estimate(votes[known == group], confidence)
            for group in sorted(set(votes.groups))
        }
    return Validation(
        whole.accuracy,
        whole.interval,
        confidence,
        len(votes),
        _balanced(votes, by_class, confidence),
        by_class,
        by_group,
        votes.guarantee,
        votes.event,
        votes.certificate,
    )


def _balanced(votes: Votes, by_class: Mapping[Any, Estimate], confidence: float) -> Estimate | None:
    """Average the recalls of all classes, and the ends of intervals that hold for all at once.

    Each class misses with at most its part of the risk (Bonferroni), so the mean of the intervals
    covers the mean of the recalls with at least the stated confidence.
    """
    if not by_class:
        return None
    each = 1 - (1 - confidence) / len(by_class)
    ends = [one.interval for one in _by_part(votes.ballot.classes, 0, votes, each).values()]
    low, high = (float(np.mean(end)) for end in zip(*ends, strict=True))
    # NaN if the votes show nobody of some class.
    value = float(np.mean([one.accuracy for one in by_class.values()]))
    return Estimate(value, (low, high), len(votes), confidence)


def unbiased_accuracy(votes: Votes) -> float:
    """Compute the unbiased accuracy, which may lie outside [0, 1], to compare candidates."""
    law, right = votes.ballot.law, int(_support(votes)[..., 1].sum())
    expected = len(votes) * votes.ballot.parts * law.other
    return (right - expected) / (len(votes) * (law.own - law.other))


def whole_estimate(votes: Votes, confidence: float) -> Estimate:
    """Estimate the accuracy over all voters, with an exact interval."""
    ballot, voters = votes.ballot, len(votes)
    accuracy = min(max(unbiased_accuracy(votes), 0.0), 1.0)
    if ballot.law.size == 1:
        right = int(_support(votes)[..., 1].sum())
        interval = exact_interval(right, voters, *answers(ballot), confidence)
    else:
        chances = parts.chances(ballot.law, ballot.parts)
        counts = parts.count(votes, None, chances.least)
        ends = parts.interval(counts, voters, chances, confidence, everybody=True)
        low, high = (float(end[0]) for end in ends)
        interval = min(low, accuracy), max(high, accuracy)
    return Estimate(accuracy, interval, voters, confidence)


def answers(ballot: Ballot) -> tuple[float, float]:
    """Return the probability of a vote "right" for voters with a right and a wrong prediction."""
    law, rest = ballot.law, ballot.parts - 1
    return law.own + rest * law.other, (rest + 1) * law.other


def exact_interval(
    right: int, voters: int, true: float, false: float, confidence: float
) -> tuple[float, float]:
    r"""Compute the Clopper-Pearson interval [CP34]_ of the noisy share, mapped through the channel.

    .. math:: \left[\frac{B_{\alpha/2}(k,\, n - k + 1) - b}{a - b},\;
              \frac{B_{1 - \alpha/2}(k + 1,\, n - k) - b}{a - b}\right] \cap [0, 1]

    It covers the accuracy in the population of the voters with at least this confidence, for every
    n and every accuracy; for the accuracy among the voters themselves the share varies less
    [Hoe56]_. A count beyond what any accuracy gives is replaced by the nearest possible one, which
    only widens the interval; it could otherwise be a single point.
    """
    tail = (1 - confidence) / 2
    least, most = math.floor(voters * false), math.ceil(voters * true)
    for_lower, for_upper = min(right, most), max(right, least)
    lower = betaincinv(for_lower, voters - for_lower + 1, tail) if for_lower > 0 else 0.0
    upper = betaincinv(for_upper + 1, voters - for_upper, 1 - tail) if for_upper < voters else 1.0
    ends = [(float(end) - false) / (true - false) for end in (lower, upper)]
    return min(max(ends[0], 0.0), 1.0), min(max(ends[1], 0.0), 1.0)


def half_width(voters: int, epsilon: Any, confidence: float = 0.95) -> float:
    """Compute half of the widest interval from this many votes (at accuracy one half)."""
    true, false = answers(Ballot(epsilon=epsilon))
    lower, upper = exact_interval(voters // 2, voters, true, false, confidence)
    return (upper - lower) / 2


def _held_counts(
    counts: tuple[float, float], each: int, voters: int, law: Law
) -> tuple[float, float]:
    """Estimate the counts of right and wrong without bias, then clip them at 0."""
    noise, gap = voters * each * law.other, law.own - law.other
    return max((counts[0] - noise) / gap, 0.0), max((counts[1] - noise) / gap, 0.0)


def _support(votes: Votes) -> npt.NDArray[np.int64]:
    """Count how often votes name each symbol: (classes, groups, wrong or right)."""
    counts = np.bincount(votes.symbols.ravel(), minlength=votes.ballot.law.symbols)
    return counts.reshape(votes.ballot.shape)


def _by_part(
    values: tuple[Any, ...] | None, axis: int, votes: Votes, confidence: float
) -> dict[Any, Estimate]:
    if values is None:
        return {}
    law, each, voters = votes.ballot.law, votes.ballot.parts // len(values), len(votes)
    chances = parts.chances(law, each)
    counts = parts.count(votes, axis, chances.least)
    ends = parts.interval(counts, voters, chances, confidence, everybody=len(values) == 1)
    estimates = {}
    support = _support(votes).sum(axis=1 - axis).astype(float).tolist()
    for value, (minus, plus), low, high in zip(values, support, *ends, strict=True):
        plus, minus = _held_counts((plus, minus), each, voters, law)
        accuracy = plus / (plus + minus) if plus + minus else math.nan
        # The estimate counts every named symbol, the interval every vote once.
        known = (low, high) if math.isnan(accuracy) else (min(low, accuracy), max(high, accuracy))
        size = min(plus + minus, float(voters))
        estimates[value] = Estimate(accuracy, (float(known[0]), float(known[1])), size, confidence)
    return estimates
