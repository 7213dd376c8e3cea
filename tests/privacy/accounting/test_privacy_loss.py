"""Tight accounting against integrals, binomial sums and dp-accounting run directly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from tacit.privacy import events, gaussian
from tacit.privacy.accounting import loss_grid, privacy_loss
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import ZCDP, ApproxDP, NotPrivate, PureDP, RenyiDP, Unproven

SCOPE = {"adjacency": "add-remove", "unit": "record"}
LAPLACE = events.Laplace(1, 4, **SCOPE)
RESPONSE = events.RandomizedResponse(
    2, "1/2", 62 * 2**64 // 100, 2**64 - 62 * 2**64 // 100, **SCOPE
)
run = privacy_loss.subsampled_gaussian


def near(value, rel):
    """Relative closeness only: the absolute slack of `pytest.approx` hides small numbers."""
    return pytest.approx(float(value), rel=rel, abs=0)


# --- oracles -------------------------------------------------------------------------------


def exact_gaussian_delta(multiplier, epsilon):
    with mp.workdps(50):
        z, e = mp.mpf(multiplier), mp.mpf(epsilon)
        half = 1 / (2 * z)
        return mp.ncdf(half - e * z) - mp.exp(e) * mp.ncdf(-half - e * z)


class SampledGaussian:
    """P = (1−q) N(0, σ²) + q N(1, σ²) against Q = N(0, σ²): its losses and profiles."""

    def __init__(self, sigma: float, q: float) -> None:
        self.sigma, self.q = sigma, q

    def loss(self, x: float) -> float:
        """The loss ln P/Q, increasing in x."""
        exponent = (2 * x - 1) / (2 * self.sigma**2)
        return float(np.logaddexp(math.log1p(-self.q), math.log(self.q) + exponent))

    def point(self, loss: float) -> float:
        """Where ln P/Q has this value; −∞ where it is always larger."""
        inside = math.exp(loss) - (1 - self.q)
        if inside <= 0:
            return -math.inf
        return self.sigma**2 * math.log(inside / self.q) + 0.5

    def above(self, x: float) -> tuple[float, float]:
        """P and Q of (x, ∞)."""
        absent = float(ndtr(-x / self.sigma))
        present = float(ndtr((1 - x) / self.sigma))
        return (1 - self.q) * absent + self.q * present, absent

    def removed(self, epsilon: float) -> float:
        """Hockey stick of P against Q at any real ε."""
        p, q = self.above(self.point(epsilon))
        return p - math.exp(epsilon) * q

    def added(self, epsilon: float) -> float:
        """Hockey stick of Q against P."""
        p, q = self.above(self.point(-epsilon))
        return (1 - q) - math.exp(epsilon) * (1 - p)

    def density(self, x: float) -> tuple[float, float]:
        scale = self.sigma * math.sqrt(2 * math.pi)
        absent = math.exp(-0.5 * (x / self.sigma) ** 2) / scale
        present = math.exp(-0.5 * ((x - 1) / self.sigma) ** 2) / scale
        return (1 - self.q) * absent + self.q * present, absent

    def twice(self, epsilon: float) -> float:
        """Two draws, the worse direction: integrate the second one's profile over the first."""
        ends = {"epsabs": 1e-12, "epsrel": 1e-8, "limit": 400}
        reach = 12 * self.sigma
        grid = np.linspace(-reach, 1 + reach, 9)

        def integral(function):
            pieces = itertools.pairwise(grid)
            return sum(quad(function, low, high, **ends)[0] for low, high in pieces)

        removed = integral(lambda x: self.density(x)[0] * self.removed(epsilon - self.loss(x)))
        added = integral(lambda x: self.density(x)[1] * self.added(epsilon + self.loss(x)))
        return max(removed, added)


def test_the_oracle_is_an_integral():
    pair = SampledGaussian(0.8, 0.2)
    for epsilon in (0.0, 0.3, 1.5):
        factor = math.exp(epsilon)

        def excess(x, factor=factor, swap=False):
            p, q = pair.density(x)[::-1] if swap else pair.density(x)
            return max(p - factor * q, 0.0)

        points = sorted({-8.0, pair.point(epsilon), 0.0, 1.0, 9.0})
        pieces = itertools.pairwise(points)
        removed = sum(quad(excess, a, b, epsabs=1e-13)[0] for a, b in pieces)
        assert pair.removed(epsilon) == near(removed, 1e-8)
        if math.isfinite(pair.point(-epsilon)):
            left = quad(lambda x: excess(x, swap=True), -8, pair.point(-epsilon), epsabs=1e-13)
            assert pair.added(epsilon) == near(left[0], 1e-8)


