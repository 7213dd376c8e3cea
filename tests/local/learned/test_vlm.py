"""The variational mechanism: its divergence, its clipping, its law and what it refuses."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tacit.data import schema
from tacit.local.learned import variational
from tacit.local.learned.vlm import VLM
from tacit.local.reports import Reports
from tacit.privacy import events
from tacit.privacy.certificate import Certificate
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import ApproxDP, PureDP

torch.set_num_threads(1)


def rows(count=300, width=12, seed=0):
    """Two clusters: something for a latent to find."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, count)
    return np.clip(0.25 + 0.5 * side[:, None] + 0.1 * rng.standard_normal((count, width)), 0, 1)


@pytest.fixture(scope="module")
def vlm():
    given = schema.ArraySchema(12, 0.0, 1.0)
    mechanism = VLM(epsilon=2, latent_dimension=3, classes=4, label_share=0.25)
    return mechanism.fit(rows(), schema=given, epochs=15, batch_size=50)


@pytest.fixture(scope="module")
def gaussian():
    given = schema.ArraySchema(12, 0.0, 1.0)
    mechanism = VLM(epsilon=2, latent_dimension=3, classes=4, noise="gaussian", delta=1e-5)
    return mechanism.fit(rows(), schema=given, epochs=1)


# --- the objective -------------------------------------------------------------------------------


@pytest.mark.parametrize(("center", "spread"), [(0.0, 0.3), (1.4, 0.8), (-5.0, 0.2), (0.1, 3.0)])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_divergence_is_the_integral(center, spread, noise):
    law = stats.laplace if noise == "laplace" else stats.norm
    posterior = law(center, spread)
    prior = law(0, variational.PRIOR_SCALE if noise == "laplace" else 1.0)
    found = variational.divergence(
        torch.tensor([[center]], dtype=torch.float64), torch.tensor(spread).double(), noise
    )

    def integrand(z):
        return posterior.pdf(z) * (posterior.logpdf(z) - prior.logpdf(z))

    low, high = center - 40 * spread, center + 40 * spread
    points = sorted({0.0, center})
    expected = integrate.quad(integrand, low, high, points=points, limit=500)[0]
    assert float(found) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("order", [1, 2])
def test_training_clips_to_the_ball_and_leaves_the_inside_alone(order):
    outputs = torch.tensor([[3.0, -4.0], [0.1, 0.2], [0.0, 0.0]])
    clipped = variational.clip(outputs, 1.0, order)
    assert float(torch.linalg.vector_norm(clipped[0], ord=order)) == pytest.approx(1, rel=1e-6)
    assert torch.equal(clipped[1:], outputs[1:])


@pytest.mark.parametrize(("noise", "deviation"), [("laplace", math.sqrt(2)), ("gaussian", 1.0)])
def test_training_noise_has_unit_scale(noise, deviation):
    draws = variational.standard_noise(
        torch.empty(200_000), noise, torch.Generator().manual_seed(0)
    )
    assert float(draws.std()) == pytest.approx(deviation, rel=0.02)
    assert float(draws.mean()) == pytest.approx(0, abs=0.02)


def test_training_learns(vlm):
    assert vlm.losses_[-1] < vlm.losses_[0]
    latents = vlm.clean_features(rows())
    side = rows().mean(axis=1) > 0.5
    gap = np.abs(latents[side].mean(axis=0) - latents[~side].mean(axis=0)).sum()
    assert gap > 1


def test_the_spread_is_fixed_or_learned():
    given = schema.ArraySchema(12, 0.0, 1.0)
    fixed = VLM(epsilon=1, radius=4.0, pretraining_epsilon=16).fit(rows(), schema=given, epochs=1)
    learned = VLM(epsilon=1, pretraining_epsilon="learned").fit(rows(), schema=given, epochs=2)
    assert fixed.spread_ == pytest.approx(2 * 4 / 16)
    assert learned.spread_ != pytest.approx(variational.PRIOR_SCALE, rel=1e-6)


def test_the_same_seed_gives_the_same_mechanism(vlm):
    given = schema.ArraySchema(12, 0.0, 1.0)
    again = VLM(epsilon=2, latent_dimension=3).fit(rows(), schema=given, epochs=15, batch_size=50)
    assert np.array_equal(again.encode(rows()), vlm.encode(rows()))


# --- guarantee and law ---------------------------------------------------------------------------


