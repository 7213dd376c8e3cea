"""The noise is Gaussian, fine, everywhere, and as large as stated; mutants are rejected."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from tacit.audit.statistical import bound_from_draws, fineness
from tacit.central.training import Noise, clipped_sum, standard_normal
from tacit.privacy import gaussian
from tacit.privacy.randomness import Keystream, Seeded, SystemEntropy

SIGNIFICANCE = 1e-6
COUNT = 500_000


class Words:
    """A stream that repeats given words."""

    secure = False

    def __init__(self, *words: int) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def words(self, count: int) -> np.ndarray:
        return np.resize(self._words, count)


def looks_normal(draws: Tensor) -> bool:
    """Kolmogorov and Smirnov's test, the variance, and the counts beyond 3, 4 and 4.5."""
    values = draws.double().numpy()
    square = stats.chi2(len(values)).cdf(float((values**2).sum()))
    fits = [stats.kstest(values, "norm").pvalue, 2 * min(square, 1 - square)]
    for cut in (3.0, 4.0, 4.5):
        beyond = int((np.abs(values) > cut).sum())
        fits.append(stats.binomtest(beyond, len(values), 2 * stats.norm.sf(cut)).pvalue)
    return min(fits) > SIGNIFICANCE


def coarse_normal(count: int, radius_bits: int, angle_bits: int) -> Tensor:
    """A mutant: fewer bits for the radius or the angle."""
    words = torch.from_numpy(Seeded(3).words(2 * count).view(np.int64)).abs().double() * 2.0**-63
    radius = ((words[:count] * 2**radius_bits).floor() + 0.5) * 2.0**-radius_bits
    angle = (words[count:] * 2**angle_bits).floor() * 2.0**-angle_bits
    return (-2 * radius.log()).sqrt() * (2 * math.pi * angle + 0.1).cos()


def test_normals_are_normal_and_a_mutant_without_a_tail_is_not():
    assert looks_normal(standard_normal(COUNT, Seeded(1)))
    assert looks_normal(standard_normal(COUNT, Keystream()))
    assert looks_normal(coarse_normal(COUNT, 40, 40))
    assert not looks_normal(coarse_normal(COUNT, 10, 40))
    assert not looks_normal(standard_normal(COUNT, Seeded(1)) * 1.01)


def fine_near_zero(draws: Tensor) -> bool:
    """Close to zero the density is flat, and hardly any value comes twice."""
    near = draws[draws.abs() < 1e-3].abs().double().numpy()
    distinct = len(np.unique(near))
    return (
        stats.kstest(near, "uniform", (0, 1e-3)).pvalue > SIGNIFICANCE
        and distinct > 0.99 * len(near)
        and 0 < near.min() < 2e-5
    )


def test_there_is_no_lattice_near_zero_and_a_mutant_has_one():
    assert fine_near_zero(standard_normal(COUNT, Seeded(2)))
    assert not fine_near_zero((standard_normal(COUNT, Seeded(2)) * 2**14).round() / 2**14)
    assert not fine_near_zero(coarse_normal(COUNT, 40, 8))


def farthest(*words: int) -> float:
    return float(standard_normal(2, Words(*words)).double().norm())


def test_the_tail_reaches_beyond_eleven_deviations():
    """Small words of the radius are refined by further ones."""
    assert farthest(0) == pytest.approx(math.sqrt(2 * 96 * math.log(2)), rel=1e-4)
    # The largest radius word is about 1: a distance of about 0.
    assert farthest(0x80000000) == 0
    assert 0 < farthest(0x7FFFFF00) < 0.01


@pytest.mark.parametrize("word", [1, 7, 200, 255])
def test_refined_radii_stay_in_their_cell(word):
    for more in (0, 2**62, 2**63, 2**64 - 1):
        stream = Words(word, more)
        stream.words = iter_words(stream)  # first the pair, then the refinement
        distance = float(standard_normal(2, stream).double().norm())
        low, high = (math.sqrt(-2 * math.log((word + d) / 2**31)) for d in (0.5, -0.5))
        assert low * (1 - 1e-6) <= distance <= high * (1 + 1e-6)


def iter_words(stream: Words):
    values = iter(stream._words)
    return lambda count: np.full(count, next(values), dtype=np.uint64)


def test_words_at_all_extremes_give_finite_normals():
    assert torch.isfinite(standard_normal(8, Words(0, 2**63, 2**64 - 1, 1))).all()


def test_both_halves_of_a_pair_are_independent():
    first, second = standard_normal(COUNT, Seeded(4)).chunk(2)
    for one, other in ((first, second), (first**2, second**2), (first.abs(), second)):
        assert stats.pearsonr(one.numpy(), other.numpy()).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("count", [0, 1, 2, 7, 70_001])
@pytest.mark.parametrize("stream", [Seeded(5), Keystream(), SystemEntropy()], ids=type)
def test_any_number_from_any_stream(count, stream):
    assert standard_normal(count, stream).shape == (count,)


