"""The Gaussian profile against mpmath at fifty digits and against sums over the integers."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import mpmath as mp
import pytest

from tacit.privacy import gaussian

MULTIPLIERS = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0)
DELTAS = (1e-2, 1e-5, 1e-9, 1e-14)


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(50):
        yield


def near(value, rel):
    """Relative closeness only: the absolute slack of `pytest.approx` hides small numbers."""
    return pytest.approx(float(value), rel=rel, abs=0)


def exact_delta(multiplier, epsilon):
    z, epsilon = mp.mpf(multiplier), mp.mpf(epsilon)
    half = 1 / (2 * z)
    # Φ(x) through erfc keeps the digits of both tails.
    phi = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2  # noqa: E731
    return phi(half - epsilon * z) - mp.exp(epsilon) * phi(-half - epsilon * z)


def test_the_oracle_is_the_hockey_stick_of_two_normals():
    """Checked against an integral, so that it is not the formula under test again."""
    for z, epsilon in ((0.5, 1.0), (1.0, 0.3), (4.0, 0.2)):
        start = epsilon * z - 1 / (2 * z)
        with mp.workdps(25):
            excess = lambda x, z=z, e=epsilon: (  # noqa: E731
                mp.npdf(x) - mp.exp(e) * mp.npdf(x + 1 / mp.mpf(z))
            )
            integral = mp.quad(excess, [start, start + 4, start + 12, start + 40])
        assert float(integral) == near(exact_delta(z, epsilon), 1e-12)


@pytest.mark.parametrize("multiplier", MULTIPLIERS)
def test_delta_of_keeps_its_digits(multiplier):
    for epsilon in (0.0, 1e-6, 1e-3, 0.03, 0.3, 1.0, 3.0, 10.0, 25.0, 50.0):
        exact = exact_delta(multiplier, epsilon)
        stated = gaussian.delta_of(multiplier, epsilon)
        if exact < mp.mpf(10) ** -290:
            assert stated < 1e-280
        else:
            assert stated == near(exact, 1e-9), epsilon


@pytest.mark.parametrize("multiplier", MULTIPLIERS)
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_of_is_safe_and_tight(multiplier, delta):
    epsilon = gaussian.epsilon_of(multiplier, delta)
    assert exact_delta(multiplier, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert exact_delta(multiplier, epsilon * (1 - 1e-8)) > delta
    else:
        assert exact_delta(multiplier, 0) <= delta


@pytest.mark.parametrize("multiplier", [0.001, 0.01, 1e4, 1e5, 1e6, 1e7])
def test_epsilon_of_is_safe_wherever_calibration_may_look(multiplier):
    """Calibration goes up to a multiplier of 10⁷: nearly equal tails must not cancel there."""
    for delta in (1e-5, 1e-9, 1e-12):
        epsilon = gaussian.epsilon_of(multiplier, delta)
        assert exact_delta(multiplier, epsilon) <= delta * (1 + 1e-9)
        assert epsilon == 0 or exact_delta(multiplier, epsilon * (1 - 1e-6)) > delta


def test_epsilon_of_reaches_zero_exactly_where_the_profile_does():
    total = gaussian.delta_of(2.0, 0.0)
    assert total == near(2 * mp.ncdf(mp.mpf(1) / 4) - 1, 1e-14)
    assert gaussian.epsilon_of(2.0, total) == 0.0
    assert gaussian.epsilon_of(2.0, 0.999) == 0.0
    assert gaussian.epsilon_of(2.0, total * 0.999) > 0.0


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.1, 1.0, 10.0, 50.0, 700.0])
def test_noise_multiplier_for_is_safe_and_tight(epsilon):
    for delta in DELTAS:
        multiplier = gaussian.noise_multiplier_for(epsilon, delta)
        assert exact_delta(multiplier, epsilon) <= delta * (1 + 1e-9)
        assert exact_delta(multiplier * (1 - 1e-8), epsilon) > delta


def test_noise_multiplier_for_beats_the_classical_bound():
    for epsilon, delta in ((0.1, 1e-5), (0.5, 1e-8), (0.99, 1e-3)):
        classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert gaussian.noise_multiplier_for(epsilon, delta) < classical


# --- on the integers -----------------------------------------------------------------------


@functools.cache
def masses(variance: Fraction) -> list:
    """Mass of k = −reach, …, reach, to fifty digits and twenty deviations."""
    with mp.workdps(50):
        exact = mp.mpf(variance.numerator) / variance.denominator
        reach = math.ceil(20 * math.sqrt(variance)) + 12
        weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * exact)) for k in range(-reach, reach + 1)]
        total = mp.fsum(weights)
        return [weight / total for weight in weights]


def brute_force(variance: Fraction, sensitivity: int, epsilon: float):
    """Max over shifts of Σ (P(k) − e^ε P(k + s))₊, term by term."""
    law = masses(variance)
    factor = mp.exp(mp.mpf(epsilon))
    return max(
        mp.fsum(
            max(p - factor * q, 0)
            for p, q in zip(law, law[shift:] + [mp.mpf(0)] * shift, strict=True)
        )
        for shift in range(1, sensitivity + 1)
    )


@pytest.mark.parametrize("deviation", [Fraction(1, 2), Fraction(1), Fraction(3), Fraction(10)])
@pytest.mark.parametrize("sensitivity", [1, 2, 3, 4, 5])
def test_discrete_delta_is_the_sum_over_the_integers(deviation, sensitivity):
    for scaled in (0.0, 0.1, 1.0, 2.5, 5.0):
        epsilon = scaled * sensitivity / float(deviation)
        exact = brute_force(deviation**2, sensitivity, epsilon)
        stated = gaussian.discrete_delta_of(deviation**2, sensitivity, epsilon)
        assert stated == near(exact, 1e-9), epsilon


@pytest.mark.parametrize(
    ("deviation", "sensitivity"),
    [(Fraction(1, 2), 1), (Fraction(1, 2), 3), (Fraction(1), 2), (Fraction(3), 5)],
)
def test_discrete_epsilon_is_safe_and_tight(deviation, sensitivity):
    for delta in (1e-2, 1e-6, 1e-12):
        epsilon = gaussian.discrete_epsilon_of(deviation**2, sensitivity, delta)
        assert brute_force(deviation**2, sensitivity, epsilon) <= delta * (1 + 1e-9)
        assert brute_force(deviation**2, sensitivity, epsilon * (1 - 1e-7)) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [(0.5, 1e-3, 1), (1.0, 1e-6, 2), (2.0, 0.1, 1), (8.0, 1e-3, 1), (3.0, 1e-6, 5)],
)
def test_discrete_sigma_is_safe_although_the_profile_is_not_monotone(epsilon, delta, sensitivity):
    """At a large ε more noise can mean a larger δ: the σ that comes back is checked itself."""
    sigma = Fraction(repr(gaussian.discrete_sigma_for(epsilon, delta, sensitivity)))
    assert brute_force(sigma**2, sensitivity, epsilon) <= delta * (1 + 1e-9)
    less = Fraction(repr(float(sigma) * (1 - 1e-6)))
    assert brute_force(less**2, sensitivity, epsilon) > delta


def test_discrete_epsilon_can_be_zero():
    variance = Fraction(400)
    total = gaussian.discrete_delta_of(variance, 1, 0.0)
    assert total == near(brute_force(variance, 1, 0.0), 1e-12)
    assert gaussian.discrete_epsilon_of(variance, 1, total) == 0.0


@pytest.mark.parametrize("epsilon", [50.0, 100.0, 700.0])
def test_discrete_delta_far_out_is_a_number(epsilon):
    """Where no integer in reach has so large a loss, δ is nothing, not NaN."""
    assert 0 <= gaussian.discrete_delta_of(Fraction(1), 1, epsilon) < 1e-280
    assert 0 <= gaussian.discrete_delta_of(Fraction(9), 3, epsilon) <= 1e-100


@pytest.mark.parametrize(
    ("variance", "sensitivity"), [(2500, 10), (10_000, 10), (10**6, 50), (2**20, 64)]
)
def test_discrete_delta_with_more_than_forty_deviations_for_the_smallest_shift(
    variance, sensitivity
):
    """Shift 1 is out of reach at ε σ > 40; shift Δ is not, and decides."""
    deviation = math.sqrt(variance)
    epsilon = 3 * sensitivity / deviation
    stated = gaussian.discrete_delta_of(Fraction(variance), sensitivity, epsilon)
    assert stated == near(exact_delta(deviation / sensitivity, epsilon), 0.05)


@pytest.mark.parametrize(
    ("variance", "sensitivity"), [(2500, 10), (10_000, 10), (10**6, 5), (2**24, 1)]
)
def test_discrete_tends_to_the_continuous_one(variance, sensitivity):
    multiplier = math.sqrt(variance) / sensitivity
    for delta in (1e-3, 1e-8):
        stated = gaussian.discrete_epsilon_of(Fraction(variance), sensitivity, delta)
        assert stated == near(gaussian.epsilon_of(multiplier, delta), 1e-3)


def test_discrete_delta_tends_to_the_continuous_one_in_variance():
    gaps = []
    for deviation in (2, 8, 32):
        epsilon = 1.5 / deviation
        stated = gaussian.discrete_delta_of(Fraction(deviation**2), 1, epsilon)
        gaps.append(abs(stated / float(exact_delta(deviation, epsilon)) - 1))
    assert gaps[2] < gaps[1] < gaps[0]
    assert gaps[2] < 1e-3


def test_exactness_is_claimed_only_where_it_can_be_summed():
    exact = gaussian.discrete_is_exact
    assert exact(Fraction(1), Fraction(1), 1)
    assert exact(Fraction(1), Fraction(25), 1)
    assert not exact(Fraction(1), Fraction(2), 1)
    assert not exact(Fraction(1), Fraction(1, 4), 1)
    assert not exact(Fraction(1), Fraction(1), 2)
    assert not exact(Fraction(2**28 + 1), Fraction(1), 1)
    assert not exact(Fraction(1), Fraction(65**2), 1)


@pytest.mark.slow
def test_the_largest_exact_case_agrees_with_the_continuous_one():
    stated = gaussian.discrete_epsilon_of(Fraction(2**28), 64, 1e-6)
    assert stated == near(gaussian.epsilon_of(2**14 / 64, 1e-6), 1e-3)
