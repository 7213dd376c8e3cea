"""Correlated noise: what C makes of it is white, its running sums are small, and it ends."""

from __future__ import annotations

import copy
import math
import pickle
from collections import deque

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import toeplitz
from torch import Tensor

from tacit.central.training import strategies
from tacit.central.training.correlated import CorrelatedNoise
from tacit.privacy import errors
from tacit.privacy.accounting.participation import Banded
from tacit.privacy.randomness import Seeded

SIGNIFICANCE = 1e-6
SIGMA, STEPS, WIDTH = 2.0, 12, 20_000
CHOSEN = Banded.nearest([1.0, 0.6, 0.5, 0.4])


def answers(noise: CorrelatedNoise, sums: Tensor) -> Tensor:
    """Answer all sums, one step after the other."""
    found = []
    for one in sums:
        released = one.clone()
        noise.add_to(released)
        found.append(released)
    return torch.stack(found)


def mixed(difference: Tensor) -> np.ndarray:
    """Apply C over the steps."""
    column = np.zeros(len(difference))
    column[: CHOSEN.bands] = [float(one) for one in CHOSEN.coefficients]
    return np.tril(toeplitz(column)) @ difference.double().numpy()


def is_white(fresh: np.ndarray, sigma: float) -> bool:
    """Check that each step has this deviation, and that no two move together."""
    chances = []
    for step in fresh / sigma:
        square = stats.chi2(len(step)).cdf(float(step @ step))
        chances += [2 * min(square, 1 - square), stats.kstest(step, "norm").pvalue]
    for lag in (1, 2, 3):
        products = (fresh[lag:] * fresh[:-lag]).sum() / sigma**2
        chances.append(2 * stats.norm.sf(abs(products) / math.sqrt(fresh[lag:].size)))
    return min(chances) > SIGNIFICANCE


@pytest.fixture(scope="module")
def sums() -> Tensor:
    return 3 * torch.randn(STEPS, WIDTH, generator=torch.Generator().manual_seed(1))


def test_mixed_noise_is_white_and_of_the_stated_deviation(sums: Tensor) -> None:
    found = answers(CorrelatedNoise(CHOSEN, SIGMA, Seeded(1), STEPS), sums)
    fresh = mixed(found - sums)
    assert is_white(fresh, SIGMA)
    assert not is_white(fresh, SIGMA * 1.03)
    assert not is_white((found - sums).double().numpy(), SIGMA)  # before mixing it is correlated


class Forgetful(CorrelatedNoise):
    """A mutant: noise of its own in every step."""

    def _combined(self, start: Tensor, earlier: deque[Tensor]) -> Tensor:
        return start


class Onward(CorrelatedNoise):
    """A mutant: what should be taken back is added again."""

    def _combined(self, start: Tensor, earlier: deque[Tensor]) -> Tensor:
        for coefficient, one in zip(self._earlier, earlier, strict=False):
            start.sub_(one, alpha=coefficient)
        return start


class Reversed(CorrelatedNoise):
    """A mutant: the oldest step has the coefficient of the latest."""

    def _combined(self, start: Tensor, earlier: deque[Tensor]) -> Tensor:
        return super()._combined(start, deque(reversed(earlier)))


@pytest.mark.parametrize("mutant", [Forgetful, Onward, Reversed])
def test_mutants_are_found(mutant: type[CorrelatedNoise], sums: Tensor) -> None:
    found = answers(mutant(CHOSEN, SIGMA, Seeded(1), STEPS), sums)
    assert not is_white(mixed(found - sums), SIGMA)


