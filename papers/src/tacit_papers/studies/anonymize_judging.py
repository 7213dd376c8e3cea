"""What one trial finds out about a representation: who is behind it, and what else it is good for.

Attackers and learners are fitted on representations of the training and validation rows, as an
insider could who knows as much as the house, and tried on those of the test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.anonymize import bounds, information
from tacit.anonymize.linkage import linkage
from tacit.anonymize.probes import probe
from tacit.data.datasets.twice import TwiceLabelled, TwiceSplit

Reals = npt.NDArray[np.float64]
Representation = npt.NDArray[Any]

TOGETHER = 10
"""Rows of one person that are linked at once, beside one alone."""

_NEIGHBOURS = 10
_TREES: dict[str, Any] = {"n_estimators": 25, "min_samples_leaf": 5, "max_features": 0.3}
_RESAMPLES = 1000
_LEAST_CHANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Shown:
    """Representations of the rows that attackers know the people of, and of the test rows."""

    known: Representation
    test: Representation


@dataclass(frozen=True, eq=False)
class Judge:
    """Attackers and learners of one trial.

    Parameters
    ----------
    dataset, split
        Rows, and which of them are for what.
    seed : int
        Of the attackers and learners.
    attackers : tuple of str, optional
        Those of `tacit.anonymize.probes`; all, and linkage, if left out.
    """

    dataset: TwiceLabelled
    split: TwiceSplit
    seed: int
    attackers: tuple[str, ...] | None = None

    @property
    def known(self) -> npt.NDArray[np.int64]:
        """Rows that attackers learn from."""
        return np.concatenate([self.split.training, self.split.validation])

    @property
    def chance(self) -> float:
        """The share of the most frequent person of the test rows."""
        people = self.dataset.private[self.split.test]
        return float(np.bincount(people).max() / len(people))

    def attacked(self, shown: Shown) -> dict[str, Any]:
        """Right answers of every attacker that is trained afresh, and linkage."""
        person = self.dataset.private
        mine = shown.known, person[self.known], shown.test, person[self.split.test]
        found = probe(*mine, attackers=self.attackers, seed=self.seed)
        right = {one.name: round(one.accuracy * found.rows) for one in found.results}
        answers = {"rows": found.rows, "right": right}
        linked = {"linkage": self._linked(mine)} if self.attackers is None else {}
        return {"strongest_accuracy": found.strongest.accuracy, "probes": answers, **linked}

    def _linked(self, mine: tuple[Any, Any, Any, Any]) -> dict[str, float]:
        """Whose row is it, by reference rows of all: one alone, and several of one person."""
        alone = linkage(*mine, seed=self.seed)
        found = {"top1": alone.top1, "top5": alone.top5}
        if np.bincount(mine[3]).max() >= TOGETHER:
            found["together_top1"] = linkage(*mine, together=TOGETHER, seed=self.seed).top1
        return found

    def adversary(self, chances: Representation, truth: npt.NDArray[np.int64]) -> dict[str, Any]:
        """What the adversary of the training gets right on test rows, and what (14) makes of it."""
        losses = -np.log(np.maximum(chances[np.arange(len(truth)), truth], _LEAST_CHANCE))
        loss = float(losses.mean())
        told = information.mutual_information(losses, self.dataset.private[self.split.test])
        return {
            "adversary_accuracy": float((chances.argmax(axis=1) == truth).mean()),
            "adversary_loss": loss,
            "bound_accuracy": bounds.error_bound_from_adversary(loss, chances.shape[1]).accuracy,
            "information": _information(told),
        }

    def code_ceiling(self, shown: Shown) -> float:
        """Of codes: what no attacker can exceed, as counted on rows on which nothing was learned.

        The information is not counted so: of few rows in many cells it comes out far too high.
        """
        person = self.dataset.private[self.split.test]
        return bounds.code_ceiling(shown.test.argmax(axis=1), person).accuracy

    def second_task(
        self, shown: Shown, trivial: Mapping[str, Reals] | None = None
    ) -> tuple[dict[str, float], dict[str, Reals]]:
        """What nobody trained for, learned afresh: errors of numbers, accuracy of whole ones.

        Where the rows' errors of the trivial release are given, the gain over it, with the interval
        of a paired bootstrap. Returns the rows' own squared errors, too.
        """
        found: dict[str, float] = {}
        by_row: dict[str, Reals] = {}
        for name, given in self.dataset.others.items():
            truth = np.squeeze(given)
            whole = truth.dtype.kind in "iub"
            missed = self._missed(shown, truth, _classifiers if whole else _regressors)
            if whole:
                found[f"{name}_accuracy"] = 1 - float(missed.mean())
                continue
            by_row[name] = missed
            found[f"{name}_rmse"] = float(_rmse(missed))
            if trivial is not None:
                gain = self._gain(trivial[name], missed)
                found |= {f"{name}_{word}": value for word, value in gain.items()}
        return found, by_row

    def _missed(self, shown: Shown, truth: Any, learners: Callable[[int], list[Any]]) -> Reals:
        """Errors of test rows, by the learner that did best on the validation rows."""
        first, known = len(self.split.training), truth[self.known]
        scores = [
            _errors(one.fit(shown.known[:first], known[:first]), shown.known[first:], known[first:])
            for one in learners(self.seed)
        ]
        best = int(np.argmin([score.mean() for score in scores]))
        model = learners(self.seed)[best].fit(shown.known, known)
        return _errors(model, shown.test, truth[self.split.test])

    def _gain(self, trivial: Reals, own: Reals) -> dict[str, float]:
        """How much smaller the error is than the trivial release's, on the same rows."""
        rng = np.random.default_rng(self.seed)
        drawn = rng.integers(len(own), size=(_RESAMPLES, len(own)))
        gains = _rmse(trivial[drawn]) - _rmse(own[drawn])
        low, high = np.quantile(gains, (0.025, 0.975))
        value = float(_rmse(trivial) - _rmse(own))
        return {"gain": value, "gain_low": float(low), "gain_high": float(high)}


def _regressors(seed: int) -> list[Any]:
    """One for numbers near each other, one for codes: of their cells it gives the means."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.neighbors import KNeighborsRegressor

    return [KNeighborsRegressor(_NEIGHBOURS), ExtraTreesRegressor(**_TREES, random_state=seed)]


def _classifiers(seed: int) -> list[Any]:
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.neighbors import KNeighborsClassifier

    return [KNeighborsClassifier(_NEIGHBOURS), ExtraTreesClassifier(**_TREES, random_state=seed)]


def _errors(model: Any, rows: Representation, truth: Any) -> Reals:
    """Mean square of each row's differences; of classes, whether they differ."""
    found = model.predict(rows)
    missed = found != truth if truth.dtype.kind in "iub" else (found - truth) ** 2
    return np.asarray(missed.reshape(len(missed), -1).mean(axis=1), np.float64)


def _rmse(squares: Reals) -> Any:
    return np.sqrt(squares.mean(axis=-1))


def _information(told: information.Information) -> dict[str, float]:
    return {"nats": told.value, "low": told.interval[0], "high": told.interval[1]}
