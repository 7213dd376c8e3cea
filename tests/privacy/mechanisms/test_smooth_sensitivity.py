"""Smooth sensitivity by brute force: every data set of a tiny universe, every neighbour."""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tacit
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import SmoothLaplace
from tacit.privacy.mechanisms.smooth_sensitivity import median_sensitivities, smooth_bound

UNIVERSES = [(1, 4), (2, 4), (3, 4), (4, 3), (5, 3)]
"""Number of people, number of values."""


def median(data):
    return sorted(data)[(len(data) - 1) // 2]


def neighbours(data, values):
    for index, value in itertools.product(range(len(data)), range(values)):
        if data[index] != value:
            yield (*data[:index], value, *data[index + 1 :])


@functools.cache
def local_sensitivity(data, values):
    return max(abs(median(data) - median(other)) for other in neighbours(data, values))


@functools.cache
def everything(size, values):
    return list(itertools.product(range(values), repeat=size))


def brute_force(data, values):
    """A_k: the largest local sensitivity within k changes, for k = 0, …, n."""
    found = [0] * (len(data) + 1)
    for other in everything(len(data), values):
        distance = sum(a != b for a, b in zip(data, other, strict=True))
        found[distance] = max(found[distance], local_sensitivity(other, values))
    return np.maximum.accumulate(found).tolist()


@pytest.mark.parametrize(("size", "values"), UNIVERSES)
def test_median_sensitivities_against_brute_force(size, values):
    # Only the sorted data matter to both sides.
    for data in itertools.combinations_with_replacement(range(values), size):
        found = median_sensitivities(data, 0, values - 1)
        assert found.tolist() == brute_force(data, values), data


def test_order_and_offset_do_not_matter():
    assert (
        median_sensitivities([3, 0, 2], 0, 3).tolist()
        == median_sensitivities([0, 2, 3], 0, 3).tolist()
    )
    assert (
        median_sensitivities([13, 10, 12], 10, 13).tolist()
        == median_sensitivities([3, 0, 2], 0, 3).tolist()
    )
    # Values outside the public range count as its ends.
    assert (
        median_sensitivities([-9, 0, 99], 0, 3).tolist()
        == median_sensitivities([0, 0, 3], 0, 3).tolist()
    )


@pytest.mark.parametrize(("lower", "upper"), [(5, 3), (3, 3), (0.5, 3), (None, 3), ("x", 3)])
def test_a_range_that_is_none_is_refused(lower, upper):
    with pytest.raises(InvalidParameter):
        median_sensitivities([1, 2, 3], lower, upper)


@pytest.mark.parametrize("raw", [[math.nan], [], ["x"], [0.5], [[1], [1, 2]]])
def test_median_sensitivities_refuses_bad_data(raw):
    with pytest.raises(InvalidData):
        median_sensitivities(raw, 0, 3)


@pytest.mark.parametrize("beta", [0.01, 0.3, 2.0])
@pytest.mark.parametrize(("size", "values"), [(3, 4), (4, 3)])
def test_the_bound_is_smooth_and_a_bound(size, values, beta):
    """S ≥ the local sensitivity, S(x) ≤ e^β S(x') for every pair of neighbours."""
    bound = {
        data: smooth_bound(median_sensitivities(data, 0, values - 1), beta)
        for data in everything(size, values)
    }
    slowest = 0.0
    for data in everything(size, values):
        assert bound[data] >= local_sensitivity(data, values)
        for other in neighbours(data, values):
            change = math.log(bound[data] / bound[other])
            assert change <= beta * (1 + 1e-12)
            slowest = max(slowest, change)
    assert slowest == pytest.approx(beta, rel=1e-9) or beta == 2.0  # it uses what it may


def test_the_bound_by_hand():
    assert smooth_bound([1, 2, 8], math.log(2)) == pytest.approx(2.0)
    assert smooth_bound([1, 2, 8], 100) == 1.0
    assert 0 < smooth_bound([0, 0, 0], 1) < 1e-200  # a floor, the same for all data


def test_the_bound_of_many_people_who_agree_does_not_vanish():
    """e^(−βk) is no float any more, but the bound is above 0: a refusal would tell that they do.

    The larger of a smooth bound and a constant is smooth: there is room for a floor.
    """
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-5, adjacency="replace-one")
    bound = smooth_bound([0] * 50_000 + [100], mechanism.beta)
    assert 0 < bound < 1e-3
    assert int(mechanism.release(7, tacit.Seeded(1), bound=bound)) == 7
    assert float(mechanism.log_prob(7, 7, bound=bound)) == pytest.approx(0, abs=1e-12)
    assert float(mechanism.log_prob(8, 7, bound=bound)) < -100


