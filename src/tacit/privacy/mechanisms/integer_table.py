r"""A finite channel as a table of integer weights, certified pair by pair.

References
----------
.. [GRS09] Ghosh, Roughgarden, Sundararajan. Universally utility-maximizing privacy mechanisms.
   STOC 2009 (mechanisms for counts as matrices).
.. [BV18] Balcer, Vadhan. Differential privacy on finite computers. ITCS 2018.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.exact_pairs import NeighbourPairs
from tacit.privacy.mechanisms.integer_rows import (
    Integers,
    ListedRows,
    ScaledRows,
    Symmetry,
    WeightRows,
)
from tacit.privacy.randomness import Inversion, Randomness, source
from tacit.privacy.shown import Shown

_MOST_LAWS = 512


@dataclass(frozen=True, eq=False, repr=False)
class IntegerTable(Shown):
    r"""A finite channel that draws column r of row x with probability exactly w(x, r) / Σw(x, ·).

    Parameters
    ----------
    weights : nested sequences of int, or Rows
        One row per input, one column per output; integers ≥ 0, no row all 0.
    pairs : sequence of (int, int)
        The neighbouring rows, each pair once, in either order.
    epsilon, delta : float
        What is claimed.
    adjacency, unit
        The neighbours that `pairs` lists.

    Notes
    -----
    (ε, δ)-DP by definition: for every pair of neighbours, both ways,

    .. math:: \sum_r \left(P(r \mid x) - e^\varepsilon P(r \mid y)\right)_+ \le \delta

    (for δ = 0: :math:`w_x(r) W_y \le e^\varepsilon w_y(r) W_x` for every r) is checked on the
    integers that are sampled, against a rational lower bound of e^ε, and a table that fails is
    refused: the claim needs no proof about where the weights came from. Where `weights` are
    `ScaledRows` with a group of symmetries, one pair of each orbit is compared.

    Examples
    --------
    >>> coin = IntegerTable([[2, 1], [1, 2]], [(0, 1)], epsilon=0.7, adjacency="replace-one")
    >>> print(coin.guarantee)
    0.7-DP (central, replace-one, unit: record)
    >>> round(coin.exact_epsilon(), 6)
    0.693147
    """

    weights: Any = field(repr=False)
    pairs: Any = field(repr=False)
    _: KW_ONLY
    epsilon: float | Fraction
    delta: float = 0.0
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        _ = self.event
        if self.event.adjacency is Adjacency.ANY_TWO_INPUTS:
            self._must_list_all()
        beyond = self._comparison.violation(self.event.epsilon, self.event.delta)
        if beyond is not None:
            errors.refuse(
                "IntegerTable",
                "weights",
                f"within e^{float(self.event.epsilon):.6g} of a neighbour's "
                f"but for {self.event.delta:g}",
                f"rows {beyond[0]} and {beyond[1]} further apart",
                "Claim a larger epsilon, or flatten the weights.",
            )

    def _must_list_all(self) -> None:
        listed, every = {frozenset(pair) for pair in self._neighbours}, len(self.rows)
        if len(listed) < every * (every - 1) // 2:
            remedy = "List them all, or name another adjacency."
            condition = "every two rows for adjacency any-two-inputs"
            errors.refuse("IntegerTable", "pairs", condition, f"{len(listed)} pairs", remedy)

    @cached_property
    def rows(self) -> WeightRows:
        """The integers."""
        listed = not isinstance(self.weights, ListedRows | ScaledRows)
        return ListedRows(self.weights) if listed else self.weights

    @cached_property
    def event(self) -> events.CertifiedTable:
        return events.CertifiedTable(
            errors.epsilon_in_range("IntegerTable", self.epsilon),
            errors.probability("IntegerTable", "delta", self.delta),
            len(self.rows),
            self.rows.columns,
            self._digest(),
            adjacency=self.adjacency,
            unit=self.unit,
        )

    def _digest(self) -> str:
        """Hash the weights, and which rows were compared."""
        listed = np.unique(np.sort(self._pairs, axis=1), axis=0).astype("<i8")
        return sha256(self.rows.digest().encode() + listed.tobytes()).hexdigest()

    @cached_property
    def _pairs(self) -> Integers:
        """The pairs as an array."""
        try:
            pairs = np.asarray(self.pairs)
            if pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu":
                inside = (pairs >= 0) & (pairs < len(self.rows))
                if pairs.size and bool(np.all(inside & (pairs[:, ::-1] != pairs))):
                    return pairs.astype(np.int64)
        except (TypeError, ValueError, OverflowError):
            pass
        errors.refuse("IntegerTable", "pairs", "pairs of different rows", self.pairs)

    @cached_property
    def _comparison(self) -> NeighbourPairs:
        return NeighbourPairs(self.rows, self._pairs)

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    def exact_epsilon(self, delta: float | None = None) -> float:
        """Compute the smallest ε of this table at δ (by default its own), rounded up."""
        delta = errors.probability(
            "exact_epsilon", "delta", self.event.delta if delta is None else delta
        )
        if delta not in self._exact:
            self._exact[delta] = self._comparison.smallest_epsilon(delta)
        return self._exact[delta]

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Draw a column for each given row."""
        rows, stream = self._rows_of(raw), source(rng)
        flat = rows.ravel()
        drawn = np.empty_like(flat)
        for row in np.unique(flat):
            places = np.flatnonzero(flat == row)
            drawn[places] = self._law(int(row)).draw(places.size, stream)
        return drawn.reshape(rows.shape)

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        columns = errors.integers("IntegerTable", released, lower=0, upper=self.rows.columns - 1)
        columns, rows = np.broadcast_arrays(columns, self._rows_of(raw))
        logs = np.empty(rows.shape)
        for row in np.unique(rows):
            at = rows == row
            parts, shifts = (one[columns[at]] for one in self.rows.leading(int(row)))
            with np.errstate(divide="ignore"):  # a weight of 0
                logs[at] = np.log(parts) + shifts * math.log(2)
            logs[at] -= math.log(self.rows.total(int(row)))
        return logs

    def inputs(self) -> range:
        return range(len(self.rows))

    def outputs(self) -> range:
        return range(self.rows.columns)

    def adjacent(self, first: int, second: int) -> bool:
        return (first, second) in self._neighbours or (second, first) in self._neighbours

    @cached_property
    def _neighbours(self) -> frozenset[tuple[int, int]]:
        return frozenset((int(x), int(y)) for x, y in self._pairs)

    @cached_property
    def _exact(self) -> dict[float, float]:
        return {}

    @cached_property
    def _laws(self) -> dict[int, _Law]:
        return {}

    def _law(self, row: int) -> _Law:
        if len(self._laws) > _MOST_LAWS:
            self._laws.clear()
        if row not in self._laws:
            self._laws[row] = _Law(self.rows, row)
        return self._laws[row]

    def _rows_of(self, raw: Any) -> Integers:
        return errors.integers("IntegerTable", raw, lower=0, upper=len(self.rows) - 1)


