r"""How good a model is on clean, labelled rows, with intervals, counted in batches.

With classes of different sizes the accuracy says little: always naming the largest class may come
close to it. So the recall of every class, their mean (balanced accuracy), the precision of every
answer and the area under the ROC curve are given too.

Shares have Wilson's interval [Wil27]_. That of the balanced accuracy combines those of the recalls
:math:`r_c \in [l_c, u_c]`, which are independent given the numbers of rows [ZD08]_,

.. math:: \bar r - \frac1C \sqrt{\sum_c (r_c - l_c)^2} \quad \text{to} \quad
          \bar r + \frac1C \sqrt{\sum_c (u_c - r_c)^2}.

The area under the curve is that of Mann and Whitney, exactly. Its interval is Newcombe's [New06]_:
the areas A that are at most z standard errors away, with the variance of Hanley and McNeil
[HM82]_ at A for m and n rows of the two classes, and :math:`N = (m + n) / 2 - 1`,

.. math:: \frac{A (1 - A)}{m n} \Bigl(1 + N \frac{1 - A}{2 - A} + N \frac{A}{1 + A}\Bigr).

It has a width at an area of 1, too. With more than two classes the areas of each class against the
rest are averaged, and so are the ends of their intervals, as if all were wrong together.

Of a regressor, :math:`R^2 = 1 - \sum_i e_i^2 / \sum_i (y_i - \bar y)^2` and the mean of
:math:`|e_i|` are given, with normal intervals: that of the ratio by the delta method.

Notes
-----
Nothing here is private: it is for rows and labels that are at hand. For people whose rows are not,
see `tacit.inference.validation`.

References
----------
.. [Wil27] Wilson. Probable inference, the law of succession, and statistical inference. 1927.
.. [ZD08] Zou, Donner. Construction of confidence limits about effect measures: a general approach.
   Statistics in Medicine 2008.
.. [HM82] Hanley, McNeil. The meaning and use of the area under a receiver operating characteristic
   curve. Radiology 1982.
.. [New06] Newcombe. Confidence intervals for an effect size measure based on the Mann-Whitney
   statistic, part 2. Statistics in Medicine 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import rankdata

from tacit.privacy import errors

Interval = tuple[float, float]
Reals = npt.NDArray[np.float64]

NO_INFORMATION: Interval = (0.0, 1.0)
_LEAST_PROBABILITY, _NEAR = 1e-15, 1e-12


def wilson(correct: int, rows: int, confidence: float = 0.95) -> Interval:
    """Compute Wilson's interval for a share, which holds near 0 and 1 and for few rows."""
    z = _quantile("wilson", confidence)
    if rows == 0:
        return NO_INFORMATION
    share, spread = correct / rows, z**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / rows + spread / (4 * rows))
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


def mean_interval(values: Sequence[float], intervals: Sequence[Interval]) -> Interval:
    """Combine the intervals of independent estimates to one of their mean."""
    below = math.hypot(*(v - low for v, (low, _) in zip(values, intervals, strict=True)))
    above = math.hypot(*(high - v for v, (_, high) in zip(values, intervals, strict=True)))
    mean, count = sum(values) / len(values), len(values)
    return max(mean - below / count, 0.0), min(mean + above / count, 1.0)


def area(scores: Reals, positive: npt.NDArray[np.bool_]) -> float:
    """Compute the area under the ROC curve: P(score of a positive row is larger), ties half."""
    ours = int(positive.sum())
    others = positive.size - ours
    if not ours or not others:
        return math.nan
    ranks = float(rankdata(scores)[positive].sum())
    return (ranks - ours * (ours + 1) / 2) / (ours * others)


def area_interval(value: float, ours: int, others: int, confidence: float = 0.95) -> Interval:
    """Compute Newcombe's interval for an area under the curve, from the rows of both classes."""
    z = _quantile("area_interval", confidence)
    if not ours or not others:
        return NO_INFORMATION
    middle = (ours + others) / 2 - 1

    def beyond(true: float) -> float:
        shape = 1 + middle * ((1 - true) / (2 - true) + true / (1 + true))
        return (value - true) ** 2 - z**2 * true * (1 - true) * shape / (ours * others)

    # The variance vanishes at 0 and 1, which must not be taken for ends of the interval.
    inside = min(max(value, _NEAR), 1 - _NEAR)
    low = 0.0 if value <= 0 else float(brentq(beyond, 0.0, inside))
    return low, 1.0 if value >= 1 else float(brentq(beyond, inside, 1.0))


