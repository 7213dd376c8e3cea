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

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit import errors
from tacit.anonymize.released import (
    Coordinates,
    Integers,
    Reals,
    Standard,
    people,
    people_among,
    vectors,
)
from tacit.inference.validation import exact_interval

_NEIGHBOURS = (1, 3, 10, 30, 100)
_WIDE = 32  # columns of each kind that boosting sees of a wide representation
_EPOCHS, _PATIENCE = 60, 5


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
        The one that was right most often. The largest of several shares is too large on average, and
        the choice was made on the same rows, so that its interval is one at which *all* intervals
        hold at once (Bonferroni: level (1 − confidence)/attackers each). It covers the accuracy of
        the attacker that was chosen, and the largest accuracy among those that were tried: all rest
        on equally many rows, so that no other has a higher upper end.
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
            f"{one.name:<{width}}  {one.accuracy:6.1%}  {one.interval[0]:6.1%} to {one.interval[1]:.1%}"
            for one in self.results
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


class Seen(NamedTuple):
    """What an attacker gets: rows with their people, rows without, and a seed."""

    rows: Coordinates
    person: Integers
    others: Coordinates
    seed: int

    @property
    def can_hold_out(self) -> bool:
        """Whether a tenth of the rows can tell when to stop: everybody is in both parts."""
        counts = np.bincount(self.person)
        counts = counts[counts > 0]
        return bool(counts.min() >= 2 and len(self.person) >= 10 * len(counts))


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
        tried = _split(where, person, share, seed)
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
    standard = Standard.of(rows)
    seen = Seen(standard(rows), person, standard(others), seed)
    total = len(truth)
    correct = {name: int((_answers(name, seen) == truth).sum()) for name in names}
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


def _attack(name: str, correct: int, rows: int, confidence: float) -> Attack:
    return Attack(name, correct / rows, exact_interval(correct, rows, 1.0, 0.0, confidence))


def _answers(name: str, seen: Seen) -> Integers:
    # A few passes are what is wanted: that an attacker could have learned longer is no news.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(ATTACKERS[name](seen), np.int64)


def _chosen(where: str, attackers: Sequence[str] | None) -> tuple[str, ...]:
    if attackers is None:
        return tuple(ATTACKERS)
    given = [attackers] if isinstance(attackers, str) else list(attackers)
    if not given:
        errors.refuse(where, "attackers", "at least one", given)
    return tuple(
        dict.fromkeys(errors.choice(where, "attackers", one, tuple(ATTACKERS)) for one in given)
    )


def _split(where: str, person: Integers, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows attackers are tried on: a share of each person's, at least one, never all."""
    share = errors.probability(where, "share", share, zero=False)
    rng = np.random.default_rng(seed)
    tried = np.zeros(len(person), bool)
    for code in range(int(person.max()) + 1):
        mine = rng.permutation(np.flatnonzero(person == code))
        if len(mine) < 2:
            raise errors.InvalidData(
                f"{where}: every person must have at least two rows, to learn from and to be tried "
                "on. Leave out people with one row."
            )
        tried[mine[: min(max(round(share * len(mine)), 1), len(mine) - 1)]] = True
    return tried


# --- the attackers ------------------------------------------------------------------------------


def _logistic(seen: Seen) -> Any:
    """Multinomial logistic regression."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.1, max_iter=60)
    return model.fit(seen.rows, seen.person).predict(seen.others)


def _neighbours(seen: Seen) -> Any:
    """The nearest rows vote; how many is chosen by leaving out each row in turn."""
    from sklearn.neighbors import NearestNeighbors

    most = min(max(_NEIGHBOURS), len(seen.rows) - 1)
    index = NearestNeighbors(n_neighbors=most, algorithm="brute").fit(seen.rows)
    own = seen.person[index.kneighbors(return_distance=False)]  # never the row itself
    counts = [count for count in _NEIGHBOURS if count <= most]
    right = [int((_voted(own[:, :count]) == seen.person).sum()) for count in counts]
    best = counts[int(np.argmax(right))]
    return _voted(seen.person[index.kneighbors(seen.others, best, return_distance=False)])


def _voted(votes: Integers) -> Integers:
    """The most frequent of each row; among equals the one whose voter is nearest."""
    tally = np.zeros((len(votes), int(votes.max()) + 1))
    reach = votes.shape[1]
    for place in range(reach):
        # A nearer voter counts for a hair more: together the hairs stay below one vote.
        tally[np.arange(len(votes)), votes[:, place]] += 1 + 0.5 * (reach - place) / reach**2
    return np.asarray(tally.argmax(axis=1), np.int64)


def _boosting(seen: Seen) -> Any:
    """Gradient-boosted trees on histograms, early stopped."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=0.15,
        max_iter=_EPOCHS,
        max_leaf_nodes=15,
        early_stopping=seen.can_hold_out,
        n_iter_no_change=_PATIENCE,
        random_state=seen.seed,
    )
    rows, others = _narrowed(seen)
    return model.fit(rows, seen.person).predict(others)


def _narrowed(seen: Seen) -> tuple[Coordinates, Coordinates]:
    """Of a wide representation the columns that differ most by person, and principal components."""
    if seen.rows.shape[1] <= 2 * _WIDE:
        return seen.rows, seen.others
    from sklearn.feature_selection import f_classif

    telling = np.nan_to_num(f_classif(seen.rows, seen.person)[0])
    columns = np.sort(np.argsort(-telling, kind="stable")[:_WIDE])
    rows, others = _principal(seen, _WIDE)
    return (
        np.hstack([seen.rows[:, columns], rows]),
        np.hstack([seen.others[:, columns], others]),
    )


def _principal(seen: Seen, count: int) -> tuple[Coordinates, Coordinates]:
    from sklearn.decomposition import PCA

    model = PCA(min(count, *seen.rows.shape), svd_solver="covariance_eigh").fit(seen.rows)
    return model.transform(seen.rows), model.transform(seen.others)


def _trees(seen: Seen) -> Any:
    """Extremely randomised trees, on columns and principal components of a wide representation."""
    from sklearn.ensemble import ExtraTreesClassifier

    rows, others = seen.rows, seen.others
    if rows.shape[1] > 2 * _WIDE:
        extra = _principal(seen, 2 * _WIDE)
        rows, others = np.hstack([rows, extra[0]]), np.hstack([others, extra[1]])
    model = ExtraTreesClassifier(200, min_samples_leaf=2, random_state=seen.seed)
    return model.fit(rows, seen.person).predict(others)


def _network(*hidden: int) -> Callable[[Seen], Any]:
    def network(seen: Seen) -> Any:
        from sklearn.neural_network import MLPClassifier

        model = MLPClassifier(
            hidden,
            alpha=1e-3,
            max_iter=_EPOCHS,
            early_stopping=seen.can_hold_out,
            n_iter_no_change=_PATIENCE,
            random_state=seen.seed,
        )
        return model.fit(seen.rows, seen.person).predict(seen.others)

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
