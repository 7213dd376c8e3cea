"""Exact samplers: their laws by chi-square, their ties by words that are made to tie.

Seeds are fixed, so a pass stays a pass; every statistic also has to reject a law that is 10 % off.
"""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
import textwrap
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from tacit.privacy.randomness import samplers
from tacit.privacy.randomness.samplers import (
    Inversion,
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    rounded_gaussian,
    subsets,
    uniform_below,
)
from tacit.privacy.randomness.source import Seeded, SystemEntropy
from tacit.privacy.rounding import exp_floor

SIGNIFICANCE = 1e-6


class Scripted:
    """Prescribed words, then none: a sampler that asks for more than it should fails."""

    secure = False

    def __init__(self, words):
        self.left = [int(word) for word in words]

    def words(self, count):
        if count > len(self.left):
            raise AssertionError("more words were asked for than the decision needs")
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def alone(code, seconds):
    """Run code in a process of its own: one that hangs, or fills the memory, ends there."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
    done = subprocess.run(
        [sys.executable, "-c", limit + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def p_value(counts, chances):
    """Pearson's test; cells that expect few draws are pooled with their neighbours."""
    counts, chances = np.asarray(counts, dtype=float), np.asarray(chances, dtype=float)
    if (counts[chances == 0] > 0).any():
        return 0.0
    counts, expected = counts[chances > 0], chances[chances > 0] * counts.sum()
    small = expected < 50
    group = np.where(small, np.floor(np.cumsum(expected * small) / 100), -1 - np.arange(small.size))
    for _ in range(2):
        group = np.unique(group, return_inverse=True)[1]
        # What is still small joins the group before it.
        group = np.maximum(np.cumsum(np.bincount(group, expected) >= 25)[group] - 1, 0)
    observed, expected = np.bincount(group, counts), np.bincount(group, expected)
    assert len(expected) > 1, "one cell tests nothing"
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def integer_p_value(draws, law):
    """Draws against a law on the integers; one cell more for what was never drawn."""
    reach = int(np.abs(draws).max()) + 1
    support = np.arange(-reach, reach + 1)
    chances = law(support)
    assert chances.sum() <= 1 + 1e-9
    counts = np.bincount(draws + reach, minlength=2 * reach + 1)
    beyond = max(1 - chances.sum(), 0)
    return p_value(np.append(counts, 0), np.append(chances, beyond + 1e-300))


def ks_p_value(draws, cdf):
    """Kolmogorov–Smirnov against a cdf on the integers: conservative for a discrete law."""
    values, counts = np.unique(draws, return_counts=True)
    empirical = np.cumsum(counts) / draws.size
    exact = cdf(values)
    below = cdf(values - 1)
    gap = max(np.abs(empirical - exact).max(), np.abs(np.append(0, empirical[:-1]) - below).max())
    return float(stats.kstwobign.sf(gap * math.sqrt(draws.size)))


def z_of_mean(draws, mean, variance):
    return (draws.mean() - mean) / math.sqrt(variance / draws.size)


Z = stats.norm.isf(SIGNIFICANCE / 2)


# --- uniform -------------------------------------------------------------------------------------

BOUNDS = [
    1,
    2,
    3,
    10,
    2**32 - 1,
    2**32,
    2**32 + 1,
    3 * 2**30,
    3 * 2**40,
    2**62 + 1,
    2**63 - 1,
    2**63,
]


