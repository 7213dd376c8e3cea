r"""Probes: attackers that are freshly trained on what is released, to name the person of each row.

The adversary that an encoder was trained against is the weakest attacker: the encoder was fitted to
defeat it. What counts is the strongest of several attackers that the encoder did not see, each
trained on one part of the released rows with their labels and tested on the other.

Notes
-----
A probe refutes, it does not prove: people are at least as recognizable as the strongest attacker
shows, and may be more so for one that was not tried. `tacit.anonymize.bounds` holds against all
attackers.

References
----------
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [Hoe56] Hoeffding. On the distribution of the number of successes in independent trials. 1956.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tacit.anonymize.attackers import ATTACKERS, MODULES, View, view
from tacit.anonymize.released import Integers, Reals, people, people_among, split, vectors
from tacit.local.inference.validation import exact_interval
from tacit.privacy import errors


@dataclass(frozen=True)
class AttackResult:
    """The accuracy of one attacker, and its interval."""

    name: str
    accuracy: float
    interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"name": self.name, "accuracy": self.accuracy, "interval": list(self.interval)}


@dataclass(frozen=True)
class Probed:
    r"""The results of all attackers.

    Attributes
    ----------
    results : tuple of AttackResult
        One per attacker; each interval holds with `confidence` on its own.
    strongest : AttackResult
        The attacker with the highest accuracy. The largest of several estimates is biased upwards,
        and the choice was made on the same rows, so its interval is one at which *all* intervals
        hold simultaneously (Bonferroni: level (1 − confidence)/attackers each). It covers the
        accuracy of the chosen attacker, and the largest accuracy among those that were tried: all
        are based on the same number of rows, so no other has a higher upper end.
    chance : float
        The share of the most frequent person among the test rows: the best accuracy of always
        naming the same person.
    """

    results: tuple[AttackResult, ...]
    strongest: AttackResult
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
        """Return plain values, for JSON."""
        return {
            "results": [attack.to_dict() for attack in self.results],
            "strongest": self.strongest.to_dict(),
            "chance": self.chance,
            "people": self.people,
            "rows": self.rows,
            "confidence": self.confidence,
        }


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
    r"""Train attackers on released rows, and compute how often they name the right person.

    Parameters
    ----------
    representation : array
        What is released, one row per sample; images are flattened.
    private : array
        The person of each row: one label at a time.
    test_representation, test_private : array, optional
        Rows on which attackers are tested, of people among the first rows. Without them every
        person's rows are split at random.
    attackers : sequence of str, optional
        Some of `tacit.anonymize.attackers.ATTACKERS`; all of them by default.
    share : float
        Share of each person's rows on which attackers are tested, if there are no test rows.
    seed : int
        Seed of the split and of the attackers.
    confidence : float
        Confidence of the intervals.

    Notes
    -----
    Intervals are those of [CP34]_. They are about further rows of the same people: test rows must
    not have been used to fit the encoder, or they show how it treats the rows that it knows. With a
    fixed number of rows of each person the count varies less than a binomial one [Hoe56]_.

    Near chance an accuracy can be too small: if a data set holds equally many rows of each person
    and kind, whoever is frequent in the first part is rare in the second, and an attacker that
    learned the frequencies falls below chance. Compare with `chance`, not with 0.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(["ann", "bob", "eve"], 60)
    >>> leaking = rng.normal(size=(180, 2)) + 5 * (person == "eve")[:, None]
    >>> probed = probe(leaking, person, attackers=["logistic", "neighbours"])
    >>> round(probed.strongest.accuracy, 1), round(probed.chance, 1)
    (0.7, 0.3)
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
    answers = _answers(names, view(rows, person, others, seed))
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


def _attack(name: str, correct: int, rows: int, confidence: float) -> AttackResult:
    return AttackResult(name, correct / rows, exact_interval(correct, rows, 1.0, 0.0, confidence))


def _answers(names: tuple[str, ...], seen: View) -> dict[str, Integers]:
    """Run all attackers, as many at a time as there are cores."""
    from threadpoolctl import threadpool_limits

    for module in MODULES:
        import_module(module)  # in one thread: concurrent imports of one package fail
    with warnings.catch_warnings(), threadpool_limits(1), ThreadPoolExecutor(_cores()) as pool:
        # Few iterations are intended, so convergence warnings are expected.
        warnings.simplefilter("ignore")
        # The last attackers take longest, so they start first.
        work = {name: pool.submit(ATTACKERS[name], seen) for name in reversed(names)}
        return {name: np.asarray(one.result(), np.int64) for name, one in work.items()}


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _chosen(where: str, attackers: Sequence[str] | None) -> tuple[str, ...]:
    if attackers is None:
        return tuple(ATTACKERS)
    names = [attackers] if isinstance(attackers, str) else list(attackers)
    if not names:
        errors.refuse(where, "attackers", "at least one", names)
    return tuple(
        dict.fromkeys(errors.choice(where, "attackers", one, tuple(ATTACKERS)) for one in names)
    )
