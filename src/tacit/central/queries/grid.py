r"""Public bounds as whole steps: what a column becomes before anything is added up.

A value x between the bounds L and U becomes an integer

.. math:: t = \mathrm{rint}\bigl((\min(\max(x, L), U) - L) / s\bigr) \in \{0, \dots, T\},

s a power of two, inside the engine and from this row alone. Sums of integers do not depend on the
order of adding, so that two neighbouring tables differ by one unit's integers and nothing else.
Each step of the formula is monotone in x, in floating point too (multiplying by a power of two is
exact), and x = U gives T: so t is never beyond T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.privacy import errors

FINE_BITS, SQUARE_BITS = 30, 16
"""Steps between the bounds, as a power of two: of sums and means, of squares."""
_LARGEST, _NARROWEST = 1e100, 1e-100
"""Of bounds: products of a row with a step then neither overflow nor vanish, in any engine."""


@dataclass(frozen=True)
class Grid:
    """Bounds of a column in steps. `top` is T; `fine` steps of noise lie in one step of t.

    The engine adds up t; everything after it works with `fine` t in {0, …, `steps`}, so that
    dividing a person's part, and noise, lose next to nothing where T is small.
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
        """The lower bound in fine steps from zero, to the nearest."""
        return round(Fraction(self.lower) / Fraction(self.unit))

    def value(self, share: float) -> float:
        """The place between the bounds, 0 to 1, as a value."""
        return self.lower + min(max(share, 0.0), 1.0) * (self.upper - self.lower)


def bounds_of(name: str, bounds: Any) -> tuple[float, float]:
    """Two finite numbers, the first one smaller."""
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
        errors.refuse(where, "bounds", "further apart than a 2^-40 part of them", bounds)
    return low, high


def grid_of(
    bounds: tuple[float, float], *, whole: bool, bits: int = FINE_BITS, from_zero: bool = False
) -> Grid:
    """The grid of a column: `whole` columns keep their integers where the bounds are integers.

    `from_zero`: steps are measured against the larger bound, for sums, whose noise is.
    """
    low, high = bounds
    reach = max(abs(low), abs(high), high - low) if from_zero else high - low
    if whole and low.is_integer() and high.is_integer() and reach < 2**bits:
        fine = 2 ** (bits - math.ceil(math.log2(reach)))
        return Grid(low, high, True, 1.0, int(high - low), fine)
    step = 2.0 ** (math.ceil(math.log2(reach)) - bits)
    top = round((high - low) / step)  # as the engine rounds: to even
    return Grid(low, high, False, step, top, 1)
