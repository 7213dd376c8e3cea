"""Checks of the inputs of classifiers, and the choice of held-out reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Floats = npt.NDArray[np.float32]


def hold_out(count: int, share: float, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Draw the indices of the reports to fit, and of those held out."""
    share = errors.probability("fit_network", "validation", share, zero=False)
    held = max(round(share * count), 1)
    if held >= count:
        raise errors.InvalidData("fit_network: there must be reports to fit and to hold out.")
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])


def matrix(where: str, features: Any, width: int | None = None) -> Floats:
    """Check that features are a matrix, of this width if one is given."""
    rows = np.asarray(features)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or (width or rows.shape[1]) != rows.shape[1]:
        shape = f"(n, {width or 'D'})"
        raise errors.InvalidData(f"{where}: features must be numbers of shape {shape}.")
    return rows.astype(np.float32, copy=False)


def codes(released_labels: Any, rows: int, classes: int) -> npt.NDArray[np.int64]:
    """Check released labels: codes, one per row."""
    labels = errors.integers("released labels", released_labels, lower=0, upper=classes - 1)
    if labels.shape != (rows,):
        raise errors.InvalidData("released labels: they must be one per row.")
    return labels


def flip_law(flip_matrix: Any) -> npt.NDArray[np.float64]:
    """Check the law of the flip: row y is the law of the report of label y."""
    flip = np.asarray(flip_matrix, np.float64)
    square = flip.ndim == 2 and flip.shape[0] == flip.shape[1]
    if not square or not np.allclose(flip.sum(axis=1), 1) or bool(np.any(flip < 0)):
        errors.refuse("fit_network", "flip_matrix", "square, with rows that sum to 1", flip.shape)
    return flip
