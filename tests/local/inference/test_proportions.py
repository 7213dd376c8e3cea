"""Linear models fitted to reports: gradients, and known models found again."""

import numpy as np
import pytest
from scipy.special import softmax

from tacit.local.inference import proportions
from tacit.local.inference.finite import Evidence
from tacit.local.inference.proportions import Inhouse, fit_labels, fit_tilt
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

CODEWORDS, CLASSES, WIDTH = 16, 3, 2
WEIGHTS = np.array([[1.5, 0.0, -1.0], [0.0, -1.2, 0.8]])
BIAS = np.array([0.3, 0.0, -0.4])


def rows(count, seed=0):
    """Vectors, and the cell of a grid that each is in."""
    vectors = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    edges = np.array([-0.7, 0.0, 0.7])
    columns = [np.searchsorted(edges, vectors[:, i]) for i in range(WIDTH)]
    return vectors, columns[0] * 4 + columns[1]


def evidence_of(symbols, categories, classes, epsilon, seed=0, size=None):
    channel = SubsetSelection(categories=categories, epsilon=epsilon, size=size)
    return Evidence(channel.release(symbols, Seeded(seed)), channel, classes)


def labelled(count=20_000, epsilon=8.0, seed=1):
    """Reports of people whose labels follow a logistic model."""
    vectors, codes = rows(count, seed)
    odds = softmax(vectors @ WEIGHTS + BIAS, axis=1)
    chance = np.random.default_rng(seed + 100).random((count, 1))
    labels = (odds.cumsum(axis=1) < chance).sum(axis=1).clip(max=CLASSES - 1)
    return evidence_of(codes * CLASSES + labels, CODEWORDS * CLASSES, CLASSES, epsilon, seed + 200)


def tilted(count=40_000, epsilon=8.0, weights=(0.8, -0.5), seed=1):
    """Reports of people of a class that is a tilt of the in-house rows: a shifted normal."""
    vectors, codes = rows(4 * count, seed)
    odds = np.exp(vectors @ np.asarray(weights))
    chosen = np.random.default_rng(seed + 100).choice(4 * count, count, p=odds / odds.sum())
    return evidence_of(codes[chosen], CODEWORDS, 1, epsilon, seed + 200)


def spied(monkeypatch, fit, *arguments):
    """What `fit` maximises, and the shape of its weights."""
    seen = {}
    maximise = proportions._maximise

    def spy(objective, shape, penalty):
        seen.update(objective=objective, shape=shape, penalty=penalty)
        return maximise(objective, shape, penalty)

    monkeypatch.setattr(proportions, "_maximise", spy)
    fit(*arguments)
    return seen


def gradient_is_right(objective, shape, seed=0):
    """Central differences; weights pass through float32, so steps are large and rows few."""
    weights = np.random.default_rng(seed).normal(size=shape) * 0.3
    _, slope = objective(weights)
    assert slope.shape == shape
    numeric = np.empty(shape)
    for place in np.ndindex(shape):
        step = np.zeros(shape)
        step[place] = 1e-2
        numeric[place] = (objective(weights + step)[0] - objective(weights - step)[0]) / 2e-2
    return np.abs(slope - numeric).max() < 2e-3 * np.abs(numeric).max()


@pytest.mark.parametrize("kind", ["labels", "tilt"])
def test_gradients(monkeypatch, kind):
    inhouse = Inhouse.of(*rows(400))
    if kind == "labels":
        shares = np.bincount(inhouse.codes, minlength=CODEWORDS) / 400
        arguments = (fit_labels, inhouse, labelled(300, 2.0), shares)
    else:
        arguments = (fit_tilt, inhouse, tilted(300, 2.0))
    seen = spied(monkeypatch, *arguments)
    assert gradient_is_right(seen["objective"], seen["shape"])

    def wrong(weights):
        value, slope = seen["objective"](weights)
        return value, slope * 1.02

    assert not gradient_is_right(wrong, seen["shape"])


