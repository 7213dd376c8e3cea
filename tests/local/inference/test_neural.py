"""A classifier fitted through flipped labels, and through noised rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.local.inference.marginal import fit_clean_network, fit_score
from tacit.local.inference.neural import Network, Settings, fit_network, fit_networks, settings_for
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import RandomizedResponse

torch.set_num_threads(1)
SHORT = {"epochs": 30, "patience": 10, "batch_size": 256}


def problem(count=4000, epsilon=1.0, seed=0, separation=2.0):
    """Three Gaussian classes in the plane, and flipped labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centers = separation * np.array([[1, 0], [-0.5, 0.9], [-0.5, -0.9]])
    rows = centers[labels] + rng.standard_normal((count, 2))
    flip = RandomizedResponse(categories=3, epsilon=epsilon)
    return rows, labels, flip.release(labels, rng), flip.matrix


@pytest.mark.parametrize("hidden", [(), (20,)])
def test_it_learns_through_the_flip(hidden):
    rows, labels, released, flip = problem()
    network = fit_network(rows, released, flip, Settings(hidden=hidden, **SHORT))
    test_rows, test_labels, *_ = problem(seed=1)
    proba = network.predict_proba(test_rows)
    assert (proba.argmax(axis=1) == test_labels).mean() > 0.9
    assert np.allclose(proba.sum(axis=1), 1)
    assert (labels == released).mean() < 0.7


def test_it_speaks_of_true_labels_and_a_fit_that_ignores_the_flip_does_not():
    rows, _, released, flip = problem()
    settings = Settings(hidden=(), weight_decay=0, **SHORT)
    aware = fit_network(rows, released, flip, settings)
    blind = fit_network(rows, released, np.eye(3), settings)
    test_rows, test_labels, *_ = problem(seed=1)
    picked = np.arange(len(test_labels)), test_labels
    assert np.log(aware.predict_proba(test_rows)[picked]).mean() > -0.35
    assert np.log(blind.predict_proba(test_rows)[picked]).mean() < -0.5


def test_held_out_is_the_likelihood_of_held_out_reports():
    rows, _, released, flip = problem(1500)
    more, _, more_released, _ = problem(500, seed=4)
    network = fit_network(
        rows, released, flip, Settings(hidden=(), **SHORT), validation=(more, more_released)
    )
    mean = network.log_likelihood(more, more_released, flip).mean()
    assert network.held_out == pytest.approx(mean, abs=1e-5)
    assert mean > -np.log(3)


def test_side_by_side_is_each_alone():
    problems = [problem(600, seed=s) for s in (0, 1)]
    rows, labels, flips = (np.stack([p[i] for p in problems]) for i in (0, 2, 3))
    settings = Settings(hidden=(5,), epochs=4, batch_size=100)
    both = fit_networks(rows, labels, flips, rows, labels, settings, weight_decays=[0.0, 0.1])
    for index, decay in enumerate((0.0, 0.1)):
        one = slice(index, index + 1)
        (alone,) = fit_networks(
            rows[one], labels[one], flips[one], rows[one], labels[one], settings,
            weight_decays=[decay],
        )  # fmt: skip
        assert np.allclose(alone.logits(rows[index]), both[index].logits(rows[index]), atol=1e-3)


def test_without_an_output_bias_clean_rows_are_not_all_one_class():
    """Rows with ten times their own spread of noise, as at a small ε."""
    rng = np.random.default_rng(0)
    rows, _, released, flip = problem(20_000, separation=3.0)
    noisy = rows + 30 * rng.standard_normal(rows.shape)
    clean, labels, *_ = problem(seed=1, separation=3.0)
    accuracy = {}
    for bias in (False, True):
        settings = Settings(hidden=(), output_bias=bias, epochs=10, batch_size=1000)
        network = fit_network(noisy, released, flip, settings)
        assert bias or not network.biases[-1].any()
        accuracy[bias] = (network.predict_proba(clean).argmax(axis=1) == labels).mean()
    assert accuracy[False] > 0.6
    assert accuracy[False] > accuracy[True] + 0.1


def test_under_heavy_noise_the_rule_is_linear_and_stands_it():
    assert settings_for(10) == Settings()
    assert settings_for(10, (), False) == settings_for(2)
    assert settings_for(2, (9,)) == Settings(hidden=(9,))
    assert settings_for(2, None, True) == Settings(hidden=())
    heavy = settings_for(2)
    assert (heavy.hidden, heavy.output_bias, heavy.early_stopping) == ((), False, False)
    rows, _, released, flip = problem(5000, separation=3.0)
    noisy = rows + 30 * np.random.default_rng(0).standard_normal(rows.shape)
    clean, labels, *_ = problem(seed=1, separation=3.0)
    network = fit_network(noisy, released, flip, heavy)
    usual = fit_network(noisy, released, flip, Settings(**SHORT))
    found, other = (
        (fitted.predict_proba(clean).argmax(axis=1) == labels).mean() for fitted in (network, usual)
    )
    assert found > other + 0.1


def test_without_early_stopping_the_last_epoch_is_kept():
    rows, _, released, flip = problem(300)
    short, long = (
        fit_network(rows, released, flip, Settings(hidden=(), epochs=e, early_stopping=False))
        for e in (40, 41)
    )
    assert not np.array_equal(short.weights[0], long.weights[0])
    mean = long.log_likelihood(rows, released, flip).mean()
    assert long.held_out == pytest.approx(mean, abs=0.2)