class _Law:
    """Exact draws from one row: a uniform real compared with cumulative sums, bit by bit."""

    def __init__(self, rows: WeightRows, row: int) -> None:
        self._rows, self._row = rows, row
        weights = rows.weights(row)
        self._columns = np.array([r for r, weight in enumerate(weights) if weight])
        self._inversion = Inversion(self._floors) if len(self._columns) > 1 else None

    def _floors(self, bits: int) -> list[int]:
        total = self._rows.total(self._row)
        sums = accumulate(weight for weight in self._rows.weights(self._row) if weight)
        return [(edge << bits) // total for edge in sums if edge < total]

    def draw(self, size: int, rng: Randomness) -> Integers:
        if self._inversion is None:
            return np.full(size, self._columns[0])
        return self._columns[self._inversion.draw(size, rng)]


def from_log_weights(
    log_weights: Any,
    pairs: Any,
    *,
    epsilon: float | Fraction,
    delta: float = 0.0,
    adjacency: Adjacency,
    unit: Unit = Unit.RECORD,
    symmetry: Symmetry | None = None,
) -> IntegerTable:
    """Build a table of the integers nearest to these weights, with 53 bits for the smallest.

    A table that would be tight at ε needs an ε larger by the rounding of its logarithms, or weights
    flattened by as much (1e-12, say). With a `symmetry`, `log_weights` holds one row per orbit: see
    `ScaledRows`.
    """
    rows = ScaledRows(log_weights, symmetry)
    return IntegerTable(rows, pairs, epsilon=epsilon, delta=delta, adjacency=adjacency, unit=unit)