# --- Rényi ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("q", [0.001, 0.7])
def test_sampled_gaussian_curve_is_the_binomial_sum_at_integer_orders(sigma, q):
    orders = (2.0, 3.0, 8.0, 32.0, 63.0, 256.0)
    curve = privacy_loss.renyi_of(run(sigma, q, 1), orders).epsilons
    with mp.workdps(60):
        exact_q = mp.mpf(q)
        for order, stated in zip(orders, curve, strict=True):
            a = int(order)
            total = mp.fsum(
                mp.binomial(a, k)
                * (1 - exact_q) ** (a - k)
                * exact_q**k
                * mp.exp((k * k - k) / (2 * mp.mpf(sigma) ** 2))
                for k in range(a + 1)
            )
            assert stated == near(mp.log(total) / (a - 1), 1e-8)


@pytest.mark.parametrize(
    ("sigma", "q", "order", "looseness"),
    [(1.0, 0.1, 1.5, 1e-8), (2.0, 0.01, 2.7, 1e-8), (0.7, 0.3, 7.5, 1e-8)],
)
def test_sampled_gaussian_curve_bounds_the_integral_at_other_orders(sigma, q, order, looseness):
    stated = privacy_loss.renyi_of(run(sigma, q, 1), (order,)).epsilons[0]
    with mp.workdps(20):
        absent = lambda x: mp.npdf(x, 0, sigma)  # noqa: E731
        mixture = lambda x: (1 - q) * absent(x) + q * mp.npdf(x, 1, sigma)  # noqa: E731
        grid = [sigma * k for k in (-16, -8, -4, 0, 4, 8, 16, 24)]
        forward = mp.quad(lambda x: mixture(x) ** order * absent(x) ** (1 - order), grid)
        backward = mp.quad(lambda x: absent(x) ** order * mixture(x) ** (1 - order), grid)
    exact = float(max(mp.log(forward), mp.log(backward)) / (order - 1))
    assert exact * (1 - 1e-10) <= stated <= exact * (1 + looseness)


@pytest.mark.parametrize(("sigma", "q"), [(1e3, 1e-3), (1e6, 1e-6)])
def test_curves_of_large_noise_are_no_rounding_errors(sigma, q):
    """Divergences of 10⁻²⁴ must not come out negative, nor a million of them below the truth."""
    curve = privacy_loss.renyi_of(run(sigma, q, 10**6))
    for order, stated in zip(curve.orders, curve.epsilons, strict=True):
        if order == int(order) and order <= 64:
            exact = 10**6 * math.log1p(
                math.fsum(
                    math.comb(int(order), k)
                    * q**k
                    * (1 - q) ** (int(order) - k)
                    * math.expm1((k * k - k) / (2 * sigma**2))
                    for k in range(2, int(order) + 1)
                )
            )
            assert stated >= exact / (order - 1) - 1e-9, order


def test_curves_add_and_take_the_worst_part():
    orders = (1.5, 2.0, 16.0)
    one = np.array(privacy_loss.renyi_of(LAPLACE, orders).epsilons)
    two = np.array(privacy_loss.renyi_of(events.Gaussian(1, 3, **SCOPE), orders).epsilons)
    assert two == pytest.approx(np.array(orders) / 18, rel=1e-12)
    keep = 1 / (1 + math.exp(-0.25))
    second = math.log(keep**2 / (1 - keep) + (1 - keep) ** 2 / keep)
    assert one[1] == near(second, 1e-12)
    gauss = events.Gaussian(1, 3, **SCOPE)
    both = privacy_loss.renyi_of(events.Composed((LAPLACE, gauss)), orders).epsilons
    assert both == pytest.approx(one + two, rel=1e-12)
    worst = privacy_loss.renyi_of(events.Parallel((LAPLACE, gauss)), orders).epsilons
    assert worst == pytest.approx(np.maximum(one, two), rel=1e-12)
    often = privacy_loss.renyi_of(events.Repeated(LAPLACE, 7), orders).epsilons
    assert often == pytest.approx(7 * one, rel=1e-12)
    grid = events.DiscreteGaussian(4, 9, 5, **SCOPE)
    assert privacy_loss.renyi_of(grid, orders).epsilons == pytest.approx(
        np.array(orders) * 4 / 18, rel=1e-12
    )