def uniform_p_values(draws, bound):
    """Where in the range, and which remainder, for a handful of moduli."""
    cells = min(bound, 96)
    edges = np.array([-(-bound * i // cells) for i in range(cells + 1)], dtype=object)
    place = np.array([int(d) * cells // bound for d in draws])
    widths = np.array([int(b - a) for a, b in itertools.pairwise(edges)], dtype=float)
    found = [p_value(np.bincount(place, minlength=cells), widths / float(bound))]
    for modulus in (2, 3, 7):
        if bound > modulus:
            share = [(bound - r + modulus - 1) // modulus / bound for r in range(modulus)]
            found.append(p_value(np.bincount(draws % modulus, minlength=modulus), share))
    return found


@pytest.mark.parametrize("bound", BOUNDS)
def test_uniform_below_is_uniform(bound):
    draws = uniform_below(bound, 30_000, Seeded(bound % 1000))
    assert draws.dtype == np.int64
    assert draws.min() >= 0
    assert int(draws.max()) < bound
    if bound > 1:
        assert min(uniform_p_values(draws, bound)) > SIGNIFICANCE


def test_uniform_below_from_the_operating_system():
    assert min(uniform_p_values(uniform_below(10, 30_000, SystemEntropy()), 10)) > SIGNIFICANCE


@pytest.mark.parametrize(("bound", "bits"), [(3 * 2**30, 32), (3 * 2**40, 42)])
def test_the_statistic_sees_modulo_bias(bound, bits):
    words = Seeded(1).words(30_000) >> np.uint64(64 - bits)
    biased = (words % np.uint64(bound)).astype(np.int64)
    assert min(uniform_p_values(biased, bound)) < 1e-30


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1001])
def test_uniform_below_has_the_size_asked_for(size):
    for bound in (10, 2**40):
        assert uniform_below(bound, size, Seeded(2)).shape == (size,)


@pytest.mark.parametrize("bound", [3, 10, 2**32 - 1, 3 * 2**30])
def test_uniform_below_rejects_just_the_short_interval(bound):
    """Of the 2^32 half words each value keeps ⌊2^32 / bound⌋: its two ends are looked up."""
    share, short = divmod(2**32, bound)
    for value in (0, 1, bound // 2, bound - 1):
        # Half words h with h·bound in [value·2^32 + short, (value + 1)·2^32) are kept.
        first = -(-(value * 2**32 + short) // bound)
        last = -(-((value + 1) * 2**32) // bound) - 1
        assert last - first + 1 == share
        for kept in {first, last}:
            assert uniform_below(bound, 1, Scripted([kept])).tolist() == [value]
        dropped = first - 1
        if dropped >= 0 and (dropped * bound) // 2**32 == value:
            rng = Scripted([dropped, last])
            assert uniform_below(bound, 1, rng).tolist() == [value]
            assert rng.left == []


def test_uniform_below_masked_rejects_what_is_out_of_range():
    bound = 2**40 + 5
    shift = 64 - (bound - 1).bit_length()
    rng = Scripted([bound << shift, 7 << shift])
    assert uniform_below(bound, 1, rng).tolist() == [7]
    assert uniform_below(bound, 1, Scripted([(bound - 1) << shift])).tolist() == [bound - 1]


# --- coins ---------------------------------------------------------------------------------------


def exact_side(words, chance_floor):
    """How many words decide U < c, and which way, from ⌊2^bits c⌋ alone."""
    prefix = 0
    for used, word in enumerate(words, start=1):
        prefix = prefix << 64 | int(word)
        threshold = chance_floor(64 * used)
        if prefix != threshold:
            return prefix < threshold, used
    raise AssertionError("undecided")


@settings(deadline=None, max_examples=200)
@given(
    p=st.builds(lambda a, b: Fraction(a, a + b), st.integers(1, 10**20), st.integers(1, 10**20)),
    ties=st.integers(0, 3),
    step=st.sampled_from([-1, 1, 12345, -98765]),
)
def test_bernoulli_ties_are_settled_exactly(p, ties, step):
    """The first `ties` words agree with p in all bits; the next one decides."""
    floor = math.floor(p * 2 ** (64 * (ties + 1)))
    digits = [(floor >> (64 * k)) % 2**64 for k in reversed(range(ties + 1))]
    digits[-1] = (digits[-1] + step) % 2**64
    # U = digits / 2^(64 (ties + 1)): below p as a rational?
    u = Fraction(sum(d << (64 * k) for k, d in enumerate(reversed(digits))), 2 ** (64 * (ties + 1)))
    rng = Scripted([*digits, 0, 0])
    assert bool(bernoulli(p, 1, rng)[0]) is (u < p)


def test_bernoulli_dyadic_tie_is_a_miss():
    """U = ½ is not below ½, and no more words are needed to see it."""
    rng = Scripted([2**63])
    assert not bernoulli(Fraction(1, 2), 1, rng)[0]
    assert bernoulli(Fraction(1, 2), 1, Scripted([2**63 - 1]))[0]


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1), Fraction(-1), Fraction(3, 2)])
def test_bernoulli_certain_outcomes_need_no_words(p):
    assert bernoulli(p, 5, Scripted([])).tolist() == [p >= 1] * 5


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 1000), Fraction(999, 1000)])
def test_bernoulli_frequency(p):
    hits = int(bernoulli(p, 200_000, Seeded(3)).sum())
    assert stats.binomtest(hits, 200_000, float(p)).pvalue > SIGNIFICANCE
    wrong = float(p) + min(float(p), float(1 - p)) / 2
    assert stats.binomtest(hits, 200_000, wrong).pvalue < SIGNIFICANCE


def test_bernoulli_many_ties_in_one_call():
    """Several words tie at once: each tied place gets its own fresh word."""
    p = Fraction(1, 3)
    threshold = 2**64 // 3
    words = [threshold, 5, threshold, 2**64 - 1, threshold, threshold + 1, threshold - 1]
    # 2^64/3 − ⌊2^64/3⌋ = 1/3: the three ties compare their second word with the same threshold.
    rng = Scripted([*words, threshold - 1, threshold + 1, threshold, 0])
    assert bernoulli(p, 7, rng).tolist() == [True, True, False, False, True, False, True]
    assert rng.left == []


@pytest.mark.parametrize("x", [Fraction(1, 10), Fraction(1), Fraction(7, 2)])
def test_bernoulli_exp_frequency(x):
    hits = int(bernoulli_exp(x, 100_000, Seeded(4)).sum())
    assert stats.binomtest(hits, 100_000, math.exp(-x)).pvalue > SIGNIFICANCE
    assert stats.binomtest(hits, 100_000, math.exp(-x * 1.1)).pvalue < SIGNIFICANCE


def test_bernoulli_exp_of_zero_is_certain():
    assert bernoulli_exp(Fraction(0), 4, Scripted([])).all()


def mp_floor_exp(x, bits):
    with mp.workprec(bits + 300):
        return int(mp.floor(mp.ldexp(mp.exp(-mp.mpf(x.numerator) / x.denominator), bits)))


@settings(deadline=None, max_examples=100)
@given(
    x=st.fractions(Fraction(1, 10**6), 40, max_denominator=10**9),
    ties=st.integers(1, 2),
    step=st.sampled_from([-1, 1, 0]),
    last=st.integers(0, 2**64 - 1),
)
def test_bernoulli_exp_ties_against_mpmath(x, ties, step, last):
    floor = mp_floor_exp(x, 64 * (ties + 1))
    words = [(floor >> (64 * k)) % 2**64 for k in reversed(range(ties + 1))]
    words[-1] = min(max(words[-1] + step, 0), 2**64 - 1)
    words.append(last)
    expected, used = exact_side(words, lambda bits: mp_floor_exp(x, bits))
    for draw in (
        lambda rng: bernoulli_exp(x, 1, rng),
        lambda rng: bernoulli_exp_each(np.array([float(x)]), lambda index: x, rng),
    ):
        rng = Scripted(words)
        assert bool(draw(rng)[0]) is expected
        assert len(rng.left) == len(words) - used


def test_bernoulli_exp_each_exact_path_agrees_with_the_float_path():
    exponents = [Fraction(k, 97) for k in range(800)] + [Fraction(0)] * 5
    approximate = np.array([float(x) for x in exponents])
    fast, exact, off = (
        bernoulli_exp_each(approximate, exponents.__getitem__, Seeded(5), doubt=doubt)
        for doubt in (2.0**-36, 1.0, -1.0)
    )
    assert np.array_equal(fast, exact)
    assert np.array_equal(off, exact)  # words of a fixed seed that floats can tell apart
    assert fast[-5:].all()


def test_bernoulli_exp_each_asks_for_the_right_exponent():
    """With doubt 1 the floats do not matter: nonsense in them must not show."""
    exponents = [Fraction(k, 10) for k in range(60)]
    honest = bernoulli_exp_each(
        np.array([float(x) for x in exponents]), exponents.__getitem__, Seeded(6)
    )
    nonsense = bernoulli_exp_each(np.full(60, 3.0), exponents.__getitem__, Seeded(6), doubt=1.0)
    assert np.array_equal(honest, nonsense)


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(5), Fraction(20), Fraction(1, 10**9)])
@pytest.mark.parametrize("error", [-(2.0**-41), 0.0, 2.0**-41])
def test_bernoulli_exp_each_is_exact_next_to_the_threshold(x, error):
    """Words at every distance from the threshold, and floats as wrong as they may be."""
    threshold = exp_floor(-x, 64)
    distances = [0, 1, 2, 5] + [2**k for k in range(2, 40, 3)]
    words = [threshold + sign * d for d in distances for sign in (-1, 1)]
    words = [w for w in words if 0 <= w < 2**64 and w != threshold]
    chance = math.exp(-x) + error
    approximate = np.full(len(words), -math.log(min(chance, 1.0)) if chance > 0 else 800.0)
    found = bernoulli_exp_each(approximate, lambda index: x, Scripted(words))
    assert found.tolist() == [w < threshold for w in words]


