r"""Selection among candidates by votes: who votes on which, who wins, and with which interval.

Pure functions from counts and votes to a winner with intervals. A winner's estimate is biased
upwards by the selection; its interval is valid if it comes from voters who had no part in the
choice, or if it holds for all candidates at once.

References
----------
.. [Sid67] Šidák. Rectangular confidence regions for the means of multivariate normal
   distributions. JASA 1967 (for independent estimates the product is exact).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit.data import labels
from tacit.local.inference.validation import (
    Estimate,
    answers,
    half_width,
    unbiased_accuracy,
    whole_estimate,
)
from tacit.local.inference.votes import Ballot, Votes
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, source

COMPOSITIONS = ("parallel", "sequential")
CONFIRMATIONS = ("fresh", "simultaneous")
FRESH = -1
"""Stands for the candidate of voters who are kept for the winner."""

_MOST_VOTERS = 2**50


@dataclass(frozen=True)
class Precision:
    """The precision that this many voters allow, whatever their votes.

    Parameters
    ----------
    voters, candidates : int
        How many there are.
    fresh : int
        Voters kept for the winner.
    for_each : int
        The least number of votes on each candidate.
    half_width : float
        The largest half-width of the winner's interval.
    compared : float
        The largest half-width of the candidates' intervals, which all hold at once.
    confidence : float
        Confidence of the winner's interval, and of all others together.
    """

    voters: int
    candidates: int
    fresh: int
    for_each: int
    half_width: float
    compared: float
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.voters:,} voters, {self.fresh:,} of them kept for the winner, and "
            f"{self.for_each:,} votes on each candidate: the winner's accuracy will be known to "
            f"± {self.half_width:.3f} or better, every candidate's to ± {self.compared:.3f} "
            f"({self.confidence:.0%} confidence)."
        )


@dataclass(frozen=True)
class Selection:
    """The winner's index, and every candidate's estimate; their intervals hold all at once."""

    winner: int
    estimates: tuple[Estimate, ...]
    confidence: float


def part_of(epsilon: Any, parts: int) -> Fraction:
    """Return ε/m as a decimal, rounded down: the m shares add up to ε or slightly less."""
    return labels.part(errors.epsilon_in_range("search", epsilon), parts)


def assign(
    count: int, parts: int, fresh: int = 0, rng: Randomness | None = None
) -> npt.NDArray[np.int64]:
    """Assign each of `count` people to a part or to `FRESH`; sizes of parts differ by at most one.

    Parts are drawn from the operating system's entropy, without looking at anybody's data, and are
    disjoint, as parallel composition requires.
    """
    count = errors.whole("assign", "count", count, least=1)
    parts = errors.whole("assign", "parts", parts, least=1)
    fresh = errors.whole("assign", "fresh", fresh, least=0, most=count)
    order = np.argsort(source(rng).words(count), kind="stable")
    chosen = np.full(count, FRESH, np.int64)
    chosen[order[fresh:]] = np.arange(count - fresh) % parts
    return chosen


def confirm_share_for(
    candidates: int, epsilon: Any, composition: str = "parallel", confidence: float = 0.95
) -> float:
    r"""Compute the share of voters to keep for the winner.

    Of n voters, cn confirm. With s the standard deviation of one vote with the whole ε, the
    winner's interval has half-width :math:`zs/\sqrt{cn}`; and choosing by noisy estimates loses at
    most about the largest of their m errors, :math:`s\sqrt{2V\ln m}/\sqrt{(1-c)n}`, where V is the
    ratio of the variance of a candidate's estimate to that of a vote by everybody: m in parallel.
    The sum is smallest at

    .. math:: c = \frac{z^{2/3}}{z^{2/3} + (2V\ln m)^{1/3}}

    It depends neither on n nor on any vote.
    """
    worse = float(candidates)
    if composition == "sequential":
        gaps = (_gap(epsilon), _gap(part_of(epsilon, candidates)))
        worse = (gaps[0] / gaps[1]) ** 2
    confirming = float(ndtri((1 + confidence) / 2)) ** (2 / 3)
    choosing = (2 * worse * math.log(candidates)) ** (1 / 3)
    return float(confirming / (confirming + choosing))


def precision(
    voters: int,
    epsilon: Any,
    candidates: int = 1,
    *,
    composition: str = "parallel",
    confirm: str = "fresh",
    confirm_share: float | None = None,
    confidence: float = 0.95,
    within: float | None = None,
) -> Precision:
    """Compute the precision in advance; refuse too few voters, and tell how many are needed.

    Parameters
    ----------
    voters, epsilon, candidates
        The number of voters, the cost for each, and the number of candidates.
    composition : {"parallel", "sequential"}
        Each votes on one candidate with ε, or on each of m with ε/m.
    confirm : {"fresh", "simultaneous"}
        Some are kept for the winner, or all intervals hold at once.
    confirm_share : float, optional
        The share of voters who are kept; by default `confirm_share_for`.
    confidence : float
        Of the intervals.
    within : float, optional
        The half-width that the winner's interval must have. In any case every interval must
        exclude something.
    """
    where = "precision"
    voters = errors.whole(where, "voters", voters, least=1, most=_MOST_VOTERS)
    candidates = errors.whole(where, "candidates", candidates, least=1)
    errors.choice(where, "composition", composition, COMPOSITIONS)
    errors.choice(where, "confirm", confirm, CONFIRMATIONS)
    errors.probability(where, "confidence", confidence, zero=False)
    if within is not None:
        errors.probability(where, "within", within, zero=False)
    if confirm_share is None:
        confirm_share = confirm_share_for(candidates, epsilon, composition, confidence)
    elif candidates > 1:
        errors.probability(where, "confirm_share", confirm_share, zero=False)
    share = 1.0 if candidates == 1 else confirm_share if confirm == "fresh" else 0.0

    def at(count: int) -> Precision:
        return _precision(count, epsilon, candidates, composition, share, confidence)

    def enough(count: int) -> bool:
        made = at(count)
        reached = within is None or made.half_width <= within
        return reached and max(made.half_width, made.compared) < 0.5

    if not enough(voters):
        _refuse_few(voters, epsilon, candidates, within, _least(enough))
    return at(voters)


def level(confidence: float, candidates: int, independent: bool) -> float:
    """Return the level of each of m intervals that hold at once: Šidák [Sid67]_ or Bonferroni."""
    if independent:
        return float(confidence ** (1 / candidates))
    return 1 - (1 - confidence) / candidates


def select(votes: Sequence[Votes], *, confidence: float = 0.95, independent: bool) -> Selection:
    """Choose the first candidate with the best estimate; intervals hold all at once.

    `independent` says that each person voted on one candidate (parallel), so that estimates are
    independent.
    """
    confidence = errors.probability("select", "confidence", confidence, zero=False)
    if not votes:
        errors.refuse("select", "votes", "of at least one candidate", 0)
    each = level(confidence, len(votes), independent)
    return Selection(
        winner=int(np.argmax([unbiased_accuracy(one) for one in votes])),
        # State the joint confidence, not the higher one of each interval.
        estimates=tuple(replace(whole_estimate(one, each), confidence=confidence) for one in votes),
        confidence=confidence,
    )


def _precision(
    voters: int, epsilon: Any, candidates: int, composition: str, share: float, confidence: float
) -> Precision:
    # At least one vote for the winner, and one for each candidate if there are that many.
    fresh = voters if share == 1 else math.ceil(share * voters)
    parallel = composition == "parallel"
    for_each = (voters - fresh) // candidates if parallel else voters - fresh
    spent = epsilon if parallel else part_of(epsilon, candidates)
    each = level(confidence, candidates, parallel)
    if candidates == 1:
        for_each = fresh
    compared = half_width(for_each, spent, each) if for_each else 0.5
    reach = half_width(fresh, epsilon, confidence) if fresh else compared
    return Precision(voters, candidates, fresh, for_each, reach, compared, confidence)


def _least(enough: Any) -> int:
    """Find the fewest voters that are enough, by doubling and bisection."""
    high = 1
    while not enough(high) and high < _MOST_VOTERS:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _refuse_few(
    voters: int, epsilon: Any, candidates: int, within: float | None, least: int
) -> None:
    aim = "to tell anything" if within is None else f"for ± {within:g}"
    many = f"{candidates} candidates" if candidates > 1 else "one candidate"
    condition = f"at least {least:,} {aim} of {many} at ε = {float(epsilon):g}"
    remedy = "Invite more, raise epsilon, or try fewer candidates."
    errors.refuse("precision", "voters", condition, voters, remedy)


def _gap(epsilon: Any) -> float:
    """Return the difference in the probability of answering "right"."""
    true, false = answers(Ballot(epsilon=epsilon))
    return true - false