@pytest.mark.parametrize("bound", [1e-3, 1e-30, 1e-300, 1e-320, 5e-324])
def test_tiny_bounds_have_a_law_or_are_refused(bound):
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-5, adjacency="replace-one")
    try:
        stay, move = (float(mechanism.log_prob(y, 7, bound=bound)) for y in (7, 8))
    except InvalidData:
        return
    assert stay == pytest.approx(0, abs=1e-12)
    assert move < -400


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf, None, "x"])
def test_a_bad_beta_is_refused(beta):
    with pytest.raises(InvalidParameter):
        smooth_bound([1, 2], beta)


@pytest.mark.parametrize("listed", [[math.nan], [], [-1.0], [[1, 2]], ["x"], 3.0])
def test_bad_sensitivities_are_refused(listed):
    with pytest.raises(InvalidData):
        smooth_bound(listed, 1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-2), (1.0, 1e-3), (4.0, 1e-6), (1.0, 0.3)])
@pytest.mark.parametrize(("size", "values"), [(3, 4), (4, 3)])
def test_the_guarantee_for_every_pair_of_neighbours(size, values, epsilon, delta):
    """The exact hockey stick of the very laws that are sampled."""
    mechanism = SmoothLaplace(epsilon=epsilon, delta=delta, adjacency="replace-one")
    claim = mechanism.guarantee
    assert claim.epsilon <= epsilon
    assert claim.delta == delta
    reach = math.ceil(40 * values / float(mechanism.event.alpha)) + 5
    outputs = np.arange(-reach, reach + 1)

    @functools.cache
    def law(data):
        bound = smooth_bound(median_sensitivities(data, 0, values - 1), mechanism.beta)
        return np.exp(mechanism.log_prob(outputs, np.full_like(outputs, median(data)), bound=bound))

    worst = 0.0
    factor = math.exp(claim.epsilon)
    sorted_only = itertools.combinations_with_replacement(range(values), size)
    for data in sorted_only:
        assert math.fsum(law(data)) == pytest.approx(1, abs=1e-9)
        for other in neighbours(data, values):
            other = tuple(sorted(other))
            found = float(np.maximum(law(data) - factor * law(other), 0).sum())
            assert found <= delta * (1 + 1e-9), (data, other)
            # At no ε can a pair be further apart than at δ = 0.
            worst = max(worst, float(np.abs(law(data) - law(other)).sum()))
    assert worst > 0.05  # the pairs do differ


def test_noise_without_smoothness_breaks_the_promise():
    """A mutant: scale from the local sensitivity itself, as in the first naive idea."""
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-3, adjacency="replace-one")
    outputs = np.arange(-2000, 2001)
    laws = [
        np.exp(mechanism.log_prob(outputs, np.full_like(outputs, value), bound=bound))
        for value, bound in ((0, 0.5), (0, 30.0))
    ]
    found = float(np.maximum(laws[1] - math.e * laws[0], 0).sum())
    assert found > 0.1


@pytest.mark.heavy
def test_the_median_of_concentrated_data_is_released_quickly():
    """Most people agree, so the bound is tiny: the noise must not take minutes to draw."""
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    from tacit import Seeded
    from tacit.mechanisms import SmoothLaplace
    from tacit.mechanisms.smooth_sensitivity import median_sensitivities, smooth_bound
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-5, adjacency="replace-one")
    for people in (101, 401, 1601):
        bound = smooth_bound(median_sensitivities([50] * people, 0, 100), mechanism.beta)
        print(int(mechanism.release(50, Seeded(1), bound=bound)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.split() == ["50", "50", "50"] or int(done.stdout.split()[0]) != 50


@pytest.mark.parametrize("bound", [0, -1, math.nan, math.inf, None, "x", 1j, [1, 2]])
def test_bad_bounds_are_refused_without_an_echo(bound):
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-5, adjacency="replace-one")
    for call in (
        lambda: mechanism.release(3, bound=bound),
        lambda: mechanism.log_prob(3, 3, bound=bound),
    ):
        with pytest.raises((InvalidData, InvalidParameter)) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_bound_is_data_and_is_not_echoed():
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-5, adjacency="replace-one")
    with pytest.raises(InvalidData) as caught:
        mechanism.release(3, bound=-123457.0)
    assert "123457" not in str(caught.value)


def test_scale_is_the_bound_over_alpha():
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-5, adjacency="replace-one")
    outputs = np.arange(-4000, 4001)
    mass = np.exp(mechanism.log_prob(outputs, np.zeros_like(outputs), bound=5.0))
    t = 10.0  # 5 / (ε/2)
    variance = 2 * math.exp(-1 / t) / math.expm1(-1 / t) ** 2
    assert float(mass @ outputs.astype(float) ** 2) == pytest.approx(variance, rel=1e-9)


def test_the_event_is_what_a_release_costs():
    mechanism = SmoothLaplace(epsilon=0.7, delta=1e-4, adjacency="replace-one")
    assert tacit.guarantee_of(mechanism.event).epsilon == pytest.approx(0.7, rel=1e-8)
    assert mechanism.beta < float(mechanism.event.beta)