# --- inversion -----------------------------------------------------------------------------------

CLOSE = [
    Fraction(1, 3),
    Fraction(1, 3) + Fraction(1, 7 * 2**80),
    Fraction(1, 3) + Fraction(1, 7 * 2**70),
    Fraction(1, 3) + Fraction(1, 7 * 2**20),
    Fraction(5, 7),
    1 - Fraction(1, 3**60),
]


def floors_of(thresholds):
    return lambda bits: [math.floor(c * 2**bits) for c in thresholds]


@settings(deadline=None, max_examples=200)
@given(
    at=st.sampled_from(range(len(CLOSE))),
    words=st.integers(1, 3),
    step=st.sampled_from([-1, 1, 2**20, -(2**20)]),
)
def test_inversion_counts_the_thresholds_below_u(at, words, step):
    """Thresholds that share 64, 70 and 80 bits: U is put next to one of them."""
    bits = 64 * words
    prefix = min(max(math.floor(CLOSE[at] * 2**bits) + step, 0), 2**bits - 1)
    script = [(prefix >> (64 * k)) % 2**64 for k in reversed(range(words))] + [2**63, 2**63, 2**63]
    u = Fraction(prefix, 2**bits) + Fraction(1, 2 ** (bits + 1)) + Fraction(1, 2 ** (bits + 65))
    expected = sum(c <= u for c in CLOSE)
    assert Inversion(floors_of(CLOSE)).draw(1, Scripted(script)).tolist() == [expected]


