"""Support vector machines: accuracy, guarantees, an audit with mutants, bad input."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC as PlainKernel
from sklearn.svm import LinearSVC as Plain
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit.audit.canaries import canary_bound
from tacit.central.estimators import perturbation
from tacit.central.estimators.base import MostlyNoise
from tacit.central.estimators.svm import SVC, LinearSVC
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.guarantees import ApproxDP, PureDP, Unproven
from tacit.privacy.randomness import Seeded

FRESH = "a fit draws fresh noise, so two fits on the same data differ"
EXPECTED = {
    "check_fit_idempotent": FRESH,
    "check_supervised_y_2d": FRESH,
    "check_classifier_data_not_an_array": FRESH,
}
proved = pytest.mark.parametrize("algorithm", ["objective", "output"])
by_delta = pytest.mark.parametrize("delta", [1e-6, 0.0])


def labelled(count: int, seed: int = 0, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = np.clip(generator.normal(size=(count, 5)), -3, 3)
    weights = np.random.default_rng(7).normal(size=(5, classes)) * 1.5
    return X, (X @ weights + generator.gumbel(size=(count, classes))).argmax(axis=1)


def model(kind: Any = LinearSVC, **changes: Any) -> Any:
    return kind(**{"epsilon": 1.0, "bounds": (-3, 3), "rng": Seeded(1), **changes})


@pytest.mark.quick(59)
@parametrize_with_checks(
    [
        LinearSVC(epsilon=300.0, bounds=(-10, 10)),
        SVC(epsilon=300.0, bounds=(-10, 10), n_components=60, gamma=4.0),
    ],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MostlyNoise)  # their data are a few rows
        check(estimator)


@proved
@by_delta
@pytest.mark.parametrize("classes", [2, 3])
def test_accuracy_and_guarantee(algorithm, delta, classes):
    X, y = labelled(12_000, classes=classes)
    fitted = model(algorithm=algorithm, delta=delta, epsilon=4.0).fit(X, y)
    assert fitted.score(X, y) > Plain().fit(X, y).score(X, y) - 0.03
    assert isinstance(fitted.guarantee_, ApproxDP if delta else PureDP)
    assert 3.99 < fitted.guarantee_.epsilon <= 4
    assert fitted.guarantee_ == guarantee_of(fitted.event_, delta or None)
    fitted.certificate_.verify()


def test_the_issue_asks_for_two_points():
    generator = np.random.default_rng(0)
    X = np.clip(generator.normal(size=(50_000, 20)), -3, 3)
    y = generator.random(50_000) < 1 / (1 + np.exp(-X @ generator.normal(size=20)))
    fitted = model().fit(X, y)
    assert fitted.guarantee_.epsilon <= 1
    assert fitted.score(X, y) > Plain().fit(X, y).score(X, y) - 0.02


def test_a_kernel_sees_what_a_line_cannot():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(6000, 2))
    y = (X**2).sum(axis=1) > 0.6
    options = {"bounds": (-1, 1), "epsilon": 2.0}
    kernel = model(SVC, gamma=2.0, n_components=60, **options).fit(X, y)
    plain = PlainKernel(gamma=2.0).fit(X[:2000], y[:2000])
    assert kernel.score(X, y) > plain.score(X, y) - 0.05
    assert model(**options).fit(X, y).score(X, y) < 0.7
    assert kernel.guarantee_.epsilon <= 2
    # The draw of features is public, and differs from fit to fit.
    again = model(SVC, gamma=2.0, n_components=60, rng=Seeded(2), **options).fit(X, y)
    assert not np.array_equal(kernel.features_.directions, again.features_.directions)


def test_features_do_not_depend_on_the_data():
    first, second = (
        model(SVC, epsilon=5.0, n_components=9).fit(*labelled(500, seed)).features_.directions
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", [LinearSVC, SVC])
def test_the_published_dual_perturbation_is_unproven(kind):
    X, y = labelled(300)
    fitted = model(kind, algorithm="dual", epsilon=20.0).fit(X, y)
    assert isinstance(fitted.event_, events.Declared)
    assert isinstance(fitted.guarantee_, Unproven)
    assert "raw data" in fitted.guarantee_.reason
    assert "Nobody knows" in fitted.certificate_.explain()
    assert fitted.score(X, y) > 0.7


def test_noise_of_the_dual_is_drawn():
    X, y = labelled(300)
    quiet, loud = (model(algorithm="dual", epsilon=e).fit(X, y).coef_ for e in (100.0, 0.001))
    again = model(algorithm="dual", epsilon=0.001, rng=Seeded(9)).fit(X, y).coef_
    assert np.linalg.norm(loud - again) > 50 * np.linalg.norm(quiet) / 100
    assert not np.array_equal(loud, again)


# --- audits -------------------------------------------------------------------------------------

RECORDS = np.array([[0.2, -1], [-0.4, 1], [0.1, 1], [-0.2, -1]])  # a column and a label
CANARY = np.array([1.0, 1.0])


def audited(delta: float = 1e-5, **options: Any) -> float:
    stream = Seeded(5)

    def fit(table: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MostlyNoise)
            fitted = LinearSVC(
                **{"epsilon": 1.0, "delta": delta, "bounds": (-1, 1), "norm": 1.0, **options},
                classes=[-1, 1],
                rng=stream,
            ).fit(table[:, :1], table[:, 1])
        return np.concatenate([fitted.coef_.ravel(), fitted.intercept_])

    runs = {"runs": 200, "delta": delta, "confidence": 0.9999}
    return canary_bound(fit, RECORDS, CANARY, **runs).epsilon


@pytest.mark.slow
@proved
@by_delta
def test_a_fit_is_not_refuted(algorithm, delta):
    assert audited(delta and 1e-5, algorithm=algorithm) <= 1


@pytest.mark.slow
@proved
def test_audits_see_something(algorithm):
    assert 0.3 < audited(algorithm=algorithm, epsilon=20.0, alpha=2.0) <= 20


def test_missing_noise_is_refuted(monkeypatch):
    assert audited(algorithm="output") <= 1
    monkeypatch.setattr(
        perturbation, "_noise", lambda law, scale, shape, stream: np.zeros(shape, np.int64)
    )
    assert audited(algorithm="output") > 1


@pytest.mark.slow
def test_a_missing_linear_term_is_refuted(monkeypatch):
    monkeypatch.setattr(perturbation, "_term", lambda law, size, stream: np.zeros(size))
    assert audited(algorithm="objective") > 1


# --- bad input ----------------------------------------------------------------------------------


@proved
def test_odd_data_are_fitted(algorithm):
    X, y = labelled(300)
    X[:, 1] = 2.0
    assert np.isfinite(model(algorithm=algorithm).fit(X, y).coef_).all()
    separable = (X[:, 0] > 0).astype(int)
    assert np.isfinite(model(algorithm=algorithm, epsilon=50.0).fit(X, separable).coef_).all()
    wide, few = np.random.default_rng(0).uniform(-3, 3, size=(8, 40)), np.arange(8) % 2
    with pytest.warns(MostlyNoise):
        assert np.isfinite(model(algorithm=algorithm).fit(wide, few).coef_).all()


@pytest.mark.parametrize("kind", [LinearSVC, SVC])
def test_rows_outside_the_bounds_are_clipped_and_counted(kind):
    X, y = labelled(400)
    far = X.copy()
    far[:7] *= 1e6
    first, second = (model(kind, epsilon=5.0).fit(one, y) for one in (np.clip(far, -3, 3), far))
    assert (first.clipped_, second.clipped_) == (0, 7)
    np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))


def test_an_alpha_too_small_for_the_proof_is_refused():
    with pytest.raises(errors.InvalidParameter, match=r"alpha must be above 0\.58"):
        model(alpha=0.1).fit(*labelled(50))


def test_tiny_epsilon_warns():
    for kind in (LinearSVC, SVC):
        with pytest.warns(MostlyNoise):
            model(kind, epsilon=0.001).fit(*labelled(200))
