r"""Hellinger distances between the posteriors of all counts, without cancellation.

Posteriors of counts x and r with n = Σx = Σr have the same total, so that

.. math:: H^2 = 1 - e^{-L}, \qquad L = \sum_i t_i(x_i, r_i), \qquad
          t(a, b) = \tfrac12 \ln\Gamma(a) + \tfrac12 \ln\Gamma(b) - \ln\Gamma\tfrac{a+b}{2}

with a and b the prior's component plus the counts. Subtracting nearly equal log-gammas would lose
the digits that a guarantee depends on; here every term is a sum of positive numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import polygamma

from tacit.privacy.mechanisms.integer_rows import Symmetry

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_TAYLOR_FROM = 12.0
_TAYLOR_TERMS = 7


def counts(categories: int, total: int) -> Integers:
    """List all counts of this sum in lexicographic order: with two categories, x is at index x."""
    if categories == 1:
        return np.array([[total]])
    blocks = []
    for first in range(total + 1):
        rest = counts(categories - 1, total - first)
        blocks.append(np.column_stack([np.full(len(rest), first), rest]))
    return np.concatenate(blocks)


def places(wanted: Any, total: int) -> Integers:
    """Return the index of counts in the list of all counts of their sum."""
    remaining = np.asarray(wanted)[..., ::-1].cumsum(axis=-1)[..., ::-1]
    place = np.zeros(remaining.shape[:-1], dtype=np.int64)
    for axis in range(remaining.shape[-1] - 1):
        # Counts with a smaller entry here come before it; the rest of their sum is larger.
        free = remaining.shape[-1] - axis - 1
        smaller = np.array([math.comb(rest + free, free) for rest in range(total + 1)])
        place += smaller[remaining[..., axis]] - smaller[remaining[..., axis + 1]]
    return place


def neighbouring_counts(listed: Integers) -> Integers:
    """List all pairs of counts between which one record moves, each once."""
    total = int(listed[0].sum())
    pairs = []
    for i in range(listed.shape[1]):
        for j in range(i):
            movable = np.flatnonzero(listed[:, i])
            moved = listed[movable].copy()
            moved[:, i] -= 1
            moved[:, j] += 1
            pairs.append(np.column_stack([movable, places(moved, total)]))
    return np.concatenate(pairs)


def symmetry(prior: tuple[float, ...], listed: Integers) -> Symmetry:
    """Return the permutations of counts that exchange categories with equal priors."""
    total = int(listed[0].sum())
    alike = [[i for i, one in enumerate(prior) if one == value] for value in Counter(prior)]
    actions = []
    for choice in product(*(permutations(block) for block in alike)):
        order = np.arange(len(prior))
        for block, images in zip(alike, choice, strict=True):
            order[block] = images
        actions.append(places(listed[:, order], total))
    return Symmetry(np.array(actions))


def coordinate(prior: float, total: int) -> Reals:
    r"""Return the table t(α + x, α + r) for x, r from 0 to n.

    With D = r − x ≥ 2, by Γ(a + 1) = aΓ(a) at both ends,

    .. math:: t(x, x + D) = t(x + 1, x + D - 1) + \tfrac12 \ln\Bigl(1 + \frac{D-1}{\alpha+x}\Bigr)

    down to D = 0, where t = 0, and D = 1, which `half_step` computes.
    """
    size = total + 1
    table = np.zeros((size, size))
    start = np.arange(size, dtype=np.float64) + prior
    diagonals = [np.zeros(size), half_step(start[:-1] + 0.5)]
    for gap in range(1, size):
        if gap > 1:
            step = 0.5 * np.log1p((gap - 1) / start[: size - gap])
            diagonals.append(diagonals[gap - 2][1:-1] + step)
        row = np.arange(size - gap)
        table[row, row + gap] = table[row + gap, row] = diagonals[gap]
    return table


def half_step(middle: Reals) -> Reals:
    r"""Return ½ lnΓ(m + ½) + ½ lnΓ(m − ½) − lnΓ(m), for m > ½.

    The Taylor series about m ≥ 12 has the positive terms
    :math:`4^{-j} \psi^{(2j-1)}(m) / (2j)!`; smaller m are raised by
    g(m) = g(m + 1) − ½ ln(1 − 1/(4m²)).
    """
    value, m = np.zeros_like(middle), middle.copy()
    while np.any(low := m < _TAYLOR_FROM):
        value[low] -= 0.5 * np.log1p(-0.25 / m[low] ** 2)
        m[low] += 1
    for j in range(_TAYLOR_TERMS, 0, -1):
        value += polygamma(2 * j - 1, m) / (4.0**j * math.factorial(2 * j))
    return value


def distances(tables: list[Reals], first: Integers, second: Integers) -> Reals:
    """Return H of the posteriors of these counts, broadcasting over all axes but the last."""
    total: Any = 0.0
    for axis, table in enumerate(tables):
        total = total + table[first[..., axis], second[..., axis]]
    return np.asarray(np.sqrt(-np.expm1(-np.asarray(total))))
