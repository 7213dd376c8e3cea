r"""Linkage: which of n known people is behind released rows, by reference rows of each of them.

An attacker holds references, rows whose people are known, and ranks all people by how well they fit
a row. Several rows of one unknown person add up: what one row hints at, twenty say aloud.

References
----------
.. [BSI08] Boiman, Shechtman, Irani. In defense of nearest-neighbor based image classification.
   CVPR 2008.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from tacit.anonymize.released import (
    LEADING,
    Coordinates,
    Integers,
    Ranks,
    Reals,
    Standard,
    White,
    batch,
    distinct,
    people,
    people_among,
    split,
    vectors,
)
from tacit.local.inference.validation import exact_interval
from tacit.privacy import errors

_TOP = 5
_GROUPS = 500  # of held-out references that choose a rule
_BLOCK = 1024  # rows whose distances to all references are held at once


@dataclass(frozen=True)
class Linked:
    """How often the right person was first, and among the first five.

    Attributes
    ----------
    top1, top5 : float
        Shares of the groups of `together` rows.
    intervals : tuple
        Of both, by Clopper and Pearson; each holds on its own.
    chance : tuple of float
        What drawing people at random would get: 1/n and 5/n.
    rule : str
        The one of `RULES` that did best among the references alone.
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
        """JSON-ready data."""
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
        Released rows and whose they are: what the attacker knows.
    samples, sample_person : array
        Released rows to be linked to people of the references, and the truth.
    together : int
        How many rows of one person, known to be of one person, are ranked at once; their scores are
        summed. A person's last rows that make no full group are left out.
    seed : int
        Of groups, of the rows that choose a rule, and of the order of people who fit equally well.
    confidence : float
        Of the intervals.

    Notes
    -----
    The score of a person is one of `RULES`: minus the mean squared distance to the k nearest of the
    person's references [BSI08]_, in whitened coordinates or in ranks; minus the squared distance to
    their mean in coordinates in which people vary equally in all directions; the frequency of the
    very row; or the log-likelihood of a logistic regression or a small network. The attacker tries
    all on a third of the references, and takes the best.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(6), 40)
    >>> rows = rng.normal(size=(240, 3)) + rng.normal(size=(6, 3))[person]
    >>> one = linkage(rows[::2], person[::2], rows[1::2], person[1::2])
    >>> ten = linkage(rows[::2], person[::2], rows[1::2], person[1::2], together=10)
    >>> one.chance[0] < one.top1 < ten.top1
    True
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
    """By the references alone: two thirds of each person's, tried on the rest."""
    if np.bincount(person).min() < 3:
        return next(iter(RULES))  # one reference is a neighbour, but makes no spread
    held = split("linkage", person, 1 / 3, int(rng.integers(2**32)))
    truth = person[held]
    # The same rows in other groups, too: rules are told apart by some hundred groups, which differ
    # where nobody's rows are all in one.
    size = max(min(together, int(np.bincount(truth).min()) // 2), 1)
    often = 1 + _GROUPS * size // len(truth)
    places = np.concatenate([_groups(truth, size, rng) for _ in range(often)])
    scores = _scores(list(RULES), known[~held], person[~held], known[held])
    ranks = {rule: _ranks(found, truth, places, rng) for rule, found in scores.items()}
    # By the mean reciprocal rank, which tells rules apart where few people come first, and with
    # one voice a person: whoever has most references must not choose for all.
    owner = truth[places[:, 0]]
    weights = 1 / np.bincount(owner)[owner]
    return max(ranks, key=lambda rule: float((weights / (1 + ranks[rule])).sum()))


def _groups(truth: Integers, together: int, rng: np.random.Generator) -> Integers:
    """Places of rows, a group of one person's a row."""
    groups = []
    for code in np.unique(truth):
        mine = rng.permutation(np.flatnonzero(truth == code))
        whole = len(mine) // together
        groups.append(mine[: whole * together].reshape(whole, together))
    return np.concatenate(groups)


def _scores(
    rules: Sequence[str], known: Reals, person: Integers, others: Reals
) -> dict[str, Reals]:
    """By each rule, a score for each row and person."""
    shown = _shown(known, person, others)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a regression could have learned longer is no news
        return {rule: RULES[rule](shown) for rule in rules}


def _ranks(scores: Reals, truth: Integers, places: Integers, rng: np.random.Generator) -> Integers:
    """How many people are ahead of the right one of each group; among equals the order is drawn."""
    summed = scores[places].sum(axis=1)
    own = np.take_along_axis(summed, truth[places[:, :1]], axis=1)
    equals = (summed == own).sum(axis=1)
    return np.asarray((summed > own).sum(axis=1) + rng.integers(0, equals), np.int64)


class Shown(NamedTuple):
    """What a rule sees: references with their people, rows without, as released and whitened."""

    raw: tuple[Reals, Reals]
    white: tuple[Coordinates, Coordinates]
    person: Integers

    @property
    def shares(self) -> Reals:
        """Of the references, by person."""
        return np.asarray(np.bincount(self.person) / len(self.person))


def _shown(known: Reals, person: Integers, others: Reals) -> Shown:
    standard = Standard.of(known)
    own = standard(known)
    white = White.of(own)
    leading = white(own)[:, :LEADING], white(standard(others))[:, :LEADING]
    return Shown((known, others), leading, person)


# --- the rules: a score for each row and person, higher where they fit better --------------------


def _nearest(count: int, shown: Shown) -> Reals:
    """Minus the mean squared distance to the nearest references of each person."""
    return _near(count, shown.person, *shown.white)


def _ranked(shown: Shown) -> Reals:
    """The same by the three nearest in ranks, which no far row and no rounding touches."""
    ranks = Ranks.of(shown.raw[0])
    return _near(3, shown.person, *map(ranks, shown.raw))


def _near(count: int, person: Integers, known: Coordinates, others: Coordinates) -> Reals:
    from sklearn.metrics.pairwise import euclidean_distances

    scores = np.empty((len(others), int(person.max()) + 1))
    mine = [np.flatnonzero(person == code) for code in range(scores.shape[1])]
    for start in range(0, len(others), _BLOCK):
        block = slice(start, start + _BLOCK)
        squares = euclidean_distances(others[block], known, squared=True)
        for code, places in enumerate(mine):
            few = min(count, len(places))
            nearest = np.partition(squares[:, places], few - 1, axis=1)[:, :few]
            scores[block, code] = -nearest.mean(axis=1)
    return scores


def _mean(shown: Shown) -> Reals:
    """Minus the squared distance to each person's mean, where people vary equally all around."""
    from sklearn.covariance import ledoit_wolf

    known, others = shown.white
    means = np.zeros((len(shown.shares), known.shape[1]))
    np.add.at(means, shown.person, known)
    means /= np.bincount(shown.person)[:, None]
    within = ledoit_wolf(known - means[shown.person], assume_centered=True)[0]
    # A direction in which nobody varies names people for sure; the hair keeps it finite.
    values, axes = np.linalg.eigh(within + 1e-6 * np.eye(len(within)))
    scaled = axes / np.sqrt(values)
    middle, rows = means @ scaled, others @ scaled
    return np.asarray(2 * rows @ middle.T - (middle**2).sum(axis=1))


def _codes(shown: Shown) -> Reals:
    """Log-frequencies of the very row among each person's references, with half a row more each.

    Of finitely many codes nothing tells more. A row that is no reference says nothing.
    """
    known, others = shown.raw
    place = distinct(np.vstack([known, others]))
    table = np.full((int(place.max()) + 1, len(shown.shares)), 0.5)
    np.add.at(table, (place[: len(known)], shown.person), 1.0)
    scores = np.log(table) - np.log(table.sum(axis=0))
    scores[table.sum(axis=1) == table.shape[1] / 2] = 0.0
    return np.asarray(scores[place[len(known) :]])


def _logistic(shown: Shown) -> Reals:
    """Log-likelihoods given each person, up to what all people share, by a linear model."""
    from sklearn.linear_model import LogisticRegression

    known, others = shown.white
    odds = LogisticRegression(C=0.1, max_iter=60).fit(known, shown.person).decision_function(others)
    if odds.ndim == 1:
        odds = np.stack([np.zeros_like(odds), odds], axis=1)
    return np.asarray(log_softmax(odds.astype(np.float64), axis=1) - np.log(shown.shares))


def _network(shown: Shown) -> Reals:
    """The same by a small network."""
    from sklearn.neural_network import MLPClassifier

    known, others = shown.white
    size = batch(len(known))
    model = MLPClassifier(128, alpha=1e-2, max_iter=20, batch_size=size, random_state=0)
    found = model.fit(known, shown.person).predict_proba(others).astype(np.float64)
    # No single row may rule a person out: a network is surer than it should be.
    return np.asarray(np.log(0.99 * found + 0.01 * shown.shares) - np.log(shown.shares))


RULES: Mapping[str, Callable[[Shown], Reals]] = MappingProxyType(
    {
        "nearest": partial(_nearest, 1),
        "nearest-3": partial(_nearest, 3),
        "nearest-10": partial(_nearest, 10),
        "ranks": _ranked,
        "mean": _mean,
        "codes": _codes,
        "logistic": _logistic,
        "network": _network,
    }
)
"""Ways to score people, by name."""
