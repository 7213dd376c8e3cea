"""What one trial finds out about a representation: who is behind it, and what else it is good for.

Attackers and learners are fitted on representations of the training and validation rows, as an
insider could who knows as much as the house, and tried on those of the test rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.anonymize import bounds
from tacit.anonymize.linkage import linkage
from tacit.anonymize.probes import probe
from tacit.datasets.twice import TwiceLabelled, TwiceSplit

Reals = npt.NDArray[np.float64]
Representation = npt.NDArray[Any]

TOGETHER = 10
"""Rows of one person that are linked at once, beside one alone."""

_TREES, _LEAF, _COLUMNS = 60, 5, 0.3
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
        Those of `tacit.anonymize.probes`; all if left out.
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
        alone = linkage(*mine, seed=self.seed)
        linked = {"top1": alone.top1, "top5": alone.top5}
        if np.bincount(mine[3]).max() >= TOGETHER:
            linked["together_top1"] = linkage(*mine, together=TOGETHER, seed=self.seed).top1
        return {
            "strongest_accuracy": found.strongest.accuracy,
            "probes": {"rows": found.rows, "right": right},
            "linkage": linked,
        }

    def adversary(self, chances: Representation, truth: npt.NDArray[np.int64]) -> dict[str, Any]:
        """What the adversary of the training gets right on test rows, and what (14) makes of it."""
        losses = -np.log(np.maximum(chances[np.arange(len(truth)), truth], _LEAST_CHANCE))
        loss = float(losses.mean())
        told = bounds.mutual_information(losses, self.dataset.private[self.split.test])
        return {
            "adversary_accuracy": float((chances.argmax(axis=1) == truth).mean()),
            "adversary_loss": loss,
            "bound_accuracy": bounds.error_bound_from_adversary(loss, chances.shape[1]).accuracy,
            "information": _information(told),
        }

    def counted(self, shown: Shown) -> dict[str, Any]:
        """Of codes: the information as counted, and what no attacker can exceed.

        Test rows alone are counted: on them nothing was learned, and nothing chosen.
        """
        person = self.dataset.private[self.split.test]
        codes = shown.test.argmax(axis=1)
        told = bounds.code_information(codes, person)
        return {
            "information": _information(told),
            "code_ceiling": bounds.code_ceiling(codes, person).accuracy,
        }

    def second_task(
        self, shown: Shown, trivial: Mapping[str, Reals] | None = None
    ) -> tuple[dict[str, float], dict[str, Reals]]:
        """What nobody trained for, learned afresh: errors of numbers, accuracy of whole ones.

        Where the rows' errors of the trivial release are given, the gain over it, with the interval
        of a paired bootstrap. Returns the rows' own squared errors, too.
        """
        found: dict[str, float] = {}
        by_row: dict[str, Reals] = {}
        for name, truth in self.dataset.others.items():
            own = truth[self.known], truth[self.split.test]
            if truth.dtype.kind in "iub":
                found[f"{name}_accuracy"] = self._classified(shown, *own)
                continue
            by_row[name] = self._errors(shown, *own)
            found[f"{name}_rmse"] = float(np.sqrt(by_row[name].mean()))
            if trivial is not None:
                gain = self._gain(trivial[name], by_row[name])
                found |= {f"{name}_{word}": value for word, value in gain.items()}
        return found, by_row

    def _errors(self, shown: Shown, known: Any, truth: Any) -> Reals:
        from sklearn.ensemble import ExtraTreesRegressor

        model = ExtraTreesRegressor(**self._trees).fit(shown.known, known)
        missed = np.asarray(model.predict(shown.test), np.float64) - truth
        return np.asarray((missed.reshape(len(missed), -1) ** 2).mean(axis=1))

    def _classified(self, shown: Shown, known: Any, truth: Any) -> float:
        from sklearn.ensemble import ExtraTreesClassifier

        model = ExtraTreesClassifier(**self._trees).fit(shown.known, known)
        return float((model.predict(shown.test) == truth).mean())

    @property
    def _trees(self) -> dict[str, Any]:
        """Trees that read a code as well as 700 numbers: of a code's cells they give the means."""
        return {
            "n_estimators": _TREES,
            "min_samples_leaf": _LEAF,
            "max_features": _COLUMNS,
            "random_state": self.seed,
            "n_jobs": -1,
        }

    def _gain(self, trivial: Reals, own: Reals) -> dict[str, float]:
        """How much smaller the error is than the trivial release's, on the same rows."""
        rng = np.random.default_rng(self.seed)
        drawn = rng.integers(len(own), size=(_RESAMPLES, len(own)))
        gains = _rmse(trivial[drawn]) - _rmse(own[drawn])
        low, high = np.quantile(gains, (0.025, 0.975))
        value = float(_rmse(trivial) - _rmse(own))
        return {"gain": value, "gain_low": float(low), "gain_high": float(high)}


def _rmse(squares: Reals) -> Any:
    return np.sqrt(squares.mean(axis=-1))


def _information(told: bounds.Information) -> dict[str, float]:
    return {"nats": told.value, "low": told.interval[0], "high": told.interval[1]}