def test_curves_of_declared_guarantees():
    curve = RenyiDP((2.0, 4.0), (0.1, 0.3), **SCOPE)
    assert privacy_loss.renyi_of(events.Declared(curve), (4.0,)).epsilons == (0.3,)
    zcdp = events.Declared(ZCDP(0.1, 0.2, **SCOPE))
    assert privacy_loss.renyi_of(zcdp, (4.0,)).epsilons == (near(0.9, 1e-15),)
    with pytest.raises(privacy_loss.Unsupported, match="Rényi"):
        privacy_loss.renyi_of(events.Declared(curve), (3.0,))
    for one in (ApproxDP(1.0, 1e-6, **SCOPE), NotPrivate(**SCOPE), Unproven("why", **SCOPE)):
        with pytest.raises(privacy_loss.Unsupported, match="Rényi"):
            privacy_loss.renyi_of(events.Declared(one), (3.0,))


def test_orders_are_increasing_and_include_the_usual_ones():
    from dp_accounting.rdp import rdp_privacy_accountant

    assert list(privacy_loss.ORDERS) == sorted(set(privacy_loss.ORDERS))
    assert set(rdp_privacy_accountant.DEFAULT_RDP_ORDERS) <= set(privacy_loss.ORDERS)


# --- compare -------------------------------------------------------------------------------


def test_compare_gives_the_published_numbers_and_those_of_dp_accounting():
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    found = privacy_loss.compare(1, 0.01, 1000, 1e-5)
    assert round(found.rdp, 3) == 2.101
    assert round(found.pld, 3) == 1.828
    assert found.notes == ()
    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 1000
    )
    assert found.rdp <= RdpAccountant().compose(event).get_epsilon(1e-5) * (1 + 1e-12)
    assert found.rdp == near(RdpAccountant().compose(event).get_epsilon(1e-5), 1e-6)
    theirs = PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(1e-5)
    assert found.pld == near(theirs, 1e-3)
    assert found.epsilons() == {
        "naive": found.naive,
        "advanced": found.advanced,
        "zcdp": found.zcdp,
        "rdp": found.rdp,
        "pld": found.pld,
    }
    assert found.pld < found.rdp < found.advanced < found.zcdp < found.naive
    check_step_bounds(found, 1.0, 0.01, 1000, 1e-5)


def check_step_bounds(found, sigma, q, steps, delta):
    """Naive and advanced by their formulas, from the exact Gaussian at δ / (2 q steps)."""
    with mp.workdps(40):
        share = mp.mpf(delta) / (2 * mp.mpf(q) * steps)
        start = gaussian.epsilon_of(sigma, float(share))
        step = mp.findroot(
            lambda e: mp.log(exact_gaussian_delta(sigma, e) / share), (start * 0.99, start)
        )
        one = mp.log(1 + mp.mpf(q) * mp.expm1(step))
        assert found.naive == near(steps * one, 1e-8)
        mean, squares = steps * one * mp.tanh(one / 2), steps * one**2
        slack = mp.mpf(delta) / 2
        advanced = min(
            steps * one,
            mean + mp.sqrt(2 * squares * mp.log(1 / slack)),
            mean + mp.sqrt(2 * squares * mp.log(mp.e + mp.sqrt(squares) / slack)),
        )
        assert found.advanced == near(advanced, 1e-8)


@pytest.mark.parametrize(
    ("sigma", "steps"), [(1.0, 1), (5.0, 100), (0.2, 3), (1000.0, 10**6), (1.0, 10**6)]
)
def test_without_sampling_the_loss_is_one_exact_gaussian(sigma, steps):
    delta = 1e-6
    found = privacy_loss.compare(sigma, 1, steps, delta)
    assert exact_gaussian_delta(sigma / mp.sqrt(steps), found.pld) == near(delta, 1e-6)
    assert found.notes == ()
    exact_zcdp = ZCDP(0.0, steps / (2 * sigma**2), **SCOPE).at_delta(delta).epsilon
    assert found.zcdp == near(exact_zcdp, 1e-12)
    assert found.pld <= found.zcdp <= found.rdp * (1 + 1e-12) <= found.zcdp * 1.05


