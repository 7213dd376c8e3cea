"""Accuracy with its uncertainty, counted in batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit.privacy import errors


def wilson(correct: int, rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """Compute Wilson's interval for a share [Wil27]_, which holds near 0 and 1 and for few rows.

    References
    ----------
    .. [Wil27] Wilson. Probable inference, the law of succession, and statistical inference. 1927.
    """
    errors.probability("wilson", "confidence", confidence, zero=False)
    if rows == 0:
        return 0.0, 1.0
    z = float(ndtri((1 + confidence) / 2))
    share, spread = correct / rows, z**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / rows + spread / (4 * rows))
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


class Tally:
    """Counts of correct predictions, by class."""

    def __init__(self, classes: tuple[Any, ...]) -> None:
        self.classes = classes
        self.rows = np.zeros(len(classes), np.int64)
        self.correct = np.zeros(len(classes), np.int64)

    def add(self, truth: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> None:
        """Count a batch; refuse a label that the classifier does not know."""
        known = np.isin(truth, np.asarray(self.classes))
        if not bool(known.all()):
            raise errors.InvalidData(
                f"labels must be among the {len(self.classes)} classes of the model; row "
                f"{int(np.argmin(known))} is not."
            )
        for index, value in enumerate(self.classes):
            mine = truth == value
            self.rows[index] += int(mine.sum())
            self.correct[index] += int((predicted[mine] == value).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the accuracy overall and by class."""
        classes = zip(self.classes, self.correct.tolist(), self.rows.tolist(), strict=True)
        by_class = [{"class": value, **_part(correct, rows)} for value, correct, rows in classes]
        total = int(self.rows.sum())
        # The accuracy of always predicting the largest class: a baseline that a model must beat.
        largest = int(self.rows.max()) / total if total else 0.0
        whole = _part(int(self.correct.sum()), total)
        return {**whole, "largest": largest, "by_class": by_class}


def _part(correct: int, rows: int) -> dict[str, Any]:
    accuracy = correct / rows if rows else 0.0
    return {"rows": rows, "accuracy": accuracy, "interval": list(wilson(correct, rows))}
