"""Subset selection: the best size, the sets that come out, unbiased counts."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit import events
from tacit.errors import InvalidData, InvalidParameter
from tacit.mechanisms import RandomizedResponse, SubsetSelection
from tacit.mechanisms.subset_selection import best_size

SIGNIFICANCE = 1e-6
TRUE_COUNTS = np.array([0, 40, 160, 200, 600])


def chances(categories, size, epsilon):
    """How often a report holds its own category, and any other one."""
    odds = size * math.exp(epsilon)
    p = odds / (odds + categories - size)
    return p, (size - p) / (categories - 1)


def rare_variance(categories, size, epsilon):
    p, q = chances(categories, size, epsilon)
    return q * (1 - q) / (p - q) ** 2


@settings(deadline=None, max_examples=150)
@given(categories=st.integers(2, 200), epsilon=st.floats(0.01, 20))
def test_the_default_size_has_the_least_variance_of_all(categories, epsilon):
    size = best_size(categories, epsilon)
    brute = min(rare_variance(categories, d, epsilon) for d in range(1, categories))
    assert rare_variance(categories, size, epsilon) <= brute * (1 + 1e-9)
    assert abs(size - categories / (math.exp(epsilon) + 1)) <= 1
    assert SubsetSelection(categories=categories, epsilon=epsilon).event.size == size


def test_size_one_is_randomized_response():
    single = SubsetSelection(categories=7, epsilon=1.0, size=1)
    response = RandomizedResponse(categories=7, epsilon=1.0)
    found = np.exp(single.log_prob(np.arange(7)[:, None], np.zeros(7)))
    assert found == pytest.approx(response.matrix[0], rel=1e-12)


@pytest.mark.parametrize(("categories", "size"), [(2, 1), (5, 2), (5, 4), (60, 20)])
def test_rows_are_sorted_sets_of_the_right_size(categories, size):
    mechanism = SubsetSelection(categories=categories, epsilon=0.5, size=size)
    raw = np.arange(categories).repeat(200)
    released = mechanism.release(raw)
    assert released.shape == (raw.size, size)
    assert (np.diff(released, axis=1) > 0).all()
    assert released.min() >= 0
    assert released.max() < categories


def test_sets_keep_the_shape_of_the_people():
    mechanism = SubsetSelection(categories=6, epsilon=1.0, size=2)
    assert mechanism.release(3).shape == (2,)
    assert mechanism.release(np.zeros((4, 5), dtype=int)).shape == (4, 5, 2)


def test_every_category_is_treated_alike():
    """For each raw category: its own is held with p, each other one with q."""
    mechanism = SubsetSelection(categories=5, epsilon=1.0, size=2)
    p, q = chances(5, 2, 1.0)
    for raw in range(5):
        released = mechanism.release(np.full(20_000, raw), tacit.Seeded(raw))
        held = np.bincount(released.ravel(), minlength=5)
        for category in range(5):
            share = p if category == raw else q
            assert stats.binomtest(int(held[category]), 20_000, share).pvalue > SIGNIFICANCE


def test_blocks_do_not_mix_people():
    """More rows than fit one block: every person's own category is held far above q."""
    categories = 2**12
    mechanism = SubsetSelection(categories=categories, epsilon=12.0, size=2)
    raw = np.random.default_rng(0).integers(0, categories, 2500)
    held = (mechanism.release(raw, tacit.Seeded(3)) == raw[:, None]).any(axis=1)
    p, _ = chances(categories, 2, 12.0)
    assert stats.binomtest(int(held.sum()), 2500, p).pvalue > SIGNIFICANCE


def test_outputs_are_all_sets():
    mechanism = SubsetSelection(categories=6, epsilon=1.0, size=3)
    assert mechanism.outputs().tolist() == [list(s) for s in combinations(range(6), 3)]
    with pytest.raises(InvalidParameter, match="million"):
        SubsetSelection(categories=60, epsilon=1.0, size=20).outputs()


def test_counts_are_unbiased_and_their_variance_is_right():
    mechanism = SubsetSelection(categories=5, epsilon=1.0, size=2)
    p, q = chances(5, 2, 1.0)
    raw = np.repeat(np.arange(5), TRUE_COUNTS)
    stream = tacit.Seeded(2)
    found = [mechanism.estimate_counts(mechanism.release(raw, stream)) for _ in range(300)]
    counts = np.array([one.counts for one in found])
    variance = (TRUE_COUNTS * p * (1 - p) + (1000 - TRUE_COUNTS) * q * (1 - q)) / (p - q) ** 2
    limit = stats.norm.isf(SIGNIFICANCE / 10)
    z = (counts.mean(axis=0) - TRUE_COUNTS) / np.sqrt(variance / 300)
    assert np.abs(z).max() < limit
    spread = counts.var(axis=0, ddof=1) * 299 / variance
    assert np.minimum(stats.chi2.sf(spread, 299), stats.chi2.cdf(spread, 299)).min() > SIGNIFICANCE
    stated = np.mean([one.variances for one in found], axis=0)
    assert stated == pytest.approx(variance, rel=0.05)
    # An estimator that takes p to be 5 % higher is seen to be biased.
    wrong = (counts.mean(axis=0) * (p - q)) / (1.05 * p - q)
    assert (np.abs(wrong - TRUE_COUNTS) / np.sqrt(variance / 300)).max() > limit


@pytest.mark.parametrize(
    "released",
    [[[1, 0]], [[1, 1]], [[0]], [[0, 1, 2]], [[0, 5]], [[-1, 2]], 3, [[0.5, 1]], [[3, 2], [0, 1]]],
)
def test_reports_that_cannot_be_are_refused(released):
    mechanism = SubsetSelection(categories=5, epsilon=1.0, size=2)
    with pytest.raises(InvalidData):
        mechanism.estimate_counts(released)
    with pytest.raises(InvalidData):
        mechanism.log_prob(released, 0)


@pytest.mark.parametrize("inclusion", [0, 1, 2**62, 2**64, 2**64 - 1, -1, 2**65])
def test_an_event_that_gives_the_answer_away_is_refused(inclusion):
    """Never holding the true category is as telling as always holding it."""
    scope = {"adjacency": "any-two-inputs", "unit": "record"}
    with pytest.raises(InvalidParameter):
        events.SubsetSelection(2, 1, Fraction(1, 10), inclusion, **scope)


@pytest.mark.parametrize("epsilon", [1e-30, 1e-20, 1e-19])
def test_an_epsilon_too_small_for_the_weights_is_refused_or_kept(epsilon):
    """Rounding p down may not favour the sets without the true category by more than e^ε."""
    try:
        event = SubsetSelection(categories=3, epsilon=epsilon, size=1).event
    except InvalidParameter:
        return
    held = Fraction(event.inclusion * 2, 2**64)
    missed = Fraction(2**64 - event.inclusion, 2**64)
    bound = 1 + Fraction(repr(epsilon))
    assert max(held / missed, missed / held) <= bound * (1 + Fraction(1, 10**30))


def test_the_largest_number_of_categories():
    mechanism = SubsetSelection(categories=2**20, epsilon=8.0, size=3)
    assert mechanism.release([5, 2**20 - 1]).shape == (2, 3)
    assert np.isfinite(mechanism.log_prob([[0, 1, 2]], [5])).all()
