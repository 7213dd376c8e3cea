r"""Divergence between clients, for each of the ways in which data can be non-IID.

Let K be the client of a row, Y its label and X the cell of a fixed partition in which it lies. The
mean Kullback–Leibler divergence of the clients' distributions from the pooled one, weighted by the
clients' sizes (their Jensen–Shannon divergence), is a mutual information:

.. math:: \sum_k \frac{n_k}{n} \mathrm{KL}(P_k(y) \,\|\, P(y)) = I(K; Y)

and likewise for :math:`I(K; X)`, :math:`I(K; X \mid Y)` and :math:`I(K; Y \mid X)`. Each is divided
by the entropy of K: it is 0 if clients are alike, and 1 if a row determines its client.

Notes
-----
Small samples differ by chance alone. `measure` therefore also assigns the rows to clients of the
same sizes at random, and returns the excess over that. It reads all rows: for simulations only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.federated.partition import Indices
from tacit.privacy import errors


class Divergence(NamedTuple):
    """Divergences beyond chance, each in [−1, 1] and near 0 for clients that are alike.

    `sizes` is in [0, 1] and not corrected for chance.
    """

    rows: float
    """P(x): covariate shift."""
    labels: float
    """P(y): prior shift."""
    rows_given_label: float
    """P(x | y): concept drift."""
    labels_given_row: float
    """P(y | x): concept shift."""
    sizes: float
    """1 − H(K) / log clients: unbalancedness."""


def measure(
    rows: Any, labels: Any, parts: Sequence[Indices], *, cells: int = 16, seed: int = 0
) -> Divergence:
    """Measure all five kinds at once.

    Parameters
    ----------
    rows, labels : array
        Rows and labels of all clients together, as the clients hold them.
    parts : sequence of index arrays
        Indices of the rows that each client holds.
    cells : int
        Number of cells. Each cell is the set of rows nearest to one of as many random rows.
    seed : int
        Seed of the choice of these rows, and of the random assignment.
    """
    flat = errors.reals("measure", rows).reshape(len(rows), -1)
    count = errors.whole("measure", "cells", cells, least=2, most=len(flat))
    if len(parts) < 2:
        errors.refuse("measure", "parts", "at least two clients", len(parts))
    rng = np.random.default_rng(seed)
    places = _nearest(flat, flat[rng.choice(len(flat), count, replace=False)])
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    owners = np.concatenate([np.full(len(part), k) for k, part in enumerate(parts)])
    held = np.concatenate(list(parts))
    measured = _informations(owners, places[held], codes[held])
    chance = _informations(rng.permutation(owners), places[held], codes[held])
    shares = np.bincount(owners) / len(owners)
    sizes = 1 + float(np.sum(shares * np.log(shares))) / np.log(len(parts))
    beyond: list[float] = (measured - chance).tolist()
    return Divergence._make((*beyond, max(sizes, 0.0)))


def _informations(
    owners: npt.NDArray[Any], places: npt.NDArray[Any], codes: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Compute I(K; X), I(K; Y), I(K; X | Y) and I(K; Y | X), in units of H(K)."""
    table = np.zeros((owners.max() + 1, places.max() + 1, codes.max() + 1))
    np.add.at(table, (owners, places, codes), 1)

    def entropy(*hidden: int) -> float:
        p = table.sum(axis=hidden).ravel() / len(owners)
        p = p[p > 0]
        return -float(np.sum(p * np.log(p)))

    k, x, y = entropy(1, 2), entropy(0, 2), entropy(0, 1)
    kx, ky, xy, kxy = entropy(2), entropy(1), entropy(0), entropy()
    return np.array([k + x - kx, k + y - ky, ky + xy - y - kxy, kx + xy - x - kxy]) / k


def _nearest(rows: npt.NDArray[np.float64], centres: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    # |x − c|² without |x|², which is the same for all centres.
    nearest: npt.NDArray[Any] = (np.sum(centres**2, axis=1) - 2 * rows @ centres.T).argmin(axis=1)
    return nearest