def test_inversion_without_ties_uses_one_word_each():
    law = Inversion(floors_of([Fraction(1, 4), Fraction(1, 2)]))
    rng = Scripted([0, 2**62 - 1, 2**62 + 1, 2**63 + 1, 2**64 - 1])
    assert law.draw(5, rng).tolist() == [0, 0, 1, 2, 2]


def digit_threshold(rate, k, bits, truncated):
    """⌊2^bits (1 − r^k) / (1 − r^256)⌋ by mpmath."""
    with mp.workprec(bits + 400):
        x = mp.mpf(rate.numerator) / rate.denominator
        value = -mp.expm1(-x * k)
        if truncated:
            value /= -mp.expm1(-x * 256)
        return int(mp.floor(mp.ldexp(value, bits)))


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("rate", "truncated"),
    [
        (Fraction(1, 1000), True),
        (Fraction(1, 10**12), True),
        (Fraction(1, 3), False),
        (Fraction(1), False),
    ],
)
def test_digit_thresholds_and_their_ties_against_mpmath(rate, truncated):
    law = samplers._digit(rate, truncated=truncated)
    count = 255 if truncated else 256
    for bits in (64, 128):
        assert law._floors(bits) == [
            digit_threshold(rate, k, bits, truncated) for k in range(1, count + 1)
        ]
    for k in (k for k in (1, 2, 17, 200) if rate * k < 30):  # beyond, thresholds share 64 bits
        first, second = divmod(digit_threshold(rate, k, 128, truncated), 2**64)
        # The first word equals the 64-bit threshold; the second lies just below or above.
        assert law.draw(1, Scripted([first, max(second - 1, 0)])).tolist() == [k - 1]
        assert law.draw(1, Scripted([first, second + 1])).tolist() == [k]
        # Equal in 128 bits: the third word decides.
        third = digit_threshold(rate, k, 192, truncated) % 2**64
        assert law.draw(1, Scripted([first, second, third - 1])).tolist() == [k - 1]
        assert law.draw(1, Scripted([first, second, third + 1])).tolist() == [k]


