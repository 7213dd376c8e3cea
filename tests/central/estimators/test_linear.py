"""Linear regression: what a record can change, what ran, what is left of a fit, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import chi2
from sklearn import linear_model

from tacit.audit.canaries import canary_bound
from tacit.central.estimators import descent, frames, linear, sufficient
from tacit.central.estimators.base import Box, MostlyNoise
from tacit.central.estimators.frames import Frame
from tacit.central.estimators.linear import LinearRegression, Ridge
from tacit.central.statistics.released import Spending
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidParameter, TacitError
from tacit.privacy.events import leaves
from tacit.privacy.guarantees import Adjacency, ApproxDP, PureDP, Unit
from tacit.privacy.randomness import Seeded

ALGORITHMS = linear.ALGORITHMS
BOUNDS: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (-4, 4)}


BUDGET = ApproxDP(1.5, 1e-5, adjacency=Adjacency.ADD_REMOVE, unit=Unit.RECORD)


def made_up(n: int = 20_000, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (n, d))
    return X, X @ np.linspace(1, -1, d) + 0.5 + generator.normal(0, 0.3, n)


# --- sensitivities, by brute force ---------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(-2, 3, width=32), st.sampled_from([0.0, -2.0, 3.0, 1e-300, 2.9999999, -0.5])
)


@st.composite
def neighbours(draw: Any) -> tuple[Frame, np.ndarray, np.ndarray]:
    """A frame, rows within its bounds with the target last, and the same rows without one."""
    n, d = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rows = draw(hnp.arrays(np.float64, (n, d + 1), elements=NUMBERS))
    frame = Frame.of(
        "test",
        Box.of("test", "bounds", (-2.0, 3.0), d),
        Box.of("test", "target_bounds", (-2.0, 3.0), 1),
        draw(st.sampled_from([None, 0.1, 1.0])),
        intercept=draw(st.booleans()),
        order=draw(st.sampled_from([1, 2])),
    )
    return frame, rows, np.delete(rows, draw(st.integers(0, n - 1)), axis=0)


def products(frame: Frame, rows: np.ndarray) -> np.ndarray:
    return frame.products(frame.blocks(rows[:, :-1], rows[:, -1]))


def length_of_products(frame: Frame, difference: np.ndarray) -> float:
    """In the norm that noise is calibrated to, exactly: whole numbers."""
    upper = difference[np.triu_indices(len(difference), 1)].astype(object)
    diagonal = np.diag(difference).astype(object)
    if frame.order == 1:
        return float(np.abs(diagonal).sum() + 2 * np.abs(upper).sum())
    return math.sqrt((diagonal**2).sum() + 2 * (upper**2).sum())


@given(neighbours())
@settings(max_examples=150, deadline=None)
def test_products_change_by_the_squared_radius_at_most(case: Any) -> None:
    frame, more, less = case
    changed = length_of_products(frame, products(frame, more) - products(frame, less))
    assert changed <= frame.radius**2


@given(neighbours(), st.integers(0, 99), st.floats(0.01, 2))
@settings(max_examples=150, deadline=None)
def test_gradients_change_by_their_sensitivity_at_most(case: Any, seed: int, held: float) -> None:
    frame, more, less = case
    if frame.order == 1:
        return
    steps = descent.Descent(frame, lambda: None, 1, None)  # type: ignore[arg-type,return-value]
    beta = descent._on_grid(np.random.default_rng(seed).normal(0, 5, frame.size))
    found = [
        steps.gradient(list(frame.blocks(rows[:, :-1], rows[:, -1])), beta, held)
        for rows in (more, less)
    ]
    assert ((found[0] - found[1]).astype(object) ** 2).sum() <= steps.sensitivity**2


def frame_of(order: int, columns: int = 4, norm: float | None = None) -> Frame:
    box = Box.of("test", "bounds", (-1.0, 1.0), columns)
    target = Box.of("test", "target_bounds", (-1.0, 1.0), 1)
    return Frame.of("test", box, target, norm, intercept=True, order=order)


@pytest.mark.parametrize("order", [1, 2])
def test_the_bounds_are_reached(order: int) -> None:
    """Else noise is wasted, and the checks above would pass whatever the rows."""
    frame = frame_of(order, norm=1.0)
    row = np.array([[1.0, 0.0, 0.0, 0.0, 1.0]])
    assert length_of_products(frame, products(frame, row)) >= 0.995 * frame.radius**2
    if order == 2:
        steps = descent.Descent(frame, lambda: None, 1, None)  # type: ignore[arg-type,return-value]
        blocks = list(frame.blocks(row[:, :-1], row[:, -1]))
        found = steps.gradient(blocks, np.zeros(frame.size), 0.1)
        assert np.linalg.norm(found) >= 0.995 * steps.sensitivity


def test_a_mutant_that_does_not_shorten_rows_is_caught() -> None:
    frame, mutant = frame_of(2), frame_of(2)
    row = np.ones((1, 5))
    assert length_of_products(frame, products(frame, row)) <= frame.radius**2
    mutant.__dict__["norm"] = 2.0  # rows of the corners, noise of the norm that was claimed
    mutant.__dict__["step"] = frame.step
    assert length_of_products(mutant, products(mutant, row)) > frame.radius**2


@given(neighbours(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_row_is_read_alone(case: Any, block: int) -> None:
    """In any company, order, block and memory layout it becomes the same whole numbers."""
    frame, rows, _ = case
    together = frame.rows(rows[:, :-1], rows[:, -1])
    for index in range(len(rows)):
        alone = frame.rows(rows[index : index + 1, :-1], rows[index : index + 1, -1])
        assert np.array_equal(alone[0], together[index])
    turned = np.asfortranarray(rows[::-1])
    assert np.array_equal(frame.rows(turned[:, :-1], turned[:, -1])[::-1], together)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_BLOCK", block)
        assert np.array_equal(products(frame, rows), products(frame, turned))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 16, 33])
def test_a_row_of_any_width_is_read_alone(order: int, columns: int) -> None:
    """Norms are the only sums that round: they must not depend on how many rows there are."""
    frame = frame_of(order, columns, norm=0.3)
    rows = np.random.default_rng(columns).uniform(-1, 1, (301, columns + 1))
    together = frame.rows(rows[:, :-1], rows[:, -1])
    for size in (1, 2, 7):
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        apart = [frame.rows(part[:, :-1], part[:, -1]) for part in parts]
        assert np.array_equal(np.concatenate(apart), together)


# --- what ran is what was charged ----------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
def test_the_guarantee_is_what_was_asked_for(algorithm: str, epsilon: float) -> None:
    model = LinearRegression(epsilon=epsilon, algorithm=algorithm, rng=Seeded(1), **BOUNDS)
    model.fit(*made_up())
    promise = model.guarantee_
    assert isinstance(promise, PureDP if algorithm == "functional" else ApproxDP)
    assert 0.999 * epsilon <= promise.epsilon <= epsilon * (1 + 1e-9)
    assert model.event_ == model._event(7, 4)  # it depends on columns and settings alone
    certificate = model.certificate_
    assert certificate.guarantee == promise
    assert certificate.seeded
    assert any("chosen without the records" in one for one in certificate.assumptions)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_event_has_what_noise_was_drawn_with(algorithm: str) -> None:
    """Deviations as they were drawn with, against those of the event that was charged."""
    drawn: list[Fraction] = []
    draw = Spending.draw

    def spy(self: Spending, sigma: Fraction, shape: Any) -> Any:
        drawn.append(sigma)
        return draw(self, sigma, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spending, "draw", spy)
        model = LinearRegression(epsilon=1, algorithm=algorithm, rng=Seeded(2), **BOUNDS)
        model.fit(*made_up())
    stated = {getattr(leaf, "sigma", None) for leaf in leaves(model.event_)}
    if algorithm == "functional":
        assert not drawn
    else:
        # Off the diagonal noise is smaller by √2: the event speaks of the diagonal.
        assert stated <= set(drawn)
        assert min(drawn) >= min(stated) / Fraction(14143, 10000)


def test_a_fit_that_ran_something_else_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sufficient.gaussian_moments
    monkeypatch.setattr(
        sufficient,
        "gaussian_moments",
        lambda frame, spending, sums, share: right(frame, spending, sums, Fraction(1, 2)),
    )
    model = LinearRegression(epsilon=1, algorithm="adassp", rng=Seeded(1), **BOUNDS)
    with pytest.raises(TacitError, match="what ran is not what was charged"):
        model.fit(*made_up())
    assert not hasattr(model, "event_")
    assert not hasattr(model, "coef_")


def test_the_ledger_is_charged_first_or_refuses(tmp_path: Path) -> None:
    X, y = made_up()
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("study", BUDGET)
        model = LinearRegression(epsilon=1, ledger=ledger, account="study", **BOUNDS)
        model.fit(X, y)
        (charge,) = ledger.show("study").charges
        assert charge.event == model.event_
        second = LinearRegression(epsilon=1, ledger=ledger, account="study", **BOUNDS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Box, "clip", lambda *_: pytest.fail("values were looked at"))
            with pytest.raises(BudgetExceeded):
                second.fit(X, y)
        assert not hasattr(second, "coef_")
        with pytest.raises(InvalidParameter, match="ledger and account must be given together"):
            LinearRegression(epsilon=1, ledger=ledger, **BOUNDS).fit(X, y)


# --- the noise ------------------------------------------------------------------------------------

LEVEL = 1e-6


def deviates(draws: Any, sigma: float) -> bool:
    """Whether a chi-square test rejects this deviation, whichever way: once in a million seeds."""
    values = np.asarray(draws, dtype=np.float64).ravel()
    statistic = float((values**2).sum()) / sigma**2
    tail = min(chi2.cdf(statistic, values.size), chi2.sf(statistic, values.size))
    return bool(2 * tail < LEVEL)


def noise_of_moments(mutant: Any = None) -> tuple[np.ndarray, np.ndarray, float]:
    """On and off the diagonal, of sums of products of no rows."""
    frame = frame_of(2, columns=150)
    spending = Spending("test", 3.0, None, None, "record", Seeded(3))
    empty = np.zeros((frame.width, frame.width), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        if mutant is not None:
            patch.setattr(sufficient, "symmetric_noise", mutant)
        found = sufficient.gaussian_moments(frame, spending, empty, Fraction(1))
    upper = found.matrix[np.triu_indices(frame.width, 1)]
    assert found.deviation == pytest.approx(3 * (frame.radius * frame.step) ** 2 / math.sqrt(2))
    return np.diag(found.matrix), upper, found.deviation


def without_target(*arguments: Any) -> np.ndarray:
    noise = right_noise(*arguments)
    noise[-1], noise[:, -1] = 0, 0
    return noise


def too_little(*arguments: Any) -> np.ndarray:
    return right_noise(*arguments) // 2


right_noise = sufficient.symmetric_noise


def test_noise_of_the_sums() -> None:
    diagonal, upper, deviation = noise_of_moments()
    assert not deviates(upper, deviation)
    assert not deviates(diagonal, deviation * math.sqrt(2))
    assert deviates(noise_of_moments(too_little)[1], deviation)


def test_laplace_noise_of_the_sums() -> None:
    frame = frame_of(1, columns=60)
    release = sufficient.LaplaceProducts(frame, 2, "record", Seeded(4))  # type: ignore[arg-type]
    found, event = release.release(np.zeros((frame.width, frame.width), dtype=np.int64))
    scale = (frame.radius * frame.step) ** 2 / 2
    assert float(event.scale) * frame.step**2 == pytest.approx(scale)  # type: ignore[attr-defined]
    upper = found.matrix[np.triu_indices(frame.width, 1)]
    # Mean absolute values of Laplace variables are their scale, and have a deviation of it.
    for draws, expected in ((upper, scale / 2), (np.diag(found.matrix), scale)):
        away = abs(np.abs(draws).mean() / expected - 1) * math.sqrt(len(draws))
        assert away < 5
    assert found.deviation == pytest.approx(upper.std(), rel=0.1)
    # 1,891 numbers can tell twice as much, or none on the target.
    assert abs(np.abs(upper).mean() / scale - 1) * math.sqrt(len(upper)) > 5


# --- audits of a whole fit ------------------------------------------------------------------------

DELTA, CONFIDENCE, RUNS = 0.05, 0.999, 250
"""A large δ: the events that refute a claim there are not rare, and few fits suffice."""


def fitted(algorithm: str, seed: int, **options: Any) -> Callable[[np.ndarray], np.ndarray]:
    rng = Seeded(seed)

    def fit(rows: np.ndarray) -> np.ndarray:
        arguments = {"bounds": (-1, 1), "target_bounds": (-1, 1), **options}
        model = LinearRegression(
            epsilon=1, delta=DELTA, algorithm=algorithm, rng=rng, **arguments
        ).fit(rows[:, :-1], rows[:, -1])
        return np.append(model.coef_, model.intercept_)

    return fit


ALIKE = np.full((30, 3), 1e-3)


def audited(fit: Any, others: Any = ALIKE, runs: int = RUNS) -> float:
    canary = np.array([1.0, 0.0, 1.0])
    bound = canary_bound(fit, others, canary, runs=runs, delta=DELTA, confidence=CONFIDENCE)
    assert bound.certifiable > 1.5
    return bound.epsilon


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_audit_does_not_refute_a_fit(algorithm: str) -> None:
    assert audited(fitted(algorithm, 5)) <= 1


@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
def test_an_audit_refutes_a_fit_without_noise_on_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sufficient, "symmetric_noise", without_target)
    assert audited(fitted("adassp", 5)) > 1


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
def test_an_audit_refutes_bounds_that_are_read_off_the_rows() -> None:
    seeds = iter(range(10**6))

    def fit(rows: np.ndarray) -> np.ndarray:
        reach = float(np.abs(rows).max())
        box = {"bounds": (-reach, reach), "target_bounds": (-reach, reach)}
        return fitted("gradient", next(seeds), **box)(rows)

    assert audited(fit) > 1


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
@pytest.mark.parametrize("mutated", [False, True])
def test_an_audit_refutes_steps_without_noise(
    mutated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(self: Spending, values: Any, sensitivity: int, share: Any = 1) -> Any:
        self.charge(sensitivity, self.sigma(sensitivity, share), share)
        return values

    if mutated:
        monkeypatch.setattr(Spending, "add", add)
    # Enough rows for steps that lead somewhere: what the start still knows of noise fades away.
    others = np.random.default_rng(0).choice([-1.0, 1.0], (500, 3))
    assert (audited(fitted("gradient", 5, steps=20), others, runs=120) > 1) is mutated


# --- accuracy -------------------------------------------------------------------------------------

LOST = {"gradient": 0.002, "adassp": 0.02, "functional": 0.02}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_little_is_lost(algorithm: str, fit_intercept: bool) -> None:
    X, y = made_up()
    settings = {"algorithm": algorithm, "fit_intercept": fit_intercept}
    model = LinearRegression(epsilon=1, rng=Seeded(6), **settings, **BOUNDS).fit(X, y)
    plain = linear_model.LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert plain.score(X, y) - model.score(X, y) < LOST[algorithm]
    assert fit_intercept or model.intercept_ == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("repair", sufficient.REPAIRS)
@pytest.mark.parametrize("alpha", [0.0, 3000.0])
def test_with_next_to_no_noise_it_is_least_squares(
    algorithm: str, repair: str, alpha: float
) -> None:
    X, y = made_up()
    X, bounds = X * [1, 1000, 1, 1], (np.array([-1, -1000, -1, -1]), np.array([1, 1000, 1, 1]))
    plain = linear_model.Ridge(alpha=alpha).fit(X, y)
    model = Ridge(
        epsilon=600,
        alpha=alpha,
        bounds=bounds,
        target_bounds=(-4, 4),
        norm=4.0 if algorithm == "functional" else 2.0,
        algorithm=algorithm,
        repair=repair,
        residual_clip=1.0,
        steps=3,
    ).fit(X, y)
    assert model.coef_ * [1, 1000, 1, 1] == pytest.approx(plain.coef_ * [1, 1000, 1, 1], abs=0.01)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=0.01)


def test_long_rows_are_weighted_not_bent() -> None:
    """A linear target without residuals is found whatever the norm."""
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (20_000, 3))
    y = X @ [1.0, -2.0, 0.5] - 0.3
    for norm in (0.2, 0.6, 1.5):
        model = LinearRegression(epsilon=600, norm=norm, algorithm="adassp", **BOUNDS).fit(X, y)
        assert model.coef_ == pytest.approx([1.0, -2.0, 0.5], abs=0.02)
        assert model.intercept_ == pytest.approx(-0.3, abs=0.02)


def test_gradient_steps_follow_the_residuals() -> None:
    """Where residuals are small, steps lose less than sums of products that cost twice as much."""
    X, y = made_up(5000, 6)
    wide: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (-20, 20)}
    best = linear_model.LinearRegression().fit(X, y).score(X, y)
    lost = {
        algorithm: np.median(
            [
                best
                - LinearRegression(epsilon=1, algorithm=algorithm, rng=Seeded(s), **wide)
                .fit(X, y)
                .score(X, y)
                for s in range(9)
            ]
        )
        for algorithm in ("adassp", "gradient")
    }
    assert lost["gradient"] < lost["adassp"] / 3


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("repair", sufficient.REPAIRS)
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((50, 3)), np.zeros(50)),
        (np.zeros((50, 3)), np.linspace(-1, 1, 50)),
        (np.eye(3, 12), np.ones(3)),
        (np.repeat(np.linspace(-1, 1, 50)[:, None], 4, axis=1), np.ones(50)),
        (np.full((1, 2), 1e300), np.array([-1e300])),
    ],
    ids=["constant", "zeros", "n < d", "collinear", "far outside"],
)
def test_a_fit_is_finite(algorithm: str, repair: str, X: np.ndarray, y: np.ndarray) -> None:
    options = {"algorithm": algorithm, "repair": repair, "rng": Seeded(1)}
    model = LinearRegression(epsilon=1, **options, **BOUNDS).fit(X, y)
    assert np.isfinite(model.predict(np.clip(X, -1, 1))).all()
    assert model.clipped_ == int((np.abs(X) > 1).any(axis=1).sum() + (np.abs(y) > 4).sum())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_outside_are_held_and_counted_and_set_nothing(algorithm: str) -> None:
    X, y = made_up()
    X[:5, 1], y[-3:] = 50.0, -1e6
    raw = LinearRegression(epsilon=1, algorithm=algorithm, rng=Seeded(1), **BOUNDS).fit(X, y)
    held = LinearRegression(epsilon=1, algorithm=algorithm, rng=Seeded(1), **BOUNDS)
    held.fit(np.clip(X, -1, 1), np.clip(y, -4, 4))
    assert np.array_equal(raw.coef_, held.coef_)
    assert (raw.clipped_, held.clipped_) == (8, 0)
    assert raw.event_ == held.event_


def test_noise_alone_is_said() -> None:
    X, y = made_up(200, 10)
    for algorithm in ALGORITHMS:
        with pytest.warns(MostlyNoise, match="the result is noise"):
            LinearRegression(epsilon=0.01, algorithm=algorithm, **BOUNDS).fit(X, y)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"delta": 0}, 'Of the algorithms only "functional" needs none'),
        ({"algorithm": "magic"}, "algorithm must be one of adassp, functional, gradient"),
        ({"norm": 3}, "norm must be at most 2"),
    ],
)
def test_what_is_refused(change: dict[str, Any], says: str) -> None:
    X, y = made_up(50)
    with pytest.raises(InvalidParameter, match=says):
        LinearRegression(**{"epsilon": 1, **BOUNDS, **change}).fit(X, y)


def test_the_functional_mechanism_needs_no_delta() -> None:
    free = LinearRegression(epsilon=1, delta=0, algorithm="functional", **BOUNDS)
    assert str(free.fit(*made_up(5000)).guarantee_).startswith("1-DP")
