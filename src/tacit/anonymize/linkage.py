r"""Linkage of released rows to one of n known people, by reference rows of each of them.

An attacker holds references, rows whose people are known, and ranks all people by how well they fit
a row. Several rows of one unknown person add up: twenty weak hints can identify a person.

References
----------
.. [BSI08] Boiman, Shechtman, Irani. In defense of nearest-neighbor based image classification.
   CVPR 2008.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.anonymize.linkage_rules import RULES, linkage_rows
from tacit.anonymize.released import Integers, Reals, people, people_among, split, vectors
from tacit.local.inference.validation import exact_interval
from tacit.privacy import errors

_TOP = 5
_GROUPS = 500  # of held-out references that choose a rule


@dataclass(frozen=True)
class Linked:
    """The share of rows whose person was ranked first, and among the first five.

    Attributes
    ----------
    top1, top5 : float
        Shares of the groups of `together` rows.
    intervals : tuple
        Intervals of Clopper and Pearson for both; each holds on its own.
    chance : tuple of float
        Shares for a random ranking: 1/n and 5/n.
    rule : str
        The one of `linkage_rules.RULES` that was best on the references alone.
    """

    top1: float
    top5: float
    intervals: tuple[tuple[float, float], tuple[float, float]]
    chance: tuple[float, float]
    rule: str
    people: int
    together: int
    groups: int
    confidence: float

    def __str__(self) -> str:
        (low, high), (low5, high5) = self.intervals
        rows = "one row" if self.together == 1 else f"{self.together} rows together"
        return (
            f"{self.people} people, by {rows}: first {self.top1:.1%} ({low:.1%} to {high:.1%}; "
            f"chance {self.chance[0]:.1%}), among the first five {self.top5:.1%} ({low5:.1%} to "
            f"{high5:.1%}; chance {self.chance[1]:.1%})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "top1": self.top1,
            "top5": self.top5,
            "intervals": [list(interval) for interval in self.intervals],
            "chance": list(self.chance),
            "rule": self.rule,
            "people": self.people,
            "together": self.together,
            "groups": self.groups,
            "confidence": self.confidence,
        }


def linkage(
    reference: Any,
    reference_person: Any,
    samples: Any,
    sample_person: Any,
    *,
    together: int = 1,
    seed: int = 0,
    confidence: float = 0.95,
) -> Linked:
    r"""Rank all people for each sample, by references of each of them.

    Parameters
    ----------
    reference, reference_person : array
        Released rows and their people: what the attacker knows.
    samples, sample_person : array
        Released rows to be linked to people of the references, and the true people.
    together : int
        Number of rows, known to be of one person, that are ranked together; their scores are
        summed. A person's last rows that do not fill a group are left out.
    seed : int
        Seed of the groups, of the rows that choose a rule, and of the order of people with equal
        scores.
    confidence : float
        Confidence of the intervals.

    Notes
    -----
    The score of a person is one of `RULES`: minus the mean squared distance to the k nearest of the
    person's references [BSI08]_, in whitened coordinates or in ranks; minus the squared distance to
    their mean in coordinates in which people vary equally in all directions; the frequency of
    exactly this row; or the log-likelihood of a logistic regression or a small network. The
    attacker tries all rules on a third of the references, and uses the best.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(6), 40)
    >>> rows = rng.normal(size=(240, 3)) + rng.normal(size=(6, 3))[person]
    >>> one = linkage(rows[::2], person[::2], rows[1::2], person[1::2])
    >>> ten = linkage(rows[::2], person[::2], rows[1::2], person[1::2], together=10)
    >>> [round(share, 1) for share in (one.chance[0], one.top1, ten.top1)]
    [0.2, 0.5, 0.8]
    """
    where = "linkage"
    together = errors.whole(where, "together", together, least=1)
    seed = errors.whole(where, "seed", seed, least=0, most=2**32 - 1)
    errors.probability(where, "confidence", confidence, zero=False)
    known, others = vectors(where, reference), vectors(where, samples)
    person, values = people(where, reference_person, len(known))
    truth = people_among(where, values, sample_person, len(others))
    if known.shape[1] != others.shape[1]:
        errors.refuse(where, "sample columns", f"{known.shape[1]}", others.shape[1])
    rng = np.random.default_rng(seed)
    rule = _best_rule(known, person, together, rng)
    places = _groups(truth, together, rng)
    if not len(places):
        remedy = "Give more samples of a person."
        errors.refuse(where, "together", "at most the samples of a person", together, remedy)
    ranks = _ranks(_scores([rule], known, person, others)[rule], truth, places, rng)
    return _linked(ranks, rule, len(values), together, confidence)


def _linked(ranks: Integers, rule: str, count: int, together: int, confidence: float) -> Linked:
    first, five = int((ranks == 0).sum()), int((ranks < _TOP).sum())
    total = len(ranks)
    return Linked(
        first / total,
        five / total,
        (
            exact_interval(first, total, 1.0, 0.0, confidence),
            exact_interval(five, total, 1.0, 0.0, confidence),
        ),
        (1 / count, min(_TOP, count) / count),
        rule,
        count,
        together,
        total,
        confidence,
    )


def _best_rule(known: Reals, person: Integers, together: int, rng: np.random.Generator) -> str:
    """Choose a rule on the references: fit on two thirds of each person's, test on the rest."""
    if np.bincount(person).min() < 3:
        return next(iter(RULES))  # a single reference has neighbours, but no variance
    held = split("linkage", person, 1 / 3, int(rng.integers(2**32)))
    truth = person[held]
    # The same rows are grouped repeatedly: some hundred groups are needed to compare rules, and
    # they differ if no group holds all rows of a person.
    size = max(min(together, int(np.bincount(truth).min()) // 2), 1)
    often = 1 + _GROUPS * size // len(truth)
    places = np.concatenate([_groups(truth, size, rng) for _ in range(often)])
    scores = _scores(list(RULES), known[~held], person[~held], known[held])
    ranks = {rule: _ranks(by_rule, truth, places, rng) for rule, by_rule in scores.items()}
    # By the mean reciprocal rank, which distinguishes rules even if few people rank first, and with
    # equal weight per person: those with most references must not decide for all.
    owner = truth[places[:, 0]]
    weights = 1 / np.bincount(owner)[owner]
    return max(ranks, key=lambda rule: float((weights / (1 + ranks[rule])).sum()))


def _groups(truth: Integers, together: int, rng: np.random.Generator) -> Integers:
    """Return indices of rows, one group of a person's rows per row."""
    groups = []
    for code in np.unique(truth):
        mine = rng.permutation(np.flatnonzero(truth == code))
        whole = len(mine) // together
        groups.append(mine[: whole * together].reshape(whole, together))
    return np.concatenate(groups)


def _scores(
    rules: Sequence[str], known: Reals, person: Integers, others: Reals
) -> dict[str, Reals]:
    """Compute the score of each row and person, by each rule."""
    shown = linkage_rows(known, person, others)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # few iterations are intended, so convergence warnings are expected
        return {rule: RULES[rule](shown) for rule in rules}


def _ranks(scores: Reals, truth: Integers, places: Integers, rng: np.random.Generator) -> Integers:
    """Count the people ranked before the right one of each group; ties are broken at random."""
    summed = scores[places].sum(axis=1)
    own = np.take_along_axis(summed, truth[places[:, :1]], axis=1)
    equals = (summed == own).sum(axis=1)
    return np.asarray((summed > own).sum(axis=1) + rng.integers(0, equals), np.int64)