def test_shares_of_epsilon_add_up(vlm):
    latent, label = events.leaves(vlm.channel(True).event)
    assert latent.l1_sensitivity / latent.scale == Fraction(3, 2)
    assert label.epsilon == Fraction(1, 2)
    alone = vlm.channel(False).event
    assert alone.l1_sensitivity / alone.scale == 2
    for labelled in (False, True):
        assert vlm.channel(labelled).guarantee == PureDP(
            epsilon=2.0, adjacency="any-two-inputs", unit="record"
        )
    assert vlm.certificate.guarantee.epsilon == 2


def test_the_sibling_is_approximate(gaussian):
    for labelled in (False, True):
        stated = gaussian.channel(labelled).guarantee
        assert isinstance(stated, ApproxDP)
        assert 1.9 < stated.epsilon <= 2.0
        assert stated.delta == 1e-5
        Certificate.issue(gaussian.channel(labelled).event, guarantee=stated).verify()
    steps = gaussian.encode(rows())
    assert int((steps**2).sum(axis=1).max()) <= gaussian.ball.radius_steps**2


def test_any_two_rows_are_within_epsilon_and_some_reach_it(vlm):
    """The worst pair are opposite corners of the ball, with different labels."""
    radius = vlm.ball.radius_steps
    corners = np.concatenate([np.eye(3, dtype=np.int64), -np.eye(3, dtype=np.int64)]) * radius
    report = {"latent": corners, "label": np.zeros(6, np.int64)}
    law = np.stack([vlm.log_prob(report, corners[[i] * 6], np.full(6, i % 4)) for i in range(6)])
    worst = (law[:, None] - law[None]).max()
    assert worst == pytest.approx(2.0, abs=1e-6)
    assert worst <= 2.0 + 1e-9


def test_encoded_rows_are_in_the_ball(vlm):
    steps = vlm.encode(rows(500, seed=3))
    assert steps.dtype == np.int64
    assert int(np.abs(steps).sum(axis=1).max()) <= vlm.ball.radius_steps
    assert np.allclose(vlm.clean_features(rows(5)), vlm.encode(rows(5)) * vlm.ball.step)


def noise_fits(mechanism, released, clean):
    """Whether |noise| has the mean that the law says; a false alarm in 1e6 runs."""
    scale = float(mechanism.channel(True).noise.event.scale)
    distance = np.abs(released - clean)
    error = (distance.mean() - 1 / math.sinh(1 / scale)) / (distance.std() / distance.size**0.5)
    return abs(error) < 4.9


def test_what_is_released_follows_the_law_and_other_noise_is_noticed(vlm):
    raw = rows(4000, seed=5)
    reports = vlm.release(raw, np.arange(4000) % 4)
    clean = vlm.encode(raw)
    assert noise_fits(vlm, reports.columns["latent"], clean)
    for mutant in (vlm.at(2.2), vlm.at(1.8)):
        assert not noise_fits(mutant, reports.columns["latent"], clean)
    kept = (reports.columns["label"] == np.arange(4000) % 4).mean()
    assert kept == pytest.approx(vlm.channel(True).flip.matrix[0, 0], abs=0.04)


def test_another_epsilon_is_the_same_encoder_with_other_noise(vlm):
    other = vlm.at(8)
    assert np.array_equal(other.encode(rows(20)), vlm.encode(rows(20)))
    assert other.channel(False).event.scale == vlm.channel(False).event.scale / 4
    assert vlm.epsilon == 2


def test_reports_are_marked_and_reproducible(vlm):
    first, second = (vlm.release(rows(50), rng=np.random.default_rng(1)) for _ in range(2))
    assert first.seeded
    assert not vlm.release(rows(5)).seeded
    assert np.array_equal(first.columns["latent"], second.columns["latent"])
    assert not first.labelled


def test_posterior_is_bayes_through_the_channel(vlm, gaussian):
    for mechanism in (vlm, gaussian):
        reports = mechanism.release(rows(6), np.zeros(6, int), rng=np.random.default_rng(0))
        inhouse = mechanism.encode(rows(9, seed=8))
        code = np.zeros(6, int)
        law = np.stack(
            [mechanism.log_prob(reports.columns, inhouse[[j] * 6], code) for j in range(9)], axis=1
        )
        expected = np.exp(law - law.max(axis=1, keepdims=True))
        expected /= expected.sum(axis=1, keepdims=True)
        assert np.allclose(mechanism.posterior(reports, inhouse), expected, atol=1e-3)


# --- levels, storage -----------------------------------------------------------------------------


def test_levels(vlm):
    reports = vlm.release(rows(30), rng=np.random.default_rng(2))
    assert vlm.released_features(reports).shape == (30, 3)
    mean = vlm.released_features(reports, level="feature")
    drawn = vlm.released_features(reports, level="feature", sample=True)
    assert mean.shape == drawn.shape == vlm.clean_features(rows(30), "feature").shape == (30, 12)
    assert not np.allclose(mean, drawn)
    with pytest.raises(InvalidParameter, match="level must be one of latent, feature"):
        vlm.released_features(reports, level="pixel")


