"""Logistic regression: accuracy, sums that noise is added to, audits with mutants, bad input."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit.audit.canaries import canary_bound
from tacit.central.estimators import perturbation, softmax, taylor
from tacit.central.estimators.base import MostlyNoise
from tacit.central.estimators.logistic import LogisticRegression
from tacit.central.estimators.softmax import NoisyDescent
from tacit.central.estimators.taylor import Functional
from tacit.central.estimators.whole import whole
from tacit.central.statistics.released import Spending
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP, PureDP
from tacit.privacy.randomness import Seeded

QUICK = ["objective", "gradient", "functional"]
by_algorithm = pytest.mark.parametrize("algorithm", QUICK)
PURE = [("objective", 0.0), ("functional", 0.0)]
settings = pytest.mark.parametrize(("algorithm", "delta"), [(a, 1e-6) for a in QUICK] + PURE)

FRESH = "a fit draws fresh noise, so two fits on the same data differ"
EXPECTED = {
    "check_fit_idempotent": FRESH,
    "check_supervised_y_2d": FRESH,
    "check_classifier_data_not_an_array": FRESH,
}


def labelled(count: int, seed: int = 0, columns: int = 5, classes: int = 2):
    generator = np.random.default_rng(seed)
    X = np.clip(generator.normal(size=(count, columns)), -3, 3)
    weights = np.random.default_rng(7).normal(size=(columns, classes)) * 1.5
    return X, (X @ weights + generator.gumbel(size=(count, classes))).argmax(axis=1)


def model(**changes: Any) -> LogisticRegression:
    return LogisticRegression(**{"epsilon": 1.0, "bounds": (-3, 3), "rng": Seeded(1), **changes})


@pytest.mark.quick(42)
@parametrize_with_checks(
    [LogisticRegression(epsilon=300.0, bounds=(-10, 10), algorithm=one) for one in QUICK],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MostlyNoise)  # their data are a few rows
        check(estimator)


# --- what it learns -----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4])
@settings
def test_accuracy(algorithm, delta, classes):
    X, y = labelled(12_000, classes=classes)
    X_new, y_new = labelled(4_000, seed=1, classes=classes)
    plain = Plain().fit(X, y).score(X_new, y_new)
    fitted = model(algorithm=algorithm, delta=delta, epsilon=4.0).fit(X, y)
    assert fitted.score(X_new, y_new) > plain - 0.03
    assert fitted.coef_.shape == (1 if classes == 2 else 4, 5)
    assert fitted.intercept_.shape == (1 if classes == 2 else 4,)
    np.testing.assert_allclose(fitted.predict_proba(X_new).sum(axis=1), 1)
    chosen = fitted.classes_[fitted.predict_proba(X_new).argmax(axis=1)]
    np.testing.assert_array_equal(chosen, fitted.predict(X_new))


def test_the_issue_asks_for_one_point():
    generator = np.random.default_rng(0)
    X = np.clip(generator.normal(size=(50_000, 20)), -3, 3)
    chance = 1 / (1 + np.exp(-X @ generator.normal(size=20)))
    y = generator.random(50_000) < chance
    fitted = model(delta=1e-6).fit(X, y)
    assert fitted.guarantee_.epsilon <= 1
    assert fitted.score(X, y) > Plain().fit(X, y).score(X, y) - 0.01


def test_coefficients_are_in_the_units_of_the_columns():
    X, y = labelled(20_000)
    lower, upper = np.full(5, -3.0), np.full(5, 3.0)
    first = model(epsilon=50.0, bounds=(lower, upper)).fit(X, y)
    moved = X * [1, 10, 0.1, 1, 1] + [5, 0, 0, -9, 0]
    bounds = (
        lower * [1, 10, 0.1, 1, 1] + [5, 0, 0, -9, 0],
        upper * [1, 10, 0.1, 1, 1] + [5, 0, 0, -9, 0],
    )
    second = model(epsilon=50.0, bounds=bounds).fit(moved, y)
    np.testing.assert_allclose(second.coef_ * [1, 10, 0.1, 1, 1], first.coef_, rtol=1e-6)
    np.testing.assert_allclose(
        second.decision_function(moved), first.decision_function(X), rtol=1e-6
    )
    plain = Plain(C=1e3).fit(X, y)
    assert np.linalg.norm(first.coef_ - plain.coef_) < 0.15 * np.linalg.norm(plain.coef_)


def test_without_an_intercept():
    X, y = labelled(5_000)
    fitted = model(fit_intercept=False, bounds=(np.full(5, -3.0), np.full(5, 4.0))).fit(X, y)
    assert fitted.intercept_ == 0
    assert fitted.score(X, y) > Plain(fit_intercept=False).fit(X, y).score(X, y) - 0.02


# --- what it promises ---------------------------------------------------------------------------


@settings
@pytest.mark.parametrize("classes", [2, 3])
def test_guarantee_event_and_certificate(algorithm, delta, classes):
    X, y = labelled(400, classes=classes)
    fitted = model(algorithm=algorithm, delta=delta).fit(X, y)
    kind = ApproxDP if delta else PureDP
    assert isinstance(fitted.guarantee_, kind)
    assert 0.99 < fitted.guarantee_.epsilon <= 1
    assert fitted.guarantee_ == guarantee_of(fitted.event_, delta or None)
    fitted.certificate_.verify()
    assert fitted.certificate_.seeded
    assert any("classes was read off" in one for one in fitted.certificate_.assumptions)
    named = clone(fitted).set_params(classes=range(classes)).fit(X, y)
    assert not any("classes was read off" in one for one in named.certificate_.assumptions)


@pytest.mark.slow
def test_sgd_says_what_it_assumes():
    X, y = labelled(600)
    fitted = model(algorithm="sgd", steps=20).fit(X, y)
    assert fitted.score(X, y) > 0.8
    assert isinstance(fitted.event_, events.Repeated)
    assert fitted.guarantee_.epsilon <= 1
    assert any("floating-point" in one for one in fitted.certificate_.assumptions)
    assert any("How many records" in one for one in fitted.certificate_.not_protected)


@by_algorithm
def test_the_event_depends_on_shapes_alone(algorithm):
    events_of = set()
    for seed in range(3):
        X, y = labelled(300, seed)
        events_of.add(model(algorithm=algorithm, classes=[0, 1]).fit(X * (seed + 1), y).event_)
        events_of.add(model(algorithm=algorithm, classes=[0, 1]).fit(X[:100], y[:100]).event_)
    assert len(events_of) == 1


@pytest.mark.parametrize("algorithm", [*QUICK, pytest.param("sgd", marks=pytest.mark.slow)])
def test_the_ledger_is_charged_first(algorithm, tmp_path, monkeypatch):
    X, y = labelled(300)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("rows", ApproxDP(epsilon=1.5, delta=1e-5, adjacency="zero-out", unit="record"))
        fitted = model(algorithm=algorithm, ledger=ledger, account="rows", steps=3)
        fitted.fit(X, y)
        read = []
        monkeypatch.setattr(
            "tacit.central.estimators.scores.RowScaling.rows",
            lambda self, X: read.append(X) or (X, 0),
        )
        with pytest.raises(errors.BudgetExceeded):
            fitted.fit(X, y)
        assert not read
        with pytest.raises(errors.InvalidParameter, match="account must be given"):
            model(ledger=ledger).fit(X, y)


# --- sensitivity, by brute force ------------------------------------------------------------------


def released(run: Callable[[], Any]) -> list[tuple[np.ndarray, int]]:
    """The whole numbers that noise is added to, and their sensitivity."""
    parts: list[tuple[np.ndarray, int]] = []

    def add(self: Spending, values: Any, sensitivity: int, share: Any = 1) -> Any:
        parts.append((np.array(values), sensitivity))
        self.charge(sensitivity, self.sigma(sensitivity, share), share)
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spending, "add", add)
        patch.setattr(Spending, "draw", lambda self, sigma, shape: np.zeros(shape, np.int64))
        run()
    return parts


@pytest.mark.parametrize("scores", [1, 3])
def test_one_record_moves_gradients_by_their_sensitivity_at_most(scores):
    generator = np.random.default_rng(0)
    worst = 0.0
    solver = NoisyDescent("test", 3, scores, 1.0, 1e-6, None, 3, "record")
    for _ in range(40):
        rows = generator.normal(size=(6, 3))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0) * (1 + 2.0**-40)
        rows, codes = whole(rows), generator.integers(0, max(scores, 2), 6)
        theta = softmax._on_grid(
            generator.normal(size=(scores, 3)) * generator.choice([1, 50, 1e5])
        )
        full = solver.gradient(rows, codes, theta)
        for out in range(6):
            less = solver.gradient(np.delete(rows, out, 0), np.delete(codes, out), theta)
            worst = max(worst, float(np.linalg.norm((full - less).astype(float))))
    assert 0.9 * solver.sensitivity < worst <= solver.sensitivity


@pytest.mark.parametrize("scores", [1, 3, 17])
def test_what_a_record_adds_to_a_gradient_depends_on_it_alone(scores):
    """To the last digit, wherever it stands: else one record more would move all the others."""
    generator = np.random.default_rng(scores)
    solver = NoisyDescent("test", 9, scores, 1.0, 1e-6, None, 3, "record")
    rows = generator.normal(size=(2500, 9))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0) * (1 + 2.0**-40)
    rows, codes = whole(rows), generator.integers(0, max(scores, 2), 2500)
    theta = softmax._on_grid(generator.normal(size=(scores, 9)) * 20)
    alone = [solver.gradient(rows[i : i + 1], codes[i : i + 1], theta) for i in range(len(rows))]
    np.testing.assert_array_equal(sum(alone), solver.gradient(rows, codes, theta))


@pytest.mark.parametrize("scores", [1, 3])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_one_record_moves_the_polynomial_by_its_sensitivity_at_most(scores, delta):
    generator = np.random.default_rng(0)
    solver = Functional("test", 4, scores, 1.0, delta, None, "record")
    worst = np.zeros(2)
    for trial in range(60):
        rows = generator.normal(size=(5, 4)) if trial else np.ones((5, 4))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0) * (1 + 2.0**-40)
        rows, codes = whole(rows), generator.integers(0, max(scores, 2), 5)
        for out in range(5):
            less = np.delete(rows, out, 0)
            moved = (taylor.gram(rows) - taylor.gram(less)).astype(float)
            vector = solver.vectors(rows, codes) - solver.vectors(less, np.delete(codes, out))
            upper = moved[np.triu_indices(4, 1)]
            if delta:
                square = (np.diag(moved) ** 2).sum() + 2 * (upper**2).sum()
                norms = (np.sqrt(square), np.linalg.norm(vector.astype(float)))
            else:
                norms = (np.abs(np.diag(moved)).sum() + np.abs(upper).sum(), np.abs(vector).sum())
            worst = np.maximum(worst, np.array(norms) / solver._sensitivities)
    assert (worst <= 1).all()
    assert (worst > 0.95).all()


def test_what_ran_adds_up_to_the_budget():
    X, y = labelled(500, classes=3)
    parts = released(lambda: model(algorithm="gradient", steps=4).fit(X, y))
    assert len(parts) == 4
    parts = released(lambda: model(algorithm="functional").fit(X, y))
    assert len(parts) == 1  # the matrix has noise of its own shape


# --- audits of whole fits, and mutants ------------------------------------------------------------

RECORDS = np.array([[0.2, -1], [-0.4, 1], [0.1, 1], [-0.2, -1]])  # a column and a label
CANARY = np.array([1.0, 1.0])
CONFIDENCE, RUNS = 0.9999, 200


def fitting(epsilon: float = 1.0, delta: float = 1e-5, bounds: Any = (-1, 1), **options: Any):
    stream = Seeded(5)

    def fit(table: np.ndarray) -> np.ndarray:
        at = bounds(table[:, :1]) if callable(bounds) else bounds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MostlyNoise)
            fitted = LogisticRegression(
                epsilon=epsilon,
                delta=delta,
                bounds=at,
                classes=[-1, 1],
                norm=1,
                rng=stream,
                **options,
            ).fit(table[:, :1], table[:, 1])
        return np.concatenate([fitted.coef_.ravel(), fitted.intercept_])

    return fit


def audited(fit: Any, delta: float = 1e-5) -> float:
    return canary_bound(fit, RECORDS, CANARY, runs=RUNS, delta=delta, confidence=CONFIDENCE).epsilon


@pytest.mark.slow
@settings
def test_a_fit_is_not_refuted(algorithm, delta):
    assert audited(fitting(algorithm=algorithm, delta=delta and 1e-5), delta and 1e-5) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["objective", "gradient"])
def test_audits_see_something(algorithm):
    """Where ε is large, so is what they find: else not being refuted would be worth nothing."""
    found = audited(fitting(algorithm=algorithm, epsilon=40.0, alpha=1.0))
    assert 0.5 < found <= 40


@pytest.mark.heavy
def test_a_missing_linear_term_is_refuted(monkeypatch):
    assert audited(fitting(algorithm="objective")) <= 1
    monkeypatch.setattr(perturbation, "_term", lambda law, size, stream: np.zeros(size))
    assert audited(fitting(algorithm="objective")) > 1


@pytest.mark.slow
@pytest.mark.parametrize("block", ["matrix", "vectors"])
def test_a_block_without_noise_is_refuted(block, monkeypatch):
    if block == "vectors":
        add = lambda self, values, sensitivity, share=1: (  # noqa: E731
            self.charge(sensitivity, self.sigma(sensitivity, share), share) or values
        )
        monkeypatch.setattr(Spending, "add", add)
    else:
        zeros = lambda spending, sensitivity, share, size: (  # noqa: E731
            spending.charge(sensitivity, spending.sigma(sensitivity, share), share)
            or np.zeros((size, size), np.int64)
        )
        monkeypatch.setattr(taylor, "symmetric_noise", zeros)
        # With vectors of almost no noise the matrix shows: its own noise is what must hide it.
        monkeypatch.setattr(Functional, "vectors", lambda self, rows, codes: np.full((1, 2), 10**9))
    assert audited(fitting(algorithm="functional")) > 1


@pytest.mark.slow
def test_gradients_without_noise_are_refuted(monkeypatch):
    add = lambda self, values, sensitivity, share=1: (  # noqa: E731
        self.charge(sensitivity, self.sigma(sensitivity, share), share) or values
    )
    monkeypatch.setattr(Spending, "add", add)
    assert audited(fitting(algorithm="gradient")) > 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["objective", "functional"])
def test_bounds_read_off_the_data_are_refuted(algorithm):
    read = lambda rows: (rows.min(axis=0), rows.max(axis=0))  # noqa: E731
    outlier = np.array([5000.0, 1.0])
    fit = fitting(algorithm=algorithm, bounds=read)
    found = canary_bound(fit, RECORDS, outlier, runs=RUNS, delta=1e-5, confidence=CONFIDENCE)
    assert found.epsilon > 1
    public = fitting(algorithm=algorithm)
    found = canary_bound(public, RECORDS, outlier, runs=RUNS, delta=1e-5, confidence=CONFIDENCE)
    assert found.epsilon <= 1


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", QUICK)
def test_odd_data_are_fitted(algorithm):
    X, y = labelled(200)
    X[:, 1] = 2.0
    assert np.isfinite(model(algorithm=algorithm).fit(X, y).coef_).all()
    separable = (X[:, 0] > 0).astype(int)
    assert np.isfinite(model(algorithm=algorithm, epsilon=50.0).fit(X, separable).coef_).all()
    wide, few = np.random.default_rng(0).uniform(-3, 3, size=(10, 40)), np.arange(10) % 2
    with pytest.warns(MostlyNoise):
        assert np.isfinite(model(algorithm=algorithm).fit(wide, few).coef_).all()


def test_rows_outside_the_bounds_are_clipped_and_counted():
    X, y = labelled(300)
    far = X.copy()
    far[:7] *= 1e6
    first = model().fit(np.clip(far, -3, 3), y)
    second = model().fit(far, y)
    assert (first.clipped_, second.clipped_) == (0, 7)
    np.testing.assert_array_equal(first.coef_, second.coef_)


def test_refusals():
    X, y = labelled(50)
    for far in (np.nan, np.inf):
        with pytest.raises(errors.InvalidData, match="NaN and infinity") as caught:
            model().fit(np.where(X > 2, far, X), y)
        assert "chosen without looking at the records" in str(caught.value)
        assert "HistGradientBoosting" not in str(caught.value)  # which is not private
    words = np.array(["no", "yes"], dtype=object)[y.astype(int)]
    words[3] = None
    with pytest.raises(errors.InvalidData, match="missing labels a class of their own"):
        model().fit(X, words)
    for algorithm in ("gradient", "sgd"):
        with pytest.raises(errors.InvalidParameter, match=f"delta must be above 0 for {algorithm}"):
            model(delta=0, algorithm=algorithm).fit(X, y)


def test_one_class_among_declared_ones():
    X, _ = labelled(100)
    fitted = model(classes=["no", "yes"]).fit(X, np.full(100, "yes"))
    assert (fitted.predict(X) == "yes").mean() > 0.9


def test_tiny_epsilon_warns():
    X, y = labelled(200)
    for algorithm in QUICK:
        with pytest.warns(MostlyNoise, match="the result is noise"):
            model(epsilon=0.001, algorithm=algorithm).fit(X, y)


def test_many_classes_and_text():
    X, y = make_classification(
        4000, n_features=6, n_informative=6, n_redundant=0, n_classes=6, n_clusters_per_class=1,
        class_sep=2.0, random_state=0,
    )  # fmt: skip
    names = np.array(list("abcdef"))[y]
    fitted = model(epsilon=3.0, bounds=(-8, 8)).fit(X, names)
    assert fitted.score(X, names) > 0.6
    assert fitted.predict(X[:3]).dtype == names.dtype
