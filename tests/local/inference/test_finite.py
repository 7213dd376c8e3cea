"""Maximum likelihood through a finite channel: the maximum, its gradient, the shift, intervals."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, kstest

from tacit.local.inference import finite
from tacit.local.inference.finite import (
    Evidence,
    ShiftTest,
    bootstrap,
    interval,
    maximum_likelihood,
    shift_test,
)
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

CODEWORDS, CLASSES = 4, 3
SHAPE = (CODEWORDS, CLASSES)
TRUTH = np.random.default_rng(0).dirichlet(np.full(12, 1.0)).reshape(SHAPE)


def reported(truth=TRUTH, epsilon=2.0, people=3000, seed=0, size=None):
    """Reports of people drawn with these shares, and the symbols that they had."""
    people_stream, noise_stream = np.random.default_rng(seed).spawn(2)
    classes = truth.shape[1]
    channel = SubsetSelection(categories=truth.size, epsilon=epsilon, size=size)
    drawn = people_stream.choice(truth.size, people, p=truth.ravel())
    return Evidence(channel.release(drawn, Seeded(noise_stream)), channel, classes), drawn


def objective(evidence, theta, prior):
    """Log-posterior and its gradient, as `maximum_likelihood` means them."""
    value, slope = evidence.likelihood(theta)
    rows = theta.sum(axis=1)
    value += float((prior * np.log(rows)).sum())
    return value, slope + (prior / rows)[:, None]


def by_gradient(evidence, prior):
    """The maximum by another road: softmax coordinates and L-BFGS."""
    shape = (evidence.codewords, evidence.classes)

    def loss(flat):
        odds = np.exp(flat - flat.max())
        theta = (odds / odds.sum()).reshape(shape)
        value, slope = objective(evidence, theta, prior)
        return -value, -(theta * (slope - (theta * slope).sum())).ravel()

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-7}
    start = np.zeros(evidence.codewords * evidence.classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    odds = np.exp(found.x - found.x.max())
    return (odds / odds.sum()).reshape(shape), -float(found.fun)


# --- likelihood ----------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1 << 22, 64])
def test_the_gradient_is_that_of_the_likelihood(monkeypatch, blocks):
    monkeypatch.setattr(finite, "_BLOCK_CELLS", blocks)
    evidence, _ = reported(people=200)
    theta = np.random.default_rng(1).dirichlet(np.ones(12)).reshape(SHAPE)
    _, slope = evidence.likelihood(theta)
    assert slope.shape == SHAPE
    for place in np.ndindex(SHAPE):
        step = np.zeros(SHAPE)
        step[place] = 1e-6
        up, down = (evidence.likelihood(theta + s * step)[0] for s in (1, -1))
        assert slope[place] == pytest.approx((up - down) / 2e-6, rel=1e-5)


def test_the_likelihood_is_the_channels_own_up_to_a_constant():
    evidence, _ = reported(people=60)
    channel = evidence.channel
    rng = np.random.default_rng(2)
    differences = []
    for _ in range(5):
        theta = rng.dirichlet(np.ones(12)).reshape(SHAPE)
        law = np.exp(
            [channel.log_prob(evidence.sets, np.full(len(evidence), x)) for x in range(12)]
        )
        exact = np.log(theta.ravel() @ law).sum()
        differences.append(exact - evidence.likelihood(theta)[0])
    assert np.ptp(differences) < 1e-9 * abs(differences[0])


def test_the_step_is_that_of_expectation_maximisation():
    """Against responsibilities from the law, written out; and the identity that it rests on."""
    evidence, _ = reported(people=150)
    theta = np.random.default_rng(3).dirichlet(np.ones(12)).reshape(SHAPE)
    prior = np.array([5.0, 0.0, 2.0, 1.0])
    law = np.exp([evidence.channel.log_prob(evidence.sets, np.full(150, x)) for x in range(12)])
    mine = theta.ravel()[:, None] * law
    expected = (mine / mine.sum(axis=0)).sum(axis=1).reshape(SHAPE)
    rows = expected.sum(axis=1) + prior
    wanted = expected / expected.sum(axis=1, keepdims=True) * (rows / rows.sum())[:, None]
    found, value = finite._step(theta, evidence, prior)
    assert np.allclose(found, wanted, rtol=1e-10)
    assert value == pytest.approx(objective(evidence, theta, prior)[0], rel=1e-12)

    gain = math.expm1(evidence.channel.log_odds)
    mass = 1 + gain * theta.ravel()[evidence.sets].sum(axis=1)
    _, slope = evidence.likelihood(theta)
    assert len(evidence) - (theta * slope).sum() == pytest.approx((1 / mass).sum(), rel=1e-12)


def test_no_step_goes_down():
    evidence, _ = reported(people=500, epsilon=1.0)
    theta, prior, values = np.full(SHAPE, 1 / 12), np.full(CODEWORDS, 20.0), []
    for _ in range(30):
        theta, value = finite._step(theta, evidence, prior)
        values.append(value)
        assert theta.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(np.diff(values) >= -1e-9)


# --- the maximum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("weight", [0.0, 300.0])
def test_it_finds_the_maximum(epsilon, weight):
    evidence, _ = reported(epsilon=epsilon, people=2000)
    prior = weight * np.array([0.1, 0.2, 0.3, 0.4])
    found = maximum_likelihood(evidence, prior)
    other, value = by_gradient(evidence, prior)
    assert objective(evidence, found, prior)[0] >= value - 1e-3
    assert np.abs(found - other).sum() < 5e-3
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found.min() >= 0


def optimal(evidence, theta, prior, slack=1e-3):
    """Karush, Kuhn, Tucker: one gradient on the support, and none larger off it."""
    _, slope = objective(evidence, theta, prior)
    level = (theta * slope).sum()
    support = theta > 1e-3
    total = len(evidence) + prior.sum()
    even = np.abs(slope[support] - level).max() < slack * total
    return even and slope.max() < level + slack * total


def test_the_gradient_is_even_on_the_support_and_smaller_off_it():
    truth = np.array([[0.5, 0.0], [0.3, 0.0], [0.0, 0.2]])
    evidence, _ = reported(truth, people=5000)
    prior = np.zeros(3)
    found = maximum_likelihood(evidence, prior)
    assert found.min() < 1e-3  # something is off the support, or this shows little
    assert optimal(evidence, found, prior)
    # Beside it: the unbiased estimate, clipped, is near the truth but no maximum.
    counts = evidence.channel.estimate_counts(evidence.sets).counts
    clipped = np.maximum(np.asarray(counts), 1e-9).reshape(3, 2)
    assert not optimal(evidence, clipped / clipped.sum(), prior)
    assert not optimal(evidence, np.full((3, 2), 1 / 6), prior)


def test_without_noise_to_speak_of_shares_are_counted():
    evidence, drawn = reported(epsilon=30.0, size=1)
    assert evidence.sets.shape[1] == 1
    counted = np.bincount(drawn, minlength=12).reshape(SHAPE) / len(drawn)
    found = maximum_likelihood(evidence, np.zeros(CODEWORDS))
    assert np.allclose(found, counted, atol=1e-6)


def test_the_prior_pulls_codewords_towards_the_inhouse_counts_and_leaves_labels_alone():
    evidence, drawn = reported(epsilon=30.0, size=1)
    shares = np.array([0.7, 0.1, 0.1, 0.1])
    counted = np.bincount(drawn, minlength=12).reshape(SHAPE) / len(drawn)
    for weight in (0.0, 3000.0, 1e7):
        found = maximum_likelihood(evidence, weight * shares)
        # As if so many people more had been seen in the clear.
        wanted = (3000 * counted.sum(axis=1) + weight * shares) / (3000 + weight)
        assert np.allclose(found.sum(axis=1), wanted, atol=1e-5)
        given = found / found.sum(axis=1, keepdims=True)
        assert np.allclose(given, counted / counted.sum(axis=1, keepdims=True), atol=1e-4)


def test_a_right_prior_helps():
    tables, codewords = {}, {}
    for weight in (0.0, 50_000.0):
        prior = weight * TRUTH.sum(axis=1)
        found = [maximum_likelihood(reported(epsilon=1.0, seed=s)[0], prior) for s in range(5)]
        tables[weight] = np.mean([np.abs(f - TRUTH).sum() for f in found])
        codewords[weight] = np.mean([np.abs((f - TRUTH).sum(axis=1)).sum() for f in found])
    assert tables[50_000.0] < tables[0.0]
    assert codewords[50_000.0] < 0.2 * codewords[0.0]


# --- shift ---------------------------------------------------------------------------------------

WIDE = np.random.default_rng(4).dirichlet(np.full(12, 3.0)).reshape(6, 2)


def p_values(truth, people_truth, repeats, epsilon=2.0, people=1000, inhouse=800):
    found = []
    for seed in range(repeats):
        evidence, _ = reported(people_truth, epsilon, people, seed)
        counts = np.random.default_rng(10_000 + seed).multinomial(inhouse, truth.sum(axis=1))
        found.append(shift_test(evidence, counts).p_value)
    return np.array(found)


def test_the_shift_test_has_its_size():
    found = p_values(WIDE, WIDE, 200, people=2000, inhouse=300)
    # Kolmogorov–Smirnov at 1e-3, and the share below .05 within what 200 tosses allow at 1e-3.
    assert kstest(found, "uniform").pvalue > 1e-3
    low, high = binom.ppf([5e-4, 1 - 5e-4], 200, 0.05)
    assert low <= (found < 0.05).sum() <= high


def test_a_test_that_forgets_the_inhouse_sample_would_not():
    """The same draws, with in-house shares taken as known: refused far too often."""
    found = []
    for seed in range(60):
        evidence, _ = reported(WIDE, 2.0, 1000, seed)
        counts = np.random.default_rng(10_000 + seed).multinomial(100, WIDE.sum(axis=1))
        found.append(shift_test(evidence, counts * 1000).p_value)
    assert np.mean(np.array(found) < 0.05) > 0.25


def test_the_shift_test_has_power():
    shifted = WIDE.copy()
    shifted[0] *= 3
    shifted /= shifted.sum()
    assert np.mean(p_values(WIDE, shifted, 20, people=3000) < 0.01) > 0.9
    # Other labels in the same codewords are no shift.
    swapped = WIDE[:, ::-1]
    assert np.mean(p_values(WIDE, swapped, 40, people=3000) < 0.01) < 0.15


def test_the_shift_test_says_nothing_of_little():
    evidence, _ = reported(WIDE, people=500)
    assert shift_test(evidence, np.zeros(6, int)) == ShiftTest(0.0, 5, 1.0)
    assert shift_test(evidence, np.full(6, 100)).degrees == 5


@pytest.mark.parametrize("noise", [5.0, 30.0])
def test_the_shift_test_has_its_size_with_noised_counts(noise):
    """Noise of a central guarantee is no shift, and is taken for one without its variance."""
    known, forgotten = [], []
    for seed in range(200):
        evidence, _ = reported(WIDE, 2.0, 2000, seed)
        rng = np.random.default_rng(10_000 + seed)
        exact = rng.multinomial(800, WIDE.sum(axis=1))
        counts = np.maximum(np.rint(exact + rng.normal(0, noise, 6)).astype(int), 0)
        known.append(shift_test(evidence, counts, np.full(6, noise**2)).p_value)
        forgotten.append(shift_test(evidence, counts).p_value)
    assert np.mean(np.array(known) < 0.05) <= binom.ppf(1 - 5e-4, 200, 0.05) / 200
    if noise > 10:
        assert np.mean(np.array(forgotten) < 0.05) > 0.25


def test_a_shift_larger_than_the_noise_of_the_counts_is_noticed():
    evidence, _ = reported(WIDE[::-1], 4.0, 4000, 0)
    counts = np.random.default_rng(0).multinomial(3000, WIDE.sum(axis=1))
    assert shift_test(evidence, counts, 100.0).p_value < 1e-6


@pytest.mark.parametrize("people", [30, 150])
def test_few_people_give_no_false_alarms(people):
    """A covariance estimated from so few reports would reject most of the time."""
    rng = np.random.default_rng(7)
    share = rng.dirichlet(np.full(40, 2.0))
    channel = SubsetSelection(categories=40, epsilon=2)
    found = []
    for _ in range(100):
        sets = channel.release(rng.choice(40, people, p=share), Seeded(rng.spawn(1)[0]))
        test = shift_test(Evidence(sets, channel), rng.multinomial(2000, share))
        found.append(test.p_value)
    # Of 100 at 1 %, more than 7 have a chance below 1e-5.
    assert sum(p < 0.01 for p in found) <= 7


# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.heavy
def test_bootstrap_intervals_cover():
    hits, widths = [], []
    for seed in range(40):
        evidence, _ = reported(TRUTH, 4.0, 1000, seed)
        prior = np.random.default_rng(seed).multinomial(500, TRUTH.sum(axis=1)).astype(float)
        estimate = maximum_likelihood(evidence, prior, tolerance=1e-5)
        draws = bootstrap(evidence, prior, estimate, 40, seed)
        for truth, marginal in ((TRUTH.sum(axis=0), 1), (TRUTH.sum(axis=1), 2)):
            ends = interval(draws.sum(axis=marginal), 0.9)
            hits.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
            widths.append(ends[:, 1] - ends[:, 0])
    covered = np.concatenate(hits).mean()
    # 280 intervals, five of them independent in a run: a standard error of about .02.
    assert 0.82 < covered < 0.97
    assert np.concatenate(widths).mean() < 0.12


def test_bootstrap_repeats_itself_and_intervals_nest():
    evidence, _ = reported(TRUTH, 4.0, 400)
    prior = np.zeros(CODEWORDS)
    estimate = maximum_likelihood(evidence, prior)
    draws = bootstrap(evidence, prior, estimate, 20, 7)
    assert draws.shape == (20, *SHAPE)
    assert np.array_equal(draws, bootstrap(evidence, prior, estimate, 20, 7))
    assert not np.array_equal(draws, bootstrap(evidence, prior, estimate, 20, 8))
    assert np.allclose(draws.sum(axis=(1, 2)), 1)
    narrow, wide = interval(draws, 0.5), interval(draws, 0.95)
    assert narrow.shape == (*SHAPE, 2)
    assert np.all(wide[..., 0] <= narrow[..., 0])
    assert np.all(narrow[..., 1] <= wide[..., 1])


def test_refusals():
    evidence, _ = reported(people=50)
    with pytest.raises(InvalidParameter, match="repeats must be an integer from 20"):
        bootstrap(evidence, np.zeros(CODEWORDS), TRUTH, 5, 0)
    for confidence in (0, 1, math.nan, "much"):
        with pytest.raises(InvalidParameter, match="confidence must be"):
            interval(np.zeros((20, 2)), confidence)


def test_resampling_keeps_channel_and_count():
    evidence, _ = reported(people=100)
    again = evidence.resampled(np.random.default_rng(0))
    assert len(again) == 100
    assert (again.codewords, again.classes) == (evidence.codewords, evidence.classes) == SHAPE
    rows = {row.tobytes() for row in evidence.sets}
    assert {row.tobytes() for row in again.sets} <= rows
    assert not np.array_equal(again.sets, evidence.sets)


def test_links_decide_for_small_codewords_only():
    """Two halves of a class, one of them so small that noise alone would name its label."""
    share = np.array([0.30, 0.04, 0.33, 0.33])
    main = np.array([0, 0, 1, 2])
    links = np.zeros((4, 4))
    links[0, 1] = links[1, 0] = 0.9
    links[0, 2] = links[1, 2] = links[2, 0] = links[2, 3] = links[3, 2] = 0.1
    channel = SubsetSelection(categories=12, epsilon=1.0)
    rng, wrong = np.random.default_rng(5), np.zeros(2)
    for _ in range(40):
        code = rng.choice(4, 2000, p=share)
        label = np.where(rng.random(2000) < 0.9, main[code], rng.integers(0, 3, 2000))
        sets = channel.release(3 * code + label, Seeded(rng.spawn(1)[0]))
        evidence = Evidence(sets, channel, 3)
        for index, used in enumerate((links, np.zeros((4, 4)))):
            found = finite.main_labels(evidence, share, used)
            np.testing.assert_allclose(found.sum(axis=1), 1.0)
            assert np.array_equal(found.argmax(axis=1)[[0, 2, 3]], main[[0, 2, 3]])
            wrong[index] += found[1].argmax() != 0
    assert wrong[0] <= 4
    assert wrong[1] >= 10


def test_a_large_codeword_overrules_its_links():
    links = np.array([[0.0, 1.0], [1.0, 0.0]])
    channel = SubsetSelection(categories=4, epsilon=2.0)
    code = np.repeat([0, 1], 5000)
    evidence = Evidence(channel.release(2 * code + code, Seeded(1)), channel, 2)
    found = finite.main_labels(evidence, np.array([0.5, 0.5]), links)
    assert found[0, 0] > 0.99
    assert found[1, 1] > 0.99
