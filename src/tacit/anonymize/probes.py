r"""Probes: attackers trained afresh on what is released, to name the person behind each row.

The adversary that an encoder was trained against is the weakest judge of it: the encoder knows it.
What counts is the strongest of several attackers that it never met, each trained on one part of the
released rows with their labels and tried on the other.

Notes
-----
A probe refutes, it does not prove: people are at least as recognisable as the strongest attacker
shows, and may be more so to one that was not tried. For what holds against all, see
`tacit.anonymize.bounds`.

References
----------
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [Hoe56] Hoeffding. On the distribution of the number of successes in independent trials. 1956.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from importlib import import_module
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
    people,
    people_among,
    split,
    vectors,
)
from tacit.local.inference.validation import exact_interval
from tacit.privacy import errors

_NEEDED = tuple(
    f"sklearn.{name}"
    for name in ("ensemble", "feature_selection", "linear_model", "neighbors", "neural_network")
)
_NEIGHBOURS = (1, 3, 10, 30, 100)
_WEIGHTS = (0.003, 0.03, 0.3)
_TELLING = 32  # columns of each kind that boosting sees
_EPOCHS, _PATIENCE = 60, 5
_ENOUGH = 300  # rows, of which a tenth can be held out


@dataclass(frozen=True)
class Attack:
    """How often one attacker named the right person, and the interval of that share."""

    name: str
    accuracy: float
    interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {"name": self.name, "accuracy": self.accuracy, "interval": list(self.interval)}


@dataclass(frozen=True)
class Probed:
    r"""What all attackers found.

    Attributes
    ----------
    results : tuple of Attack
        One an attacker; each interval holds with `confidence` on its own.
    strongest : Attack
        The one that was right most often. The largest of several shares is too large on average,
        and the choice was made on the same rows, so that its interval is one at which *all*
        intervals hold at once (Bonferroni: level (1 − confidence)/attackers each). It covers the
        accuracy of the attacker that was chosen, and the largest accuracy among those that were
        tried: all rest on equally many rows, so that no other has a higher upper end.
    chance : float
        The share of the most frequent person among the test rows: what naming one and the same
        person gets at best.
    """

    results: tuple[Attack, ...]
    strongest: Attack
    chance: float
    people: int
    rows: int
    confidence: float

    def __str__(self) -> str:
        width = max(len(attack.name) for attack in (*self.results, self.strongest))
        lines = [
            f"{name:<{width}}  {accuracy:6.1%}  {low:6.1%} to {high:.1%}"
            for name, accuracy, (low, high) in map(astuple, self.results)
        ]
        best = self.strongest
        lines.append(
            f"strongest: {best.name}, {best.accuracy:.1%} ({best.interval[0]:.1%} to "
            f"{best.interval[1]:.1%}, all attackers at once); chance {self.chance:.1%}; "
            f"{self.people} people, {self.rows} rows"
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "results": [attack.to_dict() for attack in self.results],
            "strongest": self.strongest.to_dict(),
            "chance": self.chance,
            "people": self.people,
            "rows": self.rows,
            "confidence": self.confidence,
        }


class Pair(NamedTuple):
    """The same coordinates of the rows to learn from, and of those to name."""

    own: Coordinates
    others: Coordinates


class Seen(NamedTuple):
    """What an attacker gets: rows with their people, rows without, and a seed.

    `columns` are as released, standardised; `ranks` are the places of their values; `white` are all
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
        """Whether a tenth of the rows can tell when to stop: enough, and everybody is in it."""
        counts = np.bincount(self.person)
        return bool(counts.min() >= 2 and len(self.person) >= max(10 * len(counts), _ENOUGH))


def _beside(first: Pair, second: Pair) -> Pair:
    return Pair(*(np.hstack(parts) for parts in zip(first, second, strict=True)))


def probe(
    representation: Any,
    private: Any,
    test_representation: Any = None,
    test_private: Any = None,
    *,
    attackers: Sequence[str] | None = None,
    share: float = 1 / 3,
    seed: int = 0,
    confidence: float = 0.95,
) -> Probed:
    r"""Train attackers on released rows and count how often they name the right person.

    Parameters
    ----------
    representation : array
        What is released, a row a sample; images are laid out flat.
    private : array
        Whose rows they are: one label at a time.
    test_representation, test_private : array, optional
        Rows to try the attackers on, of people of the first rows. Without them every person's rows
        are split at random.
    attackers : sequence of str, optional
        Some of `ATTACKERS`; all of them by default.
    share : float
        Of each person's rows that attackers are tried on, where there are no test rows.
    seed : int
        Of the split and of the attackers.
    confidence : float
        Of the intervals.

    Notes
    -----
    Intervals are those of [CP34]_. They are about further rows of the same people: test rows must
    not have been used to train the encoder, or they say how it treats the rows that it knows. With
    a fixed number of rows of each person the count varies less than a binomial one [Hoe56]_.

    Near chance a share can be too small: where a data set holds equally many rows of each person
    and kind, whoever is frequent in the first part is rare in the second, and an attacker that
    learned the frequencies falls below chance. Compare with `chance`, not with 0.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(["ann", "bob", "eve"], 60)
    >>> leaking = rng.normal(size=(180, 2)) + 5 * (person == "eve")[:, None]
    >>> found = probe(leaking, person, attackers=["logistic", "neighbours"])
    >>> found.strongest.interval[0] > found.chance
    True
    """
    where = "probe"
    names = _chosen(where, attackers)
    errors.probability(where, "confidence", confidence, zero=False)
    seed = errors.whole(where, "seed", seed, least=0, most=2**32 - 1)
    rows = vectors(where, representation)
    person, known = people(where, private, len(rows))
    if (test_representation is None) != (test_private is None):
        raise errors.InvalidData(f"{where}: test rows and their people must be given together.")
    if test_representation is None:
        tried = split(where, person, share, seed)
        parts = rows[~tried], person[~tried], rows[tried], person[tried]
    else:
        others = vectors(where, test_representation)
        if others.shape[1] != rows.shape[1]:
            errors.refuse(where, "test columns", f"{rows.shape[1]}", others.shape[1])
        theirs = people_among(where, known, test_private, len(others))
        parts = rows, person, others, theirs
    return _tried(names, *parts, seed, confidence)


