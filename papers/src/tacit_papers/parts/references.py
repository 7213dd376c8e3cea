"""References for the results: the best constant answer, and learning without privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.data.schema import Schema
from tacit.local.learned import codebook, features, quantizer
from tacit.privacy import errors
from tacit_papers.parts import paper
from tacit_papers.parts.collecting import kind_of
from tacit_papers.parts.trials import Trial, accuracy

NAMES = ("chance", "no_privacy")


def measure(name: str, trial: Trial) -> float:
    """Measure the reference of this name on one split."""
    errors.choice("references", "name", name, NAMES)
    rows, truth = trial.test
    if name == "chance":
        return largest(truth)
    answers = clean_answers(trial.dataset.schema, *trial.people, rows, trial.seed)
    return accuracy(answers, truth)


def largest(truth: Any) -> float:
    """Return the share of the most frequent class: the accuracy of always naming it."""
    return float(np.bincount(truth).max() / len(truth))


def clean_answers(schema: Schema, train: Any, labels: Any, test: Any, seed: int) -> Any:
    """Predict test labels with a good classifier of clean rows and labels, without privacy.

    For images it is a support vector machine on the projected features of the codebook, for tables
    gradient boosting on numbers and one-hot codes.
    """
    rows, points = schema.rows(train), schema.rows(test)
    if kind_of(schema) == paper.IMAGES:
        from sklearn.svm import SVC

        learned = features.fit(codebook.default_features(schema), schema, rows, seed)
        projection = quantizer.fit_projection(learned, rows, 48, True, seed)
        seen, projected_points = (
            quantizer.project(learned, part, projection) for part in (rows, points)
        )
        return SVC(C=10.0).fit(seen, labels).predict(projected_points)
    from sklearn.ensemble import HistGradientBoostingClassifier

    learned = features.fit("raw", schema, rows, seed)
    model = HistGradientBoostingClassifier(random_state=seed)
    return model.fit(learned.transform(rows), labels).predict(learned.transform(points))
