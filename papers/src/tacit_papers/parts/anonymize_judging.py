"""Attacks on the representations of one trial, and learners of a second task.

Attackers and learners are fitted on representations of the training and validation rows, as an
insider could who knows as much as the organisation, and tested on those of the test rows.
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
"""Number of rows of one person that are linked together, beside single rows."""

_NEIGHBOURS = 10
_TREES: dict[str, Any] = {"n_estimators": 25, "min_samples_leaf": 5, "max_features": 0.3}
_RESAMPLES = 1000
_LEAST_CHANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Representations:
    """Representations of the rows whose people attackers know, and of the test rows."""

    known: Representation
    test: Representation


@dataclass(frozen=True, eq=False)
class Judge:
    """Attackers and learners of one trial.

    Parameters
    ----------
    dataset, split
        The rows, and their split.
    seed : int
        Seed of the attackers and learners.
    attackers : tuple of str, optional
        Names in `tacit.anonymize.probes`; by default all of them, and linkage.
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
        """Share of the most frequent person in the test rows."""
        people = self.dataset.private[self.split.test]
        return float(np.bincount(people).max() / len(people))

    def attacked(self, shown: Representations) -> dict[str, Any]:
        """Count the right answers of freshly trained attackers, and measure linkage."""
        person = self.dataset.private
        mine = shown.known, person[self.known], shown.test, person[self.split.test]
        probed = probe(*mine, attackers=self.attackers, seed=self.seed)
        right = {one.name: round(one.accuracy * probed.rows) for one in probed.results}
        answers = {"rows": probed.rows, "right": right}
        linked = {"linkage": self._linked(mine)} if self.attackers is None else {}
        return {"strongest_accuracy": probed.strongest.accuracy, "probes": answers, **linked}

    def _linked(self, mine: tuple[Any, Any, Any, Any]) -> dict[str, float]:
        """Link test rows to people by reference rows: single rows, and several of one person."""
        alone = linkage(*mine, seed=self.seed)
        linked = {"top1": alone.top1, "top5": alone.top5}
        if np.bincount(mine[3]).max() >= TOGETHER:
            linked["together_top1"] = linkage(*mine, together=TOGETHER, seed=self.seed).top1
        return linked

    def adversary(self, chances: Representation, truth: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Measure the training's own adversary on test rows, and the bound (14) from its loss."""
        losses = -np.log(np.maximum(chances[np.arange(len(truth)), truth], _LEAST_CHANCE))
        loss = float(losses.mean())
        estimate = information.mutual_information(losses, self.dataset.private[self.split.test])
        return {
            "adversary_accuracy": float((chances.argmax(axis=1) == truth).mean()),
            "adversary_loss": loss,
            "bound_accuracy": bounds.error_bound_from_adversary(loss, chances.shape[1]).accuracy,
            "information": _information(estimate),
        }

    def code_ceiling(self, shown: Representations) -> float:
        """Bound the accuracy of any attacker on codes, counted on rows that no training saw.

        The information is not counted in this way: with few rows in many cells it would come out
        far too high.
        """
        person = self.dataset.private[self.split.test]
        return bounds.code_ceiling(shown.test.argmax(axis=1), person).accuracy

    def second_task(
        self, shown: Representations, trivial: Mapping[str, Reals] | None = None
    ) -> tuple[dict[str, float], dict[str, Reals]]:
        """Learn other labels from the representations: errors of numbers, accuracy of integers.

        Where the errors of the trivial release are given, one per row, the gain over it is measured
        with the interval of a paired bootstrap. Returns the squared errors, one per row, too.
        """
        scores: dict[str, float] = {}
        by_row: dict[str, Reals] = {}
        for name, column in self.dataset.others.items():
            truth = np.squeeze(column)
            whole = truth.dtype.kind in "iub"
            missed = self._missed(shown, truth, _classifiers if whole else _regressors)
            if whole:
                scores[f"{name}_accuracy"] = 1 - float(missed.mean())
                continue
            by_row[name] = missed
            scores[f"{name}_rmse"] = float(_rmse(missed))
            if trivial is not None:
                gain = self._gain(trivial[name], missed)
                scores |= {f"{name}_{word}": value for word, value in gain.items()}
        return scores, by_row

    def _missed(
        self, shown: Representations, truth: Any, learners: Callable[[int], list[Any]]
    ) -> Reals:
        """Return the errors on test rows of the learner that did best on the validation rows."""
        first, known = len(self.split.training), truth[self.known]
        scores = [
            _errors(one.fit(shown.known[:first], known[:first]), shown.known[first:], known[first:])
            for one in learners(self.seed)
        ]
        best = int(np.argmin([score.mean() for score in scores]))
        model = learners(self.seed)[best].fit(shown.known, known)
        return _errors(model, shown.test, truth[self.split.test])

    def _gain(self, trivial: Reals, own: Reals) -> dict[str, float]:
        """Measure by how much the error is below that of the trivial release, on the same rows."""
        rng = np.random.default_rng(self.seed)
        drawn = rng.integers(len(own), size=(_RESAMPLES, len(own)))
        gains = _rmse(trivial[drawn]) - _rmse(own[drawn])
        low, high = np.quantile(gains, (0.025, 0.975))
        value = float(_rmse(trivial) - _rmse(own))
        return {"gain": value, "gain_low": float(low), "gain_high": float(high)}


def _regressors(seed: int) -> list[Any]:
    """Make a learner for numeric representations, and one for codes."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.neighbors import KNeighborsRegressor

    return [KNeighborsRegressor(_NEIGHBOURS), ExtraTreesRegressor(**_TREES, random_state=seed)]


def _classifiers(seed: int) -> list[Any]:
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.neighbors import KNeighborsClassifier

    return [KNeighborsClassifier(_NEIGHBOURS), ExtraTreesClassifier(**_TREES, random_state=seed)]


def _errors(model: Any, rows: Representation, truth: Any) -> Reals:
    """Return the mean squared error of each row; for classes, whether the row is wrong."""
    predicted = model.predict(rows)
    missed = predicted != truth if truth.dtype.kind in "iub" else (predicted - truth) ** 2
    return np.asarray(missed.reshape(len(missed), -1).mean(axis=1), np.float64)


def _rmse(squares: Reals) -> Any:
    return np.sqrt(squares.mean(axis=-1))


def _information(estimate: information.Information) -> dict[str, float]:
    return {"nats": estimate.value, "low": estimate.interval[0], "high": estimate.interval[1]}
