r"""Cells and the rows between them: nearest cells, their graph, and smooth functions on it.

.. math:: W_{ab} = \#\{\text{rows whose nearest cell is } a \text{ and second nearest } b\}
          + \tfrac12 \#\{\ldots \text{ third nearest } b\}, \qquad W + W^\top.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_NEIGHBOURS = ((1, 1.0), (2, 0.5))
LEAST_LINKED = len(_NEIGHBOURS) + 1
"""A graph needs more cells than this."""


def nearest(vectors: Floats, cells: Floats) -> Integers:
    """Return the nearest cell of each vector; the first one if several are equally near."""
    return ranked(vectors, cells, 1)[:, 0]


def ranked(vectors: Floats, cells: Floats, places: int) -> Integers:
    """Return the nearest cells of each vector, in order."""
    return np.concatenate(list(_ranked_blocks(vectors, cells, places)))


def _ranked_blocks(vectors: Floats, cells: Floats, places: int) -> Iterator[Integers]:
    half_norms = (cells * cells).sum(axis=1) / 2
    for start in range(0, len(vectors), 4096):
        distance = half_norms - vectors[start : start + 4096] @ cells.T
        if places == 1:
            yield distance.argmin(axis=1)[:, None]
            continue
        if places < distance.shape[1]:
            first = np.argpartition(distance, places, axis=1)[:, :places]
        else:
            first = np.broadcast_to(np.arange(distance.shape[1]), distance.shape)
        order = np.take_along_axis(distance, first, axis=1).argsort(axis=1)
        yield np.take_along_axis(first, order, axis=1)


def graph(vectors: Floats, cells: Floats) -> npt.NDArray[np.float64]:
    """Count the graph W + Wᵀ of the module."""
    order = ranked(vectors, cells, 1 + len(_NEIGHBOURS))
    counts = np.zeros((len(cells), len(cells)))
    for place, weight in _NEIGHBOURS:
        np.add.at(counts, (order[:, 0], order[:, place]), weight)
    return counts + counts.T


def harmonics(
    between: npt.NDArray[np.float64], count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    r"""Compute the smoothest functions on a graph of cells, without the constant one.

    They are eigenvectors of the random walk on the graph, of mean square 1 under its stationary
    law, and come with their eigenvalues, largest first. Near 1, a function hardly changes within
    what is linked.
    """
    degree = between.sum(axis=1) + 1e-6 * max(between.sum() / len(between), 1.0)
    walk = (between + np.diag(degree - between.sum(axis=1))) / np.sqrt(np.outer(degree, degree))
    # The constant keeps the graph connected, whatever the data.
    values, vectors = np.linalg.eigh(walk + 1e-9)
    chosen = slice(-2, -count - 1, -1) if count < len(between) else slice(-2, None, -1)
    functions = vectors / np.sqrt(degree / degree.sum())[:, None]
    return functions[:, chosen], np.clip(values[chosen], 0.0, 1.0)
