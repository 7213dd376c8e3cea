"""Rows of norm at most 1 as whole numbers of 2^-12: sums that are exact in floats, in any order."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Reals

BITS = 12
_BLOCK = 2048


def norm_of_rows(dimension: int) -> int:
    """Bound the norm of a rounded row: rounding adds at most half a step per entry."""
    return math.ceil(2.0**BITS + math.sqrt(dimension) / 2)


def whole(rows: Reals) -> Reals:
    """Round rows to whole numbers, stored as floats, in place."""
    for part in parts(len(rows)):
        block = rows[part]
        block *= 2.0**BITS
        np.rint(block, out=block)
    return rows


def parts(count: int) -> Iterator[slice]:
    """Yield blocks of rows within which sums of products of two entries stay below 2^53."""
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def gram(rows: Reals) -> npt.NDArray[np.int64]:
    """Sum the outer products of whole rows."""
    total = np.zeros((rows.shape[1],) * 2, dtype=np.int64)
    for part in parts(len(rows)):
        total += (rows[part].T @ rows[part]).astype(np.int64)
    return total


def repaired(matrix: Reals, deviation: float) -> Reals:
    """Raise the eigenvalues of a noisy matrix to the largest that noise alone would have.

    `deviation` is the standard deviation of the noise on an entry off the diagonal: see
    `tacit.private_statistics.Covariance`.
    """
    size = len(matrix)
    level = deviation * (2 * math.sqrt(size) + math.pow(size, -1 / 6))
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, level)) @ vectors.T)
