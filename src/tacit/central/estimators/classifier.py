"""Base of classifiers with linear scores: classes, rows in a ball, the order of a fit."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from tacit.central.estimators.base import (
    Bounds,
    Box,
    PrivateEstimator,
    Reals,
    unquoted,
    warn_of_noise,
)
from tacit.central.estimators.scores import RowScaling
from tacit.privacy import errors
from tacit.privacy.events import Event
from tacit.privacy.randomness import Randomness

Codes = npt.NDArray[np.int64]

READ_CLASSES = "The set of classes was read off the labels: it is taken as public."
UNSOLVED = (
    "That no minimum was found to its tolerance: the fit is refused, and nothing is released."
)


class Solver(Protocol):
    """An algorithm with all of its public settings."""

    @property
    def event(self) -> Event:
        """Return the event of `solve`."""
        ...

    @property
    def noise(self) -> float:
        """Return the approximate norm of the noise on a sum of rows of norm at most 1."""
        ...

    def solve(self, rows: Reals, codes: Codes, rng: Randomness | None) -> tuple[Reals, Event]:
        """Return weights, one row per score, for rows in the ball; and the event."""
        ...


class RowMap(Protocol):
    """A map from raw rows to rows of norm at most 1."""

    def rows(self, X: Reals) -> tuple[Reals, int]:
        """Map rows into the ball, and count the rows outside the bounds."""
        ...


class ScoreClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Abstract base of classifiers with scores that are linear in rows of norm at most 1."""

    bounds: Bounds
    fit_intercept: bool
    classes: Any

    classes_: npt.NDArray[Any]

    @abstractmethod
    def _dimension(self, columns: int) -> int:
        """Return the number of entries of a row in the ball."""

    @abstractmethod
    def _solver(self, rows: int, dimension: int) -> Solver:
        """Return the algorithm, from parameters and shapes alone."""

    @abstractmethod
    def _frame(self, columns: int) -> RowMap:
        """Return the map into the ball, from parameters and shapes alone."""

    @abstractmethod
    def _store(self, frame: RowMap, solutions: Reals) -> None:
        """Store what prediction needs."""

    @abstractmethod
    def _scored(self, rows: Reals) -> Reals:
        """Return scores of new rows, one per problem."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X and labels y. The ledger, if any, is charged before values are used."""
        X, y = self._checked(X, y)
        self.classes_, codes = coded(type(self).__name__, y, self.classes)
        frame = self._frame(X.shape[1])
        charged = self._charge(*X.shape)
        solver = self._solver(len(X), self._dimension(X.shape[1]))
        # The number of records is not released: the warning is in-house.
        remedy = "Raise epsilon, lower the norm, or fit more records."
        warn_of_noise(type(self).__name__, len(X) / 2, solver.noise, remedy)
        rows, clipped = frame.rows(X)
        solutions, ran = solver.solve(rows, codes, self.rng)
        self._keep(charged, ran)
        self._store(frame, solutions)
        self.clipped_ = clipped
        return self

    def decision_function(self, X: Any) -> Reals:
        """Return one score per class, or with two classes the score of the second."""
        scores = self._scored(self._rows(X))
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.asarray(self.classes_[(scores > 0).astype(int)])
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def _event(self, rows: int, columns: int) -> Event:
        return self._solver(rows, self._dimension(columns)).event

    @property
    def _problems(self) -> int:
        """Return the number of scores: one for two classes, else one per class."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _box(self, columns: int) -> Box:
        return Box.of(type(self).__name__, "bounds", self.bounds, columns)

    def _assumptions(self) -> tuple[str, ...]:
        return (READ_CLASSES,) if self.classes is None else ()

    def _limits(self) -> tuple[str, ...]:
        return (UNSOLVED,)


class LinearClassifier(ScoreClassifier):
    """Abstract base of classifiers whose scores are linear in the columns themselves."""

    norm: float | None

    _stored = ("classes_", "coef_", "intercept_")
    coef_: Reals
    intercept_: Reals

    def _dimension(self, columns: int) -> int:
        return columns + bool(self.fit_intercept)

    def _frame(self, columns: int) -> RowScaling:
        where, box = type(self).__name__, self._box(columns)
        return RowScaling.of(where, box, self.norm, intercept=bool(self.fit_intercept))

    def _store(self, frame: RowMap, solutions: Reals) -> None:
        assert isinstance(frame, RowScaling)
        self.coef_, self.intercept_ = frame.coefficients(solutions)

    def _scored(self, rows: Reals) -> Reals:
        return np.asarray(rows @ self.coef_.T + self.intercept_)


def coded(where: str, y: Any, declared: Any) -> tuple[npt.NDArray[Any], Codes]:
    """Return the classes (read from the labels if not declared), and labels as class numbers."""
    try:
        check_classification_targets(y)
        classes = np.unique(y if declared is None else np.asarray(declared))
    except (ValueError, TypeError) as caught:
        raise unquoted(where, caught) from None
    if len(classes) < 2:
        raise errors.InvalidData(f"{where}: there must be two classes or more, got one class.")
    try:
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    except TypeError as caught:
        raise unquoted(where, caught) from None
    if declared is not None and not np.array_equal(classes[codes], y):
        raise errors.InvalidData(f"{where}: labels must be among the declared classes.")
    return classes, np.asarray(codes, dtype=np.int64)


def signs_of(codes: Codes, problems: int) -> list[Reals]:
    """Return ±1 for each problem: the second class against the first, or each against the rest."""
    wanted = [1] if problems == 1 else range(problems)
    return [np.where(codes == code, 1.0, -1.0) for code in wanted]
