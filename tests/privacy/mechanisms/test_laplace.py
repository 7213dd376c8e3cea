"""Laplace noise: logarithms against mpmath, real answers against rationals, extreme parameters."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tacit
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import DiscreteLaplace, Geometric, Laplace, LocalLaplace
from tacit.privacy.mechanisms.laplace import log_mass, log_tail

RATES = ["1e-15", "1e-6", "0.01", "1", "5", "36", "40", "100", "700"]
POINTS = [0, 1, 2, 7, 100, 10**6, -1, -2, -7, -100, -(10**6)]


def exact_tail(rate, k):
    """P(noise ≥ k)."""
    with mp.workdps(400):
        r = mp.exp(-mp.mpf(rate))
        return r**k / (1 + r) if k >= 0 else 1 - r ** (1 - k) / (1 + r)


@pytest.mark.parametrize("rate", RATES)
def test_log_mass_against_mpmath(rate):
    scale = 1 / Fraction(rate)
    found = log_mass(scale, np.array(POINTS))
    for k, stated in zip(POINTS, found, strict=True):
        with mp.workdps(400):
            exact = mp.log(mp.tanh(mp.mpf(rate) / 2)) - abs(k) * mp.mpf(rate)
        assert stated == pytest.approx(float(exact), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("rate", RATES)
def test_log_tail_against_mpmath_and_without_warnings(rate):
    found = log_tail(1 / Fraction(rate), np.array(POINTS))
    for k, stated in zip(POINTS, found, strict=True):
        with mp.workdps(400):
            exact = float(mp.log(exact_tail(rate, k)))
        assert stated == pytest.approx(exact, rel=1e-9, abs=1e-15), k


@pytest.mark.parametrize("epsilon", [20.0, 40.0, 300.0, 700.0])
def test_geometric_at_large_epsilon_has_a_law_without_warnings(epsilon):
    mechanism = Geometric(epsilon=epsilon, lower=0, upper=5, adjacency="replace-one")
    for raw in range(6):
        mass = np.exp(mechanism.log_prob(np.arange(6), np.full(6, raw)))
        assert math.fsum(mass) == pytest.approx(1, abs=1e-9)


@settings(deadline=None, max_examples=200)
@given(
    x=st.floats(-1e9, 1e9),
    y=st.floats(-1e9, 1e9),
    power=st.integers(-10, 20),
    slack=st.integers(0, 3),
)
@example(x=0.5, y=1.5, power=0, slack=0)
@example(x=-0.5, y=0.5, power=0, slack=0)
@example(x=0.49999999999999994, y=1.5, power=0, slack=0)
def test_real_neighbours_stay_within_the_integer_sensitivity(x, y, power, slack):
    """Any two floats: with their distance (or more) as Δ, ε holds of the releases."""
    grid = 2.0**power
    apart = abs(Fraction(x) - Fraction(y)) + Fraction(slack) * Fraction(grid) / 2
    if not 1e-300 < apart < 2**40 * Fraction(grid) or max(abs(x), abs(y)) > 2**39 * grid:
        return
    mechanism = Laplace(epsilon=1.0, sensitivity=apart, grid=grid, adjacency="replace-one")
    steps = [int(mechanism._steps([value])[0]) for value in (x, y)]
    assert abs(steps[0] - steps[1]) <= mechanism.event.l1_sensitivity
    # And no more noise than the theorem in its docstring asks for.
    assert mechanism.event.l1_sensitivity < apart / Fraction(grid) + 1


def test_the_sensitivity_of_many_entries_counts_every_rounding():
    """Eight entries, each 0.3 of a step apart, each rounded to different sides."""
    d = 8
    mechanism = Laplace(
        epsilon=1.0, sensitivity=0.3 * d, dimension=d, grid=1.0, adjacency="replace-one"
    )
    low, high = np.full(d, 0.4), np.full(d, 0.7)
    released = np.zeros(d)
    ratio = mechanism.log_prob(released, low).sum() - mechanism.log_prob(released, high).sum()
    assert abs(ratio) <= 1 + 1e-9
    # A mutant that forgets the rounding: 2.4 steps of sensitivity, 8 steps of difference.
    forgetful = DiscreteLaplace(epsilon=1.0, sensitivity=3, adjacency="replace-one")
    ratio = forgetful.log_prob(np.zeros(d), np.zeros(d)) - forgetful.log_prob(
        np.zeros(d), np.ones(d)
    )
    assert abs(ratio.sum()) > 2


def test_releases_lie_on_the_grid():
    mechanism = Laplace(epsilon=1.0, sensitivity=0.1, adjacency="replace-one")
    released = float(mechanism.release(0.12345)) / mechanism.step
    assert released == int(released)
    local = LocalLaplace(epsilon=1.0, radius=3.0)
    steps = local.release(np.full((100, 4), 0.1)) / local.ball.step
    assert np.array_equal(steps, np.rint(steps))


def test_values_off_the_grid_were_not_released():
    mechanism = Laplace(epsilon=1.0, sensitivity=1.0, grid=0.5, adjacency="replace-one")
    with pytest.raises(tacit.privacy.errors.InvalidData):
        mechanism.log_prob([0.25], [0.0])


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_any_finite_vector_has_a_release(kind):
    mechanism = (
        LocalLaplace(epsilon=1.0, radius=1.0)
        if kind == "l1"
        else tacit.LocalGaussian(epsilon=1.0, delta=1e-5, radius=1.0)
    )
    for raw in ([1e308, 0.0], [1e308, -1e308], [5e-324, 0.0], [0.0, 0.0], [1e200, 1.0]):
        assert np.isfinite(mechanism.release(raw)).all()
        assert np.isfinite(mechanism.log_prob([0.0, 0.0], raw))


def test_a_radius_below_the_grid_is_refused():
    with pytest.raises(InvalidParameter, match="radius"):
        LocalLaplace(epsilon=1.0, radius=0.01, grid=0.25)


def test_geometric_clamps_before_and_after():
    mechanism = Geometric(epsilon=0.1, lower=3, upper=8, adjacency="replace-one")
    released = mechanism.release(np.array([-1000, 5, 1000] * 500))
    assert released.min() == 3
    assert released.max() == 8
    assert mechanism.log_prob(8, 1000) == mechanism.log_prob(8, 8)


def test_renormalising_would_break_the_promise():
    """The mutant of the note on soundness: the mass inside the range divided by its sum."""
    noise = DiscreteLaplace(epsilon=1.0, sensitivity=1, adjacency="replace-one")
    y = np.arange(6)
    laws = np.array([noise.log_prob(y, np.full(6, x)) for x in range(6)])
    laws -= np.log(np.exp(laws).sum(axis=1, keepdims=True))
    assert np.abs(laws[1:] - laws[:-1]).max() > 1.1


def test_the_largest_scale_is_drawn_without_overflow():
    mechanism = DiscreteLaplace(epsilon=1.0, sensitivity=2**50, adjacency="replace-one")
    draws = mechanism.release(np.full(20_000, 2**53), tacit.Seeded(1)) - 2**53
    assert abs(draws.astype(float).mean()) < 6 * math.sqrt(2 / 20_000) * 2**50
    assert np.abs(draws.astype(float)).mean() == pytest.approx(2.0**50, rel=0.05)
    with pytest.raises(InvalidParameter):
        DiscreteLaplace(epsilon=0.5, sensitivity=2**50, adjacency="replace-one")