# --- geometric and Laplace -----------------------------------------------------------------------


def geometric_law(rate):
    return lambda k: np.where(k >= 0, -math.expm1(-rate) * np.exp(-rate * np.maximum(k, 0)), 0.0)


def laplace_law(scale):
    return lambda k: math.tanh(1 / scale / 2) * np.exp(-np.abs(k) / scale)


def laplace_cdf(scale):
    r = math.exp(-1 / scale)

    def cdf(k):
        k = np.asarray(k, dtype=np.float64)
        tail = np.exp(-np.where(k >= 0, k + 1, -k) / scale) / (1 + r)
        return np.where(k >= 0, 1 - tail, tail)

    return cdf


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(10), Fraction(2001, 2)])
def test_geometric_law(scale):
    draws = geometric(1 / scale, 100_000, Seeded(7))
    assert integer_p_value(draws, geometric_law(float(1 / scale))) > SIGNIFICANCE
    assert integer_p_value(draws, geometric_law(float(1 / scale) * 1.1)) < 1e-12


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(10), Fraction(2001, 2)])
def test_discrete_laplace_law(scale):
    draws = discrete_laplace(scale, 100_000, Seeded(8))
    assert integer_p_value(draws, laplace_law(float(scale))) > SIGNIFICANCE
    assert integer_p_value(draws, laplace_law(float(scale) * 1.1)) < 1e-12


@pytest.mark.parametrize("scale", [Fraction(2001, 2), Fraction(10**6), Fraction(10**12)])
def test_discrete_laplace_at_large_scales(scale):
    t = float(scale)
    draws = discrete_laplace(scale, 150_000, Seeded(9)).astype(np.float64)
    assert ks_p_value(draws, laplace_cdf(t)) > SIGNIFICANCE
    assert ks_p_value(draws, laplace_cdf(t * 1.1)) < SIGNIFICANCE
    # Laplace: variance 2t², fourth moment 24t⁴; the discrete one differs by 1/(6t²) of it.
    assert abs(z_of_mean(draws, 0, 2 * t**2)) < Z
    assert abs(z_of_mean(draws**2, 2 * t**2 * (1 - 1 / (12 * t**2)), 20 * t**4)) < Z
    assert abs(z_of_mean(draws**2, 2 * (1.1 * t) ** 2, 20 * t**4)) > Z


