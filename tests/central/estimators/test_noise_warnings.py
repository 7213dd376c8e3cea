"""Warnings for the house: where the result is noise, and where δ says little; kept nowhere."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.central import statistics as private_statistics
from tacit.central.estimators import (
    PCA,
    SVC,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    MLPClassifier,
    RandomForestClassifier,
    Ridge,
    StandardScaler,
)
from tacit.central.estimators.base import MostlyNoise
from tacit.central.training.schedule import schedule
from tacit.federated.client_level.plan import plan
from tacit.privacy import errors
from tacit.privacy.errors import InvalidParameter, LargeDelta
from tacit.privacy.mechanisms import DiscreteGaussian, Gaussian
from tacit.privacy.randomness import Seeded

COLUMNS = 8
SCOPE: dict[str, Any] = {"adjacency": "replace-one", "unit": "record"}
KINDS: dict[str, Callable[..., Any]] = {
    **{
        f"logistic {name}": lambda name=name, **given: LogisticRegression(algorithm=name, **given)
        for name in ("objective", "gradient", "functional", "sgd")
    },
    "logistic functional, pure": lambda **given: LogisticRegression(
        **{**given, "algorithm": "functional", "delta": 0}
    ),
    **{
        f"svc {name}": lambda name=name, **given: LinearSVC(algorithm=name, **given)
        for name in ("objective", "output")
    },
    "kernel": lambda **given: SVC(n_components=20, **given),
    **{
        f"{kind.__name__} {name}": lambda kind=kind, name=name, **given: kind(
            algorithm=name, target_bounds=(0, 1), **given
        )
        for kind in (LinearRegression, Ridge)
        for name in ("gradient", "adassp", "functional")
    },
    **{
        f"forest {name}": lambda name=name, **given: RandomForestClassifier(
            algorithm=name, max_depth=3, n_estimators=4, **given
        )
        for name in ("histograms", "random-splits", "dprf")
    },
    "network": lambda **given: MLPClassifier(hidden_layer_sizes=(4,), **given),
    "standard": StandardScaler,
    "components": PCA,
    "clusters": lambda **given: KMeans(2, **given),
}


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.uniform(-1, 1, (n, COLUMNS))
    X[:, 0] = np.where(rng.random(n) < 0.5, -0.9, 0.9)
    return X, (X[:, 0] > 0).astype(int)


def caught(name: str, n: int, epsilon: float) -> tuple[Any, list[type]]:
    model = KINDS[name](epsilon=epsilon, bounds=(-1, 1), rng=Seeded(1))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*data(n))
    return model, [one.category for one in found]


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", KINDS)
def test_hopeless_fits_say_so_and_good_ones_do_not(name: str) -> None:
    _, hopeless = caught(name, 100, 0.02)
    assert MostlyNoise in hopeless
    _, good = caught(name, 6000, 20.0)
    assert MostlyNoise not in good


@pytest.mark.parametrize("columns", [20, 30])
def test_the_functional_mechanism_at_few_records(columns: int) -> None:
    """Its accuracy there is that of a coin, and its matrix is what was hidden."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, columns))
    model = LogisticRegression(epsilon=0.1, bounds=(-1, 1), algorithm="functional")
    with pytest.warns(MostlyNoise):
        model.fit(X, X[:, 0] > 0)


@pytest.mark.parametrize("name", ["logistic functional", "svc objective", "forest histograms"])
def test_warnings_are_kept_nowhere(name: str) -> None:
    model, found = caught(name, 100, 0.02)
    assert MostlyNoise in found
    kept = json.dumps([model.parts()[0], model.certificate_.to_json()], default=str)
    assert "noise that this" not in kept
    assert "MostlyNoise" not in kept
    assert not any(isinstance(value, Warning) for value in vars(model).values())


# --- δ ----------------------------------------------------------------------------------------


def test_a_delta_that_lets_a_record_out_is_warned_of() -> None:
    X, y = data(200)
    given: dict[str, Any] = {"epsilon": 50.0, "bounds": (-1, 1), "rng": Seeded(1)}
    with pytest.warns(LargeDelta, match="number of records"):
        model = LogisticRegression(delta=0.4, **given).fit(X, y)
    assert "should be far below" not in json.dumps(model.certificate_.to_json())
    with warnings.catch_warnings():
        warnings.simplefilter("error", LargeDelta)
        LogisticRegression(delta=1 / 201, **given).fit(X, y)


def test_the_number_of_records_is_not_said() -> None:
    # Where one record more or less is hidden the words do not tell which it was.
    with pytest.warns(LargeDelta) as found:
        errors.delta_in_range("x", 0.01, records=1234)
    assert "1234" not in str(found[0].message)


@pytest.mark.parametrize("delta", [0.5, 0.75, 1.0])
def test_a_delta_that_means_nothing_is_refused(delta: float) -> None:
    X, y = data(200)
    calls: list[Callable[[], Any]] = [
        lambda: LogisticRegression(epsilon=1.0, delta=delta, bounds=(-1, 1)).fit(X, y),
        lambda: KMeans(2, epsilon=1.0, delta=delta, bounds=(-1, 1)).fit(X),
        lambda: private_statistics.vector_sum(X, 1.0, epsilon=1.0, delta=delta),
        lambda: Gaussian(epsilon=1.0, delta=delta, sensitivity=1, **SCOPE),
        lambda: DiscreteGaussian(epsilon=1.0, delta=delta, sensitivity=1, **SCOPE),
        lambda: plan(100, cohort=10, epsilon=1.0, delta=delta, rounds=1),
        lambda: schedule(
            records=100,
            epsilon=1.0,
            delta=delta,
            batch_size=10,
            epochs=1,
            steps=None,
            noise_multiplier=None,
            accountant="pld",
        ),
    ]
    for call in calls:
        with pytest.raises(InvalidParameter, match="delta must be"):
            call()


@pytest.mark.heavy
def test_training_and_clients_are_warned_too() -> None:
    with pytest.warns(LargeDelta, match="train"):
        schedule(
            records=100,
            epsilon=1.0,
            delta=0.01,
            batch_size=10,
            epochs=1,
            steps=None,
            noise_multiplier=None,
            accountant="pld",
        )
    with pytest.warns(LargeDelta, match="ClientPrivacy"):
        plan(100, cohort=10, epsilon=1.0, delta=0.01, rounds=1)
