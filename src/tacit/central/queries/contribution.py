r"""Bounds on the rows and groups of one unit, and the sensitivities that follow from them.

Without a unit column, a unit is one row in one group. With a unit column, a person counts with at
most m rows (`max_rows`) in a group and in at most g groups (`max_groups`):

- if a person has c > m rows in a group, their contribution to it is multiplied by m/c and rounded
  down, in integers: it is then at most that of m rows, and depends on the person's own rows alone;
- of a person's groups, those with the g smallest hashes of (salt, person, group) are kept, which
  again depends on nobody else.

Sensitivities
-------------
*Amounts.* A row adds a vector of nonnegative integers that sum to at most A. A person's
contribution p to a group then has :math:`\lVert p\rVert_2 \le \lVert p\rVert_1 \le mA`, in at
most g groups.

- add-remove, and zero-out (a blank row, like a row of NULLs, is not counted anywhere):
  :math:`\Delta_1 = gmA`, :math:`\Delta_2^2 = g(mA)^2`.
- replace-one: old contributions are removed and new ones added. In a group with both,
  :math:`\lVert p - p'\rVert_1 \le 2mA` and :math:`\lVert p - p'\rVert_2^2 \le 2(mA)^2` (the scalar
  product of nonnegative vectors is not negative); in other groups mA and (mA)²; so
  :math:`\Delta_1 = 2gmA`, :math:`\Delta_2^2 = 2g(mA)^2`. With one entry per group and both
  contributions in [0, mA], a group changes by at most mA: :math:`\Delta_1 = \min(2g, K)\,mA` for
  K groups.

*Signed sums.* A row adds v in [lo, hi]; B = max(\|lo\|, \|hi\|), R = max(hi, 0) − min(lo, 0) ≤ 2B.

- add-remove and zero-out: :math:`\Delta_1 = gmB`, :math:`\Delta_2^2 = g(mB)^2`.
- replace-one: a group with both contributions changes by mR, others by mB:
  :math:`\Delta_1 = mR` for one group, else 2gmB; :math:`\Delta_2^2 = (mR)^2` for one group, else
  :math:`g m^2\max(R^2, 2B^2)`.

*Scores* (one count, or one rank): a unit changes each by at most m, however many it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency, Unit

MOST_ROWS, MOST_GROUPS = 2**20, 2**20


@dataclass(frozen=True)
class Contribution:
    """Limits on what one unit contributes to a query, and the neighbours that they refer to."""

    adjacency: Adjacency
    unit: Unit
    rows: int
    groups: int
    cells: int
    """K: the number of public groups of the query."""

    @property
    def scope(self) -> dict[str, Any]:
        """Adjacency and unit, for an event or a mechanism."""
        return {"adjacency": self.adjacency, "unit": self.unit}

    @property
    def replaced(self) -> bool:
        return self.adjacency is Adjacency.REPLACE_ONE

    @property
    def touched(self) -> int:
        """The largest number of groups in which neighbours differ.

        A choice made in each group is charged this many times.
        """
        return min((1 + self.replaced) * self.groups, self.cells)

    def amounts(self, most: int, entries: int) -> tuple[int, int]:
        """Return (ℓ1, squared ℓ2) sensitivities of nonnegative vectors; a row's sum is ≤ `most`."""
        part = self.rows * most
        if entries == 1:
            return self.touched * part, self.touched * part**2
        factor = (1 + self.replaced) * self.groups
        return factor * part, factor * part**2

    def signed(self, low: int, high: int) -> tuple[int, int]:
        """Return (ℓ1, squared ℓ2) sensitivities of sums of values from `low` to `high`."""
        size, spread = max(abs(low), abs(high)), max(high, 0) - min(low, 0)
        if not self.replaced:
            return self.groups * self.rows * size, self.groups * (self.rows * size) ** 2
        if self.cells == 1:
            return self.rows * spread, (self.rows * spread) ** 2
        squared = self.groups * self.rows**2 * max(spread**2, 2 * size**2)
        return 2 * self.groups * self.rows * size, squared


def rows_and_groups(unit: Any, max_rows: Any, max_groups: Any) -> tuple[int, int]:
    """Check the limits on a person; without a unit column, both must be 1."""
    rows = errors.whole("Curator", "max_rows", max_rows, least=1, most=MOST_ROWS)
    groups = errors.whole("Curator", "max_groups", max_groups, least=1, most=MOST_GROUPS)
    if unit is None and (rows, groups) != (1, 1):
        remedy = "Without a unit, a record is one row in one group: pass unit to bound people."
        errors.refuse(
            "Curator", "max_rows and max_groups", "1 without a unit", (rows, groups), remedy
        )
    return rows, groups