def test_a_million_steps_at_a_small_rate_tend_to_a_gaussian():
    """The central limit: q √(T (e^{1/σ²} − 1)) is the shift of the limit [Bu et al. 2020]."""
    sigma, q, steps, delta = 1.0, 1e-4, 10**6, 1e-5
    found = privacy_loss.compare(sigma, q, steps, delta)
    shift = q * math.sqrt(steps * math.expm1(1 / sigma**2))
    assert found.pld == near(gaussian.epsilon_of(1 / shift, delta), 0.02)
    assert found.pld <= found.rdp <= found.zcdp
    assert found.rdp <= found.advanced <= found.naive
    assert all(math.isfinite(value) for value in found.epsilons().values())


def test_the_tiny_epsilon_regime():
    """Here the usual grid of 10⁻⁴ would be a large part of the answer."""
    sigma, q, steps, delta = 1000.0, 0.01, 10**6, 1e-5
    found = privacy_loss.compare(sigma, q, steps, delta)
    shift = q * math.sqrt(steps * math.expm1(1 / sigma**2))
    limit = gaussian.epsilon_of(1 / shift, delta)  # as good as exact: single losses are 10⁻⁵
    assert limit * (1 - 1e-4) <= found.pld <= limit * 1.005
    assert found.pld <= found.rdp <= found.zcdp


@pytest.mark.parametrize(("sigma", "q", "steps"), [(0.25, 0.01, 100), (0.05, 0.3, 5)])
def test_little_noise_falls_back_and_says_so(sigma, q, steps):
    found = privacy_loss.compare(sigma, q, steps, 1e-5)
    assert found.pld == found.rdp
    assert len(found.notes) == 1
    assert "0.3" in found.notes[0]
    assert found.rdp <= found.zcdp * (1 + 1e-3)
    assert privacy_loss.epsilon_pld_or_rdp(run(sigma, q, steps), 1e-5) == found.rdp
    with pytest.raises(privacy_loss.Unsupported, match="noise multiplier below"):
        privacy_loss.epsilon_pld(run(sigma, q, steps), 1e-5)


@pytest.mark.slow
def test_the_smallest_noise_that_does_not_fall_back():
    found = privacy_loss.compare(0.3, 0.01, 100, 1e-5)
    assert found.notes == ()
    assert found.pld <= found.rdp


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"),
    [(5.0, 0.01, 100, 0.1), pytest.param(10.0, 0.01, 1, 0.01, marks=pytest.mark.slow)],
)
def test_an_epsilon_of_zero_is_an_answer(sigma, q, steps, delta):
    """At a large δ nothing is spent at all: the grid must not become zero with it."""
    assert steps * q * (2 * ndtr(0.5 / sigma) - 1) < delta  # total variation, summed up
    found = privacy_loss.compare(sigma, q, steps, delta)
    assert found.pld == pytest.approx(0, abs=1e-3)
    assert found.rdp == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize(("sigma", "q", "steps"), [(10.0, 0.01, 1), (1.0, 0.1, 10)])
def test_the_grid_stays_coarse_enough_where_epsilon_goes_to_zero(sigma, q, steps):
    """At the δ where ε reaches zero the grid must follow the loss, not the answer."""
    parts = [(loss_grid.Normal(q, Fraction(repr(sigma))), steps)]
    spread = q / sigma  # the order of one draw's loss
    for delta in np.geomspace(1e-9, 0.5, 40):
        for removed in (True, False):
            tilt = loss_grid._tilt(parts, delta, removed)
            assert loss_grid._step(parts, delta, tilt, removed) > 1e-5 * spread


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"noise_multiplier": -1}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"noise_multiplier": None}, "noise_multiplier"),
        ({"sampling_probability": 0}, "sampling_probability"),
        ({"sampling_probability": 1.1}, "sampling_probability"),
        ({"sampling_probability": math.nan}, "sampling_probability"),
        ({"sampling_probability": "x"}, "sampling_probability"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"steps": 10**9 + 1}, "steps"),
        ({"steps": None}, "steps"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"delta": math.nan}, "delta"),
    ],
)
def test_compare_refuses_what_is_no_training_run(change, name):
    usual = {"noise_multiplier": 1, "sampling_probability": 0.1, "steps": 10, "delta": 1e-5}
    with pytest.raises(InvalidParameter, match=f"{name} must be") as caught:
        privacy_loss.compare(**(usual | change))
    assert f"got {next(iter(change.values()))!r}" in str(caught.value)


