"""Gaussian noise: logarithms against mpmath, Rényi divergences, calibration at awkward places."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import tacit
from tacit.privacy import gaussian
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import ZCDP
from tacit.privacy.mechanisms import DiscreteGaussian, Gaussian, LocalGaussian


@pytest.mark.parametrize("sigma", ["0.2", "1", "30", "1e4", "1e6", "1e9", "1e11"])
def test_rounded_log_prob_against_mpmath(sigma):
    """In the middle and ten deviations out, to eight digits of the probability."""
    mechanism = Gaussian(sensitivity=1, sigma=float(sigma), adjacency="replace-one")
    with mp.workdps(80):
        s = mp.mpf(sigma) * mp.sqrt(2)
        for k in {0, 1, 2, int(float(sigma)), int(4 * float(sigma)), -int(10 * float(sigma))}:
            m = abs(k)
            chance = (mp.erfc((m - mp.mpf("0.5")) / s) - mp.erfc((m + mp.mpf("0.5")) / s)) / 2
            exact = float(mp.log(chance))
            assert float(mechanism.log_prob(k, 0)) == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("sigma", ["0.1", "0.3", "1", "10", "99", "101", "1e4"])
def test_discrete_log_prob_against_mpmath(sigma):
    mechanism = DiscreteGaussian(sensitivity=1, sigma=float(sigma), adjacency="replace-one")
    with mp.workdps(60):
        variance = mp.mpf(sigma) ** 2
        if float(sigma) < 50:
            reach = int(20 * float(sigma)) + 20
            total = mp.fsum(mp.exp(-(k**2) / (2 * variance)) for k in range(-reach, reach + 1))
        else:  # Poisson summation, its first correction included
            total = mp.sqrt(2 * mp.pi * variance) * (1 + 2 * mp.exp(-2 * mp.pi**2 * variance))
        for k in {0, 1, -3, int(float(sigma)), int(6 * float(sigma))}:
            exact = float(-(mp.mpf(k) ** 2) / (2 * variance) - mp.log(total))
            assert float(mechanism.log_prob(k, 0)) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_the_zcdp_statement_of_discrete_noise(sigma, sensitivity):
    """D_α ≤ ρα for every order, and equal where αΔ is whole."""
    mechanism = DiscreteGaussian(sensitivity=sensitivity, sigma=sigma, adjacency="replace-one")
    claim = mechanism.guarantee
    assert isinstance(claim, ZCDP)
    assert claim.rho == pytest.approx(sensitivity**2 / (2 * sigma**2))
    y = np.arange(-400, 401)
    for shift in range(1, sensitivity + 1):
        first, second = (mechanism.log_prob(y, np.full_like(y, x)) for x in (0, shift))
        for order in (1.01, 1.5, 2.0, 3.7, 10.0):
            terms = order * first + (1 - order) * second
            top = terms.max()
            divergence = (top + math.log(np.exp(terms - top).sum())) / (order - 1)
            assert divergence <= claim.rho * order * (1 + 1e-9)
            if order == 2.0 and shift == sensitivity:
                assert divergence == pytest.approx(claim.rho * order, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.3, 2.0, 40.0])
def test_the_zcdp_statement_of_rounded_noise(sigma):
    mechanism = Gaussian(sensitivity=2, sigma=sigma, adjacency="replace-one")
    claim = mechanism.guarantee
    reach = math.ceil(60 * sigma) + 60
    y = np.arange(-reach, reach + 1)
    first, second = (mechanism.log_prob(y, np.full_like(y, x)) for x in (0, 2))
    for order in (1.01, 2.0, 5.0):
        with np.errstate(invalid="ignore"):
            terms = order * first + (1 - order) * second
        terms = terms[np.isfinite(terms)]
        top = terms.max()
        divergence = (top + math.log(np.exp(terms - top).sum())) / (order - 1)
        assert divergence <= claim.rho * order * (1 + 1e-9)


@pytest.mark.parametrize("sensitivity", [1, 2, 8, 9, 10, 20, 64, 65, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-3), (8.0, 1e-9)])
def test_every_sensitivity_can_be_calibrated_for(sensitivity, epsilon, delta):
    mechanism = DiscreteGaussian(
        sensitivity=sensitivity, epsilon=epsilon, delta=delta, dimension=1, adjacency="replace-one"
    )
    assert mechanism.guarantee.epsilon == epsilon
    analytic = Gaussian(
        sensitivity=sensitivity, epsilon=epsilon, delta=delta, adjacency="replace-one"
    )
    # Never much less noise than the continuous optimum, never more than zCDP asks for.
    ratio = math.sqrt(mechanism.event.variance) / float(analytic.event.sigma)
    assert 0.5 < ratio < 2


def test_calibration_sums_exactly_only_to_certify(monkeypatch):
    """The exact sums are the slow part: floats search, and one or a few sums confirm."""
    exact, asked = gaussian.discrete_delta_of, []
    monkeypatch.setattr(
        gaussian, "discrete_delta_of", lambda *point: asked.append(point) or exact(*point)
    )
    DiscreteGaussian(sensitivity=30, epsilon=0.01, delta=1e-5, dimension=1, adjacency="replace-one")
    assert 1 <= len(asked) <= 5


def test_dimension_is_held_to():
    mechanism = DiscreteGaussian(
        sensitivity=1, epsilon=1.0, delta=1e-5, dimension=3, adjacency="replace-one"
    )
    assert mechanism.release([1, 2, 3]).shape == (3,)
    assert mechanism.release([[1, 2, 3]] * 4).shape == (4, 3)


def test_more_entries_are_not_accounted_as_one():
    """The exact profile of one entry does not hold for more: these go through zCDP."""
    one, three = (
        DiscreteGaussian(
            sensitivity=1, epsilon=1.0, delta=1e-5, dimension=d, adjacency="replace-one"
        )
        for d in (1, 3)
    )
    assert three.event.variance > one.event.variance


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"epsilon": 1.0},
        {"delta": 1e-5},
        {"sigma": 1.0, "epsilon": 1.0},
        {"sigma": 1.0, "delta": 1e-5},
        {"sigma": 1.0, "epsilon": 1.0, "delta": 1e-5},
    ],
)
@pytest.mark.parametrize("kind", [DiscreteGaussian, Gaussian])
def test_noise_is_given_one_way_and_not_two(kind, wanted):
    with pytest.raises(InvalidParameter):
        kind(sensitivity=1, adjacency="replace-one", **wanted)


@pytest.mark.parametrize("kind", [DiscreteGaussian, Gaussian])
@pytest.mark.parametrize("sigma", [1e-3, 1e-100, 1e-200, 1e-300, 5e-324])
def test_tiny_noise_is_refused_or_has_a_guarantee_and_a_law(kind, sigma):
    try:
        mechanism = kind(sensitivity=1, sigma=sigma, adjacency="replace-one")
    except InvalidParameter:
        return
    claim = mechanism.guarantee
    assert claim.rho == pytest.approx(1 / (2 * sigma**2))
    assert mechanism.release([5]).tolist() == [5]
    assert float(mechanism.log_prob(5, 5)) == pytest.approx(0, abs=1e-12)
    assert float(mechanism.log_prob(6, 5)) < -1e4


def test_sigma_scales_with_the_sensitivity():
    first, second = (
        Gaussian(sensitivity=s, epsilon=1.0, delta=1e-5, adjacency="replace-one").event.sigma
        for s in (1, Fraction(7, 2))
    )
    assert second == first * Fraction(7, 2)


def test_local_gaussian_noise_is_for_any_two_points_of_the_ball():
    mechanism = LocalGaussian(epsilon=1.0, delta=1e-5, radius=1.0, grid=0.125)
    assert mechanism.event.l2_sensitivity == 16
    assert str(mechanism.guarantee.adjacency) == "any-two-inputs"
    half = Gaussian(sensitivity=8, epsilon=1.0, delta=1e-5, adjacency="replace-one")
    assert mechanism.event.sigma == 2 * half.event.sigma


def test_local_gaussian_in_the_plane_against_the_hockey_stick():
    """Opposite points on a diagonal: the ℓ2 ball in integers, two entries at once."""
    delta = 1e-2
    mechanism = LocalGaussian(epsilon=2.0, delta=delta, radius=1.0, grid=0.125)
    sigma = float(mechanism.event.sigma)
    far = math.ceil(7 * sigma) + 8
    axis = np.arange(-far, far + 1) * 0.125
    outputs = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    worst = 0.0
    for raw in ([1.0, 0.0], [0.7, 0.7], [5.0, 5.0], [0.6, 0.8]):
        laws = [
            np.exp(mechanism.log_prob(outputs, np.broadcast_to(x, outputs.shape)))
            for x in (np.array(raw), -np.array(raw))
        ]
        assert math.fsum(laws[0]) == pytest.approx(1, abs=1e-9)
        found = float(np.maximum(laws[0] - math.exp(2.0) * laws[1], 0).sum())
        assert found <= delta * (1 + 1e-9)
        worst = max(worst, found)
    assert worst > 0.95 * delta


def test_noise_of_half_the_size_is_refuted():
    """The mutant: scale for the radius in place of the diameter."""
    mechanism = LocalGaussian(epsilon=1.0, delta=1e-3, radius=1.0, grid=0.015625)
    mutant = Gaussian(sensitivity=64, epsilon=1.0, delta=1e-3, adjacency="replace-one")
    far = 12 * int(mechanism.event.sigma)
    y = np.arange(-far, far + 1)
    laws = [np.exp(mutant.log_prob(y, np.full_like(y, x))) for x in (-64, 64)]
    assert float(np.maximum(laws[0] - math.e * laws[1], 0).sum()) > 10 * 1e-3


@pytest.mark.parametrize("dimension", [None, 1])
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-3, 0.4), (0.01, 1e-12), (50.0, 1e-3), (3.0, 0.9), (700.0, 1e-9), (1e-6, 1e-6)],
)
def test_awkward_targets_are_refused_or_certified(epsilon, delta, dimension):
    for make in (
        lambda **wanted: DiscreteGaussian(dimension=dimension, adjacency="replace-one", **wanted),
        lambda **wanted: Gaussian(adjacency="replace-one", **wanted),
    ):
        try:
            mechanism = make(sensitivity=3, epsilon=epsilon, delta=delta)
        except InvalidParameter:
            continue
        tacit.Certificate.issue(mechanism.event, guarantee=mechanism.guarantee).verify()