class Tally:
    """Counts of answers by true class, and probabilities where they are given."""

    def __init__(self, classes: tuple[Any, ...]) -> None:
        self.classes = classes
        self.counts = np.zeros((len(classes), len(classes)), np.int64)
        """Rows by true class and answer."""
        self._truth: list[npt.NDArray[np.int64]] = []
        self._scores: list[npt.NDArray[np.float32]] = []
        self._squares = self._logs = 0.0

    def add(self, truth: npt.NDArray[Any], predicted: npt.NDArray[Any], scores: Any = None) -> None:
        """Count a batch; refuse a label that the classifier does not know.

        `scores` are the probabilities of the classes; give them for all batches or for none.
        """
        place = _places("labels", self.classes, truth)
        said = _places("answers", self.classes, predicted)
        np.add.at(self.counts, (place, said), 1)
        if scores is not None:
            self._add_scores(place, np.asarray(scores, np.float64))

    def _add_scores(self, place: npt.NDArray[np.int64], scores: Reals) -> None:
        self._truth.append(place)
        self._scores.append(scores.astype(np.float32))
        self._squares += float(((scores - np.eye(len(self.classes))[place]) ** 2).sum())
        own = np.maximum(scores[np.arange(len(place)), place], _LEAST_PROBABILITY)
        self._logs -= float(np.log(own).sum())

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Rows of each class."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def constant(self) -> Any:
        """The class that is every answer, if there is one and there are several rows."""
        answered = np.flatnonzero(self.counts.sum(axis=0))
        alone = len(answered) == 1 and self.counts.sum() > 1
        return self.classes[int(answered[0])] if alone else None

    def to_dict(self) -> dict[str, Any]:
        """Return all measures, JSON-ready; those that cannot be computed are None."""
        rows, total = self.rows, int(self.counts.sum())
        correct = int(np.trace(self.counts))
        measures = {
            "rows": total,
            "accuracy": correct / total if total else 0.0,
            "interval": list(wilson(correct, total)),
            # The accuracy of always predicting the largest class: a baseline.
            "largest": int(rows.max()) / total if total else 0.0,
            "balanced_accuracy": self._balanced(),
            "by_class": [self._class(at) for at in range(len(self.classes))],
            "confusion": self.counts.tolist(),
        }
        return measures | (self._of_scores() if self._scores else {})

    def _class(self, at: int) -> dict[str, Any]:
        """Measure one class: its recall, and the precision of its answers."""
        correct, rows, answers = (
            int(n) for n in (self.counts[at, at], self.rows[at], self.counts[:, at].sum())
        )
        return {
            "class": self.classes[at],
            "rows": rows,
            "recall": correct / rows if rows else None,
            "interval": list(wilson(correct, rows)),
            "answers": answers,
            "precision": correct / answers if answers else None,
            "precision_interval": list(wilson(correct, answers)),
        }

    def _balanced(self) -> dict[str, Any]:
        """Average the recalls of the classes that occur."""
        present = np.flatnonzero(self.rows)
        if not len(present):
            return {"value": None, "interval": list(NO_INFORMATION)}
        each = [(int(self.counts[at, at]), int(self.rows[at])) for at in present]
        recalls = [correct / rows for correct, rows in each]
        interval = mean_interval(recalls, [wilson(*one) for one in each])
        return {"value": sum(recalls) / len(recalls), "interval": list(interval)}

    def _of_scores(self) -> dict[str, Any]:
        total = int(self.rows.sum())
        shares = self.rows[self.rows > 0] / total
        return {
            "auc": self._auc(),
            "calibration": {
                "brier": self._squares / total,
                "log_loss": self._logs / total,
                # Of the class shares of these rows, as the same probabilities for every row.
                "brier_of_shares": 1 - float((shares**2).sum()),
                "log_loss_of_shares": -float((shares * np.log(shares)).sum()),
            },
        }

    def _auc(self) -> dict[str, Any]:
        """Measure the second of two classes, or average each class against the rest."""
        truth, scores = np.concatenate(self._truth), np.concatenate(self._scores)
        wanted = [1] if len(self.classes) == 2 else range(len(self.classes))
        areas, ends = [], []
        for at in wanted:
            ours = int(self.rows[at])
            others = len(truth) - ours
            if ours and others:
                areas.append(area(scores[:, at].astype(np.float64), truth == at))
                ends.append(area_interval(areas[-1], ours, others))
        if not areas:
            return {"value": None, "interval": list(NO_INFORMATION)}
        return {"value": float(np.mean(areas)), "interval": np.mean(ends, axis=0).tolist()}


class NumericTally:
    """Numeric outcomes and what a regressor predicted for them."""

    def __init__(self) -> None:
        self._truth: list[Reals] = []
        self._predicted: list[Reals] = []

    def add(self, truth: Any, predicted: Any) -> None:
        """Keep a batch."""
        self._truth.append(np.asarray(truth, np.float64))
        self._predicted.append(np.asarray(predicted, np.float64))

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return all measures, JSON-ready; those that cannot be computed are None."""
        z = _quantile("NumericTally", confidence)
        truth, predicted = np.concatenate(self._truth), np.concatenate(self._predicted)
        away = truth - truth.mean()
        spread, missed = away**2, (truth - predicted) ** 2
        ratio, reach = None, 0.0
        if spread.mean() > 0 and len(truth) > 1:
            ratio = float(missed.mean() / spread.mean())
            error = (missed - ratio * spread).std(ddof=1) / spread.mean()
            reach = z * float(error) / math.sqrt(len(truth))
        return {
            "rows": len(truth),
            "r2": _estimate(None if ratio is None else 1 - ratio, reach),
            "mean_absolute_error": _mean_estimate(np.abs(truth - predicted), z),
            # Of the mean of these rows as the same prediction for every row: a baseline.
            "mean_absolute_error_of_mean": float(np.abs(away).mean()),
        }


def _mean_estimate(values: Reals, z: float) -> dict[str, Any]:
    if len(values) < 2:
        return _estimate(None, 0.0)
    return _estimate(float(values.mean()), z * float(values.std(ddof=1)) / math.sqrt(len(values)))


def _estimate(value: float | None, reach: float) -> dict[str, Any]:
    interval = [None, None] if value is None else [value - reach, value + reach]
    return {"value": value, "interval": interval}


def _places(name: str, classes: tuple[Any, ...], column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    place = np.full(len(column), -1, np.int64)
    for index, value in enumerate(classes):
        place[column == value] = index
    if bool((place < 0).any()):
        raise errors.InvalidData(
            f"{name} must be among the {len(classes)} classes of the model; row "
            f"{int(np.argmin(place))} is not."
        )
    return place


def _quantile(where: str, confidence: float) -> float:
    confidence = errors.probability(where, "confidence", confidence, zero=False)
    return float(ndtri((1 + confidence) / 2))