def test_compare_takes_numbers_in_any_exact_form():
    plain = privacy_loss.compare(0.25, 0.5, 10, 1e-5)
    assert privacy_loss.compare(Fraction(1, 4), Fraction(1, 2), 10.0, 1e-5) == plain


def test_compare_takes_or_refuses_numbers_in_words():
    try:
        found = privacy_loss.compare("1/4", 0.5, 10, 1e-5)
    except InvalidParameter:
        return
    assert found == privacy_loss.compare(0.25, 0.5, 10, 1e-5)


# --- the loss distribution -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigma", "q", "delta"),
    [(2.0, 0.1, 1e-5), pytest.param(0.8, 0.25, 1e-3, marks=pytest.mark.slow)],
)
def test_one_sampled_step_is_the_hockey_stick_itself(sigma, q, delta):
    pair = SampledGaussian(sigma, q)
    worst = lambda epsilon: max(pair.removed(epsilon), pair.added(epsilon))  # noqa: E731
    exact = brentq(lambda epsilon: math.log(worst(epsilon) / delta), 1e-6, 10, xtol=1e-12)
    stated = privacy_loss.epsilon_pld(run(sigma, q, 1), delta)
    assert worst(stated) <= delta * (1 + 1e-9)
    assert exact <= stated <= exact + 2e-4


def test_two_sampled_steps_are_the_hockey_stick_of_the_product():
    sigma, q, delta = 1.0, 0.2, 1e-4
    pair = SampledGaussian(sigma, q)
    stated = privacy_loss.epsilon_pld(run(sigma, q, 2), delta)
    assert pair.twice(stated) <= delta
    assert pair.twice(stated - 1e-3) > delta
    by_renyi = privacy_loss.epsilon_rdp(run(sigma, q, 2), delta)
    assert pair.twice(by_renyi) <= delta
    assert stated <= by_renyi


def test_a_mixed_tree_is_sound_and_not_above_the_sum_of_its_parts():
    sigma, q, delta = 1.0, 0.2, 1e-5
    sampled = events.PoissonSampled(q, events.Gaussian(1, sigma, **SCOPE))
    tree = events.Composed((LAPLACE, RESPONSE, sampled))
    stated = guarantee_of(tree, delta)
    pair = SampledGaussian(sigma, q)
    worst = lambda epsilon: max(pair.removed(epsilon), pair.added(epsilon))  # noqa: E731
    alone = brentq(lambda epsilon: math.log(worst(epsilon) / delta), 1e-6, 10, xtol=1e-12)
    assert isinstance(stated, ApproxDP)
    assert stated.epsilon <= 0.25 + 0.5 + alone
    # Exactly: both answers agree, differ, or agree the other way; the rest is the Gaussian's.
    keeps = [1 / (1 + math.exp(-0.25)), 1 / (1 + math.exp(-0.5))]
    exact = {pair.removed: 0.0, pair.added: 0.0}
    for profile in exact:
        for first in (1, -1):
            for second in (1, -1):
                chance = (keeps[0] if first > 0 else 1 - keeps[0]) * (
                    keeps[1] if second > 0 else 1 - keeps[1]
                )
                loss = first * 0.25 + second * 0.5
                exact[profile] += chance * profile(stated.epsilon - loss)
    assert max(exact.values()) <= delta
    assert max(exact.values()) > 0.9 * delta


def test_loss_of_pure_and_approximate_parts_is_that_of_the_optimal_composition():
    from tacit.privacy.accounting import composition

    tree = events.Repeated(events.Laplace(1, 10, **SCOPE), 30)
    exact = composition.optimal(PureDP(0.1, **SCOPE), 30, 1e-6).epsilon
    assert exact <= privacy_loss.epsilon_pld(tree, 1e-6) + 1e-9 <= exact + 30 * 1.1e-4
    failing = events.Declared(ApproxDP(0.1, 1e-8, **SCOPE))
    exact = composition.optimal(ApproxDP(0.1, 1e-8, **SCOPE), 30, 1e-6).epsilon
    stated = privacy_loss.epsilon_pld(events.Repeated(failing, 30), 1e-6)
    assert exact <= stated + 1e-9 <= exact + 30 * 1.1e-4


