"""Ceilings: the paper's, any channel's, who reaches them, and that nobody passes them."""

import math

import numpy as np
import pytest

from tacit.local import ceilings
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import LocalLaplace, RandomizedResponse
from tacit.privacy.randomness import Seeded

EPSILONS = (1, 2, 4, 6, 8, 10)


def closed_form(classes, epsilon):
    """Equation 22 of the paper, d = K/2, term by term."""
    d = classes // 2
    total = (1 - d) * (epsilon + 1) / 4 * math.exp(-epsilon / 2)
    for j in [0, *range(2, d)]:
        first = math.exp(-j * epsilon / 2) / (1 - j**2)
        second = math.exp(-epsilon / 2) / (2 * (1 - j))
        total += math.comb(d - 1, j) * (-1) ** j * (first - second)
    return total


def test_the_table_of_ten_classes():
    laplace = [round(ceilings.laplace(10, e), 3) for e in EPSILONS]
    assert laplace == [0.165, 0.262, 0.513, 0.730, 0.865, 0.937]
    universal = [round(ceilings.universal(10, e), 3) for e in EPSILONS]
    assert universal == [0.232, 0.451, 0.858, 0.978, 0.997, 1.0]
    assert round(ceilings.universal(10, 10), 4) == 0.9996


@pytest.mark.parametrize("classes", [2, 4, 6, 10, 20])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 8.0, 30.0])
def test_the_integral_is_the_closed_form(classes, epsilon):
    # The sum cancels digits: 20 classes leave about ten of them.
    found = ceilings.laplace(classes, epsilon)
    assert found == pytest.approx(closed_form(classes, epsilon), abs=1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 2.0, 9.0, 700.0])
def test_two_classes(epsilon):
    """One coordinate: right unless the noise passes the middle."""
    assert ceilings.laplace(2, epsilon) == pytest.approx(1 - math.exp(-epsilon / 2) / 2, abs=1e-9)
    logistic = 1 / (1 + math.exp(-epsilon))
    assert ceilings.universal(2, epsilon) == pytest.approx(logistic, rel=1e-12)


def test_an_odd_number_of_classes_is_the_even_one_below():
    assert ceilings.laplace(5, 2.0) == ceilings.laplace(4, 2.0)
    # Unless that is above what any channel can leave.
    assert ceilings.laplace(3, 2.0) == ceilings.universal(3, 2.0) < ceilings.laplace(2, 2.0)
    assert ceilings.laplace(11, 2.0) == ceilings.laplace(10, 2.0) > ceilings.laplace(12, 2.0)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_shape(classes):
    grid = np.array([1e-6, 0.1, 1, 2, 5, 10, 20, 60, 300])
    for ceiling in (ceilings.laplace, ceilings.universal):
        values = np.array([ceiling(classes, e) for e in grid])
        assert np.all(np.diff(values) >= -1e-9)
        assert values[0] == pytest.approx(1 / (classes - classes % 2), rel=1e-4)
        assert values[-1] == pytest.approx(1, abs=1e-9)
        assert np.all(values <= 1)
    for e in grid:
        assert ceilings.laplace(classes, e) <= ceilings.universal(classes, e) + 1e-9


def test_laplace_noise_on_the_vertices_reaches_the_laplace_ceiling():
    """Classes at the vertices of the ℓ1 ball, the largest coordinate and its sign as the answer."""
    epsilon, classes, count = 4.0, 6, 20_000
    vertices = np.vstack([np.eye(3), -np.eye(3)])
    truth = np.random.default_rng(0).integers(0, classes, count)
    shown = LocalLaplace(epsilon=epsilon, radius=1.0).release(vertices[truth], Seeded(1))
    answer = (shown @ vertices.T).argmax(axis=1)
    found = (answer == truth).mean()
    assert found == pytest.approx(ceilings.laplace(classes, epsilon), abs=4 * 0.5 / count**0.5)


# --- any channel at all --------------------------------------------------------------------------


def bayes(channel):
    """The best accuracy on balanced classes: for every output, its likeliest input."""
    return channel.max(axis=0).sum() / len(channel)


@pytest.mark.parametrize("classes", [2, 3, 10, 50])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_randomized_response_reaches_the_universal_ceiling(classes, epsilon):
    matrix = RandomizedResponse(categories=classes, epsilon=epsilon).matrix
    ceiling = ceilings.universal(classes, epsilon)
    assert bayes(matrix) == pytest.approx(ceiling, rel=1e-9)
    assert bayes(matrix) <= ceiling + 1e-12
    # Noise for a larger ε would pass it.
    assert bayes(RandomizedResponse(categories=classes, epsilon=1.2 * epsilon).matrix) > ceiling