def test_answers_lie_on_the_grid_and_rounding_does_not_add_up() -> None:
    noise = CorrelatedNoise(CHOSEN, SIGMA, Seeded(2), 400)
    sums = torch.rand(400, 50)
    found = answers(noise, sums).double()
    assert torch.equal(found / noise.fresh.grid, (found / noise.fresh.grid).round())
    # With rounding in every step, what C makes of it is still that of one step: 1e-5 more variance.
    assert is_white(mixed(found - sums), SIGMA)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_band_is_independent_noise(dtype: torch.dtype) -> None:
    from tacit.central.training import Noise

    plain, stream = torch.rand(3, 1000, dtype=dtype), Seeded(3)
    found = answers(CorrelatedNoise(Banded.nearest([1.0]), SIGMA, Seeded(3), 3), plain)
    for start, one in zip(plain, found, strict=True):
        expected = start.double()
        Noise(SIGMA, stream).add_to(expected)
        assert torch.equal(one, expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_divisor_divides_answers_and_nothing_that_is_kept(
    sums: Tensor, dtype: torch.dtype
) -> None:
    sums = sums.to(dtype)
    whole = answers(CorrelatedNoise(CHOSEN, SIGMA, Seeded(4), STEPS), sums)
    noise = CorrelatedNoise(CHOSEN, SIGMA, Seeded(4), STEPS)
    for step, one in enumerate(sums):
        part = one.clone()
        noise.add_to(part, 4.0)
        assert torch.equal(4 * part, whole[step])


def test_it_ends_after_the_stated_steps_and_cannot_be_copied() -> None:
    noise = CorrelatedNoise(CHOSEN, SIGMA, Seeded(5), 1)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a copy would answer for the same steps twice"):
            copied(noise)
    noise.add_to(torch.zeros(3))
    with pytest.raises(errors.TacitError, match="sums must be as many as stated"):
        noise.add_to(torch.zeros(3))


# --- the error of running sums -------------------------------------------------------------------


def workload(steps: int, momentum: float) -> np.ndarray:
    return np.tril(toeplitz(np.cumsum(momentum ** np.arange(steps, dtype=float))))


def lower_bound(steps: int, period: int, momentum: float = 0.0) -> float:
    r"""No C has less: :math:`\|A\|_* / \sqrt{bT}`.

    Random signs of its turns show that Δ² is at least the sum of the squared columns of these
    turns, for each of the b patterns: bΔ² ≥ ‖C‖², and ‖AC⁻¹‖ ‖C‖ ≥ ‖A‖_*.
    """
    whole = np.linalg.svd(workload(steps, momentum), compute_uv=False).sum()
    return float(whole) / math.sqrt(period * steps)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("steps", "period", "bands"), [(40, 10, 10), (40, 10, 3), (7, 7, 7)])
def test_the_error_is_that_of_the_matrices(
    steps: int, period: int, bands: int, momentum: float
) -> None:
    chosen = strategies.strategy(steps, period, bands, momentum)
    column = np.zeros(steps)
    column[: chosen.bands] = [float(one) for one in chosen.coefficients]
    spread = workload(steps, momentum) @ np.linalg.inv(np.tril(toeplitz(column)))
    expected = float(chosen.sensitivity(steps, period)) * np.linalg.norm(spread) / math.sqrt(steps)
    assert strategies.error(chosen, steps, period, momentum) == pytest.approx(expected, rel=1e-9)
    assert expected >= lower_bound(steps, period, momentum)


@pytest.mark.parametrize(
    ("period", "bands", "most"),
    [(1000, 1000, 1.06), (1000, 32, 1.70), (100, 100, 1.27), (100, 32, 1.70), (20, 20, 2.1)],
)
def test_a_thousand_steps_are_near_the_bound_and_far_below_independent_noise(
    period: int, bands: int, most: float
) -> None:
    chosen = strategies.strategy(1000, period, bands)
    bound = lower_bound(1000, period)
    assert bound <= strategies.error(chosen, 1000, period) <= most * bound
    alone = strategies.error(Banded.nearest([1.0]), 1000, period)
    assert alone > 7.5 * bound


def test_the_error_is_what_is_seen() -> None:
    """Of real draws: the running sums of answers, in units of the noise multiplier."""
    steps, period = 60, 20
    chosen = strategies.strategy(steps, period, 20)
    sigma = float(chosen.sensitivity(steps, period))
    noise = CorrelatedNoise(chosen, sigma, Seeded(6), steps)
    sums = answers(noise, torch.zeros(steps, 5000)).double().cumsum(0)
    seen = float((sums**2).mean().sqrt())
    assert seen == pytest.approx(strategies.error(chosen, steps, period), rel=0.02)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
@pytest.mark.parametrize(("steps", "period", "bands"), [(1, 1, 1), (5, 3, 2), (100_000, 1000, 64)])
def test_strategies_of_all_lengths(steps: int, period: int, bands: int, momentum: float) -> None:
    chosen = strategies.strategy(steps, period, bands, momentum)
    assert chosen.bands == bands
    if bands > 1:
        alone = strategies.error(Banded.nearest([1.0]), steps, period, momentum)
        assert strategies.error(chosen, steps, period, momentum) < alone


def test_the_slope_is_that_of_the_error() -> None:
    from scipy.optimize import check_grad

    problem = strategies._Problem(50, 10, 0.7)
    at = np.array([0.8, 0.5, 0.4])
    wrong = check_grad(lambda c: problem.log_error(c)[0], lambda c: problem.log_error(c)[1], at)
    assert wrong < 1e-5
