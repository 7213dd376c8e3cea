"""scikit-learn's own checks of estimators, and the few that a private one must fail, with reasons.

A budget of hundreds of ε leaves next to no noise: what is checked here are conventions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit.central.estimators.linear import LinearRegression, Ridge
from tacit.central.estimators.mlp import MLPClassifier, MLPRegressor
from tacit.central.estimators.scalers import MinMaxScaler, StandardScaler
from tacit.central.estimators.unsupervised import PCA, KMeans


class Restarting:
    """The same words at every call: two fits are then the same, as scikit-learn wants them."""

    secure = False

    def words(self, count: int) -> np.ndarray:
        return np.random.default_rng(count).integers(0, 2**64, count, dtype=np.uint64)

    def __repr__(self) -> str:
        return "Restarting()"


WIDE: dict[str, Any] = {"epsilon": 600.0, "bounds": (-5.0, 5.0), "rng": Restarting()}
TARGET: dict[str, Any] = {**WIDE, "target_bounds": (-5.0, 5.0)}
SMALL: dict[str, Any] = {"hidden_layer_sizes": (20,), "epochs": 40}

ESTIMATORS: dict[Any, dict[str, str]] = {
    LinearRegression(**TARGET): {},
    LinearRegression(**TARGET, algorithm="adassp"): {},
    LinearRegression(**TARGET, algorithm="functional"): {},
    Ridge(**TARGET): {},
    MLPClassifier(**WIDE, **SMALL): {},
    MLPRegressor(**TARGET, **SMALL): {},
    StandardScaler(**WIDE): {},
    MinMaxScaler(**WIDE): {},
    PCA(**WIDE): {},
    KMeans(3, **WIDE): {
        "check_clustering": "no labels_: clusters of the records are as raw as the records",
    },
}
"""Each with the checks that it fails on purpose, and why. Others add theirs here."""


def _expected(estimator: Any) -> dict[str, str]:
    shown = repr(estimator)
    return next(reasons for known, reasons in ESTIMATORS.items() if repr(known) == shown)


@pytest.mark.quick(37)
@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
@parametrize_with_checks(list(ESTIMATORS), expected_failed_checks=_expected)
def test_conventions(estimator: Any, check: Any) -> None:
    check(estimator)
