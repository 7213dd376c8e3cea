"""⌊2^bits e^x⌋ against mpmath, and against rational series that share no code with it."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tacit.privacy import rounding
from tacit.privacy.rounding import exp_floor


def oracle(x: Fraction, bits: int) -> int:
    """By mpmath, with enough bits to see the last one even where e^x is next to 1."""
    size = abs(math.log2(abs(x.numerator)) - math.log2(x.denominator)) if x else 0
    with mp.workprec(int(bits + 2 * size + 2 * abs(float(x)) + 200)):
        value = mp.ldexp(mp.exp(mp.mpf(x.numerator) / x.denominator), bits)
        return int(mp.floor(value))


def series_bounds(x: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Taylor sums that enclose e^x for 0 < x < 1, in rationals."""
    total, term = Fraction(1), Fraction(1)
    for k in range(1, terms):
        term = term * x / k
        total += term
    # What is left is below twice the next term, as x / (k + 1) < 1/2.
    return total, total + 2 * term * x / terms


rationals = st.builds(
    lambda sign, numerator, denominator: sign * Fraction(numerator, denominator),
    st.sampled_from([-1, 1]),
    st.integers(1, 10**12),
    st.integers(1, 10**12),
)


@settings(deadline=None, max_examples=300)
@given(x=rationals, bits=st.integers(0, 512))
@example(x=Fraction(0), bits=64)
@example(x=Fraction(-1), bits=0)
@example(x=Fraction(1), bits=0)
@example(x=Fraction(-44), bits=64)
@example(x=Fraction(-45), bits=64)
@example(x=Fraction(-1, 10**12), bits=64)
@example(x=Fraction(1, 10**12), bits=64)
def test_it_is_the_floor(x, bits):
    assume(abs(x) <= 2000)
    assert exp_floor(x, bits) == oracle(x, bits)


@settings(deadline=None, max_examples=60)
@given(
    sign=st.sampled_from([-1, 1]),
    exponent=st.integers(20, 500),
    odd=st.integers(1, 999),
    bits=st.integers(1, 512),
)
def test_tiny_x_lands_on_the_right_side_of_one(sign, exponent, odd, bits):
    x = sign * Fraction(odd, 10**3 * 2**exponent)
    found = exp_floor(x, bits)
    assert found == oracle(x, bits)
    if sign < 0:
        assert found < 2**bits
    else:
        assert found >= 2**bits


@settings(deadline=None, max_examples=25)
@given(x=st.integers(100, 1000), part=st.integers(1, 10**6), bits=st.integers(0, 512))
def test_huge_x(x, part, bits):
    exact = x + Fraction(part, 10**6 + 3)
    assert exp_floor(exact, bits) == oracle(exact, bits)
    assert exp_floor(-exact, bits) == oracle(-exact, bits)


@pytest.mark.parametrize("bits", [1, 64, 128, 512])
def test_the_least_exponents_that_reach_a_bit(bits):
    """Where 2^bits e^x passes 1: the early way out may not be taken a step too soon."""
    edge = Fraction(-math.floor(bits * math.log(2) * 10**9), 10**9)
    for x in (edge, edge - Fraction(1, 10**8), edge - Fraction(1, 2), edge - 1, edge + 1):
        assert exp_floor(x, bits) == oracle(x, bits)


def test_against_rational_series():
    """An oracle without any floating point at all."""
    for x in (Fraction(1, 10), Fraction(1, 3), Fraction(9, 10), Fraction(1, 10**9)):
        lower, upper = series_bounds(x, 80)
        assert 0 < upper - lower < Fraction(1, 2**200)
        for bits in (0, 1, 64, 128, 190):
            floor = math.floor(lower * 2**bits)
            assert floor == math.floor(upper * 2**bits)
            assert exp_floor(x, bits) == floor
            inverse = math.floor(2**bits / lower)
            assert inverse == math.floor(2**bits / upper)
            assert exp_floor(-x, bits) == inverse


@settings(deadline=None, max_examples=100)
@given(x=rationals, bits=st.integers(0, 300))
def test_more_bits_refine_fewer(x, bits):
    assume(abs(x) <= 500)
    assert exp_floor(x, bits + 64) >> 64 == exp_floor(x, bits)


@settings(deadline=None, max_examples=200)
@given(x=rationals, digits=st.integers(8, 20))
@example(x=Fraction(2000, 3), digits=12)
@example(x=Fraction(-2000, 3), digits=12)
def test_the_enclosure_holds_the_truth(x, digits):
    """With few digits, where rounding x itself matters most: a floor would rarely show it."""
    assume(abs(x) <= 2000)
    lower, upper = (Fraction(end) for end in rounding._enclosure_of_exp(x, digits))
    with mp.workprec(400):
        exact = mp.exp(mp.mpf(x.numerator) / x.denominator)
        assert mp.mpf(lower.numerator) / lower.denominator < exact
        assert mp.mpf(upper.numerator) / upper.denominator > exact
        # And it closes in, so that the search for digits ends.
        width = mp.mpf((upper - lower).numerator) / (upper - lower).denominator
        assert width < exact * (10 + 10 * abs(float(x))) * mp.mpf(10) ** -(digits - 1)


def test_zero_is_exact():
    assert exp_floor(Fraction(0), 0) == 1
    assert exp_floor(Fraction(0), 512) == 2**512


@pytest.mark.slow
@settings(deadline=None, max_examples=3000)
@given(x=rationals, bits=st.integers(0, 512))
def test_it_is_the_floor_many_times(x, bits):
    assume(abs(x) <= 1000)
    assert exp_floor(x, bits) == oracle(x, bits)
