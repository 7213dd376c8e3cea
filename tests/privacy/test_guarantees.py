"""Guarantees against oracles that share no code with them: mpmath, closed forms, dp-accounting."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.errors import IncompatibleGuarantees, InvalidParameter
from tacit.privacy.guarantees import (
    KINDS,
    ZCDP,
    Adjacency,
    ApproxDP,
    ConcentratedDP,
    Guarantee,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unit,
    Unproven,
    same_scope,
)

SCOPE = {"adjacency": "add-remove", "unit": "record"}
EPSILONS = (1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 40.0)
DELTAS = (1e-12, 1e-9, 1e-5, 1e-2, 0.3, 0.9, 0.999999)
HUGE = pytest.param(10**400, id="huge")
moderate = settings(deadline=None, max_examples=60)


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(50):
        yield


def response(epsilon):
    """The two output laws of binary randomized response."""
    keep = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return (keep, 1 - keep), (1 - keep, keep)


def failing_response(epsilon, delta):
    """The worst (ε, δ)-DP pair: with chance δ the input is told."""
    p, q = response(epsilon)
    delta = mp.mpf(delta)
    first = (delta, 0, (1 - delta) * p[0], (1 - delta) * p[1])
    second = (0, delta, (1 - delta) * q[0], (1 - delta) * q[1])
    return first, second


def hockey_stick(first, second, epsilon):
    factor = mp.exp(mp.mpf(epsilon))
    return mp.fsum(max(p - factor * q, 0) for p, q in zip(first, second, strict=True))


def assert_profile_crosses(pair, epsilon, delta):
    """The profile of a pair falls to δ at ε, to 13 digits of ε and 15 of 1 − δ."""
    slack = mp.mpf("1e-13") * (1 + epsilon) + mp.mpf("1e-15") / (1 - delta)
    assert hockey_stick(*pair, epsilon + slack) <= delta
    if epsilon > 0:
        assert hockey_stick(*pair, epsilon - slack) >= delta


def near(value, rel):
    """Relative closeness only: the absolute slack of `pytest.approx` hides small numbers."""
    return pytest.approx(float(value), rel=rel, abs=0)


def renyi_divergence(first, second, order):
    order = mp.mpf(order)
    total = mp.fsum(p**order * q ** (1 - order) for p, q in zip(first, second, strict=True))
    return mp.log(total) / (order - 1)


def gaussian_delta(multiplier, epsilon):
    z, epsilon = mp.mpf(multiplier), mp.mpf(epsilon)
    half = 1 / (2 * z)
    return mp.ncdf(half - epsilon * z) - mp.exp(epsilon) * mp.ncdf(-half - epsilon * z)


# --- pure DP -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_pure_at_delta_is_the_hockey_stick_of_randomized_response(epsilon, delta):
    stated = PureDP(epsilon=epsilon, **SCOPE).at_delta(delta)
    assert stated.delta == delta
    assert_profile_crosses(response(epsilon), stated.epsilon, delta)


def test_pure_at_delta_zero_keeps_epsilon():
    assert PureDP(epsilon=0.7, **SCOPE).at_delta(0.0) == ApproxDP(0.7, 0.0, **SCOPE)


@pytest.mark.parametrize("epsilon", [0.0, 2.0**-1022, 1e-300, 600.0, 1e6])
@pytest.mark.parametrize("delta", [0.0, 1e-300, 0.25, 0.5, 1 - 2**-53])
def test_pure_at_delta_at_the_edges(epsilon, delta):
    stated = PureDP(epsilon=epsilon, **SCOPE).at_delta(delta).epsilon
    with mp.workdps(700):
        exact = mp.exp(mp.mpf(epsilon)) - mp.mpf(delta) * (1 + mp.exp(mp.mpf(epsilon)))
        exact = mp.log(exact) if exact > 1 else mp.mpf(0)
    assert stated == pytest.approx(float(exact), rel=1e-12, abs=0.0)


@moderate
@given(st.floats(0, 700), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_pure_at_delta_decreases_in_delta_and_never_grows(epsilon, first, second):
    low, high = sorted((first, second))
    guarantee = PureDP(epsilon=epsilon, **SCOPE)
    assert guarantee.at_delta(high).epsilon <= guarantee.at_delta(low).epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 40.0, 600.0])
def test_pure_renyi_is_the_divergence_of_randomized_response(epsilon):
    orders = (1.001, 1.5, 2.0, 3.7, 16.0, 256.0, 4096.0)
    with mp.workdps(400):
        curve = PureDP(epsilon=epsilon, **SCOPE).renyi(orders)
        assert curve.orders == orders
        for order, stated in zip(orders, curve.epsilons, strict=True):
            exact = renyi_divergence(*response(epsilon), order)
            assert stated == near(float(exact), 1e-6)
            assert stated <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-6, 1e-8])
@pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 64.0])
def test_pure_renyi_keeps_its_digits_at_small_epsilon(epsilon, order):
    """A curve that rounds to zero would let a million of them cost nothing."""
    stated = PureDP(epsilon=epsilon, **SCOPE).renyi((order,)).epsilons[0]
    exact = float(renyi_divergence(*response(epsilon), order))
    assert stated == near(exact, 1e-6)


def test_pure_renyi_of_nothing_is_nothing():
    assert PureDP(epsilon=0.0, **SCOPE).renyi((1.5, 2.0)).epsilons == (0.0, 0.0)


@moderate
@given(st.floats(1e-2, 50), st.floats(1.01, 500))
def test_pure_renyi_stays_below_both_published_bounds(epsilon, order):
    stated = PureDP(epsilon=epsilon, **SCOPE).renyi((order,)).epsilons[0]
    assert 0 <= stated <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_concentrated_has_the_mean_and_range_of_randomized_response(epsilon):
    stated = PureDP(epsilon=epsilon, **SCOPE).concentrated()
    first, second = response(epsilon)
    kl = mp.fsum(p * mp.log(p / q) for p, q in zip(first, second, strict=True))
    assert stated.mu == near(float(kl), 1e-12)
    assert stated.tau == epsilon
    # τ is a subgaussian constant of the centred loss of that pair.
    for slope in (0.01, 0.3, 1, 5):
        moment = mp.fsum(
            p * mp.exp(slope * (mp.log(p / q) - kl)) for p, q in zip(first, second, strict=True)
        )
        assert mp.log(moment) <= (mp.mpf(slope) * stated.tau) ** 2 / 2


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_zcdp_is_half_the_square_and_dominates_randomized_response(epsilon):
    stated = PureDP(epsilon=epsilon, **SCOPE).zcdp()
    assert (stated.xi, stated.rho) == (0.0, near(epsilon**2 / 2, 1e-15))
    for order in (1.0001, 1.5, 2, 10, 1000):
        assert renyi_divergence(*response(epsilon), order) <= stated.rho * mp.mpf(order)
    # The constant cannot be lowered: small ε and order 1 reach it.
    tight = renyi_divergence(*response(1e-4), mp.mpf("1.0000001"))
    assert tight > 0.999 * PureDP(epsilon=1e-4, **SCOPE).zcdp().rho


# --- (ε, δ) --------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0, 600.0])
@pytest.mark.parametrize("start", [0.0, 1e-9, 1e-3, 0.4])
@pytest.mark.parametrize("spare", [1e-9, 1e-3, 0.3, 0.59])
def test_approx_at_larger_delta_is_the_hockey_stick_of_the_failing_response(epsilon, start, spare):
    with mp.workdps(350):
        delta = start + spare
        stated = ApproxDP(epsilon, start, **SCOPE).at_delta(delta)
        assert isinstance(stated, ApproxDP)
        assert stated.delta == delta
        assert_profile_crosses(failing_response(epsilon, start), stated.epsilon, delta)


def test_approx_at_its_own_delta_is_itself_and_below_it_unknown():
    stated = ApproxDP(1.0, 1e-5, **SCOPE)
    assert stated.at_delta(1e-5) == stated
    below = stated.at_delta(9e-6)
    assert isinstance(below, Unproven)
    assert "9e-06" in below.reason
    assert isinstance(stated.at_delta(0.0), Unproven)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.1, 1.0])
def test_approx_group_is_the_geometric_sum(size, epsilon):
    delta = 1e-10
    stated = ApproxDP(epsilon, delta, **SCOPE).group(size)
    total = mp.fsum(mp.exp(mp.mpf(epsilon) * i) for i in range(size)) * mp.mpf(delta)
    assert stated.epsilon == near(size * epsilon, 1e-15)
    assert stated.delta == near(float(total), 1e-9)


@pytest.mark.parametrize("multiplier", [0.7, 2.0, 10.0])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_approx_group_holds_for_a_gaussian_shifted_that_far(multiplier, size):
    for epsilon in (0.05, 0.5, 2.0):
        delta = float(gaussian_delta(multiplier, epsilon))
        stated = ApproxDP(epsilon, delta, **SCOPE).group(size)
        exact = gaussian_delta(mp.mpf(multiplier) / size, size * epsilon)
        if isinstance(stated, ApproxDP):
            assert exact <= stated.delta * (1 + 1e-12)
        else:
            assert isinstance(stated, NotPrivate)


def test_approx_group_that_says_nothing_is_not_private():
    assert ApproxDP(1.0, 0.5, **SCOPE).group(2) == NotPrivate(**SCOPE)
    assert ApproxDP(0.0, 0.5, **SCOPE).group(2) == NotPrivate(**SCOPE)
    assert ApproxDP(1.0, 1e-5, **SCOPE).group(2**53) == NotPrivate(**SCOPE)
    assert ApproxDP(1.0, 0.0, **SCOPE).group(2**53).epsilon == 2.0**53


@pytest.mark.parametrize("epsilon", [0.0, 1e-320, 1.0, 600.0, 701.0, 750.0])
def test_a_group_of_one_changes_nothing(epsilon):
    for one in (
        PureDP(epsilon, **SCOPE),
        ApproxDP(epsilon, 1e-6, **SCOPE),
        ZCDP(epsilon, 0.5, **SCOPE),
        RenyiDP((1.5, 4.0), (0.1, 0.2), **SCOPE),
        NotPrivate(**SCOPE),
        Unproven("no proof", **SCOPE),
    ):
        assert one.group(1) == one


# --- concentrated --------------------------------------------------------------------------


def test_concentrated_to_zcdp_for_a_normal_loss_is_exact():
    """N(μ, τ²) has E exp((α−1)Z) = exp((α−1)μ + (α−1)²τ²/2): the curve itself."""
    mu, tau = 0.3, 0.5
    stated = ConcentratedDP(mu, tau, **SCOPE).zcdp()
    for order in (1.01, 2.0, 17.0):
        exact = mu + (order - 1) * tau**2 / 2
        assert stated.xi + stated.rho * order == near(exact, 1e-14)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
def test_concentrated_of_pure_dominates_randomized_response(epsilon):
    stated = PureDP(epsilon, **SCOPE).concentrated().zcdp()
    for order in (1.0001, 1.5, 2, 10, 1000):
        exact = renyi_divergence(*response(epsilon), order)
        assert exact <= (stated.xi + mp.mpf(stated.rho) * mp.mpf(order)) * (1 + mp.mpf("1e-9"))


def test_concentrated_at_delta_and_group_go_through_zcdp():
    stated = ConcentratedDP(0.3, 0.5, **SCOPE)
    assert stated.at_delta(1e-5) == stated.zcdp().at_delta(1e-5)
    assert stated.group(3) == stated.zcdp().group(3)
    assert ConcentratedDP(0.0, 3.0, **SCOPE).zcdp().xi == -4.5


@pytest.mark.parametrize("rho", [1e-12, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("delta", [1e-14, 1e-9, 1e-5, 1e-2, 0.2])
def test_zcdp_at_delta_is_the_minimum_over_orders_and_below_bs16(rho, delta):
    stated = ZCDP(0.0, rho, **SCOPE).at_delta(delta).epsilon
    with mp.workdps(30):
        # The derivative vanishes where ρ(α−1)² + ln(δα) = 0, which increases in α: bisect it.
        slope = lambda a: rho * (a - 1) ** 2 + mp.log(delta * a)  # noqa: E731
        low, high = mp.mpf(1), 2 + mp.sqrt(-mp.log(delta) / rho)
        for _ in range(110):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        excess = high - 1
        exact = rho * high + mp.log(excess / high) - mp.log(delta * high) / excess
        # And no order of a coarse grid does better, whatever the derivative says.
        for exponent in range(-12, 13):
            a = 1 + mp.mpf(10) ** exponent
            other = rho * a + mp.log((a - 1) / a) - mp.log(delta * a) / (a - 1)
            assert other >= exact - mp.mpf(10) ** -20
    assert stated == pytest.approx(max(float(exact), 0.0), rel=1e-7, abs=1e-15)
    assert stated <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-12)


@pytest.mark.parametrize("xi", [-0.04, 0.0, 0.5])
def test_zcdp_offset_adds_to_epsilon(xi):
    rho, delta = 0.05, 1e-6
    base = ZCDP(0.0, rho, **SCOPE).at_delta(delta).epsilon
    assert ZCDP(xi, rho, **SCOPE).at_delta(delta).epsilon == near(base + xi, 1e-9)


@pytest.mark.parametrize("multiplier", [0.2, 0.5, 1.0, 3.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.3])
def test_zcdp_at_delta_never_beats_the_exact_gaussian(multiplier, delta):
    stated = ZCDP(0.0, 1 / (2 * multiplier**2), **SCOPE).at_delta(delta).epsilon
    assert gaussian_delta(multiplier, stated) <= delta


def test_zcdp_edges():
    assert ZCDP(0.5, 0.0, **SCOPE).at_delta(0.0) == ApproxDP(0.5, 0.0, **SCOPE)
    assert ZCDP(0.5, 0.0, **SCOPE).at_delta(0.1) == PureDP(0.5, **SCOPE).at_delta(0.1)
    assert isinstance(ZCDP(0.0, 0.1, **SCOPE).at_delta(0.0), Unproven)
    assert ZCDP(0.0, 0.1, **SCOPE).at_delta(1 - 1e-12).epsilon == 0.0
    for rho in (1e-300, 600.0**2 / 2, 1e30, 1e40, 1e150):
        stated = ZCDP(0.0, rho, **SCOPE).at_delta(1e-6).epsilon
        assert stated <= (rho + 2 * math.sqrt(rho * math.log(1e6))) * (1 + 1e-9)
        assert stated >= rho * (1 - 1e-9) or rho < 1e-3


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
def test_zcdp_group_is_exact_for_a_gaussian_and_harmonic_in_the_offset(size):
    multiplier = 1.7
    stated = ZCDP(0.25, 1 / (2 * multiplier**2), **SCOPE).group(size)
    # A k-fold shift of a Gaussian has divergence α k² / (2 z²), no more, no less.
    assert stated.rho == near(1 / (2 * (multiplier / size) ** 2), 1e-13)
    harmonic = sum(Fraction(1, i) for i in range(1, size + 1))
    assert stated.xi == near(float(harmonic * size) * 0.25, 1e-12)


def test_zcdp_group_does_not_scale_a_negative_offset():
    stated = ZCDP(-0.1, 0.2, **SCOPE).group(3)
    assert stated.xi == 0.0
    assert stated.rho == near(1.8, 1e-14)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_zcdp_group_dominates_discrete_laplace_shifted_that_far(epsilon):
    """Discrete Laplace with loss ε per step; its k-step Rényi divergence, summed up."""
    for size in (2, 5):
        stated = PureDP(epsilon, **SCOPE).zcdp().group(size)
        for order in (1.1, 2.0, 8.0):
            reach = int(60 / epsilon)
            with mp.workdps(30):
                first = [mp.exp(-epsilon * abs(k)) for k in range(-reach, reach + 1)]
                second = [mp.exp(-epsilon * abs(k - size)) for k in range(-reach, reach + 1)]
                norm = mp.fsum(first)
                exact = mp.log(
                    mp.fsum(p**order * q ** (1 - order) for p, q in zip(first, second, strict=True))
                    / norm
                ) / (order - 1)
            assert exact <= stated.rho * order
            assert exact <= PureDP(epsilon, **SCOPE).group(size).renyi((order,)).epsilons[0]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_pure_group_is_reached_by_discrete_laplace(size):
    epsilon = 0.3
    worst = max(epsilon * (abs(k - size) - abs(k)) for k in range(-5, 2 * size + 5))
    assert PureDP(epsilon, **SCOPE).group(size).epsilon == near(worst, 1e-14)


# --- Rényi ---------------------------------------------------------------------------------


def test_renyi_at_delta_agrees_with_dp_accounting():
    from dp_accounting.rdp import rdp_privacy_accountant

    orders = (1.5, 2.0, 4.0, 8.0, 32.0, 256.0, 1024.0)
    for rho in (1e-4, 0.02, 0.5, 8.0):
        for delta in (1e-10, 1e-5, 1e-3):
            curve = [rho * order for order in orders]
            theirs, _ = rdp_privacy_accountant.compute_epsilon(orders, curve, delta)
            ours = RenyiDP(orders, tuple(curve), **SCOPE).at_delta(delta)
            assert ours.epsilon == pytest.approx(theirs, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2, 0.5])
def test_renyi_at_delta_is_sound_for_a_gaussian_at_every_order(multiplier, delta):
    for order in (1.0001, 1.01, 1.3, 2.0, 5.0, 60.0, 4096.0):
        curve = (order / (2 * multiplier**2),)
        stated = RenyiDP((order,), curve, **SCOPE).at_delta(delta).epsilon
        assert gaussian_delta(multiplier, stated) <= delta


def test_renyi_edges():
    infinite = RenyiDP((2.0, 3.0), (math.inf, math.inf), **SCOPE)
    assert infinite.at_delta(1e-5) == NotPrivate(**SCOPE)
    mixed = RenyiDP((2.0, 3.0), (0.1, math.inf), **SCOPE)
    assert mixed.at_delta(1e-5).epsilon == RenyiDP((2.0,), (0.1,), **SCOPE).at_delta(1e-5).epsilon
    assert isinstance(mixed.at_delta(0.0), Unproven)
    assert mixed.at_delta(1 - 1e-9).epsilon == 0.0
    tight = RenyiDP((math.nextafter(1.0, 2.0),), (0.1,), **SCOPE).at_delta(0.5)
    assert tight.epsilon > 1e10


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 9])
def test_renyi_group_dominates_a_gaussian_shifted_that_far(size):
    orders = tuple(2.0**power for power in range(1, 10))
    curve = tuple(order / 2 for order in orders)
    stated = RenyiDP(orders, curve, **SCOPE).group(size)
    assert isinstance(stated, RenyiDP)
    assert min(stated.orders) >= 2
    for order, epsilon in zip(stated.orders, stated.epsilons, strict=True):
        assert epsilon >= size**2 * order / 2


def test_renyi_group_takes_the_published_constants():
    stated = RenyiDP((3.0, 4.0, 16.0), (1.0, 1.5, 2.0), **SCOPE).group(2)
    assert stated == RenyiDP((2.0, 8.0), (4.5, 6.0), **SCOPE)
    assert isinstance(RenyiDP((3.0,), (1.0,), **SCOPE).group(2), Unproven)
    assert RenyiDP((8.0,), (1.0,), **SCOPE).group(3) == RenyiDP((2.0,), (9.0,), **SCOPE)


@pytest.mark.parametrize("power", [3, 30, 49, 52])
def test_renyi_group_rounds_its_doublings_up(power):
    """2^c + 1 units need c + 1 doublings, however close to 2^c."""
    stated = RenyiDP((2.0 ** (power + 2),), (1e-9,), **SCOPE).group(2**power + 1)
    assert isinstance(stated, RenyiDP)
    assert stated.orders == (2.0,)
    assert stated.epsilons == (near(3.0 ** (power + 1) * 1e-9, 1e-12),)


# --- all of them ---------------------------------------------------------------------------

EXAMPLES = (
    PureDP(1.0, **SCOPE),
    ApproxDP(1.0, 1e-5, **SCOPE),
    ConcentratedDP(0.5, 1.0, **SCOPE),
    ZCDP(0.0, 0.5, **SCOPE),
    RenyiDP((2.0, 4.0), (0.5, 1.0), **SCOPE),
    NotPrivate(**SCOPE),
    Unproven("no proof is known", **SCOPE),
)
by_kind = pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: type(one).__name__)


def test_examples_cover_every_kind():
    assert {type(one) for one in EXAMPLES} == set(KINDS.values())


@by_kind
@pytest.mark.parametrize("kind", ["add-remove", "zero-out"])
def test_a_replacement_is_two_steps_between_other_neighbours(one, kind):
    restated = dataclasses.replace(one, adjacency=kind).towards("replace-one")
    assert restated.adjacency is Adjacency.REPLACE_ONE
    assert restated.unit is Unit.RECORD
    assert dataclasses.replace(restated, adjacency=Adjacency.ADD_REMOVE) == one.group(2)
    assert restated.towards("replace-one") == restated


@by_kind
@pytest.mark.parametrize("kind", ["add-remove", "replace-one"])
def test_a_blank_record_costs_nothing_more(one, kind):
    stated = dataclasses.replace(one, adjacency=kind)
    assert stated.towards("zero-out") == dataclasses.replace(one, adjacency="zero-out")


@pytest.mark.parametrize("kind", ["zero-out", "replace-one"])
def test_nothing_else_hides_how_many_there_are(kind):
    with pytest.raises(IncompatibleGuarantees, match="follows from"):
        PureDP(1.0, adjacency=kind, unit="record").towards("add-remove")


def test_the_local_model_is_not_restated():
    local = PureDP(1.0, adjacency="any-two-inputs", unit="person")
    with pytest.raises(IncompatibleGuarantees, match="any-two-inputs"):
        local.towards("replace-one")


@by_kind
def test_frozen_hashable_and_scoped(one):
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.unit = "person"
    assert hash(one) == hash(dataclasses.replace(one))
    assert one.scope == {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit.RECORD}
    assert one.whom == "central, add-remove, unit: record"
    assert "add-remove" in str(one)
    local = dataclasses.replace(one, adjacency="any-two-inputs")
    assert local.whom.startswith("local")
    assert local != one


@by_kind
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adjacency", "add_remove"),
        ("adjacency", None),
        ("adjacency", ""),
        ("unit", "household"),
        ("unit", 3),
    ],
)
def test_unknown_neighbours_are_refused(one, name, value):
    with pytest.raises(InvalidParameter) as caught:
        dataclasses.replace(one, **{name: value})
    assert f"{type(one).__name__}: {name} must be" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -1e-300, -1.0, None, "one", [], HUGE]
)
@pytest.mark.parametrize(
    ("kind", "name", "rest"),
    [
        (PureDP, "epsilon", {}),
        (ApproxDP, "epsilon", {"delta": 1e-5}),
        (ConcentratedDP, "mu", {"tau": 1.0}),
        (ConcentratedDP, "tau", {"mu": 1.0}),
        (ZCDP, "rho", {"xi": 0.0}),
    ],
)
def test_numbers_outside_their_range_are_refused(kind, name, rest, value):
    with pytest.raises(InvalidParameter) as caught:
        kind(**{name: value}, **rest, **SCOPE)
    assert f"{kind.__name__}: {name} must be" in str(caught.value)
    assert f"got {value!r}"[:80] in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.2000001, None, "one"])
def test_an_offset_that_makes_a_divergence_negative_is_refused(value):
    with pytest.raises(InvalidParameter, match="ZCDP: xi must be"):
        ZCDP(value, 0.2, **SCOPE)
    assert ZCDP(-0.2, 0.2, **SCOPE).xi == -0.2


BAD_DELTAS = [math.nan, math.inf, -math.inf, -1e-300, 1.0, 1.5, None, "one", HUGE]


@pytest.mark.parametrize("value", BAD_DELTAS)
def test_delta_outside_its_range_is_refused(value):
    with pytest.raises(InvalidParameter, match="ApproxDP: delta must be") as caught:
        ApproxDP(1.0, value, **SCOPE)
    assert f"got {value!r}"[:80] in str(caught.value)
    for one in EXAMPLES[:5]:
        with pytest.raises(InvalidParameter, match="delta must be") as caught:
            one.at_delta(value)
        assert f"got {value!r}"[:80] in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, math.inf, True, None, "2", 2**53 + 1])
def test_group_sizes_outside_their_range_are_refused(value):
    for one in EXAMPLES[:5]:
        with pytest.raises(InvalidParameter, match="size must be") as caught:
            one.group(value)
        assert f"got {value!r}"[:80] in str(caught.value)


@pytest.mark.parametrize(
    ("orders", "epsilons", "name"),
    [
        ((), (), "orders"),
        ((1.0,), (0.1,), "orders"),
        ((0.5,), (0.1,), "orders"),
        ((math.inf,), (0.1,), "orders"),
        ((math.nan,), (0.1,), "orders"),
        ((3.0, 2.0), (0.1, 0.2), "orders"),
        ((2.0, 2.0), (0.1, 0.1), "orders"),
        ((2.0,), (), "epsilons"),
        ((2.0,), (0.1, 0.2), "epsilons"),
        ((2.0,), (-0.1,), "epsilons"),
        ((2.0,), (math.nan,), "epsilons"),
    ],
)
def test_curves_that_are_none_are_refused(orders, epsilons, name):
    with pytest.raises(InvalidParameter, match=f"RenyiDP: {name} must be") as caught:
        RenyiDP(orders, epsilons, **SCOPE)
    assert repr(orders if name == "orders" else epsilons) in str(caught.value)


@pytest.mark.parametrize(
    ("orders", "epsilons"), [(("a",), (0.1,)), ((2.0,), ("a",)), (None, (0.1,)), ((2.0,), 0.1)]
)
def test_curves_of_something_else_are_refused(orders, epsilons):
    with pytest.raises(InvalidParameter, match="RenyiDP"):
        RenyiDP(orders, epsilons, **SCOPE)


def test_same_scope_names_what_differs():
    other = PureDP(1.0, adjacency="replace-one", unit="record")
    with pytest.raises(IncompatibleGuarantees, match=r"add-remove/record and replace-one/record"):
        same_scope("here", [PureDP(1.0, **SCOPE), other])
    person = PureDP(1.0, adjacency="add-remove", unit="person")
    with pytest.raises(IncompatibleGuarantees, match="add-remove/person"):
        same_scope("here", [PureDP(1.0, **SCOPE), person])
    assert same_scope("here", [PureDP(1.0, **SCOPE)] * 2) == PureDP(1.0, **SCOPE).scope
    with pytest.raises(InvalidParameter, match="at least one"):
        same_scope("here", [])


def test_unknown_is_not_a_number_and_not_private_is_infinite():
    unknown = Unproven("the proof fails here", **SCOPE)
    assert not hasattr(unknown, "epsilon")
    assert not hasattr(unknown, "delta")
    assert unknown.at_delta(1e-5) is unknown
    assert unknown.group(3) is unknown
    assert "the proof fails here" in str(unknown)
    nothing = NotPrivate(**SCOPE)
    assert nothing.epsilon == math.inf
    assert nothing.at_delta(1e-5) is nothing
    assert nothing.group(3) is nothing


@moderate
@given(
    st.sampled_from([one for one in EXAMPLES if not isinstance(one, NotPrivate | Unproven)]),
    st.floats(1e-14, 0.5),
    st.floats(1e-14, 0.5),
)
def test_epsilon_decreases_in_delta(one, first, second):
    low, high = sorted((max(first, 1e-5), max(second, 1e-5)))
    assert one.at_delta(high).epsilon <= one.at_delta(low).epsilon * (1 + 1e-9)


@moderate
@given(st.sampled_from(EXAMPLES), st.integers(1, 6), st.integers(1, 6))
def test_larger_groups_get_weaker_promises(one, first, second):
    small, large = sorted((first, second))
    weak, strong = one.group(large).at_delta(1e-2), one.group(small).at_delta(1e-2)
    if not isinstance(weak, Unproven) and not isinstance(strong, Unproven):
        assert strong.epsilon <= weak.epsilon * (1 + 1e-9)


def test_the_base_promises_nothing_by_itself():
    with pytest.raises((NotImplementedError, TypeError)):
        Guarantee(**SCOPE).at_delta(1e-5)
