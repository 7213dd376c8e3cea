"""Bounds that hold as floats: ball arithmetic, and the upper ends of its balls.

A ball is a midpoint and a radius; every operation of Arb widens the radius by its rounding error,
so the true value stays inside [Joh17]_. The stated bound is a float above the whole ball. More
precision makes a bound tighter; its validity does not depend on precision.

A float given by a user stands for its shortest decimal (0.1 is 1/10), and for its binary value
elsewhere. Bounds hold for both readings.

References
----------
.. [Joh17] Johansson. Arb: efficient arbitrary-precision midpoint-radius interval arithmetic. IEEE
   Transactions on Computers 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from threading import RLock

import flint
import numpy as np
import numpy.typing as npt
from flint import arb

Real = float | int | Fraction

_lock = RLock()
_UNIT = 2.0**-52
_DIGITS = 32  # binary digits of a standard deviation after the point


@contextmanager
def precision(bits: int = 128) -> Iterator[None]:
    """Set the precision in bits; also a decorator. Arb has one precision for all threads."""
    with _lock, flint.ctx.workprec(bits):
        yield


def ball(number: Real) -> arb:
    """Return a ball that contains the number, in both readings of a float."""
    return low(number).union(high(number))


def low(number: Real) -> arb:
    """Return the smaller reading of a number."""
    return _exact(min(_readings(number)))


def high(number: Real) -> arb:
    """Return the larger reading of a number."""
    return _exact(max(_readings(number)))


def least(number: Real) -> Fraction:
    """Return the smaller reading of a number, as a fraction."""
    return min(_readings(number))


def most(number: Real) -> Fraction:
    """Return the larger reading of a number, as a fraction."""
    return max(_readings(number))


def above(value: arb) -> float:
    """Return about the smallest float above the whole ball; ∞ if nothing is known."""
    if not value.is_finite():
        return -math.inf if value < 0 else math.inf
    bound = float(value.upper())
    while not (arb(bound) >= value and arb(repr(bound)) >= value):
        bound = math.nextafter(bound, math.inf)
        if bound == math.inf:
            break
    return bound


def below(value: arb) -> float:
    """Return about the largest float below the whole ball."""
    return -above(-value)


def float_above(number: Fraction) -> float:
    """Return the float that denotes a number as a decimal, or else the next one above it."""
    nearest = float(number)
    return nearest if Fraction(repr(nearest)) >= number else math.nextafter(nearest, math.inf)


def float_below(number: Fraction) -> float:
    """Return the float that denotes a number as a decimal, or else the next one below it."""
    return -float_above(-number)


def root_above(number: Fraction) -> Fraction:
    """Return the square root, rounded up in its 32nd binary digit, so that noise is never less."""
    root = Fraction(math.isqrt(math.floor(number * 4**_DIGITS)), 2**_DIGITS)
    return root if root**2 >= number else root + Fraction(1, 2**_DIGITS)


def sum_above(numbers: list[float]) -> float:
    """Return the float above a sum of decimals."""
    if any(math.isinf(number) for number in numbers):
        return math.inf
    return float_above(sum((Fraction(repr(number)) for number in numbers), Fraction(0)))


def inflated(values: npt.NDArray[np.float64], operations: int) -> npt.NDArray[np.float64]:
    r"""Bound results of additions, multiplications and divisions in floats, without subtractions.

    Each operation on numbers ≥ 0 is off by a factor within :math:`1 \pm 2^{-53}`, and reading a
    float as its decimal by another; :math:`(1 + 2^{-53})^{2n} \le 1 + (n + 1) 2^{-52}` for n up to
    ten million.
    """
    return np.asarray(values * (1 + (operations + 2) * _UNIT))


def normal_below(x: arb) -> arb:
    r"""Compute :math:`\Phi(x)`, accurately in its lower tail."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _readings(number: Real) -> tuple[Fraction, ...]:
    if isinstance(number, Fraction | int):
        return (Fraction(number),)
    number = float(number)
    return Fraction(number), Fraction(repr(number))


def _exact(number: Fraction) -> arb:
    return arb(flint.fmpq(number.numerator, number.denominator))


# --- e^x as an integer ---------------------------------------------------------------------------

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