def _tried(
    names: tuple[str, ...],
    rows: Reals,
    person: Integers,
    others: Reals,
    truth: Integers,
    seed: int,
    confidence: float,
) -> Probed:
    total = len(truth)
    answers = _answers(names, _seen(rows, person, others, seed))
    correct = {name: int((answers[name] == truth).sum()) for name in names}
    best = max(correct, key=lambda name: correct[name])
    at_once = 1 - (1 - confidence) / len(names)
    return Probed(
        tuple(_attack(name, count, total, confidence) for name, count in correct.items()),
        _attack(best, correct[best], total, at_once),
        int(np.bincount(truth).max()) / total,
        len(np.unique(person)),
        total,
        confidence,
    )


def _seen(rows: Reals, person: Integers, others: Reals, seed: int) -> Seen:
    standard = Standard.of(rows)
    columns = Pair(standard(rows), standard(others))
    ordered = Ranks.of(rows)
    ranks = Pair(ordered(rows), ordered(others))
    white = White.of(columns.own, seed)
    return Seen(columns, ranks, Pair(white(columns.own), white(columns.others)), person, seed)


def _attack(name: str, correct: int, rows: int, confidence: float) -> Attack:
    return Attack(name, correct / rows, exact_interval(correct, rows, 1.0, 0.0, confidence))


def _answers(names: tuple[str, ...], seen: Seen) -> dict[str, Integers]:
    """What each attacker says, as many at a time as there are cores."""
    from threadpoolctl import threadpool_limits

    for module in _NEEDED:
        import_module(module)  # by one thread: two that load the same package trip over each other
    with warnings.catch_warnings(), threadpool_limits(1), ThreadPoolExecutor(_cores()) as pool:
        # A few passes are what is wanted: that an attacker could have learned longer is no news.
        warnings.simplefilter("ignore")
        # The last ones take longest, and start first.
        work = {name: pool.submit(ATTACKERS[name], seen) for name in reversed(names)}
        return {name: np.asarray(one.result(), np.int64) for name, one in work.items()}


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _chosen(where: str, attackers: Sequence[str] | None) -> tuple[str, ...]:
    if attackers is None:
        return tuple(ATTACKERS)
    given = [attackers] if isinstance(attackers, str) else list(attackers)
    if not given:
        errors.refuse(where, "attackers", "at least one", given)
    return tuple(
        dict.fromkeys(errors.choice(where, "attackers", one, tuple(ATTACKERS)) for one in given)
    )


# --- the attackers ------------------------------------------------------------------------------


def _logistic(seen: Seen) -> Any:
    """Multinomial logistic regression; coordinates and penalty are chosen on held-out rows."""
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


def _neighbours(seen: Seen) -> Any:
    """The nearest rows vote; how many, and near in which coordinates, by leaving out each row."""
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
    """The most frequent of each row; among equals the one whose voters are nearer."""
    tally = np.zeros((len(votes), int(votes.max()) + 1))
    reach = votes.shape[1]
    for place in range(reach):
        # A nearer voter counts for a hair more: together the hairs stay below one vote.
        tally[np.arange(len(votes)), votes[:, place]] += 1 + 0.5 * (reach - place) / reach**2
    return np.asarray(tally.argmax(axis=1), np.int64)


def _boosting(seen: Seen) -> Any:
    """Gradient-boosted trees on histograms, early stopped, on what differs most by person."""
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
    """The columns whose means differ most by person, where there are too many."""
    if pair.own.shape[1] <= _TELLING:
        return pair
    from sklearn.feature_selection import f_classif

    ratios = np.nan_to_num(f_classif(pair.own, person)[0])
    kept = np.sort(np.argsort(-ratios, kind="stable")[:_TELLING])
    return Pair(*(part[:, kept] for part in pair))


def _trees(seen: Seen) -> Any:
    """Extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    # Thresholds are drawn between the ends of a column: of its values, most would miss.
    own, others = _beside(seen.ranks, seen.leading)
    model = ExtraTreesClassifier(150, min_samples_leaf=2, random_state=seen.seed)
    return model.fit(own, seen.person).predict(others)


def _network(*hidden: int) -> Callable[[Seen], Any]:
    def network(seen: Seen) -> Any:
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


ATTACKERS: Mapping[str, Callable[[Seen], Any]] = MappingProxyType(
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
"""Who tries, by name: each answers with the code of a person for every row without one."""
