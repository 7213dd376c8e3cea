r"""Partitions for numeric outcomes: two halves of all rows in each of many directions.

A report of the outcome y with the sign of a half (`tacit.local.outcome_channels.ContrastChannel`)
estimates :math:`E[h_p(x) y]`. Halves along single columns and along random directions give all
first-order moments of a regression; a half that holds all rows gives the mean. From ε = 3 on, a
report that names one of several cells as well shows more.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tacit.local.learned.cells import Cells
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms import LocalMean

Floats = npt.NDArray[np.float32]

PARTITIONS = 64
"""How many directions there are by default, those of the mean included."""

MEANS = 6
"""Every sixth partition holds all rows in one cell."""

LEAST_SHARE = 0.3
"""The smaller half along a direction has about this share of the rows, or more."""

_LAWS = ((3.0, 0, 2, 2), (6.0, 0, 8, 4), (np.inf, 5_000, 64, 8), (np.inf, 0, 16, 16))
"""Below some ε, with some people or more: cells, and levels of an outcome that reports name."""

_LEAST_SPREAD, _EQUAL = 0.05, 1e-3


def cells_for(epsilon: float, people: int) -> int:
    """Return how many cells a partition has."""
    return _law(epsilon, people)[0]


def levels_for(epsilon: float, people: int = 0) -> int:
    """Return how many levels an outcome is rounded to, where a report names one."""
    return _law(epsilon, people)[1]


def _law(epsilon: float, people: int) -> tuple[int, int]:
    return next(
        (cells, levels)
        for below, least, cells, levels in _LAWS
        if epsilon < below and people >= least
    )


@lru_cache(maxsize=32)
def mean_law(epsilon: Fraction, base: tuple[int, ...] | None, unit: Unit) -> LocalMean:
    """Return the channel of a number in [−1, 1]; to solve and to certify it takes a second."""
    return LocalMean(lower=-1, upper=1, epsilon=epsilon, base=base, unit=unit)


def halves(
    vectors: Floats, matrix: Floats, blocks: Sequence[slice], partitions: int, seed: int
) -> Cells:
    """Divide the rows along columns and random directions by turns.

    Parameters
    ----------
    vectors : array, (n, q)
        Projected features of in-house rows.
    matrix : array, (D, q)
        What features are multiplied with: row j is the direction of feature j.
    blocks : sequence of slice
        Components that belong together; a direction lies in one of them.
    partitions : int
        How many there are.
    seed : int
        Of directions and thresholds.
    """
    rng = np.random.default_rng(seed)
    spread = vectors.std(axis=0)
    columns = matrix[np.linalg.norm(matrix * spread, axis=1) > _LEAST_SPREAD]
    parts, turn = [], 0
    for index in range(partitions):
        if index % MEANS == MEANS - 1:
            parts.append(_everything(vectors.shape[1]))
            continue
        direction = np.zeros(vectors.shape[1])
        if turn % 2 == 0 and len(columns):
            direction[:] = columns[turn // 2 % len(columns)]
        else:
            block = blocks[turn // 2 % len(blocks)]
            direction[block] = rng.normal(size=block.stop - block.start)
        parts.append(_half(vectors, direction, rng.uniform(LEAST_SHARE, 1 - LEAST_SHARE)))
        turn += 1
    return Cells.stacked(parts)


def _half(
    vectors: Floats, direction: npt.NDArray[np.float64], share: float
) -> tuple[Floats, Floats]:
    """Divide where about this share of the rows is below."""
    centres = np.stack([np.zeros(len(direction)), direction]).astype(np.float32)
    return centres, np.array([0.0, _between(vectors @ centres[1], share)], np.float32)


def _between(values: Floats, share: float) -> float:
    """Return a threshold near a quantile, and clearly between two values that occur.

    Rows with equal values, such as those of a category, must not be divided by rounding errors.
    """
    ordered = np.sort(values)
    place = min(int(share * len(ordered)), len(ordered) - 1)
    least = _EQUAL * float(ordered.std())
    below, above = (
        ordered[ordered <= ordered[place] + least],
        ordered[ordered > ordered[place] + least],
    )
    if not above.size:
        below, above = ordered[ordered < ordered[place] - least], ordered[place:]
    return float(below[-1] + above[0]) / 2 if below.size else float(above[0])


def _everything(width: int) -> tuple[Floats, Floats]:
    """Put every row into the second cell."""
    return np.zeros((2, width), np.float32), np.array([1.0, 0.0], np.float32)
