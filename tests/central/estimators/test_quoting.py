"""Errors of estimators quote nothing of the data, whatever the data are; and are of one line."""

from __future__ import annotations

import datetime
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from central.estimators.cases import ESTIMATORS
from tacit.central import estimators
from tacit.central.estimators import (
    PCA,
    SVC,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    MinMaxScaler,
    MLPClassifier,
    MLPRegressor,
    RandomForestClassifier,
    Ridge,
    StandardScaler,
)
from tacit.data import labels
from tacit.privacy import errors

SECRET = "Zq9secret"
NUMBER = 918273645
MADE: dict[str, Callable[..., Any]] = {
    "linear": lambda **given: LinearRegression(target_bounds=(-1, 1), **given),
    "ridge": lambda **given: Ridge(target_bounds=(-1, 1), **given),
    "logistic": LogisticRegression,
    "linear svc": LinearSVC,
    "svc": lambda **given: SVC(n_components=8, **given),
    "forest": lambda **given: RandomForestClassifier(max_depth=2, n_estimators=2, **given),
    "mlp": MLPClassifier,
    "mlp regressor": lambda **given: MLPRegressor(target_bounds=(-1, 1), **given),
    "standard": StandardScaler,
    "range": MinMaxScaler,
    "components": PCA,
    "clusters": lambda **given: KMeans(2, **given),
}
WITHOUT_LABELS = {"standard", "range", "components", "clusters"}
KNOWN = {type(make(epsilon=1, bounds=(-1, 1))).__name__ for make in MADE.values()}
NEW = {case.name: case for case in ESTIMATORS if case.name not in KNOWN}
MADE |= {name: case.make for name, case in NEW.items()}
WITHOUT_LABELS |= {name for name, case in NEW.items() if case.labels == "none"}
WITH_LABELS = [name for name in MADE if name not in WITHOUT_LABELS]


def test_every_estimator_is_tried() -> None:
    made = {type(make(epsilon=1, bounds=(-1, 1))).__name__ for make in MADE.values()}
    assert made == set(estimators.__all__) - {"MostlyNoise"}


ROWS = {
    "words": [["1", SECRET]] * 4,
    "objects": np.array([[object(), SECRET]] * 4, dtype=object),
    "ragged": [[NUMBER], [1, 2], [3], [4]],
    "mixed": [[NUMBER, SECRET]] * 4,
    "none": [[None, NUMBER]] * 4,
    "complex": [[NUMBER + 1j, 2]] * 4,
    "dates": [[datetime.date(2020, 1, 1), NUMBER]] * 4,
    "times": np.full((4, 2), np.datetime64("2020-01-01")),
    "one column": [NUMBER] * 4,
    "a word": SECRET,
    "nothing": None,
    "nested": [[[NUMBER]]] * 4,
    "dictionaries": [{SECRET: NUMBER}] * 4,
    "bytes": [[SECRET.encode()] * 2] * 4,
    "huge": [[10**400, 1]] * 4,
}
LABELS = {
    "words": [SECRET, "b", SECRET, "b"],
    "ragged": [[NUMBER], [1, 2], [3], [4]],
    "mixed": [SECRET, 1, NUMBER, 2.5],
    "none": [None, NUMBER, 1, 2],
    "complex": [NUMBER + 1j] * 4,
    "dates": [datetime.date(2020, 1, 1)] * 4,
    "times": np.full(4, np.datetime64("2020-01-01")),
    "dictionaries": [{SECRET: NUMBER}] * 4,
    "bytes": [SECRET.encode()] * 4,
    "objects": np.array([object(), SECRET, 1, 2], dtype=object),
    "huge": [10**400, 1, 2, 3],
    "two columns": [[NUMBER, 1]] * 4,
}


def said(call: Callable[[], Any]) -> str | None:
    """Everything that an error shows, causes included; None without one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except Exception as caught:
        lines = traceback.TracebackException.from_exception(caught)
        shown, seen = [], lines
        while seen is not None:
            shown.append(str(seen))
            hidden = seen.__suppress_context__
            seen = seen.__cause__ or (None if hidden else seen.__context__)  # type: ignore[assignment]
        return "\n".join(shown)
    return None


def silent(message: str | None) -> bool:
    return message is None or not any(
        word in message for word in (SECRET, str(NUMBER), "2020", "object at 0x")
    )


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("kind", ROWS)
def test_rows_are_not_quoted(name: str, kind: str) -> None:
    model = MADE[name](epsilon=1.0, bounds=(-1, 1))
    message = said(lambda: model.fit(ROWS[kind], [0, 1, 0, 1]))
    assert silent(message)
    if kind != "times":  # which are numbers to scikit-learn
        assert message is not None
        assert "inhomogeneous" not in message


@pytest.mark.parametrize("name", WITH_LABELS)
@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_not_quoted(name: str, kind: str) -> None:
    rows = np.linspace(-1, 1, 8).reshape(4, 2)
    for classes in ({}, {"classes": [0, 1]}):
        if classes and "target_bounds" in MADE[name](epsilon=1.0, bounds=(-1, 1)).get_params():
            continue
        model = MADE[name](epsilon=1.0, bounds=(-1, 1), **classes)
        message = said(lambda model=model: model.fit(rows, LABELS[kind]))
        assert silent(message)
        assert message is None or "inhomogeneous" not in message


@pytest.mark.parametrize("name", ["linear", "ridge", "mlp regressor"])
def test_words_as_targets_are_refused_in_our_words(name: str) -> None:
    model = MADE[name](epsilon=1.0, bounds=(-1, 1))
    for targets in (np.array([SECRET, "b"]), np.array([SECRET, "b"], dtype=object)):
        with pytest.raises(errors.InvalidData, match="must be numbers") as caught:
            model.fit([[0.0], [1.0]], targets)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_ragged_labels_of_reports_are_refused_in_our_words() -> None:
    with pytest.raises(errors.InvalidData, match="labels must be one column"):
        labels.codes("test", [[1], [1, 2]], (0, 1))


def test_information_gain_alone() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    given: dict[str, Any] = {"algorithm": "dprf", "max_depth": 2, "n_estimators": 2}
    for blend in (0, 0.5, 1, 1.0):
        model = RandomForestClassifier(epsilon=100.0, bounds=(-1, 1), blend=blend, **given)
        model.fit(X, X[:, 0] > 0)
        assert model.guarantee_.epsilon <= 100
    for blend in (1.1, -0.1, float("nan"), "x", None):
        with pytest.raises(errors.InvalidParameter, match=r"blend must be in \[0, 1\]"):
            RandomForestClassifier(epsilon=1.0, bounds=(-1, 1), blend=blend, **given).fit(
                X, X[:, 0] > 0
            )


def test_text_in_a_column_names_an_encoder_with_declared_categories() -> None:
    model = MADE["linear"](epsilon=1.0, bounds=(-1, 1))
    with pytest.raises(errors.InvalidData, match=r"OneHotEncoder\(categories=") as caught:
        model.fit(np.array([[SECRET, 1.0], ["b", 0.0]], dtype=object), [0.0, 1.0])
    assert silent(str(caught.value))