@pytest.mark.parametrize("scale", [Fraction(1000), Fraction(10**6), Fraction(10**12)])
def test_digits_of_a_geometric_draw_are_independent_and_right(scale):
    rate = 1 / scale
    draws = geometric(rate, 100_000, Seeded(10))
    digits = [draws % 256, draws // 256 % 256]
    for power, digit in enumerate(digits):
        r = float(rate) * 256**power
        chances = np.exp(-r * np.arange(256)) * np.expm1(-r) / np.expm1(-256 * r)
        assert p_value(np.bincount(digit, minlength=256), chances) > SIGNIFICANCE
    # Coarse cells of equal width; expected from the two margins.
    table = np.zeros((16, 16))
    np.add.at(table, (digits[0] // 16, digits[1] // 16), 1)
    table = table[:, table.sum(axis=0) > 5 * 16 * 5]
    assert stats.chi2_contingency(table).pvalue > SIGNIFICANCE


def test_digits_statistic_sees_dependence():
    draws = geometric(Fraction(1, 10**6), 100_000, Seeded(10))
    low, high = draws % 256, draws // 256 % 256
    low = np.where(high % 16 == 0, high, low)  # one in sixteen copies a digit
    table = np.zeros((16, 16))
    np.add.at(table, (low // 16, high // 16), 1)
    assert stats.chi2_contingency(table).pvalue < SIGNIFICANCE


def test_geometric_is_memoryless_beyond_its_table():
    """Outcome 256 means "256 or more": it starts again, as often as it comes up."""
    rate, top = Fraction(1, 4), 2**64 - 1  # e^-64 > 2^-128: two full words are beyond the table
    assert samplers._digit(rate, truncated=False).draw(1, Scripted([top, top])).tolist() == [256]
    assert geometric(rate, 1, Scripted([top, top, top, top, 0])).tolist() == [512]
    # 1 − e^(−k/4) ≤ ½ for k ≤ 2.
    assert geometric(rate, 1, Scripted([top, top, 2**63])).tolist() == [258]


def test_last_digit_continues_at_scales_just_above_a_power_of_the_radix():
    """Rate 1/257: a truncated digit and an open one of rate 256/257."""
    draws = geometric(Fraction(1, 257), 100_000, Seeded(11))
    assert integer_p_value(draws, geometric_law(1 / 257)) > SIGNIFICANCE
    assert draws.max() > 2000


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_blocks_have_the_size_asked_for(size):
    for draw in (
        lambda: discrete_laplace(Fraction(2), size, Seeded(12)),
        lambda: discrete_gaussian(Fraction(4), size, Seeded(12)),
        lambda: rounded_gaussian(Fraction(2), size, Seeded(12)),
    ):
        draws = draw()
        assert draws.shape == (size,)
        assert draws.dtype == np.int64


def test_blocks_are_not_copies_of_each_other():
    draws = discrete_laplace(Fraction(100), 2 * 65_536, Seeded(13))
    assert not np.array_equal(draws[:65_536], draws[65_536:])


@pytest.mark.quick(1)
@pytest.mark.parametrize("rates", [(5, 20), (100, 700), (10**6, 10**40)], ids=str)
def test_large_rates_end_quickly(rates):
    """Scale 1/rate: the noise is nearly always 0, and its table must not take minutes."""
    code = f"""
    from fractions import Fraction
    from tacit.randomness import Seeded, geometric
    for rate in {rates}:
        print(int((geometric(Fraction(rate), 100_000, Seeded(14)) > 0).sum()))
    """
    found = [int(line) for line in alone(code, seconds=120).split()]
    for rate, above in zip(rates, found, strict=True):
        chance = math.exp(-min(rate, 100))
        assert stats.binomtest(above, 100_000, chance).pvalue > SIGNIFICANCE


# --- Gaussian ------------------------------------------------------------------------------------


def gaussian_law(sigma):
    k = np.arange(-4000, 4001, dtype=np.float64)
    total = np.exp(-(k**2) / (2 * sigma**2)).sum()
    return lambda k: np.exp(-(k.astype(np.float64) ** 2) / (2 * sigma**2)) / total


def rounded_law(sigma):
    return lambda k: ndtr((0.5 - np.abs(k)) / sigma) - ndtr((-0.5 - np.abs(k)) / sigma)


def normal_cdf(sigma):
    return lambda k: ndtr((np.asarray(k, dtype=np.float64) + 0.5) / sigma)


SIGMAS = [Fraction(3, 10), Fraction(1), Fraction(10)]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_discrete_gaussian_law(sigma):
    draws = discrete_gaussian(sigma**2, 100_000, Seeded(15))
    assert integer_p_value(draws, gaussian_law(float(sigma))) > SIGNIFICANCE
    assert integer_p_value(draws, gaussian_law(float(sigma) * 1.1)) < 1e-12


@pytest.mark.parametrize("sigma", [Fraction(3, 10), Fraction(7, 3), Fraction(10**5)])
def test_discrete_gaussian_exact_path_agrees_with_the_fast_one(sigma, monkeypatch):
    fast = discrete_gaussian(sigma**2, 300, Seeded(23))
    coins = functools.partial(bernoulli_exp_each, doubt=1.0)
    monkeypatch.setattr(samplers, "bernoulli_exp_each", coins)
    assert np.array_equal(discrete_gaussian(sigma**2, 300, Seeded(23)), fast)


@pytest.mark.parametrize("sigma", [Fraction(1, 5), *SIGMAS[1:]])
def test_rounded_gaussian_law(sigma):
    draws = rounded_gaussian(sigma, 100_000, Seeded(16))
    assert integer_p_value(draws, rounded_law(float(sigma))) > SIGNIFICANCE
    assert integer_p_value(draws, rounded_law(float(sigma) * 1.1)) < 1e-12


def test_the_two_gaussians_are_told_apart():
    """At σ = 0.6 they differ; a swap of the samplers would show."""
    sigma = Fraction(3, 5)
    discrete = discrete_gaussian(sigma**2, 50_000, Seeded(17))
    rounded = rounded_gaussian(sigma, 50_000, Seeded(17))
    assert integer_p_value(discrete, rounded_law(0.6)) < SIGNIFICANCE
    assert integer_p_value(rounded, gaussian_law(0.6)) < SIGNIFICANCE


@pytest.mark.parametrize(
    ("draw", "sigma"),
    [
        (lambda size: discrete_gaussian(Fraction(10**10), size, Seeded(18)), 1e5),
        (lambda size: rounded_gaussian(Fraction(10**6), size, Seeded(19)), 1e6),
    ],
    ids=["discrete", "rounded"],
)
def test_gaussians_at_large_sigma(draw, sigma):
    draws = draw(150_000).astype(np.float64)
    assert ks_p_value(draws, normal_cdf(sigma)) > SIGNIFICANCE
    assert ks_p_value(draws, normal_cdf(sigma * 1.1)) < SIGNIFICANCE
    assert abs(z_of_mean(draws, 0, sigma**2)) < Z
    assert abs(z_of_mean(draws**2, sigma**2, 2 * sigma**4)) < Z
    assert abs(z_of_mean(draws**2, 1.1 * sigma**2, 2 * sigma**4)) > Z
    for modulus in (2, 3, 10):
        counts = np.bincount(draws.astype(np.int64) % modulus, minlength=modulus)
        assert p_value(counts, np.full(modulus, 1 / modulus)) > SIGNIFICANCE


@pytest.mark.parametrize("sigma", [Fraction(1, 5), Fraction(1), Fraction(10), Fraction(10**6)])
def test_rounded_gaussian_exact_path_agrees_with_the_fast_one(sigma):
    fast = samplers._rounded_gaussian_block(sigma, 40, Seeded(20))
    exact = samplers._rounded_gaussian_block(sigma, 40, Seeded(20), doubt=1.0)
    assert np.array_equal(fast, exact)
    assert len(set(fast.tolist())) > 1


def tail_floor(m, sigma, bits):
    """⌊2^bits P(|σZ| > m + ½)⌋ by mpmath."""
    with mp.workprec(bits + 300):
        root = mp.mpf(sigma.numerator) / sigma.denominator * mp.sqrt(2)
        return int(mp.floor(mp.ldexp(mp.erfc((m + mp.mpf(1) / 2) / root), bits)))


@pytest.mark.parametrize("sigma", [Fraction(1, 5), Fraction(1), Fraction(21, 2), Fraction(10**6)])
def test_rounded_gaussian_next_to_a_threshold_against_mpmath(sigma):
    """Words on both sides of the chance that |σZ| passes m + ½, as near as 63 bits allow."""
    words, expected = [], []
    for multiple in (0, 0.3, 1, 2, 4, 8):
        m = int(multiple * sigma)
        threshold = tail_floor(m, sigma, 63)
        for distance in (1, 2, 2**8, 2**16, 2**22):
            for prefix, magnitude in (
                (threshold - distance, m + 1),
                (threshold + distance, m),
            ):
                # Only where no other threshold lies in between.
                above = tail_floor(m + 1, sigma, 63)
                below = tail_floor(m - 1, sigma, 63) if m else 2**63
                if above < prefix < below and 0 <= prefix < 2**63:
                    words.append(prefix << 1 | len(words) % 2)
                    expected.append(-magnitude if len(words) % 2 == 0 else magnitude)
    assert len(words) > 10
    rng = Scripted([*words, *([2**63 + 12345] * len(words))])
    found = samplers._rounded_gaussian_block(sigma, len(words), rng)
    assert found.tolist() == expected


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(21, 2)])
def test_rounded_gaussian_ties_are_settled_by_the_next_word(sigma):
    for m in (0, 1, 3):
        floor = tail_floor(m, sigma, 127)
        prefix, second = divmod(floor, 2**64)
        for step, magnitude in ((-5, m + 1), (5, m)):
            rng = Scripted([prefix << 1, second + step])
            assert samplers._rounded_gaussian_block(sigma, 1, rng).tolist() == [magnitude]
        # Too close in 127 bits as well: a third word.
        third = tail_floor(m, sigma, 191) % 2**64
        for step, magnitude in ((-5, m + 1), (5, m)):
            rng = Scripted([prefix << 1, second, (third + step) % 2**64])
            assert samplers._rounded_gaussian_block(sigma, 1, rng).tolist() == [magnitude]


def test_rounded_gaussian_far_tail():
    """The 63-bit prefixes 0, 1 and 2: distances of nine deviations, where floats know little."""
    sigma = Fraction(100)
    for prefix in (0, 1, 2):
        for second in (1, 2**63, 2**64 - 1):
            rng = Scripted([prefix << 1, second, 2**63])
            found = int(samplers._rounded_gaussian_block(sigma, 1, rng)[0])
            u = (prefix << 64 | second) << 64 | 2**63
            # |σZ| rounds to m: P(> m + ½) ≤ U < P(> m − ½).
            assert tail_floor(found, sigma, 191) <= u < tail_floor(found - 1, sigma, 191)
            assert 840 < found < 1350


# --- subsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("universe", "count"), [(5, 2), (5, 3), (6, 4), (4, 1), (4, 3), (7, 3)])
def test_all_subsets_are_equally_likely(universe, count):
    chosen = subsets(universe, count, 60_000, Seeded(21))
    assert (chosen.sum(axis=1) == count).all()
    codes = chosen @ (1 << np.arange(universe))
    wanted = [sum(1 << i for i in s) for s in itertools.combinations(range(universe), count)]
    counts = np.bincount(codes, minlength=2**universe)[wanted]
    assert counts.sum() == 60_000
    chances = np.full(len(wanted), 1 / len(wanted))
    assert p_value(counts, chances) > SIGNIFICANCE
    # A mutant: one subset in ten is replaced by the first one.
    counts = np.rint(counts * 0.9)
    counts[0] += 6_000
    assert p_value(counts, chances) < SIGNIFICANCE


@pytest.mark.parametrize("universe", [1, 2, 5])
def test_subsets_at_the_edges_need_no_words(universe):
    assert not subsets(universe, 0, 3, Scripted([])).any()
    assert subsets(universe, universe, 3, Scripted([])).all()
    assert subsets(universe, universe, 3, Scripted([])).shape == (3, universe)


def test_no_rows_is_no_rows():
    assert subsets(5, 2, 0, SystemEntropy()).shape == (0, 5)


# --- the long rest -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(10), Fraction(1000)])
def test_discrete_laplace_law_from_the_operating_system(scale):
    draws = discrete_laplace(scale, 3_000_000, SystemEntropy())
    assert integer_p_value(draws, laplace_law(float(scale))) > SIGNIFICANCE
    assert integer_p_value(draws, laplace_law(float(scale) * 1.03)) < SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [Fraction(3, 10), Fraction(1), Fraction(10), Fraction(100)])
def test_gaussian_laws_from_the_operating_system(sigma):
    draws = discrete_gaussian(sigma**2, 3_000_000, SystemEntropy())
    assert integer_p_value(draws, gaussian_law(float(sigma))) > SIGNIFICANCE
    rounded = rounded_gaussian(sigma, 3_000_000, SystemEntropy())
    assert integer_p_value(rounded, rounded_law(float(sigma))) > SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [Fraction(1, 5), Fraction(7), Fraction(12345)])
def test_rounded_gaussian_exact_path_many_words(sigma):
    fast = samplers._rounded_gaussian_block(sigma, 3000, Seeded(22))
    exact = samplers._rounded_gaussian_block(sigma, 3000, Seeded(22), doubt=1.0)
    assert np.array_equal(fast, exact)
