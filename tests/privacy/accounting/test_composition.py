"""Composition against explicit product laws, closed forms in mpmath, and dp-accounting."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.accounting import composition
from tacit.privacy.errors import IncompatibleGuarantees, InvalidParameter
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    ConcentratedDP,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unproven,
)

SCOPE = {"adjacency": "add-remove", "unit": "record"}
OTHER = {"adjacency": "replace-one", "unit": "record"}
PURE = PureDP(1.0, **SCOPE)
APPROX = ApproxDP(0.5, 1e-6, **SCOPE)
CONCENTRATED = ConcentratedDP(0.1, 0.4, **SCOPE)
ZERO = ZCDP(0.0, 0.1, **SCOPE)
CURVE = RenyiDP((2.0, 4.0, 8.0), (0.1, 0.2, 0.4), **SCOPE)
NOTHING = NotPrivate(**SCOPE)
UNKNOWN = Unproven("no proof", **SCOPE)
moderate = settings(deadline=None, max_examples=60)


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(50):
        yield


def near(value, rel):
    """Relative closeness only: the absolute slack of `pytest.approx` hides small numbers."""
    return pytest.approx(float(value), rel=rel, abs=0)


def worst_pair(epsilon, delta=0):
    """Randomized response that tells its input with chance δ."""
    delta = mp.mpf(delta)
    keep = (1 - delta) / (1 + mp.exp(-mp.mpf(epsilon)))
    flip = (1 - delta) - keep
    return (delta, mp.mpf(0), keep, flip), (mp.mpf(0), delta, flip, keep)


def hockey_stick(first, second, epsilon):
    factor = mp.exp(mp.mpf(epsilon))
    return mp.fsum(max(p - factor * q, 0) for p, q in zip(first, second, strict=True))


def explicit_product(pairs):
    """The law of independent draws, outcome by outcome."""
    first = [mp.fprod(c) for c in itertools.product(*(pair[0] for pair in pairs))]
    second = [mp.fprod(c) for c in itertools.product(*(pair[1] for pair in pairs))]
    return first, second


def counted_product(epsilon, delta, count):
    """The same, outcomes grouped by their number of flips."""
    (tell, _, keep, flip), _ = worst_pair(epsilon, delta)
    failed = 1 - (1 - tell) ** count
    ways = [mp.binomial(count, j) for j in range(count + 1)]
    first = [w * keep ** (count - j) * flip**j for j, w in enumerate(ways)]
    second = [w * keep**j * flip ** (count - j) for j, w in enumerate(ways)]
    return [failed, mp.mpf(0), *first], [mp.mpf(0), failed, *second]


def assert_profile_crosses(pair, epsilon, delta, rel=1e-10):
    """ε is where the profile of a pair falls to δ."""
    slack = mp.mpf(rel) * (1 + mp.mpf(epsilon))
    assert hockey_stick(*pair, epsilon + slack) <= delta
    if epsilon > 0:
        assert hockey_stick(*pair, epsilon - slack) >= delta


# --- sums ----------------------------------------------------------------------------------


def test_naive_adds_both():
    total = composition.naive([PURE, APPROX, APPROX])
    assert total == ApproxDP(2.0, 2e-6, **SCOPE)
    assert composition.naive([PURE, PURE]) == PureDP(2.0, **SCOPE)
    assert composition.naive([ApproxDP(1.0, 0.0, **SCOPE)]) == PureDP(1.0, **SCOPE)
    assert composition.naive([ApproxDP(0.1, 0.5, **SCOPE)] * 2) == NOTHING
    tenths = composition.naive([PureDP(0.1, **SCOPE)] * 10)
    assert tenths.epsilon == 1.0  # a plain sum would give 0.9999999999999999


def test_naive_is_sound_for_explicit_products():
    parts = [(0.3, 1e-2), (1.0, 0.0), (0.7, 1e-3)]
    total = composition.naive([ApproxDP(e, d, **SCOPE) for e, d in parts])
    pair = explicit_product([worst_pair(e, d) for e, d in parts])
    assert hockey_stick(*pair, total.epsilon) <= total.delta
    assert hockey_stick(*pair, 0.9 * total.epsilon) > total.delta


@pytest.mark.parametrize("one", [CONCENTRATED, ZERO, CURVE, NOTHING, UNKNOWN])
def test_naive_and_advanced_refuse_the_rest(one):
    with pytest.raises(IncompatibleGuarantees, match=type(one).__name__):
        composition.naive([PURE, one])
    with pytest.raises(IncompatibleGuarantees, match=type(one).__name__):
        composition.advanced([PURE, one], 1e-6)


def test_concentrated_adds_and_converts():
    total = composition.concentrated([ZERO, PURE, CONCENTRATED])
    assert total.rho == near(0.1 + 0.5 + 0.08, 1e-15)
    assert total.xi == near(0.1 - 0.08, 1e-12)
    for one in (APPROX, CURVE, NOTHING, UNKNOWN):
        with pytest.raises(IncompatibleGuarantees, match=type(one).__name__):
            composition.concentrated([ZERO, one])


def test_concentrated_is_exact_for_gaussians():
    """Shifts of several Gaussians add up: the divergences are equal, not only bounded."""
    multipliers = (0.7, 2.0, 11.0)
    total = composition.concentrated([ZCDP(0.0, 1 / (2 * z * z), **SCOPE) for z in multipliers])
    joint = mp.sqrt(sum(1 / mp.mpf(z) ** 2 for z in multipliers))  # length of the joint shift
    for order in (1.5, 6.0):
        density = lambda x, a=order: mp.npdf(x) ** a * mp.npdf(x, joint) ** (1 - a)  # noqa: E731
        with mp.workdps(20):
            exact = mp.log(mp.quad(density, [-60, -20, -8, 0, 8, 20, 60])) / (order - 1)
        assert total.rho * order == near(exact, 1e-9)


def test_many_small_offsets_do_not_go_below_zero():
    part = PureDP(0.37, **SCOPE).concentrated().zcdp()
    total = composition.concentrated([part] * 1000)
    assert total.xi >= -total.rho
    extreme = composition.concentrated([ZCDP(-0.1, 0.1, **SCOPE)] * 37)
    assert extreme.renyi((1.0000001,)).epsilons[0] >= 0


def test_renyi_adds_at_shared_orders():
    other = RenyiDP((3.0, 4.0, 8.0), (1.0, 2.0, math.inf), **SCOPE)
    total = composition.renyi([CURVE, other])
    assert total == RenyiDP((4.0, 8.0), (2.2, math.inf), **SCOPE)
    with pytest.raises(InvalidParameter, match="orders must be shared"):
        composition.renyi([CURVE, RenyiDP((3.0,), (1.0,), **SCOPE)])
    with pytest.raises(InvalidParameter, match="orders must be shared"):
        composition.renyi([PURE])
    for one in (APPROX, NOTHING, UNKNOWN):
        with pytest.raises(IncompatibleGuarantees, match=type(one).__name__):
            composition.renyi([CURVE, one])


def test_renyi_converts_the_others_by_their_own_curves():
    total = composition.renyi([CURVE, PURE, ZERO, CONCENTRATED])
    keep = 1 / (1 + mp.exp(-1))
    for order, base, stated in zip(CURVE.orders, CURVE.epsilons, total.epsilons, strict=True):
        response = mp.log(
            keep**order * (1 - keep) ** (1 - order) + (1 - keep) ** order * keep ** (1 - order)
        ) / (order - 1)
        rest = 0.1 * order + (0.1 - 0.08 + 0.08 * order)
        assert stated == near(base + response + rest, 1e-12)


@moderate
@given(st.lists(st.floats(0, 5), min_size=1, max_size=5), st.lists(st.floats(0, 1e-3), max_size=5))
def test_sequential_of_plain_guarantees_is_the_sum_in_any_order(epsilons, deltas):
    parts = [PureDP(e, **SCOPE) for e in epsilons] + [ApproxDP(0.5, d, **SCOPE) for d in deltas]
    forward, backward = composition.sequential(parts), composition.sequential(parts[::-1])
    assert forward == backward
    assert forward.epsilon == near(sum(epsilons) + 0.5 * len(deltas), 1e-12)
    assert forward.delta == near(sum(deltas), 1e-12)


def test_sequential_takes_the_strongest_common_notion():
    assert composition.sequential([PURE, PURE]) == PureDP(2.0, **SCOPE)
    assert composition.sequential([PURE, APPROX]) == ApproxDP(1.5, 1e-6, **SCOPE)
    assert composition.sequential([PURE, ZERO]) == composition.concentrated([PURE, ZERO])
    assert composition.sequential([CONCENTRATED, PURE]) == composition.concentrated(
        [CONCENTRATED, PURE]
    )
    assert composition.sequential([PURE, ZERO, CURVE]) == composition.renyi([PURE, ZERO, CURVE])
    for one in (ZERO, CURVE, CONCENTRATED):
        with pytest.raises(IncompatibleGuarantees, match="at_delta"):
            composition.sequential([APPROX, one])


def test_sequential_of_concentrated_guarantees():
    total = composition.sequential([CONCENTRATED, ConcentratedDP(0.2, 0.3, **SCOPE)])
    assert isinstance(total, ConcentratedDP)
    assert (total.mu, total.tau) == (near(0.3, 1e-15), near(0.5, 1e-15))


@pytest.mark.parametrize("compose", [composition.sequential, composition.parallel])
def test_not_private_and_unproven_absorb(compose):
    for rest in ([], [PURE], [APPROX, CURVE], [ZERO, CONCENTRATED]):
        assert compose([*rest, UNKNOWN]) == UNKNOWN
        assert compose([UNKNOWN, *rest]) == UNKNOWN
        assert compose([*rest, NOTHING]) == NOTHING
        assert compose([NOTHING, *rest, UNKNOWN]) == NOTHING
        assert compose([UNKNOWN, *rest, NOTHING]) == NOTHING


@pytest.mark.parametrize(
    "compose",
    [
        composition.sequential,
        composition.parallel,
        composition.naive,
        composition.concentrated,
        composition.renyi,
        lambda parts: composition.advanced(parts, 1e-6),
    ],
)
def test_different_neighbours_do_not_mix_and_nothing_is_no_list(compose):
    for odd in (PureDP(1.0, **OTHER), PureDP(1.0, adjacency="add-remove", unit="person")):
        with pytest.raises(IncompatibleGuarantees, match="share adjacency and unit"):
            compose([PURE, odd])
    with pytest.raises(IncompatibleGuarantees):
        compose([NOTHING, Unproven("x", **OTHER)])
    with pytest.raises(InvalidParameter, match="at least one"):
        compose([])


def test_parallel_is_the_weakest_part():
    assert composition.parallel([PURE, PureDP(2.0, **SCOPE)]) == PureDP(2.0, **SCOPE)
    assert composition.parallel([PURE, APPROX]) == ApproxDP(1.0, 1e-6, **SCOPE)
    assert composition.parallel([ZERO, ZERO]) == ZERO
    with pytest.raises(IncompatibleGuarantees, match="at_delta"):
        composition.parallel([ZERO, CURVE])
    with pytest.raises(IncompatibleGuarantees, match="at_delta"):
        composition.parallel([ZERO, PURE])


# --- advanced ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 10, 100])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 2.0])
def test_advanced_is_the_published_formula(epsilon, count):
    for delta, slack in ((0.0, 1e-6), (1e-9, 1e-12), (1e-4, 0.3)):
        parts = [ApproxDP(epsilon, delta, **SCOPE), PureDP(2 * epsilon, **SCOPE)] * count
        total = composition.advanced(parts, slack)
        e = [mp.mpf(part.epsilon) for part in parts]
        mean = mp.fsum((mp.exp(x) - 1) * x / (mp.exp(x) + 1) for x in e)
        squares = mp.fsum(x * x for x in e)
        published = min(
            mp.fsum(e),
            mean + mp.sqrt(2 * squares * mp.log(1 / mp.mpf(slack))),
            mean + mp.sqrt(2 * squares * mp.log(mp.e + mp.sqrt(squares) / mp.mpf(slack))),
        )
        assert total.epsilon == near(published, 1e-12)
        failed = 1 - (1 - mp.mpf(slack)) * (1 - mp.mpf(delta)) ** count
        assert total.delta == near(failed, 1e-12)
        repeated = composition.advanced_epsilon(np.array([epsilon, 2 * epsilon]), count, slack)
        assert repeated == near(published, 1e-12)


def test_advanced_is_sound_for_unequal_explicit_products():
    parts = [(0.3, 1e-3), (0.05, 0.0), (0.2, 1e-4), (0.2, 0.0), (0.4, 0.0), (0.1, 1e-2)]
    pair = explicit_product([worst_pair(e, d) for e, d in parts])
    guarantees = [ApproxDP(e, d, **SCOPE) for e, d in parts]
    for slack in (0.4, 1e-2, 1e-6):
        total = composition.advanced(guarantees, slack)
        assert hockey_stick(*pair, total.epsilon) <= total.delta


@pytest.mark.parametrize("slack", [0, 1, -0.1, math.nan, math.inf, None, "x"])
def test_advanced_needs_a_slack(slack):
    with pytest.raises(InvalidParameter, match="advanced: slack must be"):
        composition.advanced([PURE], slack)


def test_advanced_that_surely_fails_is_not_private():
    """With forty chances of 0.9 to fail, 1 − δ is below what a float can hold."""
    assert composition.advanced([ApproxDP(1.0, 0.9, **SCOPE)] * 40, 0.5) == NOTHING


# --- optimal -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize(("epsilon", "failure"), [(0.5, 0.0), (1.0, 1e-3), (3.0, 0.05)])
def test_optimal_is_the_profile_of_the_explicit_product(count, epsilon, failure):
    pair = explicit_product([worst_pair(epsilon, failure)] * count)
    failed = 1 - (1 - failure) ** count
    for spare in (1e-9, 1e-4, 0.01, 0.3):
        delta = failed + spare
        total = composition.optimal(ApproxDP(epsilon, failure, **SCOPE), count, delta)
        assert total.delta == delta
        assert_profile_crosses(pair, total.epsilon, delta, rel=1e-6 if spare < 1e-8 else 1e-9)


def test_the_grouped_product_is_the_explicit_one():
    explicit = explicit_product([worst_pair(0.7, 0.01)] * 4)
    grouped = counted_product(0.7, 0.01, 4)
    for epsilon in (0.0, 0.4, 1.5, 2.5):
        gap = hockey_stick(*explicit, epsilon) - hockey_stick(*grouped, epsilon)
        assert abs(gap) < mp.mpf(10) ** -40


@pytest.mark.parametrize("count", [5, 20, 50])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
def test_optimal_is_the_profile_of_the_product(count, epsilon):
    for failure, delta in ((0.0, 1e-3), (0.0, 1e-6), (0.0, 1e-10), (1e-8, 1e-5), (1e-4, 0.02)):
        total = composition.optimal(ApproxDP(epsilon, failure, **SCOPE), count, delta)
        assert_profile_crosses(counted_product(epsilon, failure, count), total.epsilon, delta, 1e-7)


@pytest.mark.parametrize("delta", [1e-13, 1e-14, 3e-15, 1e-16, 1e-20])
def test_optimal_keeps_the_digits_of_a_small_delta(delta):
    """1 − (1 − δ) has none of them left at 10⁻¹⁶."""
    total = composition.optimal(PureDP(0.3, **SCOPE), 50, delta)
    pair = counted_product(0.3, 0.0, 50)
    assert hockey_stick(*pair, total.epsilon + 1e-11) <= delta
    assert hockey_stick(*pair, total.epsilon - 1e-6) >= delta


def test_optimal_keeps_the_digits_of_a_small_rest():
    """What failures leave of δ is a difference of nearly equal numbers."""
    failure, count = 1e-6, 50
    delta = 50e-6 * (1 + 1e-9)
    total = composition.optimal(ApproxDP(0.3, failure, **SCOPE), count, delta)
    pair = counted_product(0.3, failure, count)
    assert hockey_stick(*pair, total.epsilon + 1e-9) <= delta
    assert hockey_stick(*pair, total.epsilon - 1e-4) >= delta


def test_optimal_agrees_with_dp_accounting_within_its_grid():
    from dp_accounting.pld import common, privacy_loss_distribution

    interval = 1e-4
    for epsilon, failure, count, delta in (
        (0.1, 0.0, 30, 1e-6),
        (0.05, 1e-7, 100, 1e-4),
        (1.0, 1e-6, 10, 1e-3),
    ):
        one = privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, failure),
            value_discretization_interval=interval,
        )
        theirs = one.self_compose(count).get_epsilon_for_delta(delta)
        ours = composition.optimal(ApproxDP(epsilon, failure, **SCOPE), count, delta).epsilon
        assert ours <= theirs + 1e-9
        assert theirs <= ours + count * interval


@moderate
@given(st.floats(1e-3, 3), st.integers(1, 200), st.floats(1e-9, 0.1))
def test_optimal_beats_the_other_bounds(epsilon, count, delta):
    total = composition.optimal(PureDP(epsilon, **SCOPE), count, delta).epsilon
    tolerance = 1 + 1e-9
    assert total <= count * epsilon * tolerance
    assert total <= composition.advanced_epsilon(np.array([epsilon]), count, delta) * tolerance
    one = PureDP(epsilon, **SCOPE).at_delta(delta).epsilon
    assert total >= one / tolerance - 1e-9
    zcdp = ZCDP(0.0, count * epsilon**2 / 2, **SCOPE).at_delta(delta).epsilon
    assert total <= zcdp * tolerance


def test_optimal_at_a_million():
    """There the product is a Gaussian with multiplier 1/(2 sinh(ε/2)√k) or so."""
    epsilon, count, delta = 1e-3, 10**6, 1e-5
    total = composition.optimal(PureDP(epsilon, **SCOPE), count, delta).epsilon
    z = 1 / (epsilon * mp.sqrt(count))
    phi = lambda e: mp.ncdf(1 / (2 * z) - e * z) - mp.exp(e) * mp.ncdf(-1 / (2 * z) - e * z)  # noqa: E731
    limit = mp.findroot(lambda e: mp.log(phi(e) / delta), 4.0)
    assert total == near(limit, 2e-3)
    assert total < composition.advanced_epsilon(np.array([epsilon]), count, delta)
    heavy = composition.optimal(PureDP(1.0, **SCOPE), count, delta).epsilon
    assert 0.46 * count < heavy < 0.47 * count  # mean loss tanh(1/2) each, plus a little
    assert composition.optimal(ApproxDP(1e-3, 1e-12, **SCOPE), count, 1e-5).epsilon >= total


def test_optimal_edges():
    assert composition.optimal(PureDP(0.0, **SCOPE), 10, 0.0) == ApproxDP(0.0, 0.0, **SCOPE)
    assert composition.optimal(PURE, 3, 0.0).epsilon == near(3.0, 1e-12)
    assert composition.optimal(PURE, 3, 0.999999).epsilon == 0.0
    assert composition.optimal(PureDP(600.0, **SCOPE), 10, 1e-5).epsilon <= 6000.0
    assert composition.optimal(PureDP(600.0, **SCOPE), 10, 1e-5).epsilon > 5999.0
    exceeded = composition.optimal(APPROX, 10, 1e-6)
    assert isinstance(exceeded, Unproven)
    assert "1e-06" in exceeded.reason
    assert composition.optimal(APPROX, 1, 1e-6).epsilon == near(0.5, 1e-6)


@pytest.mark.parametrize("count", [0, -1, 1.5, math.nan, True, None, "3"])
def test_optimal_needs_a_count(count):
    with pytest.raises(InvalidParameter, match="optimal: count must be"):
        composition.optimal(PURE, count, 1e-5)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan, None])
def test_optimal_needs_a_delta(delta):
    with pytest.raises(InvalidParameter, match="optimal: delta must be"):
        composition.optimal(PURE, 3, delta)


@pytest.mark.parametrize("one", [NOTHING, UNKNOWN, ZERO, CURVE, CONCENTRATED])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_optimal_never_turns_another_kind_into_a_number(one):
    """An infinite ε must not come out as (0, δ)."""
    try:
        total = composition.optimal(one, 10, 1e-5)
    except IncompatibleGuarantees:
        return
    assert isinstance(total, NotPrivate | Unproven)


# --- sampling ------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [1e-4, 0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 40.0])
def test_amplified_is_exact_for_sampled_randomized_response(epsilon, probability):
    """With the unit: a mixture; without it: the other input's law. Both directions."""
    for failure in (0.0, 1e-3):
        present, absent = worst_pair(epsilon, failure)
        q = mp.mpf(probability)
        mixture = [q * p + (1 - q) * a for p, a in zip(present, absent, strict=True)]
        one = ApproxDP(epsilon, failure, **SCOPE) if failure else PureDP(epsilon, **SCOPE)
        stated = composition.amplified(one, probability)
        assert type(stated) is type(one)
        assert stated.delta == near(probability * failure, 1e-15)
        slack = mp.mpf("1e-11") * stated.epsilon
        assert hockey_stick(mixture, absent, stated.epsilon + slack) <= stated.delta * (1 + 1e-12)
        assert hockey_stick(absent, mixture, stated.epsilon + slack) <= stated.delta * (1 + 1e-12)
        assert hockey_stick(mixture, absent, stated.epsilon - slack) > stated.delta * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-10, 1e-14])
