"""Methods of the study of tables: each takes one split, ε and a seed, and classifies test rows.

Noise is seeded, so that runs can be repeated: these reports protect nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tacit
from tacit.local.learned import features
from tacit.privacy.randomness import Seeded
from tacit_papers.parts import column_reports, privunit
from tacit_papers.parts.table_case import Case, Floats, bounds, checked, flat, grey

_PIXELS = 100
"""Components of pictures that a model without privacy learns from."""

_FOLDS = 3


def codebook(case: Case, epsilon: float, seed: int) -> Floats:
    """Collect with one codebook, and teach a student; pictures lose their colour."""
    inhouse, people, test = map(grey, (case.inhouse, case.people, case.test))
    mechanism = tacit.Codebook(epsilon=epsilon, people=len(case.labels), classes=case.classes)
    mechanism.fit(inhouse, schema=bounds(inhouse), seed=seed)
    reports = mechanism.release(people, case.labels, rng=Seeded(seed))
    student = tacit.StudentClassifier(inhouse=inhouse, seed=seed).fit(reports)
    return np.asarray(student.predict_proba(test))


def partitions(case: Case, epsilon: float, seed: int) -> Floats:
    """Collect with `tacit.Collection` in one round."""
    return _collection(case, epsilon, seed, rounds=1)


def rounds(case: Case, epsilon: float, seed: int) -> Floats:
    """Collect with `tacit.Collection` in two rounds of half of the people each."""
    return _collection(case, epsilon, seed, rounds=2)


def _collection(case: Case, epsilon: float, seed: int, rounds: int) -> Floats:
    settings: dict[str, Any] = {"people": len(case.labels), "classes": case.classes}
    collection = tacit.Collection(epsilon=epsilon, rounds=rounds, **settings)
    collection.fit(case.inhouse, seed=seed)
    gathered: list[Any] = []
    model: Any = None
    for number, part in enumerate(np.array_split(np.arange(len(case.labels)), rounds)):
        collection = collection.adapt(model) if number else collection
        mine = case.people[part] if case.is_picture else case.people.take(part)
        stream = Seeded(100 * seed + number)
        gathered.append(collection.release(mine, case.labels[part], rng=stream))
        model = collection.learn(gathered)
    return np.asarray(model.predict_proba(case.test))


def direct(case: Case, epsilon: float, seed: int) -> Floats:
    """Add noise to every column by `tacit.Direct`, and learn through the noise."""
    inhouse, people, test = map(flat, (case.inhouse, case.people, case.test))
    mechanism = tacit.Direct(epsilon=epsilon, classes=case.classes)
    mechanism.fit(inhouse, schema=bounds(inhouse))
    reports = mechanism.release(people, case.labels, rng=Seeded(seed))
    model = tacit.NoiseAwareClassifier(seed=seed, hidden=(), output_bias=True).fit(reports)
    return np.asarray(model.predict_proba(test))


def none(case: Case, seed: int) -> Floats:
    """Learn from the people's rows without privacy: the best of three models.

    Cross-validation on the people's rows chooses; no in-house row is read.
    """
    from sklearn.decomposition import PCA
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    raw, ranks = _clean(case, "raw"), _clean(case, "quantile")
    if case.is_picture:
        components = PCA(_PIXELS, svd_solver="randomized", random_state=seed).fit(raw[0])
        raw = ranks = tuple(map(components.transform, raw))
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    boosted = HistGradientBoostingClassifier(random_state=seed)
    models = [(linear, raw), (boosted, raw), (linear, ranks)][: 2 if case.is_picture else 3]
    kept = "roc_auc" if case.classes == 2 else "accuracy"
    scores = [
        cross_val_score(model, seen, case.labels, cv=_FOLDS, scoring=kept).mean()
        for model, (seen, _) in models
    ]
    model, (seen, test) = models[int(np.argmax(scores))]
    return _all_classes(model.fit(seen, case.labels), test, case.classes)


def _clean(case: Case, kind: str) -> tuple[Any, Any]:
    given = bounds(flat(case.people))
    people, test = checked(given, case.people, case.test)
    if case.is_picture:
        kind = "raw"
    learned = features.fit(kind, given, people)
    return learned.transform(people), learned.transform(test)


def _all_classes(model: Any, test: Any, classes: int) -> Floats:
    """Return probabilities with a column for every class, also for those that nobody had."""
    likely = np.zeros((len(test), classes))
    likely[:, model.classes_] = model.predict_proba(test)
    return likely


PRIVATE: dict[str, Callable[[Case, float, int], Floats]] = {
    "codebook": codebook,
    "partitions": partitions,
    "rounds": rounds,
    "column": column_reports.probabilities,
    "direct": direct,
    "privunit": privunit.probabilities,
}
"""Methods with a guarantee towards the people who report."""

WITHOUT = "none"
METHODS = (*PRIVATE, WITHOUT)


def measures(truth: Any, likely: Floats) -> dict[str, float]:
    """Return accuracy, balanced accuracy and, for two classes, the area under the ROC curve."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    answers = likely.argmax(axis=1)
    found = {
        "accuracy": float((answers == truth).mean()),
        "balanced_accuracy": float(balanced_accuracy_score(truth, answers)),
    }
    if likely.shape[1] == 2:
        found["auc"] = float(roc_auc_score(truth, likely[:, 1]))
    return found
