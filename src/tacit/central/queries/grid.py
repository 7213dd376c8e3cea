r"""Grids: a column between public bounds is rounded to whole steps before anything is summed.

A value x between the bounds L and U becomes an integer

.. math:: t = \mathrm{rint}\bigl((\min(\max(x, L), U) - L) / s\bigr) \in \{0, \dots, T\},

where s is a power of two. The engine computes t from this row alone. Sums of integers do not depend
on the order of summation, so two neighbouring tables differ by one unit's integers and nothing
else. Each step of the formula is monotone in x, also in floating point (multiplying by a power of
two is exact), and x = U gives T: so t never exceeds T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.privacy import errors

FINE_BITS, SQUARE_BITS = 30, 16
"""Binary logarithms of the number of steps between the bounds: for sums and means, for squares."""
_LARGEST, _NARROWEST = 1e100, 1e-100
"""Limits of bounds: with them, no product of a row and a step over- or underflows in any engine."""


@dataclass(frozen=True)
class Grid:
    """Bounds of a column in steps: `top` is T, and one step of t has `fine` steps of noise.

    The engine sums t; everything after it works with `fine` · t in {0, …, `steps`}, so that
    dividing a person's contribution, and rounding noise, lose next to nothing if T is small.
    """

    lower: float
    upper: float
    whole: bool
    step: float
    top: int
    fine: int

    @property
    def steps(self) -> int:
        """T in fine steps."""
        return self.top * self.fine

    @property
    def unit(self) -> float:
        """The length of a fine step."""
        return self.step / self.fine

    @property
    def origin(self) -> int:
        """The lower bound in fine steps from zero, rounded."""
        return round(Fraction(self.lower) / Fraction(self.unit))

    def value(self, share: float) -> float:
        """Return the value at a position from 0 to 1 between the bounds."""
        return self.lower + min(max(share, 0.0), 1.0) * (self.upper - self.lower)


def bounds_of(name: str, bounds: Any) -> tuple[float, float]:
    """Check two finite numbers, the first one smaller."""
    where = f"bounds of {name!r}"
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        errors.refuse(where, "bounds", "two numbers (lower, upper)", bounds)
    low, high = (float(errors.rational(where, "bound", bound)) for bound in bounds)
    if not (abs(low) <= _LARGEST and abs(high) <= _LARGEST):
        errors.refuse(where, "bounds", "within 1e100", bounds)
    if not low < high:
        errors.refuse(where, "bounds", "increasing: lower below upper", bounds)
    if not high - low >= _NARROWEST:
        errors.refuse(where, "bounds", "at least 1e-100 apart", bounds)
    if not high - low > max(abs(low), abs(high)) * 2.0**-40:
        errors.refuse(where, "bounds", "further apart than 2^-40 of the larger", bounds)
    return low, high


def grid_of(
    bounds: tuple[float, float], *, whole: bool, bits: int = FINE_BITS, from_zero: bool = False
) -> Grid:
    """Return the grid of a column; `whole` columns with integer bounds keep their integers.

    With `from_zero`, steps are relative to the larger bound, as the noise of a sum is.
    """
    low, high = bounds
    reach = max(abs(low), abs(high), high - low) if from_zero else high - low
    if whole and low.is_integer() and high.is_integer() and reach < 2**bits:
        fine = 2 ** (bits - math.ceil(math.log2(reach)))
        return Grid(low, high, True, 1.0, int(high - low), fine)
    step = 2.0 ** (math.ceil(math.log2(reach)) - bits)
    top = round((high - low) / step)  # to even, as the engine rounds
    return Grid(low, high, False, step, top, 1)
