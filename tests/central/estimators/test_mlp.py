"""Networks: what they learn, what was charged and ran, sensitivities, audits with mutants."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier as Plain
from torch import nn

from tacit.audit.canaries import canary_bound, matched_filter
from tacit.central.estimators import network
from tacit.central.estimators.base import Box, MostlyNoise
from tacit.central.estimators.components import PrivateComponents, plain
from tacit.central.estimators.mlp import MLPClassifier, MLPRegressor
from tacit.central.statistics.released import Spending
from tacit.central.statistics.rows import Ball
from tacit.central.training import clipped_sum, probing, train
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors, events
from tacit.privacy.accounting import calibration
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Seeded

QUICK: dict[str, Any] = {"batch_size": 400, "epochs": 3, "hidden_layer_sizes": (8,)}
"""Everybody in every step: the noise of plain Gaussians needs no search."""
kinds = pytest.mark.parametrize("components", [None, 3])


def labelled(count: int, seed: int = 0, columns: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that no line parts."""
    X = np.clip(np.random.default_rng(seed).normal(size=(count, columns)), -3, 3)
    return X, (np.abs(X[:, 0]) + X[:, 1] > 0.8).astype(int)


def classifier(**changes: Any) -> MLPClassifier:
    return MLPClassifier(**{"epsilon": 2.0, "bounds": (-3, 3), "rng": Seeded(1), **changes})


def regressor(**changes: Any) -> MLPRegressor:
    fixed = {"epsilon": 2.0, "bounds": (-3, 3), "target_bounds": (-4, 4), "rng": Seeded(1)}
    return MLPRegressor(**{**fixed, **changes})


# --- what they learn ----------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_classifier_learns_what_no_line_can():
    X, y = labelled(4_000)
    X_new, y_new = labelled(4_000, seed=1)
    fitted = classifier(epsilon=4.0).fit(X, y)
    line = classifier(epsilon=4.0, hidden_layer_sizes=()).fit(X, y)
    assert fitted.score(X_new, y_new) > 0.9
    assert line.score(X_new, y_new) < 0.85
    assert [one.shape for one in fitted.coefs_] == [(5, 100), (100, 1)]
    assert [one.shape for one in line.coefs_] == [(5, 1)]


@pytest.mark.quick(1)
@pytest.mark.parametrize("components", [None, 25])
def test_ten_classes(components):
    X, y = load_digits(return_X_y=True)
    model = classifier(epsilon=6.0, bounds=(0, 16), components=components)
    fitted = model.fit(X[:1400], y[:1400])
    assert fitted.score(X[1400:], y[1400:]) > 0.85
    chances = fitted.predict_proba(X[1400:])
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_array_equal(chances.argmax(axis=1), fitted.predict(X[1400:]))


def test_a_regressor_learns_in_the_units_of_its_target():
    X, _ = labelled(2_000)
    y = 1000 + 100 * (np.abs(X[:, 0]) - X[:, 1])
    fitted = regressor(epsilon=4.0, target_bounds=(600, 1600)).fit(X, y)
    assert fitted.score(X, y) > 0.85
    moved = regressor(epsilon=4.0, target_bounds=(0.6, 1.6)).fit(X, y / 1000)
    np.testing.assert_allclose(moved.predict(X) * 1000, fitted.predict(X), rtol=1e-3)


@kinds
def test_weights_are_scikit_learns(components):
    X, y = labelled(400)
    ours = classifier(**QUICK, components=components).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Plain((8,), max_iter=1).fit(X, y)
    theirs.coefs_, theirs.intercepts_ = ours.coefs_, ours.intercepts_
    np.testing.assert_allclose(theirs.predict_proba(X), ours.predict_proba(X), atol=1e-12)