def noisy_everywhere(noise: Tensor, sizes: list[int], sigma: float) -> bool:
    """Every block has the stated deviation, and no two entries move together."""
    for block in torch.split(noise, sizes):
        values = block.double().numpy() / sigma
        square = float((values**2).sum())
        chance = stats.chi2.sf(square, len(values)), stats.chi2.cdf(square, len(values))
        if min(chance) < SIGNIFICANCE:
            return False
    lagged = noise[1:] @ noise[:-1] / sigma**2 / math.sqrt(len(noise))
    return abs(float(lagged)) < stats.norm.isf(SIGNIFICANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [1e-3, 0.7, 5000.0])
def test_noise_has_the_stated_deviation_on_every_block(dtype, sigma):
    sizes = [100_000, 400, 60_001, 8]
    sums = torch.rand(sum(sizes), dtype=dtype) * sigma
    noisy = sums.clone()
    Noise(sigma, Seeded(6)).add_to(noisy)
    added = noisy - sums
    assert noisy_everywhere(added, sizes, sigma)
    # Mutants: a block without noise; noise too small; the same noise twice.
    forgotten = added.clone()
    forgotten[100_000:100_400] = 0
    assert not noisy_everywhere(forgotten, sizes, sigma)
    assert not noisy_everywhere(added * 0.98, sizes, sigma)
    assert not noisy_everywhere(added[torch.arange(len(added)) // 2], sizes, sigma)


@pytest.mark.parametrize("sigma", [1e-3, 0.7, 1.0, 3.3, 5000.0])
def test_what_is_released_lies_on_the_grid(sigma):
    noise = Noise(sigma, Seeded(7))
    assert sigma * 2.0**-8 < noise.grid <= sigma * 2.0**-7
    assert math.frexp(noise.grid)[0] == 0.5  # a power of two
    sums = torch.rand(1000) * sigma
    noise.add_to(sums)
    multiples = sums.double() / noise.grid
    assert torch.equal(multiples, multiples.round())


def test_rounding_keeps_the_mean_wherever_the_sum_lies():
    """Between two grid points, too: what is released is the sum on average."""
    noise = Noise(1.0, Seeded(14))
    for share in (0.0, 0.25, 0.5, 0.9):
        sums = torch.full((COUNT,), share * noise.grid, dtype=torch.float64)
        noise.add_to(sums)
        mean = float(sums.mean()) - share * noise.grid
        assert abs(mean) < stats.norm.isf(SIGNIFICANCE) / math.sqrt(COUNT)


def test_rounding_is_random_and_not_to_the_nearest():
    size = 60_000

    class Still:
        """No noise to speak of: only the shift is random."""

        secure = False

        def words(self, count: int) -> np.ndarray:
            words = Seeded(15).words(count)
            words[: size // 2] = 0x8000000080000000  # first come the places in the plane: radius 0
            return words

    sums = torch.full((size,), 0.3 * Noise(1.0, Seeded(0)).grid)
    Noise(1.0, Still()).add_to(sums)
    up = int((sums > 0).sum())
    assert stats.binomtest(up, len(sums), 0.3).pvalue > SIGNIFICANCE


def test_a_divisor_divides_signal_and_noise():
    plain, divided = torch.ones(1000), torch.ones(1000)
    Noise(1.0, Seeded(8)).add_to(plain)
    Noise(1.0, Seeded(8)).add_to(divided, 4.0)
    assert torch.equal(divided * 4, plain)


def test_an_audit_does_not_refute_one_step_and_refutes_too_little_noise():
    """The worst neighbours of one step: nothing, and one record whose gradient is clipped."""
    epsilon, delta, clip_norm = 1.0, 1e-5, 0.5
    multiplier = gaussian.noise_multiplier_for(epsilon, delta)
    module = nn.Linear(1, 1, bias=False)

    def loss(module, x):
        return 100 * module(x).sum(1)

    (there,), _ = clipped_sum(module, loss, torch.ones(1, 1), clip_norm)
    (away,), _ = clipped_sum(module, loss, torch.ones(0, 1), clip_norm)
    assert float(there - away) == pytest.approx(clip_norm, rel=1e-5)

    scores = [lambda v: v, lambda v: -v, fineness, lambda v: -fineness(v)]

    def bound(sigma: float, released) -> float:
        draws = [released(start, sigma, Seeded(seed)) for start, seed in ((there, 9), (away, 10))]
        return bound_from_draws(*draws, scores, delta=delta, confidence=1 - SIGNIFICANCE).epsilon

    def ours(start: Tensor, sigma: float, stream: Seeded) -> np.ndarray:
        sums = start.flatten().repeat(COUNT // 4)
        Noise(sigma, stream).add_to(sums)
        return sums.numpy().astype(np.float64)

    def not_rounded(start: Tensor, sigma: float, stream: Seeded) -> np.ndarray:
        return float(start) + sigma * standard_normal(COUNT // 4, stream).double().numpy()

    sigma = multiplier * clip_norm
    assert bound(sigma, ours) <= epsilon
    assert bound(sigma / 4, ours) > epsilon
    # Floating-point noise that is not rounded gives its input away by its last digits.
    assert bound(sigma, not_rounded) > epsilon