def test_parts_give_the_same_mechanism_back(vlm, gaussian):
    for mechanism in (vlm, gaussian):
        parameters, arrays = mechanism.parts()
        again = VLM.from_parts(parameters, arrays)
        assert np.array_equal(again.encode(rows(40)), mechanism.encode(rows(40)))
        assert again.channel(True).event == mechanism.channel(True).event
        assert again.channel(True).guarantee == mechanism.channel(True).guarantee
        assert again.parts()[0] == parameters


def test_parts_that_do_not_fit_are_refused(vlm):
    parameters, arrays = vlm.parts()
    broken = {**arrays, "encoder.0.weight": np.full_like(arrays["encoder.0.weight"], np.nan)}
    with pytest.raises(InvalidData, match="finite"):
        VLM.from_parts(parameters, broken)
    with pytest.raises(InvalidData, match="shapes"):
        VLM.from_parts({**parameters, "latent_dimension": 5}, arrays)


def test_tables_and_images():
    table = {"age": np.arange(60) % 50, "job": np.array(["a", "b", "c"] * 20)}
    fitted = VLM(epsilon=1, latent_dimension=2).fit(table, epochs=1)
    assert fitted.encode(table).shape == (60, 2)
    assert fitted.clean_features(table, "feature").shape == (60, 1 + 4)
    images = np.random.default_rng(0).integers(0, 256, (40, 5, 5), dtype=np.uint8)
    for likelihood in (None, "logits", "bernoulli"):
        made = VLM(epsilon=1, likelihood=likelihood).fit(images, epochs=1)
        assert made.release(images).columns["latent"].shape == (40, 8)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, math.inf, math.nan, -1, "many"])
def test_no_epsilon_that_protects_nobody(vlm, epsilon):
    with pytest.raises(InvalidParameter, match="VLM: epsilon must be") as error:
        VLM(epsilon=epsilon)
    assert "\n" not in str(error.value)
    with pytest.raises(InvalidParameter, match="VLM: epsilon must be"):
        vlm.at(epsilon)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 1e-5}, "delta must be left out"),
        ({"noise": "gaussian"}, "delta must be given"),
        ({"noise": "gaussian", "delta": 0}, "delta must be"),
        ({"noise": "uniform"}, "noise must be one of"),
        ({"radius": 0}, "radius must be"),
        ({"pretraining_epsilon": math.nan}, "pretraining_epsilon must be"),
        ({"pretraining_epsilon": "guess"}, "pretraining_epsilon must be"),
        ({"label_share": 1}, "label_share must be"),
        ({"classes": 1}, "classes must be"),
        ({"latent_dimension": 0}, "latent_dimension must be"),
        ({"likelihood": "poisson"}, "likelihood must be"),
        ({"grid": 0.3}, "grid must be a power of two"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InvalidParameter, match=message):
        VLM(epsilon=1, **settings)


def test_bad_rows_and_labels(vlm):
    holed = rows(10)
    holed[3, 7] = np.nan
    with pytest.raises(InvalidData, match="column 7 must be finite"):
        vlm.release(holed)
    with pytest.raises(InvalidData, match=r"within \[0, 1\]"):
        vlm.release(rows(10) + 1)
    with pytest.raises(InvalidData, match="row 2 is not"):
        vlm.release(rows(3), [0, 1, 9])
    with pytest.raises(InvalidData, match="one per row"):
        vlm.release(rows(3), [0, 1])
    without = copy.copy(vlm.at(1))
    without.classes = None
    with pytest.raises(InvalidParameter, match="classes must be declared"):
        without.release(rows(2), [0, 1])
    with pytest.raises(InvalidParameter, match="must be fitted first"):
        VLM(epsilon=1).release(rows(2))


def test_reports_that_nobody_released_are_refused(vlm):
    latent = np.zeros((4, 3), np.int64)
    for columns, labelled in [
        ({"latent": latent}, True),
        ({"latent": latent[:, :2]}, False),
        ({"latent": latent, "label": np.array([0, 1, 2, 4])}, True),
        ({"latent": latent, "label": np.array([0, 1, 2, -1])}, True),
        ({"latent": latent, "label": np.zeros(3, np.int64)}, True),
        ({"latent": latent + 0.5}, False),
    ]:
        with pytest.raises(InvalidData, match="reports"):
            Reports(vlm, columns, vlm.channel(labelled))