@pytest.mark.parametrize("probability", [1e-6, 0.01, 0.5])
def test_amplified_keeps_the_digits_of_a_small_epsilon(epsilon, probability):
    stated = composition.amplified(PureDP(epsilon, **SCOPE), probability).epsilon
    assert stated == near(mp.log1p(probability * mp.expm1(mp.mpf(epsilon))), 1e-9)


def test_amplified_at_the_edges():
    assert composition.amplified(PURE, 1) == PURE
    assert composition.amplified(PureDP(0.0, **SCOPE), 0.3).epsilon == near(0, 1e-15)
    huge = composition.amplified(PureDP(600.0, **SCOPE), 0.01).epsilon
    assert huge == near(600 + math.log(0.01), 1e-12)
    assert composition.amplified(PureDP(1e5, **SCOPE), 0.01).epsilon < 1e5


@pytest.mark.parametrize("probability", [0, -0.1, 1.5, math.nan, math.inf, None])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_amplified_needs_a_probability(probability):
    with pytest.raises(InvalidParameter):
        composition.amplified(PURE, probability)


@pytest.mark.parametrize("adjacency", ["replace-one", "any-two-inputs"])
def test_amplified_is_for_add_remove_neighbours_only(adjacency):
    r"""A replace-one mechanism may publish the size of its sample, and then nothing is amplified.

    Without the unit the output is "small"; with it, randomized response on the unit's bit. Given
    "not small" the odds of the two replaced values are e^ε, whatever the sampling rate was.
    """
    replaced = PureDP(1.0, adjacency=adjacency, unit="record")
    with pytest.raises(InvalidParameter, match="add-remove"):
        composition.amplified(replaced, 0.1)