def test_units_of_columns_do_not_matter():
    X, y = labelled(400)
    scale, shift = np.array([1, 10, 0.1, 1, 1]), np.array([5.0, 0, 0, -9, 0])
    bounds = (-3 * scale + shift, 3 * scale + shift)
    first = classifier(**QUICK).fit(X, y).predict_proba(X)
    second = classifier(**QUICK, bounds=bounds).fit(X * scale + shift, y)
    np.testing.assert_allclose(second.predict_proba(X * scale + shift), first, atol=1e-4)


# --- what they promise --------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("components", [pytest.param(None, marks=pytest.mark.slow), 3])
def test_what_ran_is_what_was_charged_and_uses_the_budget(components):
    X, y = labelled(400)
    settings = {**QUICK, "batch_size": 100, "epochs": 1}
    fitted = classifier(**settings, components=components).fit(X, y)
    assert fitted.event_ == clone(fitted).fit(3 * X, 1 - y).event_
    assert 0.95 * 2 < fitted.guarantee_.epsilon <= 2
    parts = fitted.event_.events if components else (fitted.event_,)
    steps = parts[-1]
    assert (steps.count, steps.event.probability) == (4, 0.25)
    if components:
        before = guarantee_of(parts[0], 1e-6)
        assert 0.1 < before.epsilon < 1.5
        assert len(events.leaves(parts[0])) == 4  # mean, products, and a count for each


def test_nothing_is_kept_of_components_that_cost_something_else(monkeypatch):
    X, y = labelled(400)
    model = classifier(**QUICK, components=2)
    charged = PrivateComponents.event.func

    def cheaper(self: PrivateComponents) -> events.Event:
        found = charged(self)
        return events.Composed(found.events[:1])

    monkeypatch.setattr(PrivateComponents, "event", property(cheaper))
    with pytest.raises(errors.TacitError, match="not what was charged"):
        model.fit(X, y)
    assert not hasattr(model, "event_")
    assert not hasattr(model, "coefs_")


@pytest.mark.parametrize("probability", [pytest.param(0.5, marks=pytest.mark.slow), 1.0])
def test_noise_for_a_composition(probability):
    beside = events.Gaussian(Fraction(1), Fraction(8), adjacency="add-remove", unit="person")
    settings = {"sampling_probability": probability, "steps": 3}
    found = calibration.noise_multiplier_for(1.0, 1e-6, **settings, beside=beside)
    assert found > 1.01 * calibration.noise_multiplier_for(1.0, 1e-6, **settings)
    step = events.Gaussian(Fraction(1), Fraction(found), adjacency="add-remove", unit="person")
    whole = events.Composed((beside, events.Repeated(events.PoissonSampled(probability, step), 3)))
    assert 0.99 < guarantee_of(whole, 1e-6).epsilon <= 1
    if probability == 1:
        with pytest.raises(errors.InvalidParameter, match="within reach"):
            calibration.noise_multiplier_for(0.01, 1e-6, **settings, beside=beside)


def test_the_certificate_says_what_it_rests_on():
    X, y = labelled(400)
    fitted = classifier(**QUICK).fit(X, y)
    certificate = fitted.certificate_
    certificate.verify()
    assert certificate.seeded
    assert any("floating-point Gaussian" in one for one in certificate.assumptions)
    assert any("classes was read off" in one for one in certificate.assumptions)
    assert any("How many records" in one for one in certificate.not_protected)
    named = clone(fitted).set_params(classes=[0, 1]).fit(X, y)
    assert not any("classes was read off" in one for one in named.certificate_.assumptions)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_the_ledger_is_charged_first(make, tmp_path, monkeypatch):
    X, y = labelled(400)
    with Ledger(tmp_path / "ledger.db") as ledger:
        scope = {"adjacency": "zero-out", "unit": "record"}
        ledger.open("rows", ApproxDP(epsilon=2.5, delta=1e-5, **scope))
        model = make(**QUICK, ledger=ledger, account="rows").fit(X, y)
        read: list[Any] = []
        monkeypatch.setattr(Box, "clip", lambda self, values: read.append(1) or (values, 0))
        with pytest.raises(errors.BudgetExceeded):
            model.fit(X, y)
        assert not read
        with pytest.raises(errors.InvalidParameter, match="account must be given"):
            make(**QUICK, ledger=ledger).fit(X, y)


