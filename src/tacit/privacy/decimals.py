"""Numbers for people to read: bounds are rounded outwards, so that the printed ones hold, too."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

DIGITS = 6


def above(number: float | Fraction, digits: int = DIGITS) -> str:
    """Round up to this number of digits, for a bound from above."""
    return _shown(number, digits, ROUND_CEILING)


def below(number: float | Fraction, digits: int = DIGITS) -> str:
    """Round down to this number of digits, for a bound from below."""
    return _shown(number, digits, ROUND_FLOOR)


def _shown(number: float | Fraction, digits: int, rounding: str) -> str:
    """Round a number; a float is read as the shortest decimal that denotes it (0.1 is 1/10)."""
    context = Context(prec=digits, rounding=rounding)
    if isinstance(number, Fraction):
        rounded = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    elif math.isfinite(number):
        rounded = context.create_decimal(repr(float(number)))
    else:
        return f"{number:g}"
    return _written(rounded, digits)


def _written(number: Decimal, digits: int) -> str:
    """Write a decimal like `%g`, but exactly: the nearest float may lie on its other side."""
    if not number:
        return "0"
    exponent = number.adjusted()
    if -5 < exponent < digits:
        return f"{number.normalize():f}"
    return f"{number.scaleb(-exponent).normalize():f}e{exponent:+03d}"
