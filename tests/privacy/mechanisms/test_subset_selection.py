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
from tacit.privacy import events
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import RandomizedResponse, SubsetSelection
from tacit.privacy.mechanisms.subset_selection import best_size

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


# --- what a learner and a wire need of it --------------------------------------------------------


@pytest.mark.parametrize(("categories", "size"), [(2, 1), (5, 2), (6, 5), (60, None)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_inclusion_and_odds_are_those_of_the_law(categories, size, epsilon):
    mechanism = SubsetSelection(categories=categories, epsilon=epsilon, size=size)
    p, q = chances(categories, mechanism.event.size, epsilon)
    assert mechanism.inclusion == pytest.approx((p, q), rel=1e-12)
    assert mechanism.log_odds == pytest.approx(epsilon, abs=1e-9)
    assert mechanism.log_odds <= epsilon * (1 + 1e-15)
    chosen = np.arange(mechanism.event.size)
    held, missed = mechanism.log_prob(np.stack([chosen] * 2), [0, categories - 1])
    assert held - missed == pytest.approx(mechanism.log_odds, abs=1e-9)


def test_inclusion_is_how_often_reports_hold_a_category():
    mechanism = SubsetSelection(categories=6, epsilon=1.0, size=2)
    law = np.exp(mechanism.log_prob(mechanism.outputs(), np.full(15, 3)))
    for category in range(6):
        holds = (mechanism.outputs() == category).any(axis=1)
        assert law[holds].sum() == pytest.approx(mechanism.inclusion[category != 3], rel=1e-12)


# One bitmap, one list, sizes on both sides of a byte, a single place, and more than one byte each.
WIRES = [(2, 1, 1), (8, 3, 1), (9, 4, 2), (16, 1, 1), (17, 1, 1), (300, 2, 3), (300, 100, 38)]


@pytest.mark.parametrize(("categories", "size", "expected"), WIRES)
def test_the_compact_form_is_small_and_comes_back(categories, size, expected):
    mechanism = SubsetSelection(categories=categories, epsilon=1.0, size=size)
    assert mechanism.report_bytes == expected
    released = mechanism.release(np.arange(categories).repeat(20))
    wire = mechanism.to_bytes(released)
    assert wire.shape == (len(released), expected)
    assert wire.dtype == np.uint8
    assert np.array_equal(mechanism.from_bytes(wire), released)


@settings(deadline=None, max_examples=100)
@given(data=st.data(), categories=st.integers(2, 400))
def test_any_set_comes_back(data, categories):
    size = data.draw(st.integers(1, categories - 1))
    mechanism = SubsetSelection(categories=categories, epsilon=1.0, size=size)
    pick = np.random.default_rng(data.draw(st.integers(0, 2**32))).permutation(categories)
    sets = np.sort(pick[:size])[None]
    wire = mechanism.to_bytes(sets)
    assert np.array_equal(mechanism.from_bytes(wire), sets)
    assert mechanism.report_bytes <= -(-categories // 8)


def test_different_reports_have_different_bytes():
    for categories, size in ((7, 3), (40, 2)):
        mechanism = SubsetSelection(categories=categories, epsilon=1.0, size=size)
        wire = mechanism.to_bytes(mechanism.outputs())
        assert len(np.unique(wire, axis=0)) == math.comb(categories, size)


@pytest.mark.parametrize(("categories", "size"), [(9, 4), (300, 2)])
def test_bytes_that_are_no_report_are_refused(categories, size):
    """Whatever is read back is a report that the channel can have released."""
    mechanism = SubsetSelection(categories=categories, epsilon=1.0, size=size)
    width = mechanism.report_bytes
    every = np.arange(2**16, dtype=np.uint32)
    refused = 0
    for number in every[:: 2**16 // 512]:
        wire = np.zeros((1, width), np.uint8)
        wire[0, :2] = int(number) >> 8, int(number) & 255
        try:
            back = mechanism.from_bytes(wire)
        except InvalidData:
            refused += 1
            continue
        assert np.array_equal(mechanism.to_bytes(back), wire)
    assert refused > 0


@pytest.mark.parametrize(
    "wire",
    [
        np.zeros((1, 2), np.int64),
        np.zeros((1, 3), np.uint8),
        np.zeros((1, 1), np.uint8),
        np.zeros(2, np.uint8),
        np.array([[0b11110000, 0b10000000]], np.uint8),  # five categories
        np.array([[0b11100000, 0]], np.uint8),  # three
        np.array([[0b11110000, 0b00000001]], np.uint8),  # bits behind the last category
    ],
)
def test_bitmaps_of_another_form_are_refused(wire):
    mechanism = SubsetSelection(categories=9, epsilon=1.0, size=4)
    with pytest.raises(InvalidData, match="a report must"):
        mechanism.from_bytes(wire)


@pytest.mark.parametrize("places", [(5, 5), (7, 3), (3, 300), (511, 511)])
def test_lists_of_another_form_are_refused(places):
    """300 categories take nine bits a place: repeats, disorder and places beyond are seen."""
    mechanism = SubsetSelection(categories=300, epsilon=1.0, size=2)
    bits = [[int(b) for b in f"{place:09b}"] for place in places]
    wire = np.packbits(np.array([bits[0] + bits[1]], np.uint8), axis=1)
    with pytest.raises(InvalidData):
        mechanism.from_bytes(wire)