# --- averages and starts ------------------------------------------------------------------------


@pytest.mark.parametrize(("part", "last"), [(0.5, 3), (1.0, 6), (0.01, 1)])
def test_an_average_is_that_of_the_last_steps(part, last):
    def trained(average: float) -> tuple[np.ndarray, list[np.ndarray]]:
        module, seen = nn.Linear(3, 1), []
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
        keep = lambda step, steps: seen.append(module.weight.detach().numpy().copy())  # noqa: E731
        data = torch.linspace(-1, 1, 60).view(20, 3)
        settings = {"epsilon": 5.0, "delta": 1e-5, "batch_size": 20, "steps": 6, "rng": Seeded(3)}
        loss = lambda one, rows: one(rows)[:, 0] ** 2  # noqa: E731
        train(module, data, loss, **settings, average=average, progress=keep)
        return module.weight.detach().numpy(), seen

    plain, seen = trained(0.0)
    np.testing.assert_array_equal(plain, seen[-1])
    averaged, again = trained(part)
    np.testing.assert_array_equal(np.array(seen), np.array(again))  # the steps are the same
    np.testing.assert_allclose(averaged, np.mean(seen[-last:], axis=0), rtol=1e-6)


def test_starts_come_from_the_stream_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = [p.detach() for p in network._module((4, 50, 3), Seeded(2)).parameters()]
    again = [p.detach() for p in network._module((4, 50, 3), Seeded(2)).parameters()]
    other = [p.detach() for p in network._module((4, 50, 3), Seeded(3)).parameters()]
    X, y = labelled(400)
    classifier(**QUICK).fit(X, y)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
    assert not first[2].any()  # all classes are alike at first
    assert 0.2 < float(first[0].std()) < 0.28


# --- sensitivity, by brute force ------------------------------------------------------------------


def sums_of(made: PrivateComponents, rows: np.ndarray) -> tuple[list[np.ndarray], list[int]]:
    """What noise is added to, and the sensitivities that it is calibrated to."""
    sums, bounds = [], []
    charge, products = Spending.charge, Ball.products

    def charged(self: Spending, sensitivity: int, sigma: Any, share: Any) -> None:
        bounds.append(sensitivity)
        charge(self, sensitivity, sigma, share)

    def added(self: Spending, values: Any, sensitivity: int, share: Any = 1) -> Any:
        sums.append(np.array(values, float))
        self.charge(sensitivity, self.sigma(sensitivity, share), share)
        return values

    def multiplied(self: Ball, rows: Any) -> Any:
        found = products(self, rows)
        # σ on the diagonal and σ/√2 off it, each entry twice: the whole matrix's norm counts.
        sums.append(found[0].astype(float))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spending, "charge", charged)
        patch.setattr(Spending, "add", added)
        patch.setattr(Ball, "products", multiplied)
        made.fit(rows, Seeded(0))
    return sums, bounds


def test_one_record_moves_the_sums_of_components_by_their_sensitivity_at_most():
    generator, worst = np.random.default_rng(0), np.zeros(4)
    made = PrivateComponents(
        "test", Box.of("test", "bounds", (-3, 3), 4), 2, 1.5, 1.0, 1e-6, "record"
    )
    for _ in range(20):
        rows = generator.normal(size=(5, 4)) * generator.choice([0.5, 3, 50])
        rows = made.box.clip(rows)[0]
        full, bounds = sums_of(made, rows)
        for out in range(5):
            less, _ = sums_of(made, np.delete(rows, out, 0))
            moved = [np.linalg.norm(a - b) for a, b in zip(full, less, strict=True)]
            worst = np.maximum(worst, np.array(moved) / bounds)
    assert (worst <= 1).all()
    assert (worst > 0.95).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("loss", network.LOSSES)
