"""Randomized response: the words that decide, the matrix, Warner's design, unbiased counts."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.privacy import events
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import RandomizedResponse

SIGNIFICANCE = 1e-6


class Scripted:
    secure = False

    def __init__(self, words):
        self.left = [int(word) for word in words]

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count
        return np.array(taken, dtype=np.uint64)


@settings(deadline=None, max_examples=80)
@given(
    categories=st.integers(2, 60) | st.sampled_from([2**20, 2**31]),
    epsilon=st.floats(0.01, 700),
    data=st.data(),
)
def test_one_word_decides_with_the_stated_weights(categories, epsilon, data):
    """Both ends of every slot: [0, keep) stays, then `other` words for each other category."""
    try:
        mechanism = RandomizedResponse(categories=categories, epsilon=epsilon)
    except InvalidParameter:
        return
    keep, other = mechanism.event.keep, mechanism.event.other
    raw = data.draw(st.integers(0, categories - 1))
    slot = data.draw(st.integers(0, categories - 2))
    words = [0, keep - 1, keep, keep + slot * other, keep + (slot + 1) * other - 1, 2**64 - 1]
    moved = [slot + (slot >= raw) for slot in (0, slot, slot, categories - 2)]
    released = mechanism.release(np.full(6, raw), Scripted(words))
    assert released.tolist() == [raw, raw, *moved]


def test_weights_are_as_good_as_64_bits_allow():
    """One more for `keep` (taken evenly from the others) would break e^ε, or there is no room."""
    for categories in (2, 3, 10, 1000):
        for epsilon in (0.01, 1.0, 5.0):
            event = RandomizedResponse(categories=categories, epsilon=epsilon).event
            assert events.ratio_within(event.keep, event.other, event.epsilon)
            keep, other = event.keep + categories - 1, event.other - 1
            assert not events.ratio_within(keep, other, event.epsilon)


@pytest.mark.parametrize(
    ("keep", "other"),
    [
        (0, 2**64),
        (1, 2**64 - 1),
        (-(2**64), 2**65),
        (2**65, -(2**64)),
        (2**64, 0),
        (2**62, 3 * 2**62),
    ],
)
def test_an_event_that_gives_the_answer_away_is_refused(keep, other):
    """Always flipping is as telling as never flipping."""
    scope = {"adjacency": "any-two-inputs", "unit": "record"}
    with pytest.raises(InvalidParameter):
        events.RandomizedResponse(2, Fraction(1), keep, other, **scope)


def test_matrix_is_the_law():
    mechanism = RandomizedResponse(categories=4, epsilon=1.3)
    outputs = np.arange(4)
    for raw in range(4):
        assert mechanism.matrix[raw] == pytest.approx(
            np.exp(mechanism.log_prob(outputs, np.full(4, raw))), rel=1e-12
        )
    expected = math.exp(1.3) / (math.exp(1.3) + 3)
    assert np.diag(mechanism.matrix) == pytest.approx(np.full(4, expected), rel=1e-12)
    assert mechanism.matrix.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-15)


@pytest.mark.parametrize("truth", [0.51, 0.6, 0.75, 0.9, 0.999])
def test_warner_answers_truthfully_as_often_as_it_says(truth):
    mechanism = RandomizedResponse.warner(truth)
    assert mechanism.categories == 2
    assert mechanism.matrix[0, 0] == pytest.approx(truth, rel=1e-12)
    assert mechanism.guarantee.epsilon == pytest.approx(math.log(truth / (1 - truth)), rel=1e-12)


def test_warner_at_three_quarters_is_ln_three():
    assert RandomizedResponse.warner(0.75).guarantee.epsilon == pytest.approx(math.log(3))


@pytest.mark.parametrize("truth", [0.5, 0.3, 0, 1, 1.2, -0.1, math.nan, math.inf, None, "x", 1j])
def test_warner_refuses_designs_that_say_nothing_or_all(truth):
    with pytest.raises(InvalidParameter):
        RandomizedResponse.warner(truth)


TRUE_COUNTS = np.array([0, 50, 300, 650])


def repeated_estimates(mechanism, repeats, seed):
    raw = np.repeat(np.arange(4), TRUE_COUNTS)
    stream = tacit.Seeded(seed)
    return [mechanism.estimate_counts(mechanism.release(raw, stream)) for _ in range(repeats)]


def exact_variance(p, q, counts):
    total = counts.sum()
    return (counts * p * (1 - p) + (total - counts) * q * (1 - q)) / (p - q) ** 2


def check_calibration(found, p, q):
    """Unbiased by a z-test, the spread by a chi-square, the stated variance on average."""
    counts = np.array([one.counts for one in found])
    variance = exact_variance(p, q, TRUE_COUNTS)
    z = (counts.mean(axis=0) - TRUE_COUNTS) / np.sqrt(variance / len(found))
    assert np.abs(z).max() < stats.norm.isf(SIGNIFICANCE / 8)
    spread = counts.var(axis=0, ddof=1) * (len(found) - 1) / variance
    tails = np.minimum(
        stats.chi2.sf(spread, len(found) - 1), stats.chi2.cdf(spread, len(found) - 1)
    )
    assert tails.min() > SIGNIFICANCE / 8
    stated = np.mean([one.variances for one in found], axis=0)
    assert stated == pytest.approx(variance, rel=0.05)
    # The same statistics see a p that is 5 % off.
    wrong = (counts.mean(axis=0) * (p - q) + TRUE_COUNTS.sum() * q - TRUE_COUNTS.sum() * q) / (
        1.05 * p - q
    )
    z = (wrong - TRUE_COUNTS) / np.sqrt(variance / len(found))
    assert np.abs(z).max() > stats.norm.isf(SIGNIFICANCE / 8)


def test_counts_are_unbiased_and_their_variance_is_right():
    mechanism = RandomizedResponse(categories=4, epsilon=1.5)
    p = math.exp(1.5) / (math.exp(1.5) + 3)
    q = 1 / (math.exp(1.5) + 3)
    found = repeated_estimates(mechanism, 300, seed=1)
    check_calibration(found, p, q)
    assert all(one.counts.sum() == pytest.approx(1000) for one in found)


def test_counts_by_hand():
    """(s − nq)/(p − q) with ten reports of one category of two."""
    mechanism = RandomizedResponse(categories=2, epsilon=math.log(3))
    found = mechanism.estimate_counts([1] * 8 + [0] * 2)
    assert found.counts == pytest.approx([(2 - 2.5) / 0.5, (8 - 2.5) / 0.5])
    # The estimates are held to [0, 10] for the variance: both are 10 × 3/16 over 1/4.
    assert found.variances == pytest.approx([7.5, 7.5])


def test_large_epsilon_gives_the_truth_and_still_a_law():
    mechanism = RandomizedResponse(categories=3, epsilon=700)
    assert mechanism.event.other == 1
    raw = np.arange(3).repeat(1000)
    assert np.array_equal(mechanism.release(raw), raw)
    assert np.isfinite(mechanism.log_prob([0, 1], [0, 0])).all()
    assert mechanism.guarantee.epsilon == 700


def test_an_epsilon_too_small_for_the_weights_is_refused():
    with pytest.raises(InvalidParameter):
        RandomizedResponse(categories=3, epsilon=1e-30)
