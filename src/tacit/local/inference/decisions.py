r"""How probabilities become answers: shares of the classes to come, costs of errors, a threshold.

A classifier learned from reports assumes that those who will be classified have the class shares
:math:`\pi_y` of those who reported. For other shares :math:`\pi'_y` its probabilities are reweighed
by Bayes' rule [SLD02]_,

.. math:: p'(y \mid x) \propto p(y \mid x)\, \pi'_y / \pi_y,

which holds if people of one class look alike in both populations. With costs :math:`c_{iy}` of
answering y where i is true, the answer has the least expected cost
:math:`\sum_i p'(i \mid x)\, c_{iy}` [Elk01]_; without, it is the most probable class. For two
classes a threshold says the same as costs: the second class is answered from this probability on.

Notes
-----
All of it is post-processing, at no cost to anybody: a model can be given another rule at any time.

References
----------
.. [SLD02] Saerens, Latinne, Decaestecker. Adjusting the outputs of a classifier to new a priori
   probabilities: a simple procedure. Neural Computation 2002.
.. [Elk01] Elkan. The foundations of cost-sensitive learning. IJCAI 2001.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit.local.inference.stored import Stored
from tacit.privacy import errors

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

NAMES = ("priors", "costs", "threshold")
KEPT: Any = "kept"
"""Stands for a parameter of `deciding` that is not to change."""

_WHOLE = 0.01
_NONE = 1e-12


class ConstantAnswerWarning(UserWarning):
    """Every answer of a model is the same class."""


@dataclass(frozen=True, eq=False)
class Rule:
    """Checked priors, costs and threshold; None for those that are not given."""

    priors: Reals | None
    costs: Reals | None
    threshold: float | None

    @classmethod
    def of(cls, where: str, classes: Any, priors: Any, costs: Any, threshold: Any) -> Rule:
        """Check priors, costs and threshold against the classes."""
        labels = np.asarray(classes).tolist()
        if costs is not None and threshold is not None:
            remedy = "Give costs or a threshold."
            errors.refuse(where, "threshold", "None where costs are given", threshold, remedy)
        if threshold is not None:
            if len(labels) != 2:
                condition = f"None for {len(labels)} classes"
                errors.refuse(where, "threshold", condition, threshold, "Use costs.")
            threshold = errors.within(where, "threshold", threshold, "[0, 1]")
        return cls(
            None if priors is None else _priors(where, labels, priors),
            None if costs is None else _costs(where, labels, costs),
            threshold,
        )

    @property
    def most_probable(self) -> bool:
        """Whether the answer is the most probable class under the shares that were learned."""
        return self.priors is None and self.costs is None and self.threshold is None

    def reweighed(self, probabilities: Reals, assumed: Reals) -> Reals:
        """Replace the class shares that probabilities assume by the priors."""
        if self.priors is None:
            return probabilities
        odds = probabilities * self.weights(assumed)
        total = odds.sum(axis=1, keepdims=True)
        # Where only classes with a prior of 0 were possible, nothing is known but the priors.
        return np.asarray(np.where(total > 0, odds / np.where(total > 0, total, 1.0), self.priors))

    def weights(self, assumed: Reals) -> Reals:
        """Return the factors of Bayes' rule: the priors over the shares that are assumed."""
        assert self.priors is not None
        # A class that no probability favours at all cannot be reweighed.
        return np.where(assumed > _NONE, self.priors / np.maximum(assumed, _NONE), 0.0)

    def places(self, probabilities: Reals) -> Integers:
        """Return the index of each row's answer; the first class wins ties."""
        if self.threshold is not None:
            return np.asarray(probabilities[:, 1] >= self.threshold, np.int64)
        if self.costs is not None:
            return np.asarray((probabilities @ self.costs).argmin(axis=1), np.int64)
        return np.asarray(probabilities.argmax(axis=1), np.int64)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready parameters."""
        return {
            "priors": None if self.priors is None else self.priors.tolist(),
            "costs": None if self.costs is None else self.costs.tolist(),
            "threshold": self.threshold,
        }


class Deciding(ClassifierMixin, Stored):  # type: ignore[misc]
    """Base of classifiers with priors, costs and threshold. Abstract: each predicts its own way."""

    classes_: npt.NDArray[Any]
    assumed_shares_: Reals
    """The class shares that the model's own probabilities assume; `priors` replace them."""
    answer_shares_: Reals | None
    """The shares of the answers on what the model was fitted on; None after `deciding`."""

    @property
    def rule(self) -> Rule:
        """The checked priors, costs and threshold."""
        check_is_fitted(self, "classes_")
        return self._rule_for(self.classes_)

    def _rule_for(self, classes: Any) -> Rule:
        """Check priors, costs and threshold; wrong ones are refused before anything is fitted."""
        return Rule.of(type(self).__name__, classes, *(getattr(self, name) for name in NAMES))

    @property
    def constant_answer(self) -> Any:
        """The class that the model always answered on what it was fitted on; None if several."""
        shares = self.answer_shares_
        if shares is None or np.count_nonzero(shares) != 1:
            return None
        return self.classes_[int(shares.argmax())].item()

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """Predict a label for each row: the most probable, or as costs or threshold say."""
        places = self.rule.places(self.predict_proba(rows))
        return np.asarray(self.classes_[places])

    def deciding(self, *, priors: Any = KEPT, costs: Any = KEPT, threshold: Any = KEPT) -> Self:
        """Return a copy that answers by other priors, costs or threshold, without a new fit.

        What is not given stays as it is. Costs and threshold exclude each other: whichever is given
        replaces the other. None removes a parameter.
        """
        if threshold is not KEPT and threshold is not None and costs is KEPT:
            costs = None
        if costs is not KEPT and costs is not None and threshold is KEPT:
            threshold = None
        other = copy.copy(self)
        for name, value in zip(NAMES, (priors, costs, threshold), strict=True):
            if value is not KEPT:
                setattr(other, name, value)
        _ = other.rule  # refused now, and not when it predicts
        other.answer_shares_ = None
        return other

    def _given(self) -> dict[str, Any]:
        return super()._given() | self.rule.to_plain()

    def _stored_beside(self) -> dict[str, Any]:
        answers = None if self.answer_shares_ is None else self.answer_shares_.tolist()
        return {"shares": {"assumed": self.assumed_shares_.tolist(), "answers": answers}}

    def _restore_beside(self, parameters: dict[str, Any]) -> None:
        kept, where, shape = parameters["shares"], type(self).__name__, self.classes_.shape
        self.assumed_shares_ = _numbers(where, "shares", kept["assumed"], shape)
        answers = kept["answers"]
        self.answer_shares_ = (
            None if answers is None else _numbers(where, "answers", answers, shape)
        )
        _ = self.rule  # a file made by hand is refused now

    def _settle(self, probabilities: Reals, weights: Reals | None = None) -> None:
        """Learn which shares the fitted probabilities assume; warn if all answers are one class."""
        rule = self.rule
        weights = np.ones(len(probabilities)) if weights is None else weights
        weights = weights / weights.sum()
        self.assumed_shares_ = np.asarray(weights @ probabilities, np.float64)
        answers = rule.places(rule.reweighed(probabilities, self.assumed_shares_))
        counted = np.bincount(answers, weights, len(self.classes_))
        self.answer_shares_ = np.asarray(counted, np.float64)
        if (always := self.constant_answer) is not None:
            warnings.warn(constant(always), ConstantAnswerWarning, stacklevel=3)