def random_channel(rng, classes):
    """Odds that are extreme, as those of the best channels are, or anything in between."""
    outputs = int(rng.integers(2, 2 * classes + 2))
    share = rng.random((classes, outputs))
    if rng.random() < 0.5:
        share = share < rng.uniform(0.05, 0.6)
    if outputs >= classes and rng.random() < 0.3:
        share = 0.1 * share
        share[:, :classes] = np.eye(classes)
    odds = rng.dirichlet(np.full(outputs, 5.0)) * np.exp(rng.uniform(0.1, 5.0) * share)
    return odds / odds.sum(axis=1, keepdims=True)


def _loss(channel, delta=0.0):
    """The smallest ε at this δ over all pairs of rows; brute force."""
    if delta == 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(channel[:, None] / channel[None])
        return np.nanmax(ratio)
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        excess = np.maximum(channel[:, None] - math.exp(middle) * channel[None], 0).sum(axis=2)
        low, high = (middle, high) if excess.max() > delta else (low, middle)
    return high


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_no_random_channel_passes_the_universal_ceiling(classes):
    """Each at the ε that it has, by brute force over all pairs and outputs."""
    rng = np.random.default_rng(0)
    reached = []
    for _ in range(1000):
        channel = random_channel(rng, classes)
        ceiling = ceilings.universal(classes, max(_loss(channel), 1e-9))
        assert bayes(channel) <= ceiling + 1e-12
        reached.append((bayes(channel) - 1 / classes) / (ceiling - 1 / classes + 1e-12))
    # They are no feeble crowd: some come near, and would notice a lower ceiling.
    assert max(reached) > 0.8


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("delta", [0.01, 0.2])
def test_telling_the_truth_with_chance_delta_reaches_the_approximate_ceiling(classes, delta):
    epsilon = 1.3
    response = RandomizedResponse(categories=classes, epsilon=epsilon).matrix
    channel = np.hstack([delta * np.eye(classes), (1 - delta) * response])
    assert _loss(channel, delta) <= epsilon + 1e-9
    ceiling = ceilings.universal(classes, epsilon, delta)
    assert bayes(channel) == pytest.approx(ceiling, rel=1e-9)
    assert ceiling > ceilings.universal(classes, epsilon)


def test_no_random_channel_passes_the_approximate_ceiling():
    """Any channel whatever, at the ε that it has for a given δ."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        classes, outputs = (int(n) for n in rng.integers(2, 6, 2))
        channel = rng.dirichlet(np.full(outputs, rng.choice([0.1, 1.0])), classes)
        delta = float(rng.choice([0.001, 0.05, 0.3]))
        epsilon = max(_loss(channel, delta), 1e-9)
        assert bayes(channel) <= ceilings.universal(classes, epsilon, delta) + 1e-9


def test_refusals():
    for ceiling in (ceilings.laplace, ceilings.universal):
        for classes in (1, 0, 2.5, "ten"):
            with pytest.raises(InvalidParameter, match="classes must be"):
                ceiling(classes, 1.0)
        for epsilon in (0, -1, math.inf, math.nan):
            with pytest.raises(InvalidParameter, match="epsilon must be"):
                ceiling(10, epsilon)
    for delta in (-0.1, 1, math.nan):
        with pytest.raises(InvalidParameter, match="delta must be"):
            ceilings.universal(10, 1.0, delta)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.5, 4.0])
def test_shares_against_a_linear_programme(epsilon):
    """Over all decision rules that an ε-local channel can leave."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    for shares in ([0.76, 0.24], [0.5, 0.5], [0.4, 0.35, 0.25], rng.dirichlet(np.ones(5))):
        count = len(shares)
        gain = -np.diag(shares).ravel()
        limits = []
        for answer in range(count):
            for x in range(count):
                for other in range(count):
                    if x != other:
                        line = np.zeros((count, count))
                        line[x, answer], line[other, answer] = 1, -math.exp(epsilon)
                        limits.append(line.ravel())
        rows = np.kron(np.eye(count), np.ones(count))
        best = -linprog(gain, limits, np.zeros(len(limits)), rows, np.ones(count)).fun
        assert ceilings.of_shares(shares, epsilon) == pytest.approx(best, abs=1e-9)


def test_equal_shares_are_the_universal_ceiling():
    for classes, epsilon in ((2, 0.3), (10, 2.0), (100, 6.0)):
        equal = ceilings.of_shares(np.full(classes, 1 / classes), epsilon)
        assert equal == pytest.approx(ceilings.universal(classes, epsilon), rel=1e-12)


@pytest.mark.parametrize("shares", [[], [0.5, 0.6], [1.2, -0.2], [[0.5, 0.5]], ["a"], [np.nan, 1]])
def test_bad_shares(shares):
    with pytest.raises((InvalidParameter, InvalidData)):
        ceilings.of_shares(shares, 1.0)
