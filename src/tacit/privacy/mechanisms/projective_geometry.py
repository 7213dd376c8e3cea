r"""Points and hyperplanes over a prime field, and how many reports lie on each hyperplane.

A point is a vector of :math:`F_q^t` whose first entry other than 0 is 1. Points are numbered so
that point :math:`1 + qi + s` is point i with s appended, and point 0 is (…, 0, 1): a number stands
for one point in any dimension that is large enough. The hyperplane of u holds the points s with

.. math:: \langle u, s \rangle = \sum_j u_j\,s_{t-1-j} \equiv 0 \pmod q .

With h(s) reports at point s, so many are on it: :math:`\frac1q \sum_\zeta \hat h(\zeta u)` for
:math:`\hat h(w) = \sum_s h(s)\,\omega^{-\langle w, s \rangle}`, by Fourier inversion. Terms
ζ and −ζ are conjugate. One ζ takes t steps, each of which replaces the last entry of s by the next
entry of u in a table of [i]·[t − i] numbers, for [m] points in m dimensions: O([t] t log q) in all.

References
----------
.. [FNNT22] Feldman, Nelson, Nguyen, Talwar. Private frequency estimation via projective geometry.
   ICML 2022.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_BLOCK = 1 << 9


def coordinates(numbers: Integers, order: int, dimension: int) -> Integers:
    """Return the vectors of points, one row a point."""
    rest = np.array(numbers, dtype=np.int64)
    found = np.zeros((rest.size, dimension), np.int64)
    for place in reversed(range(dimension)):
        found[:, place] = np.where(rest > 0, (rest - 1) % order, rest == 0)
        rest = np.where(rest > 0, (rest - 1) // order, -1)
    return found


def numbers_of(vectors: Integers, order: int) -> Integers:
    """Return the points that vectors other than 0 lie on."""
    first = (vectors != 0).argmax(axis=1)
    scale = _inverses(vectors[np.arange(len(vectors)), first], order)
    found = np.full(len(vectors), -1, np.int64)
    for place in range(vectors.shape[1]):
        entry = vectors[:, place] * scale % order
        found = np.where(found < 0, (entry != 0) - 1, 1 + order * found + entry)
    return found


def with_product(of: Integers, free: Integers, value: Integers, order: int) -> Integers:
    """Return the points s with ⟨u, s⟩ a multiple of `value`, given all entries of s but one.

    The entry that is worked out is the one that meets the leading 1 of u, so that different free
    entries, up to a multiple where it is 0, are different points.
    """
    facing = of[:, ::-1]
    people, dimension = facing.shape
    pivot = dimension - 1 - (of != 0).argmax(axis=1)
    others = np.arange(dimension) != pivot[:, None]
    vectors = np.zeros((people, dimension), np.int64)
    vectors[others] = free.ravel()
    rest = np.zeros(people, np.int64)
    for place in range(dimension):
        rest = (rest + facing[:, place] * vectors[:, place]) % order
    vectors[np.arange(people), pivot] = (value - rest) % order
    return numbers_of(vectors, order)


def entries(numbers: Integers, order: int, count: int) -> Integers:
    """Write numbers below order^count as rows of digits."""
    found = np.empty((numbers.size, count), np.int64)
    for place in reversed(range(count)):
        numbers, found[:, place] = np.divmod(numbers, order)
    return found


def on_hyperplanes(histogram: Any, order: int, dimension: int) -> Integers:
    """Count the reports on the hyperplane of every point, given those at every point."""
    if dimension == 2:  # a hyperplane is one point
        of = coordinates(np.arange(order + 1), order, 2)
        alone = np.ones((order + 1, 1), np.int64)
        facing = with_product(of, alone, np.zeros(order + 1, np.int64), order)
        return np.asarray(histogram, np.int64)[facing]
    total: Reals = np.asarray(histogram, np.float64)
    spectra = []
    while total.size > 1:  # reports by the first entries of their point, and waves over the next
        children = total[1:].reshape(-1, order)
        spectra.append((total[0], fft.rfft(children, axis=1)))
        total = children.sum(axis=1)
    none, lead = (
        float(sum(first for first, _ in spectra)),
        float(total[0]),
    )  # a first entry of 0, and of 1
    points = len(spectra[0][1])
    stay, turned = np.full(points, none), np.full((order // 2 + 1, points), lead, np.complex128)
    for frequency in range(1, order // 2 + 1):
        left, turned[frequency] = _transform(spectra, order, frequency)
        stay += (2 if order > 2 else 1) * left.real
    moved = fft.irfft(turned.conj(), order, axis=0).T + stay[:, None] / order
    counts: Integers = np.rint(np.append(none, moved)).astype(np.int64)
    return counts


def _transform(spectra: list[tuple[Any, Any]], order: int, frequency: int) -> tuple[Any, Any]:
    r"""Compute :math:`\hat h(\zeta u)`, but for the last entry of u, for every point u.

    `both[i, w]` sums waves of the reports whose first entries are those of point i, where w is
    what u already has; `left[w]` those whose first entries are all 0; `none` counts the latter.
    """
    turn = np.arange(order) * frequency % order
    waves = np.exp(-2j * np.pi * turn / order)
    both = np.empty((len(spectra[0][1]) * order + 1, 0), np.complex128)
    left, none = np.empty(0, np.complex128), 0.0
    for first, spectrum in spectra:
        children = both[1:].reshape(len(spectrum), order, both.shape[1])
        moved = (fft.fft(children, axis=1) if children.size else children)[:, turn]
        moved = moved.transpose(0, 2, 1).reshape(len(spectrum), order * both.shape[1])
        joined = (left[:, None] + both[0][:, None] * waves).ravel()
        left = np.concatenate([[none + first * waves[1]], joined])
        both = np.hstack([spectrum[:, [frequency]], moved])
        none += first
    return left, both[0]


def held_counts(reports: Integers, of: Integers, order: int, dimension: int) -> Integers:
    """Count the reports on the hyperplanes of a few points, directly."""
    facing = coordinates(of.ravel(), order, dimension)[:, ::-1].T.astype(np.float64)
    points = coordinates(reports, order, dimension).astype(np.float64)
    found = np.zeros(of.size, np.int64)
    for column, row in product(range(0, of.size, _BLOCK), range(0, reports.size, _BLOCK)):
        # Whole numbers below 2^52, whatever the order of the sum: exact, and so is the test.
        quotients = points[row : row + _BLOCK] @ facing[:, column : column + _BLOCK] / order
        held = np.count_nonzero(quotients == np.rint(quotients), axis=0)
        found[column : column + _BLOCK] += held
    return found.reshape(of.shape)


def _inverses(values: Integers, order: int) -> Integers:
    """Return inverses modulo a prime: the power to q − 2."""
    found, base, power = np.ones_like(values), values % order, order - 2
    while power:
        if power & 1:
            found = found * base % order
        base, power = base * base % order, power >> 1
    return found
