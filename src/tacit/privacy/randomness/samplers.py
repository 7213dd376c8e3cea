r"""Exact draws from laws on the integers, vectorised.

All samplers here invert one uniform real U, of which only as many bits are drawn as a decision
needs. 64 bits of U settle nearly every comparison with a threshold; if U and the threshold agree in
all of them (about once in :math:`2^{56}` draws), further bits are drawn and the threshold is
computed to the same precision. Nothing is rounded, so the law of a draw is the law in the proof.

References
----------
.. [CKS20] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020.
.. [Lem19] Lemire. Fast random integer generation in an interval. ACM TOMACS 2019.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit.privacy.randomness.source import Randomness
from tacit.privacy.rounding import exp_floor

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]

_RADIX = 256
_BLOCK = 1 << 16
_DOUBT = 2.0**-36
"""Float comparisons that are closer than this are settled exactly."""


class Inversion:
    """Sampler of k with probability c_k − c_{k−1}, for thresholds c_0 < c_1 < … ≤ 1.

    `floors(bits)` gives ⌊2^bits c_k⌋ for every k. A draw is the number of thresholds ≤ U.
    """

    def __init__(self, floors: Callable[[int], list[int]]) -> None:
        self._floors = floors
        self._thresholds = np.array(floors(64), dtype=np.uint64)

    def draw(self, size: int, rng: Randomness) -> Integers:
        words = rng.words(size)
        index = np.searchsorted(self._thresholds, words, side="left")
        # If all 64 bits are equal, it is open on which side of the threshold U lies.
        nearest = self._thresholds[np.minimum(index, len(self._thresholds) - 1)]
        for position in np.flatnonzero(nearest == words):
            index[position] = self._settle(int(words[position]), rng)
        return index

    def _settle(self, prefix: int, rng: Randomness) -> int:
        bits = 64
        while True:
            prefix = prefix << 64 | int(rng.words(1)[0])
            bits += 64
            thresholds = self._floors(bits)
            index = bisect_right(thresholds, prefix)
            if index == 0 or thresholds[index - 1] != prefix:
                return index


def uniform_below(bound: int, size: int, rng: Randomness) -> Integers:
    """Draw uniformly from {0, …, bound − 1} for bound ≤ 2^63, without modulo bias."""
    if bound > 2**32:
        return _uniform_below_masked(bound, size, rng)
    # Multiply-shift with rejection of the short last interval [Lem19].
    reject_below = np.uint64(2**32 % bound)
    product = _half_words(size, rng) * np.uint64(bound)
    while (bad := np.flatnonzero((product & np.uint64(2**32 - 1)) < reject_below)).size:
        product[bad] = _half_words(bad.size, rng) * np.uint64(bound)
    return (product >> np.uint64(32)).astype(np.int64)


def _half_words(size: int, rng: Randomness) -> npt.NDArray[np.uint64]:
    return rng.words((size + 1) // 2).view(np.uint32)[:size].astype(np.uint64)


def _uniform_below_masked(bound: int, size: int, rng: Randomness) -> Integers:
    shift = np.uint64(64 - (bound - 1).bit_length())
    values = rng.words(size) >> shift
    while (bad := np.flatnonzero(values >= np.uint64(bound))).size:
        values[bad] = rng.words(bad.size) >> shift
    return values.astype(np.int64)


def bernoulli(probability: Fraction, size: int, rng: Randomness) -> Booleans:
    """Draw True with exactly this rational probability."""
    if size == 0 or probability <= 0 or probability >= 1:
        return np.full(size, probability >= 1)
    scaled = probability * 2**64
    threshold = math.floor(scaled)
    words = rng.words(size)
    hit = words < np.uint64(threshold)
    tied = words == np.uint64(threshold)
    hit[tied] = bernoulli(scaled - threshold, int(np.count_nonzero(tied)), rng)
    return hit


def bernoulli_exp(exponent: Fraction, size: int, rng: Randomness) -> Booleans:
    r"""Draw True with probability exactly :math:`e^{-x}`, x ≥ 0 rational."""
    if exponent == 0:
        return np.ones(size, dtype=np.bool_)
    law = Inversion(lambda bits: [exp_floor(-exponent, bits)])
    return np.asarray(law.draw(size, rng) == 0)


def bernoulli_exp_each(
    approximate: Reals,
    exact: Callable[[int], Fraction],
    rng: Randomness,
    doubt: float = _DOUBT,
) -> Booleans:
    r"""Draw True with probability exactly :math:`e^{-x_i}` for each i.

    `approximate` gives the x_i accurately enough that e^{−x_i} is known to within 2^-40; it decides
    wherever U is further than `doubt` from that, and `exact(i)` decides the rest.
    """
    words = rng.words(approximate.size)
    uniform = (words >> np.uint64(11)) * 2.0**-53
    chance = np.exp(-approximate)
    hit = uniform < chance
    for index in np.flatnonzero(np.abs(uniform - chance) <= doubt):
        hit[index] = _below_exp(int(words[index]), exact(int(index)), rng)
    return hit


def _below_exp(prefix: int, exponent: Fraction, rng: Randomness) -> bool:
    if exponent == 0:
        return True
    bits = 64
    while (threshold := exp_floor(-exponent, bits)) == prefix:
        prefix = prefix << 64 | int(rng.words(1)[0])
        bits += 64
    return prefix < threshold


def geometric(rate: Fraction, size: int, rng: Randomness) -> Integers:
    r"""Draw from P(k) = (1 − r) r^k on k ≥ 0 with :math:`r = e^{-rate}`.

    The base-256 digits of a geometric variable are independent: all but the last are truncated
    geometric, and the last is memoryless, so a draw beyond its table starts again from there.
    """
    value = np.zeros(size, dtype=np.int64)
    unit = 1
    while rate * _RADIX < 1:
        value += unit * _digit(rate, truncated=True).draw(size, rng)
        unit, rate = unit * _RADIX, rate * _RADIX
    law = _digit(rate, truncated=False)
    last = law.draw(size, rng)
    open_ended = np.flatnonzero(last == _RADIX)
    while open_ended.size:
        more = law.draw(open_ended.size, rng)
        last[open_ended] += more
        open_ended = open_ended[more == _RADIX]
    return value + unit * last


@lru_cache(maxsize=256)
def _digit(rate: Fraction, *, truncated: bool) -> Inversion:
    """Return the geometric law on 0..255, conditioned on it or with an overflow outcome."""
    outcomes = range(1, _RADIX if truncated else _RADIX + 1)

    def floors(bits: int) -> list[int]:
        precision = bits + 64
        while True:
            one = 1 << precision
            powers = [exp_floor(-rate * k, precision) for k in outcomes]
            cut = exp_floor(-rate * _RADIX, precision) if truncated else 0
            # Each power e stands for an irrational number strictly between e and e + 1: enclose
            # the quotient. Strictly, or a power too small to see would never be settled.
            lower = [((one - e - 1) << bits) // (one - cut) for e in powers]
            upper = [(((one - e) << bits) - 1) // (one - cut - truncated) for e in powers]
            if lower == upper:
                return lower
            precision *= 2

    return Inversion(floors)


def discrete_laplace(scale: Fraction, size: int, rng: Randomness) -> Integers:
    r"""Draw from P(k) ∝ :math:`e^{-|k|/scale}` on the integers: a difference of two geometrics."""
    rate = 1 / scale
    return _in_blocks(lambda count: geometric(rate, count, rng) - geometric(rate, count, rng), size)


def discrete_gaussian(variance: Fraction, size: int, rng: Randomness) -> Integers:
    r"""Draw from P(k) ∝ :math:`e^{-k^2/(2\sigma^2)}` on the integers, by rejection [CKS20]_."""
    return _in_blocks(lambda count: _discrete_gaussian_block(variance, count, rng), size)


def _discrete_gaussian_block(variance: Fraction, size: int, rng: Randomness) -> Integers:
    scale = math.isqrt(math.floor(variance)) + 1
    centre, width = float(variance / scale), float(2 * variance)
    accepted = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        count = int((size - filled) * 1.5) + 16
        proposal = discrete_laplace(Fraction(scale), count, rng)
        magnitude = np.abs(proposal)

        def exponent(index: int, magnitude: Integers = magnitude) -> Fraction:
            return (int(magnitude[index]) - variance / scale) ** 2 / (2 * variance)

        keep = bernoulli_exp_each((magnitude - centre) ** 2 / width, exponent, rng)
        chosen = proposal[keep][: size - filled]
        accepted[filled : filled + chosen.size] = chosen
        filled += chosen.size
    return accepted


def rounded_gaussian(sigma: Fraction, size: int, rng: Randomness) -> Integers:
    """Round exact normal variables of standard deviation sigma to the nearest integer.

    Rounding is post-processing, so theorems on the continuous Gaussian mechanism apply on integers.
    """
    return _in_blocks(lambda count: _rounded_gaussian_block(sigma, count, rng), size)


def _rounded_gaussian_block(
    sigma: Fraction, size: int, rng: Randomness, doubt: float = 2.0**-40
) -> Integers:
    words = rng.words(size)
    negative = (words & np.uint64(1)).astype(np.bool_)
    # The other 63 bits are the probability of a normal variable further out than this one.
    survival = ((words >> np.uint64(1)) + 0.5) * 2.0**-63
    distance = -ndtri(survival / 2) * float(sigma)
    magnitude = np.rint(distance).astype(np.int64)
    # Bits not yet drawn move the distance by at most a share of 2^-63 / survival.
    error = (doubt + 2.0**-62 / survival) * (float(sigma) + distance)
    unclear = np.abs(distance - np.floor(distance) - 0.5) <= error
    unclear |= words >> np.uint64(1) == 0  # the far tail: the distance is not known yet
    for index in np.flatnonzero(unclear):
        magnitude[index] = _settle_rounded(int(words[index]) >> 1, sigma, rng)
    return np.asarray(np.where(negative, -magnitude, magnitude))


def _settle_rounded(prefix: int, sigma: Fraction, rng: Randomness) -> int:
    """Find the smallest m with P(|σZ| > m + ½) ≤ U; U is extended until that is clear."""
    bits = 63
    while True:
        prefix = prefix << 64 | int(rng.words(1)[0])
        bits += 64
        tail = _normal_tail(sigma, bits)
        m = bisect_left(range(math.ceil(sigma * bits) + 1), True, key=lambda m: tail(m) <= prefix)
        # The error of a tail is far below one unit, thanks to its guard bits.
        if abs(tail(m) - prefix) > 2 and (m == 0 or abs(tail(m - 1) - prefix) > 2):
            return m


def _normal_tail(sigma: Fraction, bits: int) -> Callable[[int], mpmath.mpf]:
    """Return the function 2^bits P(|σZ| > m + ½), with 64 guard bits."""
    context = mpmath.MPContext()  # a separate one: the shared context is not thread-safe
    context.prec = bits + 64
    root = context.mpf(sigma.numerator) / sigma.denominator * context.sqrt(2)
    return lambda m: context.ldexp(context.erfc((m + context.mpf(0.5)) / root), bits)


def subsets(universe: int, count: int, rows: int, rng: Randomness) -> Booleans:
    """Draw uniformly random subsets of `count` of `universe` elements, one per row (Floyd)."""
    if 2 * count > universe:
        return ~subsets(universe, universe - count, rows, rng)
    chosen = np.zeros((rows, universe), dtype=np.bool_)
    row = np.arange(rows)
    for last in range(universe - count, universe):
        pick = uniform_below(last + 1, rows, rng)
        pick[chosen[row, pick]] = last
        chosen[row, pick] = True
    return chosen


def _in_blocks(draw: Callable[[int], Integers], size: int) -> Integers:
    """Draw in blocks that fit in the processor's cache, which also bounds the memory used."""
    if size <= _BLOCK:
        return draw(size)
    pieces = [draw(min(_BLOCK, size - start)) for start in range(0, size, _BLOCK)]
    return np.concatenate(pieces)
