"""Scalers, components and clusters: scikit-learn's names, what ran, and what a pipeline costs."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import decomposition, preprocessing
from sklearn.pipeline import make_pipeline

from tacit.audit.canaries import canary_bound
from tacit.central.estimators import scalers
from tacit.central.estimators.base import MostlyNoise
from tacit.central.estimators.linear import LinearRegression
from tacit.central.estimators.scalers import MinMaxScaler, StandardScaler
from tacit.central.estimators.unsupervised import PCA, KMeans
from tacit.central.statistics import moments
from tacit.central.statistics import rows as rows_module
from tacit.central.statistics.released import Spending
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidParameter
from tacit.privacy.events import Composed
from tacit.privacy.gaussian import noise_multiplier_for
from tacit.privacy.guarantees import Adjacency, ApproxDP, Unit
from tacit.privacy.randomness import Seeded

SHELLS: dict[str, Any] = {
    "standard": lambda **options: StandardScaler(**options),
    "range": lambda **options: MinMaxScaler(**options),
    "components": lambda **options: PCA(2, **options),
    "clusters": lambda **options: KMeans(2, **options),
}
"""Each with what it must be given beside ε and bounds."""


def made_up(n: int = 20_000, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.clip(generator.normal([1, -1, 0], [0.5, 1, 0.2], (n, 3)), -5, 5)


# --- what ran -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("epsilon", [0.3, 4])
def test_the_guarantee_is_what_was_asked_for(name: str, epsilon: float) -> None:
    shell = SHELLS[name](epsilon=epsilon, bounds=(-5, 5), rng=Seeded(1)).fit(made_up())
    promise = shell.guarantee_
    assert isinstance(promise, ApproxDP)
    assert 0.98 * epsilon <= promise.epsilon <= epsilon * (1 + 1e-9)
    assert shell.event_ == shell._event(3, 3)
    assert shell.certificate_.guarantee == promise
    assert shell.certificate_.seeded


@pytest.mark.parametrize("name", SHELLS)
def test_the_ledger_is_charged_first_or_refuses(name: str, tmp_path: Path) -> None:
    budget = ApproxDP(1.5, 1e-5, adjacency=Adjacency.ADD_REMOVE, unit=Unit.RECORD)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("study", budget)
        first = SHELLS[name](epsilon=1, bounds=(-5, 5), ledger=ledger, account="study")
        first.fit(made_up())
        second = SHELLS[name](epsilon=1, bounds=(-5, 5), ledger=ledger, account="study")
        with pytest.raises(BudgetExceeded):
            second.fit(made_up())
        (charge,) = ledger.show("study").charges
    assert charge.event == first.event_
    assert not hasattr(second, "clipped_")


NUMBERS = st.one_of(st.floats(-6, 6, width=32), st.sampled_from([0.0, 5.0, -5.0, 1e30]))


@given(hnp.arrays(np.float64, (4, 3), elements=NUMBERS), st.sampled_from(sorted(SHELLS)))
@settings(max_examples=40, deadline=None)
@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
def test_all_parts_together_are_within_the_multiplier(rows: np.ndarray, name: str) -> None:
    """By brute force: one record less, before noise, over the deviations that were drawn with."""
    spent = changes(name, rows, rows[:-1])
    assert spent <= 1 / noise_multiplier_for(1.0, 1e-6) ** 2 * (1 + 1e-9)


def changes(name: str, more: np.ndarray, less: np.ndarray) -> float:
    """The sum over all parts of squared changes over squared deviations.

    What follows a released part would see other numbers: clusters take one step, from a start that
    is given.
    """
    options = {"init": np.eye(2, 3), "max_iter": 1} if name == "clusters" else {}
    shell = SHELLS[name](epsilon=1, bounds=(-5, 5), **options)
    pairs = zip(*(before_noise(shell, rows) for rows in (more, less)), strict=True)
    return sum(float(((a - b) ** 2).sum()) / sigma**2 for (a, sigma), (b, _) in pairs)


def before_noise(shell: Any, rows: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """What noise is added to, and its deviation; products with √2 off the diagonal, as proved."""
    parts: list[tuple[np.ndarray, float]] = []
    products: list[np.ndarray] = []
    sum_products = rows_module.Ball.products

    def add(self: Spending, values: Any, sensitivity: int, share: Any = 1) -> Any:
        sigma = self.sigma(sensitivity, share)
        parts.append((np.array(values, dtype=np.float64).ravel(), float(sigma)))
        self.charge(sensitivity, sigma, share)
        return values

    def recorded(self: Any, array: Any) -> Any:
        total, count = sum_products(self, array)
        products.append(total)
        return total, count

    def noise(spending: Spending, sensitivity: int, share: Any, dimension: int) -> Any:
        sigma = spending.sigma(sensitivity, share)
        spending.charge(sensitivity, sigma, share)
        weights = np.triu(np.full((dimension, dimension), math.sqrt(2)), 1) + np.eye(dimension)
        parts.append(((products[-1] * weights).ravel(), float(sigma)))
        return np.zeros((dimension, dimension), dtype=np.int64)

    box = shell._box(rows.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spending, "add", add)
        patch.setattr(rows_module.Ball, "products", recorded)
        patch.setattr(moments, "symmetric_noise", noise)
        shell._release(box.clip(rows)[0], box, Seeded(1))
    return parts


def test_the_multiplier_is_used_up() -> None:
    """Else noise is wasted, and the check above would pass whatever the rows."""
    corner = np.array([[-5.0, -5.0, -5.0]])
    for name in ("standard", "range", "components"):
        assert changes(name, corner, corner[:0]) >= 0.99 / noise_multiplier_for(1.0, 1e-6) ** 2


# --- an audit of a fit, and mutants ---------------------------------------------------------------

DELTA, CONFIDENCE = 0.05, 0.999


def audited(fit: Any) -> float:
    others, canary = np.full((20, 3), -1.0), np.full(3, 1.0)
    bound = canary_bound(fit, others, canary, runs=250, delta=DELTA, confidence=CONFIDENCE)
    assert bound.certifiable > 1.5
    return bound.epsilon


def scaled(rng: Seeded, bounds: Any) -> Any:
    def fit(rows: np.ndarray) -> np.ndarray:
        box = bounds(rows)
        scaler = StandardScaler(epsilon=1, bounds=box, delta=DELTA, rng=rng).fit(rows)
        return np.concatenate([scaler.mean_, scaler.scale_, [scaler.n_samples_seen_]])

    return fit


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
def test_an_audit_refutes_bounds_that_are_read_off_the_rows() -> None:
    assert audited(scaled(Seeded(1), lambda rows: (-1, 1))) <= 1
    read = scaled(Seeded(1), lambda rows: (float(rows.min()) - 0.01, float(rows.max()) + 0.01))
    assert audited(read) > 1


@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
def test_an_audit_refutes_a_block_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Spending.add

    def without_count(self: Spending, values: Any, *arguments: Any) -> Any:
        noisy = add(self, values, *arguments)
        return values if values.size == 1 else noisy

    monkeypatch.setattr(Spending, "add", without_count)
    assert audited(scaled(Seeded(1), lambda rows: (-1, 1))) > 1


def test_a_mutant_that_gives_every_column_the_whole_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scalers, "root_above", lambda number: Fraction(math.sqrt(number / 3)))
    mutant = MinMaxScaler(epsilon=1, bounds=(-5, 5)).fit(made_up())
    assert mutant.guarantee_.epsilon > 1.5  # type: ignore[attr-defined]


# --- what comes out -------------------------------------------------------------------------------


def test_standard_scaler() -> None:
    X = made_up()
    scaler = StandardScaler(epsilon=1, bounds=(-5, 5), rng=Seeded(1)).fit(X)
    plain = preprocessing.StandardScaler().fit(X)
    assert scaler.mean_ == pytest.approx(plain.mean_, abs=0.02)
    assert scaler.scale_ == pytest.approx(plain.scale_, abs=0.05)
    assert scaler.transform(X).std(axis=0) == pytest.approx(1, abs=0.3)
    assert scaler.inverse_transform(scaler.transform(X)) == pytest.approx(X, abs=1e-9)
    assert scaler.transform([[100.0, 0, 0]])[0, 0] == scaler.transform([[5.0, 0, 0]])[0, 0]
    only = StandardScaler(epsilon=1, bounds=(-5, 5), with_mean=False, rng=Seeded(1)).fit(X)
    assert only.transform(X) == pytest.approx(X / only.scale_)


def test_min_max_scaler() -> None:
    X = made_up()
    scaler = MinMaxScaler(epsilon=1, bounds=(-5, 5), feature_range=(-2, 2), rng=Seeded(1)).fit(X)
    low, high = np.quantile(X, [0.01, 0.99], axis=0)
    assert scaler.data_min_ == pytest.approx(low, abs=0.1)
    assert scaler.data_max_ == pytest.approx(high, abs=0.1)
    new = scaler.transform(np.concatenate([X, [[1e9, -1e9, 0]]]))
    assert new.min() == -2
    assert new.max() == 2
    middle = X[((low + 0.2 < X) & (high - 0.2 > X)).all(axis=1)]
    assert scaler.inverse_transform(scaler.transform(middle)) == pytest.approx(middle, abs=1e-9)


def test_components() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(0, [3.0, 1.0, 0.1, 0.1], (20_000, 4)) @ decomposition.PCA().fit(
        generator.normal(size=(50, 4))
    ).components_ + [1.0, 0.0, 0.0, 0.0]
    found = PCA(2, epsilon=1, bounds=(-12, 12), rng=Seeded(1)).fit(X)
    plain = decomposition.PCA(2).fit(X)
    assert np.abs((found.components_ * plain.components_).sum(axis=1)) == pytest.approx(1, abs=0.02)
    assert found.explained_variance_ == pytest.approx(plain.explained_variance_, rel=0.2)
    assert found.mean_ == pytest.approx(plain.mean_, abs=0.2)
    assert found.noise_variance_ < found.explained_variance_[1]
    assert found.transform(X).shape == (len(X), 2)
    assert found.inverse_transform(found.transform(X)) == pytest.approx(X, abs=1.0)
    assert list(found.get_feature_names_out()) == ["pca0", "pca1"]


def test_clusters() -> None:
    generator = np.random.default_rng(1)
    centers = np.array([[3.0, 3.0], [-3.0, 0.0], [2.0, -3.0]])
    X = centers[generator.integers(0, 3, 9000)] + generator.normal(0, 0.4, (9000, 2))
    found = KMeans(3, epsilon=2, bounds=(-5, 5), rng=Seeded(1)).fit(X)
    nearest = np.abs(found.cluster_centers_[:, None] - centers).max(axis=2).min(axis=1)
    assert nearest.max() < 0.3
    assert not hasattr(found, "labels_")
    assert np.array_equal(found.predict(X), found.transform(X).argmin(axis=1))
    again = KMeans(3, epsilon=2, bounds=(-5, 5), rng=Seeded(1)).fit_predict(X)
    assert np.array_equal(again, found.predict(X))


def test_a_pipeline_costs_what_its_steps_cost_together() -> None:
    generator = np.random.default_rng(2)
    X = generator.normal([20, 0.0, 300], [5, 0.1, 80], (30_000, 3))
    y = X @ [0.1, 3.0, 0.01] + generator.normal(0, 0.1, 30_000)
    bounds = (np.array([0, -1, 0]), np.array([50, 1, 700]))
    model = make_pipeline(
        MinMaxScaler(epsilon=0.4, bounds=bounds, feature_range=(-1, 1), rng=Seeded(1)),
        PCA(epsilon=0.3, bounds=(-1, 1), rng=Seeded(2)),
        LinearRegression(epsilon=0.5, bounds=(-2, 2), target_bounds=(0, 12), rng=Seeded(3)),
    ).fit(X, y)
    assert model.score(X, y) > 0.9
    events = tuple(step.event_ for step in model)
    total = guarantee_of(Composed(events), 1e-6)
    assert isinstance(total, ApproxDP)
    # More than the largest, less than the sum: Gaussians add up by squares.
    assert 0.5 < total.epsilon < 0.4 + 0.3 + 0.5


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(
    "X",
    [np.full((200, 3), 0.7), np.zeros((2, 3)), np.full((5, 3), 1e300), np.eye(2, 3)],
    ids=["constant", "zeros", "far outside", "n < d"],
)
def test_a_fit_is_finite(name: str, X: np.ndarray) -> None:
    shell = SHELLS[name](epsilon=1, bounds=(-1, 1), rng=Seeded(1)).fit(X)
    assert np.isfinite(shell.transform(np.clip(X, -1, 1))).all()
    assert shell.clipped_ == int((np.abs(X) > 1).any(axis=1).sum())


@pytest.mark.parametrize("name", SHELLS)
def test_rows_outside_are_held_and_set_nothing(name: str) -> None:
    X = made_up()
    X[:4, 0] = 1e6
    raw = SHELLS[name](epsilon=1, bounds=(-5, 5), rng=Seeded(1)).fit(X)
    held = SHELLS[name](epsilon=1, bounds=(-5, 5), rng=Seeded(1)).fit(np.clip(X, -5, 5))
    assert (raw.clipped_, held.clipped_) == (4, 0)
    inside = X[10:20]
    assert np.array_equal(raw.transform(inside), held.transform(inside))


@pytest.mark.parametrize("name", ["standard", "components", "clusters"])
def test_noise_alone_is_said(name: str) -> None:
    with pytest.warns(MostlyNoise, match="the result is noise"):
        SHELLS[name](epsilon=0.01, bounds=(-5, 5), rng=Seeded(1)).fit(made_up(100))


@pytest.mark.parametrize(
    ("shell", "says"),
    [
        (StandardScaler(epsilon=1, bounds=(0, 1), delta=0), r"delta must be in \(0, 1\)"),
        (PCA(4, epsilon=1, bounds=(0, 1)), "n_components must be an integer from 1 to 3"),
    ],
)
def test_what_is_refused(shell: Any, says: str) -> None:
    with pytest.raises(InvalidParameter, match=says):
        shell.fit(made_up(50))
