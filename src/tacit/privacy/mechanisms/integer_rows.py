r"""Rows of integer weights: listed, or as 53-bit numbers with shifts, up to symmetry.

A row is the law of one input: column r has probability w_r / Σw. Everything that is drawn or
compared comes from these integers, so no rounding lies between what is proved and what is drawn.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

MOST_WEIGHTS = 2**25
_SIGNIFICANT = 53
_MOST_BITS = 2**15
_BLOCK = 2**20


class WeightRows(Protocol):
    """Integer weights, one row per input."""

    @property
    def columns(self) -> int:
        """Number of outputs."""
        ...

    def __len__(self) -> int:
        """Return the number of inputs."""
        ...

    def weights(self, row: int) -> list[int]:
        """Return the integers of a row."""
        ...

    def total(self, row: int) -> int:
        """Return the sum of a row."""
        ...

    def leading(self, row: int) -> tuple[Reals, Integers]:
        r"""Return floats m and shifts s with :math:`m 2^s \le w \le m (1 + 2^{-52}) 2^s`."""
        ...

    def law(self, row: int) -> Reals:
        """Return the probabilities of a row, each with relative error 2^-50 (or below 2^-1022)."""
        ...

    def representatives(self, pairs: Integers) -> Integers:
        """Return pairs of rows whose comparison decides that of all these pairs."""
        ...

    def digest(self) -> str:
        """Compute the SHA-256 of the weights."""
        ...


class ListedRows:
    """Listed rows of any integers ≥ 0."""

    def __init__(self, weights: Sequence[Sequence[int]]) -> None:
        self._rows = [_integers_of(row, weights) for row in _rows_of(weights)]
        if len({len(row) for row in self._rows}) != 1:
            errors.refuse("IntegerTable", "weights", "rows of one length", weights)
        self._totals = [sum(row) for row in self._rows]
        if not all(self._totals):
            errors.refuse("IntegerTable", "weights", "above 0 somewhere in every row", weights)

    @property
    def columns(self) -> int:
        return len(self._rows[0])

    def __len__(self) -> int:
        return len(self._rows)

    def weights(self, row: int) -> list[int]:
        return self._rows[row]

    def total(self, row: int) -> int:
        return self._totals[row]

    def leading(self, row: int) -> tuple[Reals, Integers]:
        shifts = [max(weight.bit_length() - _SIGNIFICANT, 0) for weight in self._rows[row]]
        leads = [weight >> shift for weight, shift in zip(self._rows[row], shifts, strict=True)]
        return np.array(leads, dtype=np.float64), np.array(shifts)

    def law(self, row: int) -> Reals:
        return _law(*self.leading(row), self.total(row))

    def representatives(self, pairs: Integers) -> Integers:
        return pairs

    def digest(self) -> str:
        sha256 = hashlib.sha256(b"tacit integer rows\n")
        for row in self._rows:
            sha256.update((" ".join(f"{weight:x}" for weight in row) + "\n").encode())
        return sha256.hexdigest()


class Symmetry:
    """A group of permutations of the inputs, which are also the outputs.

    Parameters
    ----------
    actions : array of int
        One permutation per row, the whole group, the identity first.

    Notes
    -----
    An array with one row per orbit (that of its first member, in order) represents the table
    w(x, r) = w₀(x₀, gr), where x₀ is the first of the orbit of x and g takes x there.
    """

    def __init__(self, actions: Any) -> None:
        self._actions = np.asarray(actions, dtype=np.int64)
        members = np.arange(self._actions.shape[1])
        if not np.array_equal(self._actions[0], members):
            errors.refuse("Symmetry", "actions", "led by the identity", self._actions[0])
        known = {action.tobytes() for action in self._actions}
        for action in self._actions:
            if {one.tobytes() for one in self._actions[:, action]} != known:
                errors.refuse("Symmetry", "actions", "a group of permutations", self._actions.shape)
        # The first permutation that maps there: the identity for the first member itself.
        self._image = self._actions.argmin(axis=0)
        self.firsts, self._stored = np.unique(self._actions.min(axis=0), return_inverse=True)

    @classmethod
    def none(cls, size: int) -> Symmetry:
        """Return the group that holds the identity alone."""
        return cls(np.arange(size)[None])

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self._stored)

    def stored(self, row: int) -> int:
        """Return the stored row that this one is an image of."""
        return int(self._stored[row])

    def row(self, array: Any, row: int) -> npt.NDArray[Any]:
        """Return a row of the table that stored rows (an array, or some by number) represent."""
        image = self._image[row]
        stored: npt.NDArray[Any] = array[self._stored[row]]
        return stored[self._actions[image]] if image else stored

    def representatives(self, pairs: Integers) -> Integers:
        """Map each pair (x, y) to (x₀, gy), without repeats."""
        if len(self._actions) == 1:
            return pairs
        moved = self._actions[self._image[pairs[:, :1]], pairs]
        return np.unique(moved, axis=0)

    def make_invariant(self, array: npt.NDArray[Any]) -> None:
        """Give columns in one orbit of the stabiliser of a stored row one value, in place."""
        fixed = (self._actions[:, self.firsts] == self.firsts).T
        for row, stabiliser in zip(array, fixed, strict=True):
            if stabiliser.sum() > 1:
                row[:] = row[self._actions[stabiliser].min(axis=0)]

    def digest(self) -> bytes:
        return hashlib.sha256(self._actions.astype("<i8").tobytes()).digest()


class ScaledRows:
    r"""Weights :math:`m 2^s` with m < 2^53, one stored row for all rows that are images of it.

    Parameters
    ----------
    log_weights : array
        Logarithms, one row per orbit of `symmetry`; −∞ is a weight of 0. Each row is scaled to a
        largest weight of about 1 and every weight keeps 53 bits, so that an integer is as near to
        its logarithm as floats are (about 2^-50).
    symmetry : Symmetry, optional
        Permutations under which the table is invariant: w(gx, gr) = w(x, r).

    Notes
    -----
    The table is invariant by construction, not by the accuracy of the logarithms. With gx = x₀ the
    weight w(x, r) is w₀(x₀, gr), and w₀(x₀, ·) is made constant on the orbits of the stabiliser of
    x₀. For any h and g'hx = x₀, g'h = (g'hg⁻¹)g with g'hg⁻¹ in the stabiliser, so that
    w(hx, hr) = w₀(x₀, g'hr) = w₀(x₀, gr) = w(x, r). The rows of (x, y) therefore hold the same
    pairs of numbers as those of (x₀, gy), in another order, and comparing one settles both.
    """

    def __init__(self, log_weights: Any, symmetry: Symmetry | None = None) -> None:
        logs = _checked_logs(log_weights)
        self._symmetry = Symmetry.none(len(logs)) if symmetry is None else symmetry
        if len(logs) != len(self._symmetry.firsts):
            wanted = f"one row an orbit, {len(self._symmetry.firsts)} in all"
            errors.refuse("IntegerTable", "log_weights", wanted, logs.shape)
        self._parts: Integers = np.empty(logs.shape, dtype=np.int64)
        self._shifts: npt.NDArray[np.int32] = np.empty(logs.shape, dtype=np.int32)
        step = max(_BLOCK // logs.shape[1], 1)
        for start in range(0, len(logs), step):
            block = slice(start, start + step)
            self._parts[block], self._shifts[block] = _scaled(logs[block])
        self._shifts -= self._shifts.min()
        self._symmetry.make_invariant(self._parts)
        self._symmetry.make_invariant(self._shifts)

    @property
    def columns(self) -> int:
        return int(self._parts.shape[1])

    def __len__(self) -> int:
        return len(self._symmetry)

    def weights(self, row: int) -> list[int]:
        parts, shifts = self._row(row)
        return [part << shift for part, shift in zip(parts.tolist(), shifts.tolist(), strict=True)]

    def total(self, row: int) -> int:
        return self._totals[self._symmetry.stored(row)]

    def leading(self, row: int) -> tuple[Reals, Integers]:
        parts, shifts = self._row(row)
        return parts.astype(np.float64), shifts

    def law(self, row: int) -> Reals:
        return self._symmetry.row(self._laws, row)

    def representatives(self, pairs: Integers) -> Integers:
        return self._symmetry.representatives(pairs)

    def digest(self) -> str:
        sha256 = hashlib.sha256(b"tacit scaled rows\n" + self._symmetry.digest())
        sha256.update(np.array(self._parts.shape, dtype="<i8").tobytes())
        sha256.update(self._parts.astype("<i8", copy=False).tobytes())
        sha256.update(self._shifts.astype("<i4", copy=False).tobytes())
        return sha256.hexdigest()

    def _row(self, row: int) -> tuple[Integers, Any]:
        return self._symmetry.row(self._parts, row), self._symmetry.row(self._shifts, row)

    @cached_property
    def _totals(self) -> list[int]:
        rows = zip(self._parts, self._shifts, strict=True)
        return [_sum(parts, shifts) for parts, shifts in rows]

    @cached_property
    def _laws(self) -> Reals:
        laws = np.empty(self._parts.shape)
        for stored, (parts, shifts) in enumerate(zip(self._parts, self._shifts, strict=True)):
            laws[stored] = _law(parts.astype(np.float64), shifts, self._totals[stored])
        return laws


def _scaled(logs: Reals) -> tuple[Integers, npt.NDArray[np.int32]]:
    """Return 53-bit integers and powers of two; a weight of 0 has the power of the largest."""
    exponents = (logs - logs.max(axis=1, keepdims=True)) / math.log(2)
    zero = np.isneginf(exponents)
    exponents[zero] = 0.0
    floors = np.floor(exponents)
    if -floors.min() > _MOST_BITS:
        wanted = f"within 2^-{_MOST_BITS} of the largest in a row"
        errors.refuse("IntegerTable", "log_weights", wanted, f"2^{floors.min():.0f}")
    parts = np.floor(np.exp2(exponents - floors) * 2.0 ** (_SIGNIFICANT - 1)).astype(np.int64)
    parts = np.minimum(parts, 2**_SIGNIFICANT - 1)
    return np.where(zero, 0, parts), floors.astype(np.int32)


def _sum(parts: Integers, shifts: npt.NDArray[np.int32]) -> int:
    """Sum exactly: first numbers of equal shift, in two halves whose sums floats can hold."""
    high = np.bincount(shifts, parts >> 27)
    low = np.bincount(shifts, parts & (2**27 - 1))
    powers = np.flatnonzero(high + low).tolist()
    return sum(((int(high[power]) << 27) + int(low[power])) << power for power in powers)


def _law(parts: Reals, shifts: Any, total: int) -> Reals:
    shift = max(total.bit_length() - _SIGNIFICANT, 0)
    with np.errstate(under="ignore"):
        return np.asarray(np.ldexp(parts / float(total >> shift), shifts - shift))


def _checked_logs(log_weights: Any) -> Reals:
    try:
        logs = np.asarray(log_weights, dtype=np.float64)
    except (TypeError, ValueError):
        errors.refuse("IntegerTable", "log_weights", "a table of numbers", log_weights)
    if logs.ndim != 2 or not 2 <= logs.size <= MOST_WEIGHTS:
        wanted = f"a table of at most {MOST_WEIGHTS} numbers"
        errors.refuse("IntegerTable", "log_weights", wanted, logs.shape)
    if not bool(np.all(np.isfinite(logs.max(axis=1)))):
        wanted = "numbers or −∞, a number in every row"
        errors.refuse("IntegerTable", "log_weights", wanted, "others")
    return logs


def _rows_of(weights: Any) -> list[Any]:
    try:
        rows = list(weights)
        if len(rows) >= 2 and all(len(row) for row in rows):
            return rows
    except TypeError:
        pass
    errors.refuse("IntegerTable", "weights", "two rows of integers, or more", weights)


def _integers_of(row: Any, weights: Any) -> list[int]:
    listed = row.tolist() if isinstance(row, np.ndarray) else list(row)
    if all(type(weight) is int and weight >= 0 for weight in listed):
        return listed
    errors.refuse("IntegerTable", "weights", "integers, at least 0", weights)
