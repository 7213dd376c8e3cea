r"""Absolute errors of a regressor, as integers for a vote.

Errors beyond a public limit L count as L. What is left is bounded, and is rounded at random to
0 or L, so that its expectation stays:

.. math:: P(\text{rounded to } L) = \min(|\hat y - y|,\, L) / L

The rounding is drawn in whole numbers, from positions in steps of 2^-20 of L
(`tacit.data.outcomes`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.outcomes import positions
from tacit.privacy import errors

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_SMALLEST, _LARGEST = 2.0**-80, 2.0**54


def limit_in_range(where: str, limit: Any) -> float:
    """Check the largest absolute error that counts."""
    size = float(errors.positive(where, "limit", limit))
    if not _SMALLEST <= size <= _LARGEST:
        errors.refuse(where, "limit", "from 2^-80 to 2^54", limit, "Scale the outcome.")
    return size


def limit_of(where: str, model: Any, limit: Any = None) -> float:
    """Return the limit as given, or else the distance between the bounds of the outcome."""
    if limit is None:
        outcome = getattr(model, "outcome_", None)
        if outcome is None:
            remedy = "Only regressors of declared outcomes have one of their own."
            errors.refuse(where, "limit", "given", None, remedy)
        limit = outcome.upper - outcome.lower
    return limit_in_range(where, limit)


def losses(model: Any, rows: Any, truth: Any, limit: float) -> Integers:
    """Compute, on voters' devices, the position of each absolute error between 0 and the limit.

    They are raw and private: for a ballot only. What is no number, or infinite, in a prediction or
    an outcome counts as the limit, and is never refused: a refusal would tell of it.
    """
    told = numbers(truth)
    # Silent whatever the model: a warning for some rows would reveal something about them.
    with np.errstate(all="ignore"):
        said = numbers(model.predict(rows))
        if told.ndim != 1 or said.shape != told.shape:
            raise errors.InvalidData("vote: outcomes must be one per row.")
        error = np.abs(said - told)
    return positions(np.where(error < limit, error, limit), 0.0, limit)


def numbers(values: Any) -> Reals:
    """Read each value by itself as a float; what is none becomes NaN."""
    if isinstance(values, list | tuple):
        return np.array([_number(one) for one in values], np.float64)
    given = np.asarray(values)
    if given.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return given.astype(np.float64)
    flat = [_number(one) for one in given.ravel().tolist()]
    return np.array(flat, np.float64).reshape(given.shape)


def _number(value: Any) -> float:
    # numpy would warn of these, or take an array for its only number.
    several = isinstance(value, np.ndarray) and bool(value.ndim)
    if several or isinstance(value, np.complexfloating | np.ma.MaskedArray):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError):
        return math.nan