def test_one_record_moves_clipped_gradients_by_the_clip_norm_at_most(loss, unprobed):
    generator, worst = np.random.default_rng(0), 0.0
    box = Box.of("test", "bounds", (-3, 3), 4)
    module = network._module((4, 6, 3 if loss == "softmax" else 1), Seeded(0))
    nn.init.normal_(module[-1].weight, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        held = box.clip(generator.normal(size=(6, 4)) * generator.choice([1, 100]))[0]
        rows = torch.tensor(plain(box)(held), dtype=torch.float32)
        targets = torch.tensor(generator.integers(0, 2, 6))
        targets = targets if loss == "softmax" else targets.float()
        given = (module, network._loss(loss))
        full, _ = clipped_sum(*given, (rows, targets), 0.1)
        for out in range(6):
            rest = [i for i in range(6) if i != out]
            less, _ = clipped_sum(*given, (rows[rest], targets[rest]), 0.1)
            moved = sum(float(((a - b) ** 2).sum()) for a, b in zip(full, less, strict=True))
            worst = max(worst, moved**0.5)
    assert 0.09 < worst <= 0.1 * (1 + 1e-4)  # the schedule leaves this much for rounding


# --- audits of whole fits, and mutants ------------------------------------------------------------

CONFIDENCE = 0.999


@pytest.fixture
def unprobed(monkeypatch):
    """Checks of a module on made-up rows, at every fit, are most of what a small one takes."""
    monkeypatch.setattr(probing, "_usable", lambda made, like: None)
    monkeypatch.setattr(probing, "_agrees", lambda made, book, like, step: True)


def fitting(model: Any) -> Any:
    """What a fit released, for rows (x, y). Records of NaN contribute nothing, and are counted.

    The number of records is public, so neighbours must not differ in it; `fit` refuses NaN, and
    what comes after it leaves such rows out.
    """

    def fit(table: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MostlyNoise)
            charged = model._charge(len(table), table.shape[1] - 1)
            layers = model._fit(table[:, :-1], table[:, -1], charged)
        (weights, bias), *_ = layers
        # Divided by its length a single component's weight is the component itself.
        unit = weights[:, 0] / max(np.linalg.norm(weights[:, 0]), 1e-300)
        return np.concatenate([weights.ravel(), bias, unit * np.sign(unit[0] or 1.0)])

    return fit


def audited(model: Any, others: Any, canary: Any, runs: int, **options: Any) -> Any:
    absent = np.full(len(canary), np.nan)
    settings = {"delta": model.delta, "confidence": CONFIDENCE, "absent": absent, **options}
    return canary_bound(fitting(model), others, np.array(canary), runs=runs, **settings)


CROWD = np.column_stack([np.tile([[0.9, 0.1], [-0.9, -0.1]], (10, 1)), np.zeros(20)])


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", [False, True])
def test_components_without_noise_are_refuted(mutant, unprobed, monkeypatch):
    # The others vary along one line; the canary turns it a little.
    if mutant:
        zeros = lambda self, sigma, shape: np.zeros(shape, dtype=np.int64)  # noqa: E731
        monkeypatch.setattr(Spending, "draw", zeros)
    model = regressor(
        epsilon=0.5, delta=1e-5, bounds=(-1, 1), target_bounds=(-1, 1), components=1, norm=1.0,
        hidden_layer_sizes=(), batch_size=21, epochs=1, rng=Seeded(4),
    )  # fmt: skip
    found = audited(model, CROWD, [-1.0, 1.0, 1.0], runs=60)
    assert found.certifiable > 0.5
    assert (found.epsilon > 0.5) is mutant


class FourTimesAsLarge(Schedule):
    """Batches that the accountant was not told of, with slots for all."""

    slots = property(lambda self: self.records)  # type: ignore[assignment]

    def sample(self, stream: Any) -> torch.Tensor:
        return Schedule(self.records, 4 * self.threshold, 1, self.noise_multiplier).sample(stream)


ALONE: dict[str, Any] = {
    "bounds": (-1, 1), "target_bounds": (-1, 1), "hidden_layer_sizes": (), "clip_norm": 1.0,
    "momentum": 0.0, "learning_rate": 0.1,
}  # fmt: skip
NOBODY = np.full((15, 2), np.nan)
ALIGNED = {"scores": [matched_filter([1.0, 1.0])]}


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", [False, True])
def test_sampling_that_the_accountant_was_not_told(mutant, unprobed, monkeypatch):
    # At a large δ, where a sample that is rare costs little, and one that is not shows. The noise
    # is given, as finding it takes longer than all the rest.
    if mutant:
        monkeypatch.setattr("tacit.central.training.schedule.Schedule", FourTimesAsLarge)
    monkeypatch.setattr(calibration, "noise_multiplier_for", lambda *given, **more: 0.5)
    model = regressor(epsilon=1.0, delta=0.1, batch_size=4, epochs=1 / 4, rng=Seeded(5), **ALONE)
    claimed = guarantee_of(model._event(16, 1), 0.1).epsilon
    found = audited(model, NOBODY, [1.0, 1.0], 120, **ALIGNED)
    assert found.certifiable > claimed
    assert (found.epsilon > claimed) is mutant


@pytest.mark.heavy
def test_a_fit_is_not_refuted_and_the_audit_sees_something(unprobed):
    model = regressor(
        epsilon=40.0, delta=1e-5, batch_size=16, epochs=2, average=1.0, rng=Seeded(6), **ALONE
    )
    assert 0.5 < audited(model, NOBODY, [1.0, 1.0], 60, **ALIGNED).epsilon <= 40


# --- bad input ----------------------------------------------------------------------------------


def test_odd_data_are_fitted():
    X, y = labelled(400)
    X[:, 1] = 2.0
    assert np.isfinite(classifier(**QUICK, components=3).fit(X, y).coefs_[0]).all()
    separable = (X[:, 0] > 0).astype(int)
    assert np.isfinite(classifier(**QUICK, epsilon=50.0).fit(X, separable).coefs_[0]).all()
    wide, few = np.random.default_rng(0).uniform(-3, 3, size=(10, 40)), np.arange(10) % 2
    for components in (None, 20):
        model = classifier(**{**QUICK, "batch_size": 10}, components=components)
        with pytest.warns(MostlyNoise):
            assert np.isfinite(model.fit(wide, few).coefs_[0]).all()


def test_epsilon_so_small_that_all_is_noise_is_said():
    X, y = labelled(400)
    with pytest.warns(MostlyNoise, match="the result is noise"):
        classifier(**QUICK, epsilon=0.05).fit(X, y)
    with pytest.warns(MostlyNoise):
        regressor(**QUICK, epsilon=0.05).fit(X, y)


def test_rows_outside_the_bounds_are_clipped_and_counted():
    X, y = labelled(400)
    far, beyond = X.copy(), y.astype(float)
    far[:7] *= 1e6
    beyond[:2] = 99.0
    first = classifier(**QUICK).fit(np.clip(far, -3, 3), y)
    second = classifier(**QUICK).fit(far, y)
    assert (first.clipped_, second.clipped_) == (0, 7)
    np.testing.assert_array_equal(first.coefs_[0], second.coefs_[0])
    assert regressor(**QUICK).fit(far, beyond).clipped_ == 9


def test_refusals():
    X, y = labelled(400)
    for changes, words in [
        ({"delta": 0}, r"delta must be in \(0, 1\)"),
        ({"norm": 2.0}, "norm must be left out without components"),
        ({"components": 2, "norm": -1}, "norm must be above 0"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum must be"),
    ]:
        with pytest.raises(errors.InvalidParameter, match=f"MLPClassifier: {words}"):
            classifier(**{**QUICK, **changes}).fit(X, y)
