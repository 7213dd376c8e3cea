"""Projective geometry response: the space, the exact law, draws, counts from all reports."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.privacy import events
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.events import is_prime, points_of
from tacit.privacy.mechanisms import ProjectiveGeometryResponse, SubsetSelection
from tacit.privacy.mechanisms import projective_geometry as geometry
from tacit.privacy.mechanisms.projective_response import best_space

SPACES = [(2, 2), (2, 3), (2, 6), (3, 2), (3, 4), (5, 3), (7, 3), (53, 2)]
SIGNIFICANCE = 1e-6
by_space = pytest.mark.parametrize(("order", "dimension"), SPACES)


def vectors(order, dimension):
    """Every vector whose first entry other than 0 is 1, by brute force."""
    return [
        v
        for v in itertools.product(range(order), repeat=dimension)
        if next((x for x in v if x), 0) == 1
    ]


def planes(order, dimension):
    """Whether point s is on the hyperplane of u, as a matrix [s, u]."""
    points = geometry.coordinates(np.arange(points_of(order, dimension)), order, dimension)
    return (points @ points[:, ::-1].T) % order == 0


# --- the space -----------------------------------------------------------------------------------


@by_space
def test_points_are_numbered_one_to_one(order, dimension):
    count = points_of(order, dimension)
    found = geometry.coordinates(np.arange(count), order, dimension)
    assert sorted(map(tuple, found.tolist())) == sorted(vectors(order, dimension))
    for scale in {1, order - 1, order // 2 or 1}:
        assert np.array_equal(geometry.numbers_of(found * scale % order, order), np.arange(count))


@by_space
def test_hyperplanes_form_a_design(order, dimension):
    """Equal sizes and equal intersections: what the estimate and the guarantee rest on."""
    held = planes(order, dimension).astype(np.int64)
    assert set(held.sum(axis=0).tolist()) == {points_of(order, dimension - 1)}
    shared = held.T @ held
    np.fill_diagonal(shared, points_of(order, dimension - 2))
    assert set(np.unique(shared).tolist()) == {points_of(order, dimension - 2)}


@by_space
def test_free_entries_reach_every_point_once(order, dimension):
    held, inner = planes(order, dimension), points_of(order, dimension - 1)
    for x in (0, 1, points_of(order, dimension) - 1):
        of = geometry.coordinates(np.array([x]), order, dimension)
        on = geometry.coordinates(np.arange(inner), order, dimension - 1)
        off = geometry.entries(np.arange(order ** (dimension - 1)), order, dimension - 1)
        for free, product in ((on, 0), (off, 1)):
            rows, wanted = np.repeat(of, len(free), axis=0), np.full(len(free), product)
            found = geometry.with_product(rows, free, wanted, order)
            assert sorted(found.tolist()) == np.flatnonzero(held[:, x] == (product == 0)).tolist()


@by_space
def test_reports_on_hyperplanes_are_counted_exactly(order, dimension):
    count = points_of(order, dimension)
    histogram = np.random.default_rng(1).integers(0, 10**6, count) ** 2
    expected = histogram @ planes(order, dimension)
    assert np.array_equal(geometry.on_hyperplanes(histogram, order, dimension), expected)
    few = np.random.default_rng(2).integers(0, count, 500)
    some = geometry.held_counts(few, np.arange(count), order, dimension)
    assert np.array_equal(some, np.bincount(few, minlength=count) @ planes(order, dimension))


@settings(deadline=None, max_examples=60)
@given(categories=st.integers(2, 2**20), epsilon=st.floats(0.05, 9))
def test_the_space_is_large_enough_and_its_order_a_prime(categories, epsilon):
    order, dimension = best_space(categories, epsilon)
    assert is_prime(order)
    assert points_of(order, dimension - 1) < categories <= points_of(order, dimension)


@pytest.mark.parametrize("epsilon", [0.1, 0.35, 0.5, 1.05, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("categories", [10**3, 10**4, 10**6])
def test_the_variance_is_near_that_of_subset_selection(categories, epsilon):
    def rare(mechanism):
        p, q = mechanism.inclusion
        return q * (1 - q) / (p - q) ** 2

    ours = ProjectiveGeometryResponse(categories=categories, epsilon=epsilon)
    sets = SubsetSelection(categories=categories, epsilon=epsilon)
    assert rare(ours) <= 1.035 * rare(sets)
    assert ours.report_bytes <= 3
    assert ours.report_bytes < sets.report_bytes / 10


# --- the law -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    categories=st.integers(2, 3000),
    epsilon=st.floats(0.01, 20),
    order=st.sampled_from((None, 2, 7)),
)
def test_the_law_in_rationals(categories, epsilon, order):
    mechanism = ProjectiveGeometryResponse(categories=categories, epsilon=epsilon, order=order)
    event = mechanism.event
    p = Fraction(event.inclusion, 2**64)
    held, missed = p / event.held, (1 - p) / (event.points - event.held)
    assert 1 <= held / missed <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**12))
    assert held / missed >= Fraction(math.exp(epsilon)) * (1 - Fraction(1, 10**7))
    outputs = np.array(mechanism.outputs())
    law = mechanism.log_prob(outputs, np.full(outputs.shape, categories - 1))
    assert math.fsum(np.exp(law)) == pytest.approx(1, abs=1e-9)
    assert sorted(set(law.tolist())) == pytest.approx([math.log(missed), math.log(held)], abs=1e-9)


def test_inclusion_is_how_often_reports_are_on_hyperplanes():
    mechanism = ProjectiveGeometryResponse(categories=20, epsilon=1.0, order=3)
    outputs = np.array(mechanism.outputs())
    law = np.exp(mechanism.log_prob(outputs, np.full(outputs.shape, 5)))
    held = planes(3, mechanism.event.dimension)
    for category in range(20):
        chance = mechanism.inclusion[category != 5]
        assert law[held[:, category]].sum() == pytest.approx(chance, rel=1e-12)


@pytest.mark.parametrize("raw", [0, 5, 999])
def test_points_are_drawn_uniformly_on_and_off_the_hyperplane(raw):
    """From the operating system; a mutant that forgets the points outside is seen."""
    mechanism = ProjectiveGeometryResponse(categories=1000, epsilon=2.0)
    count = mechanism.event.points
    drawn = mechanism.release(np.full(200_000, raw))
    expected = np.exp(mechanism.log_prob(np.arange(count), np.full(count, raw))) * drawn.size
    found = np.bincount(drawn, minlength=count)
    assert stats.chisquare(found, expected).pvalue > SIGNIFICANCE
    mutant = np.where(mechanism.log_prob(drawn, raw) < np.log(expected.max() / 2e5) - 1, 0, drawn)
    assert stats.chisquare(np.bincount(mutant, minlength=count), expected).pvalue < SIGNIFICANCE


@pytest.mark.parametrize("inclusion", [0, 1, 2**62, 2**64 - 1, 2**64, -1])
def test_an_event_that_gives_the_answer_away_is_refused(inclusion):
    scope = {"adjacency": "any-two-inputs", "unit": "record"}
    good = ProjectiveGeometryResponse(categories=10, epsilon=0.1, order=3).event
    events.ProjectiveGeometryResponse(10, 3, 3, Fraction(1, 10), good.inclusion, **scope)
    for weight in (inclusion, good.inclusion + 10**4):
        with pytest.raises(InvalidParameter):
            events.ProjectiveGeometryResponse(10, 3, 3, Fraction(1, 10), weight, **scope)
    with pytest.raises(InvalidParameter, match="order must be a prime"):
        events.ProjectiveGeometryResponse(10, 9, 3, Fraction(1, 10), good.inclusion, **scope)
    with pytest.raises(InvalidParameter, match="categories"):
        events.ProjectiveGeometryResponse(14, 3, 3, Fraction(1, 10), good.inclusion, **scope)


# --- counts --------------------------------------------------------------------------------------


def test_counts_are_unbiased_and_their_variance_is_right():
    mechanism = ProjectiveGeometryResponse(categories=150, epsilon=1.5)
    true = np.zeros(150)
    true[:4] = 600, 250, 100, 50
    raw, stream = np.repeat(np.arange(150), true.astype(int)), tacit.Seeded(4)
    found = [mechanism.estimate_counts(mechanism.release(raw, stream)) for _ in range(400)]
    counts = np.array([one.counts for one in found])
    p, q = mechanism.inclusion
    variance = (true * p * (1 - p) + (1000 - true) * q * (1 - q)) / (p - q) ** 2
    z = (counts.mean(axis=0) - true) / np.sqrt(variance / 400)
    limit = stats.norm.isf(SIGNIFICANCE / 150)
    assert np.abs(z).max() < limit
    assert counts.var(axis=0).mean() == pytest.approx(variance.mean(), rel=0.02)
    wrong = counts.mean(axis=0) * (p - q) / (1.1 * p - q)  # a mutant takes p to be higher
    assert (np.abs(wrong - true) / np.sqrt(variance / 400)).max() > limit


def test_some_categories_are_counted_as_among_all():
    mechanism = ProjectiveGeometryResponse(categories=5000, epsilon=3.0)
    released = mechanism.release(np.random.default_rng(0).integers(0, 5000, 3000))
    every, some = mechanism.estimate_counts(released), [4999, 0, 17]
    few = mechanism.estimate_counts(released, some)
    assert np.array_equal(few.counts, every.counts[some])
    assert np.array_equal(few.interval(0.9), every.interval(0.9)[some])
    assert few.standard_errors == pytest.approx(every.standard_errors[some])


def test_release_keeps_the_shape_of_the_people():
    mechanism = ProjectiveGeometryResponse(categories=6, epsilon=1.0)
    assert mechanism.release(3).shape == ()
    assert mechanism.release(np.zeros((4, 5), dtype=int)).shape == (4, 5)


# --- the wire ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("categories", "width"), [(10, 1), (10**4, 3), (10**6, 3)])
def test_the_compact_form_is_small_and_comes_back(categories, width):
    mechanism = ProjectiveGeometryResponse(categories=categories, epsilon=4.0)
    assert mechanism.report_bytes == width
    released = mechanism.release(np.random.default_rng(3).integers(0, categories, 1000))
    wire = mechanism.to_bytes(released)
    assert wire.shape == (1000, width)
    assert np.array_equal(mechanism.from_bytes(wire), released)
    for bad in (wire[:, 1:], wire[0], wire.astype(np.int64), np.full((1, width), 255, np.uint8)):
        with pytest.raises(InvalidData):
            mechanism.from_bytes(bad)