def test_merged_gaussians():
    one = events.Gaussian(2, 6, **SCOPE)
    merged = privacy_loss.merged(events.Repeated(events.PoissonSampled(1, one), 9))
    assert isinstance(merged, events.Gaussian)
    assert merged.noise_multiplier == near(1.0, 1e-15)
    nested = privacy_loss.merged(events.Repeated(events.Repeated(one, 4), 9))
    assert nested.noise_multiplier == near(0.5, 1e-15)
    sampled = events.Repeated(events.PoissonSampled(0.5, one), 9)
    assert privacy_loss.merged(sampled) == sampled
    mixed = events.Composed((LAPLACE, events.Repeated(one, 9)))
    assert privacy_loss.merged(mixed).events[1].noise_multiplier == near(1.0, 1e-15)


def test_composed_gaussians_are_one():
    """1/z² adds up: 3 and 4 make 2.4, however the tree is nested, and exactly so."""
    three, four = events.Gaussian(2, 6, **SCOPE), events.Gaussian(1, 4, **SCOPE)
    for tree in (
        events.Composed((three, four)),
        events.Composed((events.Composed((three,)), events.Composed((four,)))),
    ):
        assert privacy_loss.merged(tree).noise_multiplier == near(2.4, 1e-15)
        stated = guarantee_of(tree, 1e-5).epsilon
        assert stated == near(gaussian.epsilon_of(2.4, 1e-5), 1e-9)
    apart = events.Composed((three, events.Parallel((three, four))))
    assert privacy_loss.merged(apart) == events.Composed((events.Parallel((three, four)), three))


def test_gaussians_on_one_sample_are_one():
    three, four = events.Gaussian(2, 6, **SCOPE), events.Gaussian(1, 4, **SCOPE)
    both = events.PoissonSampled(0.1, events.Composed((three, four)))
    merged = privacy_loss.merged(events.Repeated(both, 5))
    assert merged.event.event.noise_multiplier == near(2.4, 1e-15)
    assert (merged.count, merged.event.probability) == (5, 0.1)
    one = events.Repeated(events.PoissonSampled(0.1, events.Gaussian(5, 12, **SCOPE)), 5)
    for epsilon in (privacy_loss.epsilon_pld, privacy_loss.epsilon_rdp):
        assert epsilon(events.Repeated(both, 5), 1e-5) == near(epsilon(one, 1e-5), 1e-9)
    apart = events.Composed((events.PoissonSampled(0.1, three), events.PoissonSampled(0.1, four)))
    assert privacy_loss.merged(apart) == apart  # two samples are not one
    mixed = events.PoissonSampled(0.1, events.Composed((three, LAPLACE)))
    with pytest.raises(privacy_loss.Unsupported):
        privacy_loss.epsilon_rdp(mixed, 1e-5)


def test_gaussians_on_one_sample_agree_with_dp_accounting():
    from dp_accounting import dp_event
    from dp_accounting.rdp import rdp_privacy_accountant

    inner = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(z) for z in (1.1, 8.0)])
    theirs = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.05, inner), 200)
    known = rdp_privacy_accountant.RdpAccountant().compose(theirs).get_epsilon(1e-5)
    draws = [events.Gaussian(1, Fraction(z), **SCOPE) for z in ("1.1", "8")]
    ours = events.PoissonSampled(0.05, events.Composed(tuple(draws)))
    assert privacy_loss.epsilon_rdp(events.Repeated(ours, 200), 1e-5) == near(known, 0.01)


def test_best_takes_the_smaller_and_explains_when_there_is_none():
    grid = events.Repeated(events.DiscreteGaussian(1, 4, 3, **SCOPE), 2)
    stated = privacy_loss.best(grid, 1e-5)
    assert stated.epsilon == privacy_loss.epsilon_rdp(grid, 1e-5)
    assert stated.epsilon == near(ZCDP(0.0, 0.25, **SCOPE).at_delta(1e-5).epsilon, 1e-3)
    mixed = events.Composed((grid, events.Declared(ApproxDP(1.0, 1e-9, **SCOPE))))
    unknown = privacy_loss.best(mixed, 1e-5)
    assert isinstance(unknown, Unproven)
    assert unknown.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "q", "steps"), [(0.6, 0.01, 500), (1.0, 0.5, 20), (4.0, 0.05, 2000), (20.0, 0.9, 50)]
)
def test_the_order_of_accountants(sigma, q, steps):
    found = privacy_loss.compare(sigma, q, steps, 1e-6)
    assert found.pld <= found.rdp * (1 + 1e-9)
    assert found.rdp <= found.zcdp * (1 + 1e-3)
    assert found.pld <= found.advanced <= found.naive
    check_step_bounds(found, sigma, q, steps, 1e-6)