def test_a_known_logistic_model_is_found_again():
    vectors, codes = rows(20_000)
    inhouse = Inhouse.of(vectors, codes)
    shares = np.bincount(codes, minlength=CODEWORDS) / len(codes)
    network = fit_labels(inhouse, labelled(60_000), shares, penalty=1e-3)
    test, _ = rows(2000, seed=9)
    wanted = softmax(test @ WEIGHTS + BIAS, axis=1)
    found = network.predict_proba(test)
    assert np.abs(found - wanted).mean() < 0.02
    # Logits are free up to a constant; a wrong model is not near.
    weights = network.weights[0] / network.spread[:, None]
    centered = weights - weights.mean(axis=1, keepdims=True)
    assert np.allclose(centered, WEIGHTS - WEIGHTS.mean(axis=1, keepdims=True), atol=0.12)
    assert np.abs(wanted[:, ::-1] - wanted).mean() > 0.2


def test_noise_is_accounted_for():
    """At ε = 1 a report rarely holds the truth, and the model is still found."""
    vectors, codes = rows(10_000)
    shares = np.bincount(codes, minlength=CODEWORDS) / len(codes)
    network = fit_labels(Inhouse.of(vectors, codes), labelled(60_000, 1.0), shares)
    test, _ = rows(2000, seed=9)
    wanted = softmax(test @ WEIGHTS + BIAS, axis=1)
    found = network.predict_proba(test)
    assert (found.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.9


def test_the_penalty_shrinks_weights_and_not_the_constant():
    vectors, codes = rows(5000)
    shares = np.bincount(codes, minlength=CODEWORDS) / len(codes)
    evidence = labelled(20_000)
    inhouse = Inhouse.of(vectors, codes)
    free = fit_labels(inhouse, evidence, shares, penalty=1e-3)
    held = fit_labels(inhouse, evidence, shares, penalty=1e6)
    assert np.abs(held.weights[0]).max() < 0.05 * np.abs(free.weights[0]).max()
    marginal = softmax(vectors @ WEIGHTS + BIAS, axis=1).mean(axis=0)
    assert np.allclose(held.predict_proba(vectors[:1]), marginal, atol=0.03)


def test_a_known_tilt_and_its_constant_are_found_again():
    vectors, codes = rows(40_000)
    network, shares = fit_tilt(Inhouse.of(vectors, codes), tilted(), penalty=1e-3)
    logits = network.logits(vectors).astype(np.float64)
    assert not logits[:, 0].any()
    weights = network.weights[0][:, 1] / network.spread
    assert np.allclose(weights, (0.8, -0.5), atol=0.06)
    # Log of a density ratio: its mean over the in-house rows is 1, and at zero −|w|²/2.
    assert np.exp(logits[:, 1]).mean() == pytest.approx(1, rel=1e-3)
    origin = network.logits(np.zeros((1, WIDTH), np.float32))[0, 1]
    assert origin == pytest.approx(-(0.8**2 + 0.5**2) / 2, abs=0.05)
    # The shares of both: what is counted in-house, and what tilted people have.
    assert np.allclose(shares[:, 0], np.bincount(codes, minlength=CODEWORDS) / len(codes))
    odds = np.exp(vectors @ np.array([0.8, -0.5]))
    assert np.allclose(shares[:, 1], np.bincount(codes, odds) / odds.sum(), atol=0.01)


def test_people_like_the_inhouse_rows_have_no_tilt():
    vectors, codes = rows(20_000)
    network, shares = fit_tilt(Inhouse.of(vectors, codes), tilted(weights=(0, 0)), penalty=1e-3)
    assert np.abs(network.weights[0]).max() < 0.06
    assert np.abs(network.predict_proba(vectors) - 0.5).max() < 0.1
    assert np.allclose(shares[:, 0], shares[:, 1], atol=0.01)


def test_inhouse_rows_are_sorted_and_summed():
    vectors, codes = rows(200)
    codes = np.where(codes == 3, 5, codes)  # codeword 3 has no rows
    inhouse = Inhouse.of(vectors, codes)
    totals = inhouse.totals(inhouse.inputs, CODEWORDS)
    for code in range(CODEWORDS):
        mine = vectors[codes == code]
        expected = ((mine - inhouse.center) / inhouse.spread).sum(axis=0)
        assert np.allclose(totals[code, :-1], expected, atol=1e-3)
        assert totals[code, -1] == len(mine)
    assert totals[3].tolist() == [0.0] * 3
    assert len(set(inhouse.spread.tolist())) == 1
