r"""Rules that score, for each released row and each known person, how well they fit.

References
----------
.. [BSI08] Boiman, Shechtman, Irani. In defense of nearest-neighbor based image classification.
   CVPR 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

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
)

_BLOCK = 1024  # rows whose distances to all references are held at once


class LinkageRows(NamedTuple):
    """The input of a rule: references with their people, and rows, as released and whitened."""

    raw: tuple[Reals, Reals]
    white: tuple[Coordinates, Coordinates]
    person: Integers

    @property
    def shares(self) -> Reals:
        """Share of the references that belong to each person."""
        return np.asarray(np.bincount(self.person) / len(self.person))


def linkage_rows(known: Reals, person: Integers, others: Reals) -> LinkageRows:
    """Whiten rows by the references, and collect the input of rules."""
    standard = Standard.of(known)
    own = standard(known)
    white = White.of(own)
    leading = white(own)[:, :LEADING], white(standard(others))[:, :LEADING]
    return LinkageRows((known, others), leading, person)


def _nearest(count: int, shown: LinkageRows) -> Reals:
    """Score by minus the mean squared distance to the nearest references of each person."""
    return _near(count, shown.person, *shown.white)


def _ranked(shown: LinkageRows) -> Reals:
    """Score by the three nearest in ranks, which outliers and rounding do not affect."""
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


def _mean(shown: LinkageRows) -> Reals:
    """Score by minus the squared distance to each person's mean, within-person whitened."""
    from sklearn.covariance import ledoit_wolf

    known, others = shown.white
    means = np.zeros((len(shown.shares), known.shape[1]))
    np.add.at(means, shown.person, known)
    means /= np.bincount(shown.person)[:, None]
    within = ledoit_wolf(known - means[shown.person], assume_centered=True)[0]
    # A direction without within-person variance identifies people; 1e-6 keeps scores finite.
    values, axes = np.linalg.eigh(within + 1e-6 * np.eye(len(within)))
    scaled = axes / np.sqrt(values)
    middle, rows = means @ scaled, others @ scaled
    return np.asarray(2 * rows @ middle.T - (middle**2).sum(axis=1))


def _codes(shown: LinkageRows) -> Reals:
    """Score by the log-frequency of exactly this row among each person's references.

    Half a row is added to each count. For finitely many codes no rule is better. A row that equals
    no reference has score 0 for everybody.
    """
    known, others = shown.raw
    place = distinct(np.vstack([known, others]))
    table = np.full((int(place.max()) + 1, len(shown.shares)), 0.5)
    np.add.at(table, (place[: len(known)], shown.person), 1.0)
    scores = np.log(table) - np.log(table.sum(axis=0))
    scores[table.sum(axis=1) == table.shape[1] / 2] = 0.0
    return np.asarray(scores[place[len(known) :]])


def _logistic(shown: LinkageRows) -> Reals:
    """Score by log-likelihoods of a linear model, up to a term that all people share."""
    from sklearn.linear_model import LogisticRegression

    known, others = shown.white
    odds = LogisticRegression(C=0.1, max_iter=60).fit(known, shown.person).decision_function(others)
    if odds.ndim == 1:
        odds = np.stack([np.zeros_like(odds), odds], axis=1)
    return np.asarray(log_softmax(odds.astype(np.float64), axis=1) - np.log(shown.shares))


def _network(shown: LinkageRows) -> Reals:
    """Score by log-likelihoods of a small network."""
    from sklearn.neural_network import MLPClassifier

    known, others = shown.white
    size = batch(len(known))
    model = MLPClassifier(128, alpha=1e-2, max_iter=20, batch_size=size, random_state=0)
    predicted = model.fit(known, shown.person).predict_proba(others).astype(np.float64)
    # No single row may exclude a person, since networks are overconfident.
    return np.asarray(np.log(0.99 * predicted + 0.01 * shown.shares) - np.log(shown.shares))


RULES: Mapping[str, Callable[[LinkageRows], Reals]] = MappingProxyType(
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
"""Rules by name; higher scores are better fits."""
