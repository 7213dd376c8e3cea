"""A hostile reader's attacks on the estimators: what broke and was mended, and what held."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from tacit.audit.canaries import canary_bound
from tacit.central.estimators import base, scalers, softmax
from tacit.central.estimators.base import Box
from tacit.central.estimators.classifier import READ_CLASSES, UNSOLVED
from tacit.central.estimators.forest.classifier import RandomForestClassifier
from tacit.central.estimators.fourier import Fourier
from tacit.central.estimators.linear import LinearRegression
from tacit.central.estimators.logistic import LogisticRegression
from tacit.central.estimators.losses import BLOCK, Logistic, PenalizedObjective
from tacit.central.estimators.scalers import MinMaxScaler, StandardScaler
from tacit.central.estimators.scores import RowScaling
from tacit.central.estimators.softmax import NoisyDescent
from tacit.central.estimators.svm import SVC, LinearSVC
from tacit.central.estimators.unsupervised import PCA, KMeans
from tacit.central.statistics import moments
from tacit.central.statistics.released import Spending
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidData, InvalidParameter, TacitError
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Seeded

pytestmark = pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")

SCOPE: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}
KINDS: dict[str, Callable[..., Any]] = {
    "linear": lambda **given: LinearRegression(target_bounds=(-1, 1), **given),
    "logistic": LogisticRegression,
    "objective": lambda **given: LogisticRegression(algorithm="objective", **given),
    "svc": lambda **given: SVC(n_components=8, **given),
    "forest": lambda **given: RandomForestClassifier(max_depth=2, n_estimators=2, **given),
    "standard": StandardScaler,
    "range": MinMaxScaler,
    "components": PCA,
    "clusters": lambda **given: KMeans(2, **given),
}
by_kind = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, **given: Any) -> Any:
    return KINDS[kind](**{"epsilon": 1.0, "bounds": (-1, 1), **given})


def made_up(n: int = 457) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return X, (X[:, 0] > 0).astype(int)


# --- parameters at which rows were longer than the noise is for ----------------------------------


def test_a_tiny_norm_does_not_lengthen_rows() -> None:
    """Squares of 1e-170 are no floats: such a row seemed to be short, and came out at 1e130."""
    box = Box.of("test", "bounds", (-1, 1), 2)
    with pytest.raises(InvalidParameter, match="norm must be at least 1e-6"):
        RowScaling.of("test", box, 1e-300, intercept=False)
    frame = RowScaling.of("test", box, 1e-6, intercept=False)
    sizes = [1e-320, 1e-170, 1e-160, 1e-100, 1e-7, 1e-6, 1.0]
    rows, _ = frame.rows(np.array([[size, -size] for size in sizes]))
    assert max(math.fsum(v * v for v in row) for row in rows.tolist()) <= 1


@by_kind
@pytest.mark.parametrize("bounds", [(0, 1e-310), (1e308, 1.5e308), (-1e160, 1), (0, 1e-160)])
def test_bounds_whose_middle_or_width_floats_do_not_have(kind: str, bounds: Any) -> None:
    """Rows became NaN there, which no comparison holds back, and sums with them."""
    with pytest.raises(InvalidParameter, match="bounds must be within 1e150"):
        made(kind, bounds=bounds).fit(*made_up(20))


@pytest.mark.parametrize("gamma", [0.5, 1e6, 1e32])
def test_features_of_a_row_do_not_depend_on_the_rows_beside_it(gamma: float) -> None:
    """Sums of products did, in their last bits: at a large gamma these decide all features."""
    box = Box.of("test", "bounds", (np.full(7, -1), np.linspace(0.5, 9, 7)), 7)
    frame = Fourier.drawn(box, 50, gamma, intercept=True, rng=Seeded(1))
    X = np.random.default_rng(0).uniform(-2, 2, (1100, 7))
    together = frame.rows(X)[0]
    for part in (slice(0, 1), slice(3, 6), slice(1, None), slice(1020, 1030)):
        np.testing.assert_array_equal(frame.rows(X[part])[0], together[part])


def test_rounding_counts_a_large_linear_term_with_every_block() -> None:
    """Beside 2^53 floats are 2 apart: a block that adds 0.99 adds nothing."""
    blocks = 32
    rows = np.full((blocks * BLOCK, 1), 2 * 0.99 / BLOCK)
    objective = PenalizedObjective(Logistic(), rows, -np.ones(len(rows)), 1.0, np.array([2.0**53]))
    missed = 0.99 * blocks - (objective.gradient(np.zeros(1))[0] - 2.0**53)
    assert missed == pytest.approx(0.99 * blocks)
    assert missed <= objective.rounding(np.zeros(1))


# --- state and certificates ----------------------------------------------------------------------


@by_kind
def test_a_refit_that_is_refused_leaves_no_mixture(kind: str, tmp_path: Path) -> None:
    """New classes beside old weights, under the old certificate."""
    X, y = made_up()
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(1.5, 1e-5, **SCOPE))
        model = made(kind, ledger=ledger, account="study").fit(X, y)
        assert model.guarantee_.epsilon <= 1
        with pytest.raises(BudgetExceeded):
            model.fit(X, y + 5)
    for gone in ("guarantee_", "certificate_"):
        with pytest.raises(NotFittedError):
            getattr(model, gone)
    with pytest.raises(NotFittedError):
        model.predict(X) if hasattr(model, "predict") else model.transform(X)


@by_kind
def test_nothing_is_kept_of_what_was_not_charged(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(kind)
    before = vars(model).keys() | {"n_features_in_", "classes_"}
    charge = base.PrivateEstimator._charge

    def something_else(self: Any, rows: int, columns: int) -> Any:
        charge(self, rows, columns)
        return made("linear", epsilon=0.1)._event(rows, columns)

    monkeypatch.setattr(base.PrivateEstimator, "_charge", something_else)
    with pytest.raises(TacitError, match="not what was charged"):
        model.fit(*made_up())
    assert vars(model).keys() <= before


@by_kind
def test_an_account_without_a_ledger_is_refused(kind: str) -> None:
    with pytest.raises(InvalidParameter, match="ledger and account must be given together"):
        made(kind, account="study").fit(*made_up())


@by_kind
def test_a_fitted_estimator_holds_nothing_of_the_records(kind: str) -> None:
    """No array with an entry a record, not their number, and in copies not how many were out."""
    X, y = made_up()
    X[:31] *= 3
    # Seeded: a noisy number of records is the true one every now and then.
    model = made(kind, rng=Seeded(0)).fit(X, y)
    assert model.clipped_ > 0
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert not hasattr(copied, "clipped_")
        assert copied.guarantee_ == model.guarantee_
    for name, value in vars(model).items():
        for found in flat(value):
            assert len(X) not in np.shape(found), name
            assert found is not X, name
            assert not (isinstance(found, int) and found == len(X)), name


def flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [one for part in value for one in flat(part)]
    if type(value).__module__.startswith("tacit.central.estimators") and hasattr(value, "__dict__"):
        return [one for part in vars(value).values() for one in flat(part)]
    return [value]


def test_settings_that_are_changed_after_a_fit_change_no_certificate() -> None:
    X, y = made_up()
    many = "How many records there are."
    cases = [
        (LogisticRegression, {}, {"classes": [0, 1], "delta": 0.0}, READ_CLASSES),
        (RandomForestClassifier, {"algorithm": "dprf"}, {"algorithm": "histograms"}, many),
        (LinearSVC, {"algorithm": "objective"}, {"algorithm": "dual"}, UNSOLVED),
    ]
    for kind, given, change, said in cases:
        model = kind(epsilon=1.0, bounds=(-1, 1), **given).fit(X, y)
        model.set_params(**change, epsilon=0.01)
        certificate = model.certificate_
        assert said in certificate.assumptions + certificate.not_protected
        assert certificate.guarantee.epsilon == pytest.approx(1)  # type: ignore[attr-defined]


def test_a_promise_to_a_person_says_how_many_rows_one_may_have() -> None:
    said = "Each person has one row at most."
    X, y = made_up()
    assert said in made("linear", unit="person").fit(X, y).certificate_.assumptions
    assert said not in made("linear").fit(X, y).certificate_.assumptions


@pytest.mark.parametrize("algorithm", ["objective", "gradient", "functional"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_penalty_that_does_not_do_costs_nothing(
    algorithm: str, delta: float, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(1.5, 1e-5, **SCOPE))
        given = {"ledger": ledger, "account": "study", "algorithm": algorithm, "delta": delta}
        for alpha in (0, -1.0, math.nan):
            with pytest.raises(InvalidParameter, match="must be"):
                made("logistic", alpha=alpha, **given).fit(*made_up())
        assert not ledger.show("study").charges


# --- what an error may say -----------------------------------------------------------------------


@by_kind
def test_errors_quote_no_record(kind: str) -> None:
    X, y = made_up(20)
    words = X.astype(object)
    words[3, 1] = "Alice"
    fitted = made(kind).fit(X, y)
    use = fitted.predict if hasattr(fitted, "predict") else fitted.transform
    secret = np.full(20, 0.123456)
    for act in (lambda rows: made(kind).fit(rows, y), use):
        for rows in (words, secret, secret[:, None] + 1j * X):
            with pytest.raises(InvalidData) as caught:
                act(rows)
            assert not any(word in str(caught.value) for word in ("Alice", "0.123", "\n"))
            assert caught.value.__suppress_context__


def test_an_epsilon_that_is_too_small_is_told_how_small_it_may_be() -> None:
    with pytest.raises(InvalidParameter, match=r"epsilon must be at least 0\.0001, got 1e-06"):
        made("components", epsilon=1e-6).fit(*made_up())


# --- guards: attacks that did not break anything -------------------------------------------------


@by_kind
def test_weights_of_records_and_sparse_rows_are_refused(kind: str) -> None:
    X, y = made_up(20)
    with pytest.raises(TypeError, match="sample_weight"):
        made(kind).fit(X, y, sample_weight=np.full(20, 1e9))
    with pytest.raises(TypeError, match="Sparse data"):
        made(kind).fit(sparse.csr_matrix(X), y)


@pytest.mark.parametrize("epsilon", [1e-4, 700])
@pytest.mark.parametrize("delta", [1e-300, 0.49])
@pytest.mark.parametrize("kind", ["linear", "logistic", "objective", "forest", "components"])
def test_no_more_is_promised_than_was_asked_for(kind: str, epsilon: float, delta: float) -> None:
    model = made(kind, epsilon=epsilon, delta=delta).fit(*made_up())
    assert model.guarantee_.epsilon <= epsilon * (1 + 1e-9)
    assert model.guarantee_.delta == delta


def test_every_fit_of_a_search_and_every_step_of_a_pipeline_is_charged(tmp_path: Path) -> None:
    X, y = made_up()
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(9.5, 1e-4, **SCOPE))
        account = {"ledger": ledger, "account": "study"}
        steps = make_pipeline(
            made("range", feature_range=(-1, 1), **account), made("logistic", **account)
        )
        search = GridSearchCV(steps, {"logisticregression__alpha": [0.1, 1.0]}, cv=2, refit=False)
        search.fit(X, y)
        charges = ledger.show("study").charges
        assert len(charges) == 2 * 2 * 2
        copied = pickle.loads(pickle.dumps(steps))
        with pytest.raises(InvalidParameter, match="ledger and account must be given together"):
            copied.fit(X, y)  # a pickle has no ledger, and is not fitted without one
        assert len(ledger.show("study").charges) == 2 * 2 * 2
        with pytest.raises(BudgetExceeded):
            steps.fit(X, y)
        # The scaler ran and was paid for, the classifier did not.
        assert len(ledger.show("study").charges) == 2 * 2 * 2 + 1


# --- audits of `fit`, with a block left without noise --------------------------------------------

DELTA = 0.05


def audited(fit: Callable[[np.ndarray], np.ndarray], others: np.ndarray, canary: Any) -> float:
    bound = canary_bound(fit, others, canary, runs=100, delta=DELTA, confidence=0.99)
    assert bound.certifiable > 1.2
    return bound.epsilon


def quiet_products(spending: Spending, sensitivity: int, share: Any, dimension: int) -> Any:
    spending.charge(sensitivity, spending.sigma(sensitivity, share), share)
    return np.zeros((dimension, dimension), dtype=np.int64)


def quiet(silent: Callable[[Any], bool]) -> Callable[..., Any]:
    """Noise that is paid for, and drawn for other blocks only."""
    add = Spending.add

    def mutant(self: Spending, values: Any, *arguments: Any) -> Any:
        noisy = add(self, values, *arguments)
        return values if silent(values) else noisy

    return mutant


CORNERS = np.array([[x, y, z] for x in (-1.0, 1) for y in (-1, 1) for z in (-1, 1)])


@pytest.mark.quick(1)
@pytest.mark.parametrize("mutated", [False, True])
def test_an_audit_of_components(mutated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Seeded(1)

    def fit(rows: np.ndarray) -> np.ndarray:
        """The second moments that what was released lets one work out, and their ratios."""
        found = PCA(epsilon=1, bounds=(-1, 1), delta=DELTA, rng=rng).fit(rows)
        turned = found.components_.T * found.explained_variance_
        matrix = turned @ found.components_ + np.outer(found.mean_, found.mean_)
        upper = matrix[np.triu_indices(3)]
        return np.concatenate([found.mean_, upper, np.round(upper / upper[0], 9)])

    if mutated:
        monkeypatch.setattr(moments, "symmetric_noise", quiet_products)
    assert (audited(fit, np.tile(CORNERS, (20, 1)), np.ones(3)) > 1) == mutated


@pytest.mark.parametrize("mutated", [False, True])
def test_an_audit_of_clusters(mutated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, start = Seeded(1), np.array([[-0.5, 0.0], [0.5, 0.0]])

    def fit(rows: np.ndarray) -> np.ndarray:
        """Centres and counts, and the sums that they are made of."""
        found = KMeans(
            2, epsilon=1, bounds=(-1, 1), init=start, max_iter=1, delta=DELTA, rng=rng
        ).fit(rows)
        sums = (found.cluster_centers_ - start) * found.counts_[:, None]
        return np.concatenate([found.cluster_centers_.ravel(), found.counts_, sums.ravel()])

    if mutated:
        monkeypatch.setattr(Spending, "add", quiet(lambda values: values.ndim == 2))
    others = np.tile([[-0.5, 0.1], [0.5, -0.1]], (30, 1))
    assert (audited(fit, others, np.array([1.0, 1.0])) > 1) == mutated


@pytest.mark.parametrize("mutated", [False, True])
def test_an_audit_of_ranges(mutated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Seeded(1)

    def fit(rows: np.ndarray) -> np.ndarray:
        found = MinMaxScaler(epsilon=1, bounds=(-1, 1), delta=DELTA, rng=rng).fit(rows)
        return np.concatenate([found.data_min_, found.data_max_])

    monkeypatch.setattr(scalers, "CELLS", 64)  # as quickly as can be
    if mutated:
        turns = iter(range(10**9))
        monkeypatch.setattr(Spending, "add", quiet(lambda values: next(turns) % 2 == 1))
    assert (audited(fit, np.full((20, 2), -1.0), np.ones(2)) > 1) == mutated


@pytest.mark.parametrize("mutated", [False, True])
def test_an_audit_of_the_moments_of_noisy_descent(
    mutated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights alone would not betray it: the proof counts the matrix as released, so it is."""
    rng = Seeded(1)
    solver = NoisyDescent("test", 3, 1, 1.0, DELTA, None, 2, "record")
    seen: list[np.ndarray] = []
    curvature = NoisyDescent._curvature

    def watched(self: NoisyDescent, *arguments: Any) -> np.ndarray:
        seen.append(curvature(self, *arguments))
        return seen[-1]

    def fit(rows: np.ndarray) -> np.ndarray:
        weights, _ = solver.solve(rows / 2, (rows[:, 0] > 0).astype(np.int64), rng)
        return np.concatenate([seen[-1][np.triu_indices(3)], weights.ravel()])

    monkeypatch.setattr(NoisyDescent, "_curvature", watched)
    if mutated:
        monkeypatch.setattr(softmax, "symmetric_noise", quiet_products)
    assert (audited(fit, np.tile(CORNERS, (20, 1)), np.ones(3)) > 1) == mutated
