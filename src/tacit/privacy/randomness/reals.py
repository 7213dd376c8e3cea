"""e^x for rational x, correctly rounded down to any number of bits."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

_LARGEST_EXPONENT = 999_999


def exp_floor(x: Fraction, bits: int) -> int:
    r"""Compute :math:`\lfloor 2^{bits} e^x \rfloor` exactly.

    `Decimal.exp` is correctly rounded, so its neighbours enclose the true value; digits are added
    until both ends of the enclosure have the same integer part. This terminates, because e^x is
    irrational for every rational x ≠ 0.
    """
    if x == 0:
        return 1 << bits
    if bits + x * Fraction(14, 10) < -1:  # the result is 0; too small to write out
        return 0
    digits = max(int((bits + float(x) * 1.45) * 0.302), 0) + 12
    while True:
        lower, upper = (_floor_scaled(bound, bits) for bound in _enclosure_of_exp(x, digits))
        if lower == upper:
            return lower
        digits *= 2


def _enclosure_of_exp(x: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    down = Context(digits, ROUND_FLOOR, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    up = Context(digits, ROUND_CEILING, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    numerator, denominator = Decimal(x.numerator), Decimal(x.denominator)
    lower = down.next_minus(down.exp(down.divide(numerator, denominator)))
    upper = up.next_plus(up.exp(up.divide(numerator, denominator)))
    return lower, upper


def _floor_scaled(value: Decimal, bits: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    return max((numerator << bits) // denominator, 0)
