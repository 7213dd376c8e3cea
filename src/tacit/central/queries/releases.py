r"""Releases: the sums that get noise. Each row adds one small integer vector to them.

For a column with integers t in {0, …, T}, the engine computes four sums per group: the number of
rows n, the number of rows with a value c, Σt and Σt². Every release is an integer combination of
them.

==========  ==============================================  =======================
release     a row adds                                      entries sum to
==========  ==============================================  =======================
`rows`      1                                               1
`present`   1 if it has a value                             1
`total`     t + L/s, the value itself in steps (signed)
`pair`      (t, T − t)                                      T
`triple`    ((T − t)², 2t(T − t), t²)                       T²
==========  ==============================================  =======================

The entries of a pair are nonnegative and sum to T *whatever t is*, so both sums together have the
ℓ1 sensitivity T of a single sum: noise of scale T/ε on each gives count, sum and mean at once. The
triple does the same for variances (Bernstein polynomials of degree two). With `nulls`, rows without
a value add T (or T²) to one more entry, so all rows are counted too at no further cost.

Under replace-one without groups, a pair is released as (S⁺ − S⁻, S⁺ + S⁻). Its ℓ1 norm is
2 max(\|S⁺\|, \|S⁻\|), so its sensitivity is 2mT like that of the pair, but a mean then depends on
the noise of the first entry and only little on that of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.central.queries.contribution import Contribution
from tacit.central.queries.grid import Grid
from tacit.privacy.guarantees import Adjacency

Vector = tuple[int, ...]


@dataclass(frozen=True)
class Moments:
    """Exact sums over the rows of a group: all rows, rows with a value, Σt and Σt²."""

    rows: int = 0
    present: int = 0
    first: int = 0
    second: int = 0

    def dot(self, vector: Vector) -> int:
        own = (self.rows, self.present, self.first, self.second)
        return sum(a * b for a, b in zip(vector, own, strict=True))


@dataclass(frozen=True)
class Release:
    """Integer sums that get noise of one scale together.

    `parts` are nonnegative combinations of (rows, present, Σt, Σt²); those of a person are bounded
    one by one. `combine` turns them into the released entries.
    """

    kind: str
    column: str | None
    grid: Grid | None
    parts: tuple[Vector, ...]
    combine: tuple[Vector, ...]
    nulls: bool = False

    @property
    def order(self) -> int:
        """The highest power of t that is needed."""
        return max(max(i for i, a in enumerate(part) if a) for part in self.parts) - 1

    @property
    def counts_all(self) -> bool:
        """Whether a person's rows without a value count against `max_rows`."""
        return self.kind == "rows" or self.nulls

    @property
    def rotated(self) -> bool:
        return self.combine[:1] == ((1, -1),)

    def entries(self, parts: Sequence[int]) -> list[int]:
        """Compute the released entries from sums of parts."""
        return [sum(a * b for a, b in zip(row, parts, strict=True)) for row in self.combine]

    def sensitivity(self, contribution: Contribution) -> tuple[int, int]:
        """Return the ℓ1 and squared ℓ2 sensitivity of the entries of all groups."""
        if self.kind == "total":
            assert self.grid is not None
            low = self.grid.origin
            return contribution.signed(low, low + self.grid.steps)
        if self.rotated:
            most = 2 * contribution.rows * self.whole
            return most, most**2
        return contribution.amounts(self.whole, len(self.parts))

    @property
    def whole(self) -> int:
        """A: the sum of the entries of one row."""
        if self.grid is None or self.kind == "present":
            return 1
        return self.grid.steps ** (2 if self.kind == "triple" else 1)


def rows_release() -> Release:
    """Return the release of the number of rows."""
    return Release("rows", None, None, ((1, 0, 0, 0),), ((1,),))


def present_release(column: str, grid: Grid | None) -> Release:
    """Return the release of the number of rows with a value."""
    return Release("present", column, grid, ((0, 1, 0, 0),), ((1,),))


def total_release(column: str, grid: Grid) -> Release:
    """Return the release of a sum: Σt and the number of rows are bounded, then combined."""
    parts = ((0, 0, grid.fine, 0), (0, 1, 0, 0))
    return Release("total", column, grid, parts, ((1, grid.origin),))


def pair_release(column: str, grid: Grid, *, nulls: bool, rotated: bool = False) -> Release:
    """Return the release of (Σt, Σ(T − t)), with T for each row without a value."""
    f, top = grid.fine, grid.steps
    parts: tuple[Vector, ...] = ((0, 0, f, 0), (0, top, -f, 0))
    parts += ((top, -top, 0, 0),) if nulls else ()
    combine = ((1, -1), (1, 1)) if rotated and not nulls else _identity(len(parts))
    return Release("pair", column, grid, parts, combine, nulls)


def triple_release(column: str, grid: Grid, *, nulls: bool) -> Release:
    """Return the release of (Σ(T − t)², Σ2t(T − t), Σt²), with T² for each row without a value."""
    f, t = grid.fine**2, grid.top
    whole = f * t * t
    parts: tuple[Vector, ...] = ((0, whole, -2 * t * f, f), (0, 0, 2 * t * f, -2 * f), (0, 0, 0, f))
    parts += ((whole, -whole, 0, 0),) if nulls else ()
    return Release("triple", column, grid, parts, _identity(len(parts)), nulls)


def is_rotated(contribution: Contribution, *, pure: bool) -> bool:
    """Check whether a pair is better released as difference and sum; not for Gaussian noise."""
    return pure and contribution.adjacency is Adjacency.REPLACE_ONE and contribution.cells == 1


def _identity(size: int) -> tuple[Vector, ...]:
    return tuple(tuple(int(i == j) for j in range(size)) for i in range(size))
