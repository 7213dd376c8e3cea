r"""Factors by which examples' gradients are scaled before they are summed, and their bounds.

The trained parameters are in one or several parts. For part p of example i, with norm n,

======== ==================================  ==============================
Clipped  :math:`\min(1, C_p / n)`            as long as it was, up to C
Divided  :math:`C / (n + \gamma)`            nearly C long, however long it was
Limited  :math:`C / \max(n, L)`              C times its length over L, up to C
======== ==================================  ==============================

Each keeps :math:`f_{ip} n_{ip} \le C_p`, and this inequality is all that the bounds on a sum rest
on. So blanking one example moves the sum by at most :math:`\sqrt{\sum_p C_p^2}`.

Notes
-----
Rounding. The proofs in `layers` and `schedule` bound the error of a sum by constants times
:math:`\sum_i f_{ip} \|t_{ip}\|` for terms t of part p, which is at most m times :math:`C_p`, or
:math:`m L C_p` for terms that cancel. The parts of a sum are orthogonal, so errors of at most
:math:`\kappa C_p` in each are at most :math:`\kappa \sqrt{\sum_p C_p^2}` together: the same share
`Schedule.rounding` of the whole bound.

No factor that is applied exceeds 1: a gradient at an output may be close to overflow, although that
of the parameter is short because its input is. `Divided` and `Limited` therefore sum in a unit, a
power of two by which the sum is then multiplied exactly; `bounds` are those in this unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

SMALLEST = 2.0**-30
"""Smallest bound of a part: shorter gradients are lost in float32."""


class Tally(NamedTuple):
    """What is counted beside a sum. In-house only, until noise is added."""

    dropped: int
    """Examples that were not finite, or on which an operator raised."""
    signs: int = 0
    """+1 for every example that counts and is within the limit, −1 for every other that counts."""


class Scaling(Protocol):
    """The factors of one step."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Return the part of each trained parameter, in their order; empty if there is one part."""
        ...

    @property
    def bounds(self) -> tuple[float, ...]:
        """Return the bound of each part, over the unit."""
        ...

    @property
    def unit(self) -> float:
        """Return the power of two by which the sum is multiplied at the end."""
        ...

    def factors(self, norms: Tensor) -> Tensor:
        """Compute factors of at most 1 from norms, both (parts, n) in float64.

        A norm may be 0 or not finite.
        """
        ...

    def signs(self, norms: Tensor, fine: Tensor) -> int:
        """Sum +1 for each example that counts and is within the limit, −1 for each other."""
        ...


@dataclass(frozen=True)
class Clipped:
    """Every part is clipped to its own bound."""

    bounds: tuple[float, ...]
    parts: tuple[int, ...] = ()
    unit: float = 1.0

    def factors(self, norms: Tensor) -> Tensor:
        # A norm of zero gives an infinite quotient, which the clamp makes one.
        if len(self.bounds) == 1:
            return (self.bounds[0] / norms).clamp_(max=1)
        return (norms.new_tensor(self.bounds)[:, None] / norms).clamp_(max=1)

    def signs(self, norms: Tensor, fine: Tensor) -> int:
        return 0


@dataclass(frozen=True)
class Divided:
    """Gradients are divided by their norm plus a constant."""

    bound: float
    stability: float
    parts: tuple[int, ...] = ()

    @property
    def unit(self) -> float:
        return _power_above(self.bound / self.stability)

    @property
    def bounds(self) -> tuple[float, ...]:
        return (self.bound / self.unit,)

    def factors(self, norms: Tensor) -> Tensor:
        return self.bounds[0] / (norms + self.stability)

    def signs(self, norms: Tensor, fine: Tensor) -> int:
        return 0


@dataclass(frozen=True)
class Limited:
    """Gradients are clipped to a limit, summed in units of it, and counted."""

    bound: float
    """At most 1."""
    limit: float
    parts: tuple[int, ...] = ()

    @property
    def unit(self) -> float:
        return _power_above(1 / self.limit)

    @property
    def bounds(self) -> tuple[float, ...]:
        return (self.bound / self.unit,)

    def factors(self, norms: Tensor) -> Tensor:
        return self.bounds[0] / norms.clamp(min=self.limit)

    def signs(self, norms: Tensor, fine: Tensor) -> int:
        within = (norms[0] <= self.limit) & fine
        return 2 * int(within.sum()) - int(fine.sum())


def parts_of(scaling: Scaling, trained: Sequence[Tensor]) -> Mapping[int, int]:
    """Return the part of each trained parameter by its id; those that are missing are in part 0."""
    return dict(zip(map(id, trained), scaling.parts, strict=True)) if scaling.parts else {}


def _power_above(number: float) -> float:
    """Return a power of two above the number, and at least 1."""
    return float(2.0 ** max(0, math.frexp(number)[1]))
