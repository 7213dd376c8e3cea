"""What classifiers with linear scores share: classes, rows in a ball, the order of a fit."""

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
from tacit.central.estimators.scores import Scores
from tacit.privacy import errors
from tacit.privacy.events import Event
from tacit.privacy.randomness import Randomness

Codes = npt.NDArray[np.int64]

READ_CLASSES = "The set of classes was read off the labels: it is taken as public."
UNSOLVED = (
    "That no minimum was found to its tolerance: the fit is refused, and nothing is released."
)


class Solver(Protocol):
    """An algorithm with all its public numbers, before any row."""

    @property
    def event(self) -> Event:
        """What `solve` runs."""
        ...

    @property
    def noise(self) -> float:
        """Norm, about, of the noise on a sum of rows of norm at most 1."""
        ...

    def solve(self, rows: Reals, codes: Codes, rng: Randomness | None) -> tuple[Reals, Event]:
        """Weights, one row a score, for rows in the ball; and what ran."""
        ...


class Frame(Protocol):
    """What makes rows of norm at most 1 of raw ones."""

    def rows(self, X: Reals) -> tuple[Reals, int]:
        """Rows in the ball, and how many lay outside the bounds."""
        ...


class ScoreClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Base of classifiers by scores that are linear in rows of norm at most 1. Abstract."""

    bounds: Bounds
    fit_intercept: bool
    classes: Any

    classes_: npt.NDArray[Any]

    @abstractmethod
    def _dimension(self, columns: int) -> int:
        """Entries of a row in the ball."""

    @abstractmethod
    def _solver(self, rows: int, dimension: int) -> Solver:
        """The algorithm, from parameters and shapes alone."""

    @abstractmethod
    def _frame(self, columns: int) -> Frame:
        """The map into the ball, from parameters and shapes alone."""

    @abstractmethod
    def _store(self, frame: Frame, solutions: Reals) -> None:
        """Keep what prediction needs."""

    @abstractmethod
    def _scored(self, rows: Reals) -> Reals:
        """Scores of new rows, one a problem."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X and labels y: checked, charged, then read."""
        X, y = self._checked(X, y)
        self.classes_, codes = coded(type(self).__name__, y, self.classes)
        frame = self._frame(X.shape[1])
        charged = self._charge(*X.shape)
        solver = self._solver(len(X), self._dimension(X.shape[1]))
        # The number of records is no part of the release: a warning is for the house.
        remedy = "Raise epsilon, lower the norm, or fit more records."
        warn_of_noise(type(self).__name__, len(X) / 2, solver.noise, remedy)
        rows, clipped = frame.rows(X)
        solutions, ran = solver.solve(rows, codes, self.rng)
        self._keep(charged, ran)
        self._store(frame, solutions)
        self.clipped_ = clipped
        return self

    def decision_function(self, X: Any) -> Reals:
        """Scores of the classes, or with two of them the score of the second."""
        scores = self._scored(self._rows(X))
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class with the highest score."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.asarray(self.classes_[(scores > 0).astype(int)])
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def _event(self, rows: int, columns: int) -> Event:
        return self._solver(rows, self._dimension(columns)).event

    @property
    def _problems(self) -> int:
        """Scores: one for two classes, else one a class."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _box(self, columns: int) -> Box:
        return Box.of(type(self).__name__, "bounds", self.bounds, columns)

    def _assumptions(self) -> tuple[str, ...]:
        return (READ_CLASSES,) if self.classes is None else ()

    def _limits(self) -> tuple[str, ...]:
        return (UNSOLVED,)


class LinearClassifier(ScoreClassifier):
    """Base of classifiers whose scores are linear in the columns themselves. Abstract."""

    norm: float | None

    coef_: Reals
    intercept_: Reals

    def _dimension(self, columns: int) -> int:
        return columns + bool(self.fit_intercept)

    def _frame(self, columns: int) -> Scores:
        where, box = type(self).__name__, self._box(columns)
        return Scores.of(where, box, self.norm, intercept=bool(self.fit_intercept))

    def _store(self, frame: Frame, solutions: Reals) -> None:
        assert isinstance(frame, Scores)
        self.coef_, self.intercept_ = frame.coefficients(solutions)

    def _scored(self, rows: Reals) -> Reals:
        return np.asarray(rows @ self.coef_.T + self.intercept_)


def coded(where: str, y: Any, declared: Any) -> tuple[npt.NDArray[Any], Codes]:
    """Classes, read off the labels where none are declared, and the labels as their numbers."""
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
    """±1 for each problem: the second class against the first, or each against the rest."""
    wanted = [1] if problems == 1 else range(problems)
    return [np.where(codes == one, 1.0, -1.0) for one in wanted]
