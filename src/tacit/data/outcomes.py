r"""Numeric outcomes: bounded numbers as integer positions, and their rounding at random to levels.

A number becomes a position between its bounds, in steps of 2^-20, by arithmetic that sees that
number alone. Rounding it at random to one of the two levels nearest to it keeps its expectation,

.. math:: E[\text{level}] = \frac{\text{position}}{2^{20}} (L - 1),

and is drawn in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, uniform_below

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

STEPS = 2**20
"""Positions between two bounds: 0 is the lower one, STEPS the upper one."""


@dataclass(frozen=True)
class Numeric:
    """A numeric outcome between public bounds; numbers beyond them count as the bound.

    Parameters
    ----------
    lower, upper : float
        Public bounds, declared without looking at the outcomes that people report. The narrower
        they are, the less the noise weighs.

    Examples
    --------
    >>> hours = Numeric(0, 80)
    >>> hours.positions("hours", [40, 95]).tolist()
    [524288, 1048576]
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        lower, upper = bounds("Numeric", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def middle(self) -> float:
        """The number half-way between the bounds."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> float:
        """Half of the distance between the bounds."""
        return (self.upper - self.lower) / 2

    def values(self, where: str, values: Any) -> Reals:
        """Return one column of numbers, clipped to the bounds."""
        return np.clip(column(where, values, "outcomes"), self.lower, self.upper)

    def positions(self, where: str, values: Any) -> Integers:
        """Return the position of each number, from 0 at the lower bound to STEPS at the upper."""
        return positions(self.values(where, values), self.lower, self.upper)

    def grid(self, levels: int) -> Reals:
        """Return the number of each of so many levels."""
        return np.linspace(self.lower, self.upper, levels)

    def to_plain(self) -> list[float]:
        return [self.lower, self.upper]

    @staticmethod
    def from_plain(plain: Any) -> Numeric | None:
        """Read what `to_plain` wrote; None stays None."""
        return None if plain is None else Numeric(*plain)


def column(where: str, values: Any, name: str) -> Reals:
    """Read one column of numbers, each by itself; whole numbers are held to ±2^53.

    Converted together, one value would decide how the others are read: a truth value is a number in
    a list that holds a fraction, and none in another. So it is refused in both, like all that is no
    finite number, in the same words.
    """
    try:
        given = values if isinstance(values, list | tuple) else np.asarray(values)
        if isinstance(given, np.ndarray) and given.dtype.kind in "iuf":
            held = errors.held_reals(where, given)
        else:
            held = errors.held_reals(where, [_number(one) for one in given])
        if held.ndim == 1:
            return held
    except (TypeError, ValueError):
        pass
    condition = "one column of numbers with at least one row, and none may be missing"
    remedy = "Leave out people without one."
    raise errors.InvalidData(f"{where}: {name} must be {condition}. {remedy}")


def _number(value: Any) -> Any:
    exact = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if exact or isinstance(value, float | np.float32 | np.float16):
        return float(value) if not exact else int(value)
    raise TypeError


def bounds(where: str, lower: Any, upper: Any) -> tuple[float, float]:
    """Return two bounds: within 2^53, where whole numbers are exact, and clearly apart."""
    ends = []
    for name, given in (("lower", lower), ("upper", upper)):
        ends.append(float(errors.rational(where, name, given)))
        if abs(ends[-1]) > 2.0**53:
            errors.refuse(where, name, "within 2^53", given, "Scale it.")
    size = max(abs(ends[0]), abs(ends[1]), 2.0**-40)
    if not ends[1] - ends[0] >= 2.0**-30 * size:
        errors.refuse(where, "upper", "clearly above lower", ends)
    return ends[0], ends[1]


def positions(held: Reals, lower: float, upper: float) -> Integers:
    """Return the nearest position of each number, which must lie within the bounds."""
    share = (held - lower) / (upper - lower)
    return np.clip(np.rint(share * STEPS), 0, STEPS).astype(np.int64)


def rounded(position: Integers, levels: int, rng: Randomness, times: int = 1) -> Integers:
    """Round each position at random to a level; with several `times`, return the sum of all.

    All times share the level below: two times give the unordered pair of two independent levels.
    """
    below, part = _between(position, levels)
    up = [uniform_below(STEPS, position.size, rng) < part for _ in range(times)]
    return below * times + sum(one.astype(np.int64) for one in up)


def level_chances(position: Integers, levels: int) -> tuple[Integers, Integers, Reals]:
    """Return the level below each position, the one above, and the probability of that above."""
    below, part = _between(position, levels)
    return below, np.minimum(below + 1, levels - 1), part / STEPS


def _between(position: Integers, levels: int) -> tuple[Integers, Integers]:
    scaled = position * (levels - 1)
    return scaled // STEPS, scaled % STEPS