def constant(answer: Any) -> str:
    """Say that every answer is one class, and what may help."""
    return (
        f"Every answer is {answer!r}: no row makes another class probable enough. Compare rows by "
        "predict_proba, or set priors, costs or a threshold."
    )


def _priors(where: str, classes: list[Any], given: Any) -> Reals:
    """Read shares in the order of the classes, or by class."""
    if isinstance(given, Mapping):
        _must_be_classes(where, "priors", classes, given)
        if len(given) != len(classes):
            errors.refuse(where, "priors", f"one for each of {len(classes)} classes", len(given))
        given = [given[label] for label in classes]
    shares = _numbers(where, "priors", given, (len(classes),))
    if abs(shares.sum() - 1) > _WHOLE:
        errors.refuse(where, "priors", "shares that sum to 1", shares.tolist())
    return np.asarray(shares / shares.sum())


def _costs(where: str, classes: list[Any], given: Any) -> Reals:
    """Read the matrix, or the costs of some errors where every other error costs 1."""
    if isinstance(given, Mapping):
        matrix = 1 - np.eye(len(classes))
        for pair, cost in given.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                errors.refuse(where, "costs", "by pairs (true class, answer)", pair)
            _must_be_classes(where, "costs", classes, pair)
            matrix[classes.index(pair[0]), classes.index(pair[1])] = cost
        given = matrix
    return _numbers(where, "costs", given, (len(classes), len(classes)))


def _must_be_classes(where: str, name: str, classes: list[Any], given: Any) -> None:
    for label in given:
        if label not in classes:
            errors.refuse(where, name, f"about the classes {classes}", label)


def _numbers(where: str, name: str, given: Any, shape: tuple[int, ...]) -> Reals:
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        errors.refuse(where, name, "numbers", given)
    if array.shape != shape:
        size = " by ".join(map(str, shape))
        errors.refuse(where, name, f"{size} numbers, in the order of the classes", given)
    if not bool(np.isfinite(array).all()) or bool((array < 0).any()):
        errors.refuse(where, name, "finite and not negative", given)
    return array
