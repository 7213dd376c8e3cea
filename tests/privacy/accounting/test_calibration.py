"""Calibration is accounting inverted: within the target, and not by much."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from tacit.privacy.accounting import calibration, privacy_loss
from tacit.privacy.errors import InvalidParameter

run = privacy_loss.subsampled_gaussian


def exact_gaussian_delta(multiplier, epsilon):
    with mp.workdps(50):
        z, e = mp.mpf(multiplier), mp.mpf(epsilon)
        half = 1 / (2 * z)
        return mp.ncdf(half - e * z) - mp.exp(e) * mp.ncdf(-half - e * z)


# --- noise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 100, 10**6])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0, 700.0])
def test_plain_gaussian_noise_is_exact(epsilon, steps):
    delta = 1e-6
    multiplier = calibration.noise_multiplier_for(epsilon, delta, steps=steps)
    joint = multiplier / mp.sqrt(steps)
    assert exact_gaussian_delta(joint, epsilon) <= delta * (1 + 1e-9)
    assert exact_gaussian_delta(joint * (1 - 1e-8), epsilon) > delta


def check_noise(epsilon, delta, q, steps, accountant, spent):
    multiplier = calibration.noise_multiplier_for(
        epsilon, delta, sampling_probability=q, steps=steps, accountant=accountant
    )
    assert spent(run(multiplier, q, steps), delta) <= epsilon
    assert spent(run(multiplier * (1 - 1e-3), q, steps), delta) > epsilon
    return multiplier


@pytest.mark.parametrize(
    ("epsilon", "q", "steps"),
    [
        (2.0, 0.01, 1000),
        (0.5, 1e-4, 10**6),
        pytest.param(0.1, 0.01, 100, marks=pytest.mark.slow),
        pytest.param(8.0, 0.5, 10, marks=pytest.mark.slow),
        pytest.param(20.0, 0.1, 1, marks=pytest.mark.slow),
    ],
)
def test_sampled_noise_by_renyi_is_within_and_tight(epsilon, q, steps):
    check_noise(epsilon, 1e-5, q, steps, "rdp", privacy_loss.epsilon_rdp)


def test_plain_noise_by_renyi_costs_more_than_the_exact_one():
    by_renyi = check_noise(1.0, 1e-5, 1.0, 10, "rdp", privacy_loss.epsilon_rdp)
    exact = calibration.noise_multiplier_for(1.0, 1e-5, steps=10)
    assert exact < by_renyi < 1.2 * exact


@pytest.mark.slow
def test_large_noise_is_found():
    multiplier = check_noise(0.02, 1e-6, 0.5, 100, "rdp", privacy_loss.epsilon_rdp)
    assert multiplier > 500


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "q", "steps"), [(2.0, 0.01, 1000), (0.3, 0.1, 10)])
def test_sampled_noise_by_loss_distribution_is_within_and_tight(epsilon, q, steps):
    tight = check_noise(epsilon, 1e-5, q, steps, "pld", privacy_loss.epsilon_pld)
    loose = calibration.noise_multiplier_for(
        epsilon, 1e-5, sampling_probability=q, steps=steps, accountant="rdp"
    )
    assert tight < loose


@pytest.mark.slow
def test_noise_around_the_fallback_is_within():
    """At this target the loss distribution just begins to apply: the two accountants differ."""
    for epsilon in (31.0,):
        multiplier = calibration.noise_multiplier_for(
            epsilon, 1e-5, sampling_probability=0.01, steps=100
        )
        assert privacy_loss.epsilon_pld_or_rdp(run(multiplier, 0.01, 100), 1e-5) <= epsilon


def test_targets_that_no_noise_reaches_are_refused():
    with pytest.raises(InvalidParameter, match=r"noise_multiplier_for: epsilon must be .* got"):
        calibration.noise_multiplier_for(
            1e-9, 1e-12, sampling_probability=1.0, steps=10**9, accountant="rdp"
        )


# --- steps ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "sigma", "q"),
    [(2.0, 1.0, 0.01), (1.0, 4.0, 0.5), (3.0, 20.0, 1.0), (10.0, 0.8, 0.02)],
)
def test_steps_by_renyi_are_maximal(epsilon, sigma, q):
    steps = calibration.steps_for(
        epsilon, 1e-5, noise_multiplier=sigma, sampling_probability=q, accountant="rdp"
    )
    assert privacy_loss.epsilon_rdp(run(sigma, q, steps), 1e-5) <= epsilon
    assert privacy_loss.epsilon_rdp(run(sigma, q, steps + 1), 1e-5) > epsilon


@pytest.mark.parametrize(("epsilon", "sigma"), [(1.0, 50.0), (0.1, 1000.0), (30.0, 3.0)])
def test_plain_gaussian_steps_are_exactly_maximal(epsilon, sigma):
    delta = 1e-6
    steps = calibration.steps_for(epsilon, delta, noise_multiplier=sigma)
    assert exact_gaussian_delta(sigma / mp.sqrt(steps), epsilon) <= delta
    assert exact_gaussian_delta(sigma / mp.sqrt(steps + 1), epsilon) > delta


@pytest.mark.slow
def test_steps_by_loss_distribution_are_maximal():
    steps = calibration.steps_for(2.0, 1e-5, noise_multiplier=1.0, sampling_probability=0.01)
    assert privacy_loss.epsilon_pld(run(1.0, 0.01, steps), 1e-5) <= 2.0
    assert privacy_loss.epsilon_pld(run(1.0, 0.01, steps + 1), 1e-5) > 2.0
    by_renyi = calibration.steps_for(
        2.0, 1e-5, noise_multiplier=1.0, sampling_probability=0.01, accountant="rdp"
    )
    assert steps > by_renyi


def test_one_step_too_many_is_refused():
    for accountant, q in (("rdp", 0.5), ("pld", 1.0)):
        with pytest.raises(InvalidParameter, match=r"steps_for: epsilon must be enough for one"):
            calibration.steps_for(
                0.01, 1e-9, noise_multiplier=0.5, sampling_probability=q, accountant=accountant
            )


def test_exactly_one_step():
    epsilon = privacy_loss.epsilon_rdp(run(1.0, 0.5, 1), 1e-5) * 1.0001
    steps = calibration.steps_for(
        epsilon, 1e-5, noise_multiplier=1.0, sampling_probability=0.5, accountant="rdp"
    )
    assert steps == 1


def test_the_search_for_steps_ends_where_runs_do():
    """A count of steps that no run accepts is of no use."""
    steps = calibration.steps_for(
        10.0, 1e-5, noise_multiplier=1e6, sampling_probability=1e-6, accountant="rdp"
    )
    assert 10**8 < steps <= 10**9
    assert privacy_loss.epsilon_rdp(run(1e6, 1e-6, steps), 1e-5) <= 10.0


# --- arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "name"),
    [
        *[({"epsilon": bad}, "epsilon") for bad in (0, -1, math.nan, math.inf, 701, None)],
        *[({"delta": bad}, "delta") for bad in (0, 1, -0.1, math.nan, None)],
        *[({"sampling_probability": bad}, "sampling_probability") for bad in (0, 1.5, math.nan)],
        ({"sampling_probability": "x"}, "sampling_probability"),
        ({"accountant": "moments"}, "accountant"),
    ],
)
def test_arguments_outside_their_range_are_refused(change, name):
    noise = {"epsilon": 1.0, "delta": 1e-5, "sampling_probability": 0.1, "steps": 10}
    with pytest.raises(InvalidParameter, match=f"{name} must be") as caught:
        calibration.noise_multiplier_for(**(noise | {"accountant": "rdp"} | change))
    assert f"got {next(iter(change.values()))!r}" in str(caught.value)
    steps = {"epsilon": 1.0, "delta": 1e-5, "sampling_probability": 0.1, "noise_multiplier": 2.0}
    with pytest.raises(InvalidParameter, match=f"{name} must be"):
        calibration.steps_for(**(steps | {"accountant": "rdp"} | change))


@pytest.mark.parametrize("steps", [0, -1, 1.5, math.nan, None, "10", 10**9 + 1])
@pytest.mark.parametrize("q", [1.0, 0.1])
def test_steps_must_be_a_count(steps, q):
    with pytest.raises(InvalidParameter, match="steps must be"):
        calibration.noise_multiplier_for(
            1.0, 1e-5, steps=steps, sampling_probability=q, accountant="rdp"
        )
    with pytest.raises(InvalidParameter, match="steps must be"):
        calibration.noise_multiplier_for(1.0, 1e-5, steps=steps)


@pytest.mark.parametrize("sigma", [0, -1, math.nan, math.inf, None])
def test_the_noise_multiplier_must_be_positive(sigma):
    with pytest.raises(InvalidParameter, match="noise_multiplier must be"):
        calibration.steps_for(1.0, 1e-5, noise_multiplier=sigma)
