"""What every estimator refuses, over the registry: parameters by name, rows that are no numbers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Ledger
from tacit.central import estimators
from tacit.central.estimators.base import PrivateEstimator
from tacit.privacy.errors import InvalidData, InvalidParameter

pytestmark = pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")

KINDS: dict[str, Any] = {
    name: kind
    for name in estimators.__all__
    if issubclass(kind := getattr(estimators, name), PrivateEstimator)
}
X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
Y = (X[:, 0] > 0).astype(int)
GOOD: dict[str, Any] = {"epsilon": 1.0, "bounds": (-1, 1), "target_bounds": (-1, 1)}

REFUSED: dict[str, list[tuple[Any, str]]] = {
    "epsilon": [(bad, "epsilon must be") for bad in (0, -1, math.nan, "x")],
    "delta": [(bad, "delta must be") for bad in (1.0, -1e-6, math.nan)],
    "bounds": [
        (None, "bounds must be a pair"),
        ((1, -1), "bounds must be finite, the lower below the upper"),
        ((1, 1), "bounds must be finite, the lower below the upper"),
        ((-1e308, 1e308), "bounds must be within 1e150"),
    ],
    "target_bounds": [
        (3, "target_bounds must be a pair"),
        ((0, math.inf), "target_bounds must be finite"),
    ],
    "unit": [("planet", "unit must be one of")],
    "algorithm": [("magic", "algorithm must be one of")],
    "norm": [(bad, "must be above 0|left out without components") for bad in (0, -1)],
    "alpha": [(-1, "alpha must be above")],
    "steps": [(0, "steps must be an integer from 1")],
    "repair": [("none", "repair must be one of shrink, ridge, trim")],
    "residual_clip": [(3, "residual_clip must be from 0.001 to 2")],
    "width": [(0.001, "width must be at least")],
    "gamma": [(-1, "gamma must be"), ("scale", "gamma must be")],
    "n_components": [(0, "n_components must be an integer from 1")],
    "n_clusters": [(0, "clusters must be an integer from 1")],
    "max_iter": [(0, "must be an integer from 1")],
    "reach": [(-1, "reach must be")],
    "init": [("magic", "(init|start) must be")],
    "feature_range": [((1, 0), "feature_range must be")],
    "tail": [(0.5, "tail must be below 1/2")],
    "n_estimators": [(0, "n_estimators must be")],
    "max_depth": [(0, "max_depth must be"), (17, "max_depth must be")],
    "max_features": [(5, "max_features must be")],
    "bins": [(1, "bins must be"), (257, "bins must be")],
    "blend": [(-0.1, "blend must be"), (1.1, "blend must be")],
    "hidden_layer_sizes": [((0,), "hidden_layer_sizes must be an integer from 1")],
    "components": [(4, "components must be an integer from 1 to 3")],
    "optimizer": [("lbfgs", "optimizer must be one of sgd, adam")],
    "learning_rate": [(0, "learning_rate must be above 0")],
    "momentum": [(-1, "momentum must be")],
    "clip_norm": [(0, "clip_norm must be above 0")],
    "epochs": [(0, "epochs must be above 0")],
    "batch_size": [(0, "batch_size must be an integer")],
    "average": [(1.5, "average must be")],
    "device": [("tpu", "device must be")],
}
"""By parameter, whichever estimators have it: a value, and what is said."""

FREE = {"fit_intercept", "with_mean", "with_std", "ledger", "account", "rng", "classes"}
"""Truth values, and what tests of their own are below for."""

ONLY_WITH: dict[str, dict[str, Any]] = {
    "LogisticRegression": {"steps": {"algorithm": "gradient"}, "batch_size": {"algorithm": "sgd"}},
}
"""What makes an estimator read a parameter."""


def cases() -> Iterator[Any]:
    for kind in KINDS:
        for name in inspect.signature(KINDS[kind]).parameters:
            for place, (value, words) in enumerate(REFUSED.get(name, [])):
                yield pytest.param(kind, name, value, words, id=f"{kind}-{name}-{place}")


def made(kind: str, **changes: Any) -> Any:
    known = inspect.signature(KINDS[kind]).parameters
    return KINDS[kind](**{name: one for name, one in {**GOOD, **changes}.items() if name in known})


def test_every_parameter_has_a_refused_value() -> None:
    for kind in KINDS.values():
        assert set(inspect.signature(kind).parameters) <= {*REFUSED, *FREE}, kind


@pytest.mark.parametrize(("kind", "name", "value", "words"), list(cases()))
def test_parameters_are_refused_by_name(kind: str, name: str, value: Any, words: str) -> None:
    more = ONLY_WITH.get(kind, {}).get(name, {})
    with pytest.raises(InvalidParameter, match=words) as caught:
        made(kind, **{name: value}, **more).fit(X, Y)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_protects_has_no_default(kind: str) -> None:
    given = {name: GOOD[name] for name in GOOD if name in inspect.signature(KINDS[kind]).parameters}
    for name in given:
        with pytest.raises(TypeError, match=name):
            KINDS[kind](**{key: one for key, one in given.items() if key != name})


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_needs_an_account(kind: str, tmp_path: Path) -> None:
    with (
        Ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises(InvalidParameter, match="account must be given"),
    ):
        made(kind, ledger=ledger).fit(X, Y)


@pytest.mark.parametrize("far", [math.nan, math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_no_numbers_are_refused(kind: str, far: float) -> None:
    rows = X.copy()
    rows[3, 1] = far
    with pytest.raises(InvalidData, match="NaN and infinity"):
        made(kind).fit(rows, Y)
    if "target_bounds" in inspect.signature(KINDS[kind]).parameters:
        with pytest.raises(ValueError, match="NaN"):
            made(kind).fit(X, np.where(Y, far, 0.0))


@pytest.mark.parametrize(
    "kind", [name for name in KINDS if "classes" in inspect.signature(KINDS[name]).parameters]
)
def test_labels_are_of_several_declared_classes(kind: str) -> None:
    with pytest.raises(InvalidData, match="there must be two classes or more"):
        made(kind).fit(X, np.zeros(50))
    with pytest.raises(InvalidData, match="among the declared classes"):
        made(kind, classes=[0, 2]).fit(X, Y)