def noised(count, scale, epsilon):
    """Reports with noise on rows too, and what in-house points say of them."""
    rng = np.random.default_rng(0)
    rows, _, released, flip = problem(count, epsilon=epsilon)
    points = problem(400, seed=3)[0]
    noisy = rows + scale * rng.standard_normal(rows.shape)
    odds = -((noisy[:, None] - points[None]) ** 2).sum(axis=2) / (2 * scale**2)
    weights = np.exp(odds - odds.max(axis=1, keepdims=True))
    return noisy, released, flip, points, weights / weights.sum(axis=1, keepdims=True)


def test_a_clean_network_sums_the_noise_out():
    noisy, released, flip, points, weights = noised(5000, 2.0, 2.0)
    network = fit_clean_network(
        points, weights, released, flip, Settings(hidden=(), weight_decay=1e-4, **SHORT)
    )
    clean, labels, *_ = problem(seed=1)
    proba = network.predict_proba(clean)
    plain = fit_network(noisy, released, flip, Settings(hidden=(), **SHORT)).predict_proba(clean)
    picked = np.arange(len(labels)), labels
    # It knows how sure it may be of clean rows; the other one is as unsure as of noisy ones.
    assert np.log(proba[picked]).mean() > np.log(plain[picked]).mean() + 0.1
    assert (proba.argmax(axis=1) == labels).mean() > 0.88


def test_a_score_is_the_slope_of_the_likelihood_at_zero():
    _, released, flip, points, weights = noised(2000, 10.0, 1.0)
    network = fit_score(points, weights, released, flip)
    inputs = torch.as_tensor((points - network.center) / network.spread)
    direction = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    proba = torch.as_tensor(weights) @ torch.softmax(inputs @ direction, dim=1)
    (proba * torch.as_tensor(flip[:, released].T)).sum(dim=1).log().mean().backward()
    slope = direction.grad.numpy() - direction.grad.numpy().mean(axis=1, keepdims=True)
    found = network.weights[0] - network.weights[0].mean(axis=1, keepdims=True)
    # Not quite equal: labels are centred, so that an unequal share of them says nothing of rows.
    assert np.corrcoef(slope.ravel(), found.ravel())[0, 1] > 0.99


def test_a_score_finds_classes_that_the_noise_hides_and_shuffled_labels_do_not():
    _, released, flip, points, weights = noised(20_000, 10.0, 1.0)
    clean, labels, *_ = problem(seed=1)

    def accuracy(given):
        proba = fit_score(points, weights, given, flip).predict_proba(clean)
        return (proba.argmax(axis=1) == labels).mean()

    assert accuracy(released) > 0.8
    assert accuracy(np.random.default_rng(1).permutation(released)) < 0.7


def test_weights_must_fit_the_points():
    _, released, flip, points, weights = noised(50, 2.0, 1.0)
    for fit in (fit_clean_network, fit_score):
        with pytest.raises(InvalidData, match="one column per point"):
            fit(points[:-1], weights, released, flip)


def test_parts_and_repetition():
    rows, _, released, flip = problem(500)
    first, second = (
        fit_network(rows, released, flip, Settings(epochs=2), seed=3) for _ in range(2)
    )
    again = Network.from_parts(*first.parts())
    assert np.array_equal(first.logits(rows), second.logits(rows))
    assert np.array_equal(first.logits(rows), again.logits(rows))
    assert again.held_out == first.held_out
    assert again.classes == 3


def test_refusals():
    rows, _, released, flip = problem(50)
    with pytest.raises(InvalidData, match="one per row"):
        fit_network(rows, released[:-1], flip)
    with pytest.raises(InvalidData, match=r"must lie in \[0, 2\]"):
        fit_network(rows, released + 1, flip)
    with pytest.raises(InvalidParameter, match="flip_matrix must be square"):
        fit_network(rows, released, flip * 0.9)
    with pytest.raises(InvalidData, match="features must be numbers"):
        fit_network(rows[:, 0], released, flip)
    with pytest.raises(InvalidParameter, match="validation must be"):
        fit_network(rows, released, flip, validation=0.0)
    for wrong in ({"epochs": 0}, {"weight_decay": -1}, {"weight_decay": np.nan}, {"hidden": (0,)}):
        with pytest.raises(InvalidParameter, match="Settings"):
            Settings(**wrong)


def penalised(network, inputs, labels, flip):
    size = sum(float((weight.astype(np.float64) ** 2).sum()) for weight in network.weights)
    penalty = settings_for(4).weight_decay / 2 * size
    return float(network.log_likelihood(inputs, labels, flip).mean()) - penalty


def test_the_learner_without_torch_finds_the_same_maximum_as_torch():
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 3, 600)
    inputs = (np.eye(3)[digits] + rng.normal(0, 0.5, (600, 3))).astype(np.float32)
    flip = 0.4 * np.eye(3) + 0.2
    labels = np.where(rng.random(600) < 0.4, digits, rng.integers(0, 3, 600))
    ours = fit_network(inputs, labels, flip, settings_for(4))
    problem = (one[None] for one in (inputs, labels, flip, inputs[:1], labels[:1]))
    (theirs,) = fit_networks(*problem, replace(settings_for(4), epochs=400))
    best = penalised(ours, inputs, labels, flip)
    assert best >= penalised(theirs, inputs, labels, flip) - 1e-5
    assert np.mean(ours.predict_proba(inputs).argmax(axis=1) == digits) > 0.8
    for _ in range(20):
        nearby = ours.weights[0] + rng.normal(0, 0.03, (3, 3)).astype(np.float32)
        other = Network(ours.center, ours.spread, (nearby,), ours.biases)
        assert penalised(other, inputs, labels, flip) < best
