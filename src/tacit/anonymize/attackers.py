"""Attackers that are trained on released rows with their people, and name the people of others.

Each takes a `View` of the rows and returns the code of a person for every row without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tacit.anonymize.released import (
    LEADING,
    Coordinates,
    Integers,
    Ranks,
    Reals,
    Standard,
    White,
    batch,
    split,
)

MODULES = tuple(
    f"sklearn.{name}"
    for name in ("ensemble", "feature_selection", "linear_model", "neighbors", "neural_network")
)
"""Modules that attackers import."""

_NEIGHBOURS = (1, 3, 10, 30, 100)
_WEIGHTS = (0.003, 0.03, 0.3)
_TELLING = 32  # columns of each kind that boosting sees
_EPOCHS, _PATIENCE = 60, 5
_ENOUGH = 300  # rows, of which a tenth can be held out


class Pair(NamedTuple):
    """The same coordinates of the training rows and of the test rows."""

    own: Coordinates
    others: Coordinates


class View(NamedTuple):
    """The input of an attacker: training rows with their people, test rows, and a seed.

    `columns` are as released, standardized; `ranks` are the ranks of their values; `white` are all
    principal components, at one scale.
    """

    columns: Pair
    ranks: Pair
    white: Pair
    person: Integers
    seed: int

    @property
    def leading(self) -> Pair:
        """The leading principal components."""
        return Pair(*(part[:, :LEADING] for part in self.white))

    @property
    def both(self) -> Pair:
        """Columns and leading principal components."""
        return _beside(self.columns, self.leading)

    @property
    def can_hold_out(self) -> bool:
        """Whether a tenth of the rows suffices for early stopping, with everybody among them."""
        counts = np.bincount(self.person)
        return bool(counts.min() >= 2 and len(self.person) >= max(10 * len(counts), _ENOUGH))


def _beside(first: Pair, second: Pair) -> Pair:
    return Pair(*(np.hstack(parts) for parts in zip(first, second, strict=True)))


def view(rows: Reals, person: Integers, others: Reals, seed: int) -> View:
    """Compute all coordinates of training rows and test rows."""
    standard = Standard.of(rows)
    columns = Pair(standard(rows), standard(others))
    ordered = Ranks.of(rows)
    ranks = Pair(ordered(rows), ordered(others))
    white = White.of(columns.own, seed)
    return View(columns, ranks, Pair(white(columns.own), white(columns.others)), person, seed)


def _logistic(seen: View) -> Any:
    """Predict by logistic regression; coordinates and penalty are chosen on held-out rows."""
    from sklearn.linear_model import LogisticRegression

    def fitted(pair: Pair, weight: float, rows: Any = slice(None)) -> Any:
        return LogisticRegression(C=weight, max_iter=60).fit(pair.own[rows], seen.person[rows])

    choices = [(pair, weight) for pair in (seen.columns, seen.white) for weight in _WEIGHTS]
    best = choices[1]
    if seen.can_hold_out:
        held = split("logistic", seen.person, 0.2, seen.seed)
        scores = [
            fitted(pair, weight, ~held).score(pair.own[held], seen.person[held])
            for pair, weight in choices
        ]
        best = choices[int(np.argmax(scores))]
    return fitted(*best).predict(best[0].others)


def _neighbours(seen: View) -> Any:
    """Predict by nearest neighbours; number and coordinates are chosen by leave-one-out."""
    from sklearn.neighbors import NearestNeighbors

    most = min(max(_NEIGHBOURS), len(seen.person) - 1)
    counts = [count for count in _NEIGHBOURS if count <= most]
    tried = []
    for pair in (seen.columns, seen.ranks, seen.leading):
        index = NearestNeighbors(n_neighbors=most, algorithm="brute").fit(pair.own)
        own = seen.person[index.kneighbors(return_distance=False)]  # never the row itself
        right = [int((_voted(own[:, :count]) == seen.person).sum()) for count in counts]
        tried.append((max(right), counts[int(np.argmax(right))], index, pair.others))
    _, count, index, others = max(tried, key=lambda one: one[0])
    return _voted(seen.person[index.kneighbors(others, count, return_distance=False)])


def _voted(votes: Integers) -> Integers:
    """Return the most frequent vote of each row; ties go to nearer voters."""
    tally = np.zeros((len(votes), int(votes.max()) + 1))
    reach = votes.shape[1]
    for place in range(reach):
        # Nearer voters count slightly more; all the differences together stay below one vote.
        tally[np.arange(len(votes)), votes[:, place]] += 1 + 0.5 * (reach - place) / reach**2
    return np.asarray(tally.argmax(axis=1), np.int64)


def _boosting(seen: View) -> Any:
    """Predict by gradient boosting on histograms, on the columns that differ most by person."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=0.15,
        max_iter=_EPOCHS,
        max_leaf_nodes=15,
        min_samples_leaf=min(max(len(seen.person) // 100, 2), 20),
        early_stopping=seen.can_hold_out,
        n_iter_no_change=_PATIENCE,
        random_state=seen.seed,
    )
    ranks, white = _telling(seen.ranks, seen.person), _telling(seen.leading, seen.person)
    own, others = _beside(ranks, white)
    return model.fit(own, seen.person).predict(others)


def _telling(pair: Pair, person: Integers) -> Pair:
    """Select the columns whose means differ most by person, if there are too many."""
    if pair.own.shape[1] <= _TELLING:
        return pair
    from sklearn.feature_selection import f_classif

    ratios = np.nan_to_num(f_classif(pair.own, person)[0])
    kept = np.sort(np.argsort(-ratios, kind="stable")[:_TELLING])
    return Pair(*(part[:, kept] for part in pair))


def _trees(seen: View) -> Any:
    """Predict by extremely randomized trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    # Thresholds are drawn uniformly over a column's range, so ranks suit them better than values.
    own, others = _beside(seen.ranks, seen.leading)
    model = ExtraTreesClassifier(150, min_samples_leaf=2, random_state=seen.seed)
    return model.fit(own, seen.person).predict(others)


def _network(*hidden: int) -> Callable[[View], Any]:
    def network(seen: View) -> Any:
        from sklearn.neural_network import MLPClassifier

        model = MLPClassifier(
            hidden,
            alpha=1e-3,
            batch_size=batch(len(seen.person) * 9 // 10),
            max_iter=_EPOCHS,
            early_stopping=seen.can_hold_out,
            n_iter_no_change=_PATIENCE,
            random_state=seen.seed,
        )
        own, others = seen.both
        return model.fit(own, seen.person).predict(others)

    network.__doc__ = f"A network with hidden layers of {hidden}, early stopped."
    return network


ATTACKERS: Mapping[str, Callable[[View], Any]] = MappingProxyType(
    {
        "logistic": _logistic,
        "neighbours": _neighbours,
        "boosting": _boosting,
        "trees": _trees,
        "mlp-small": _network(64),
        "mlp-medium": _network(256, 256),
        "mlp-large": _network(512, 512, 512),
    }
)
"""All attackers by name."""
