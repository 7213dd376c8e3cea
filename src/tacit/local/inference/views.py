r"""What a model of the label sees of a row's vector: components, kernels, or a diffusion.

Three kinds of inputs, each a fixed function of the vector v with a constant last:

- components: some of the coordinates of v;
- kernels: :math:`e^{-\gamma \lVert v - c_j \rVert^2}` on landmarks c, made orthonormal [WS01]_;
- diffusion: coordinates in which rows are close if many in-house rows lie between them. Landmarks
  that the same in-house rows are nearest to are linked; with W the counts of links and D their
  sums, the harmonics :math:`D^{-1/2} W D^{-1/2} u_j = \lambda_j u_j` give landmark m the inputs

  .. math:: \lambda_j^{t/2} \, u_{jm} / \sqrt{D_{mm}},

  after a random walk of t steps [CL06]_. A row mixes the inputs of its nearest landmarks. If
  classes follow clusters of any shape, few harmonics tell them apart.

References
----------
.. [WS01] Williams, Seeger. Using the Nyström method to speed up kernel machines. NeurIPS 2001.
.. [CL06] Coifman, Lafon. Diffusion maps. Applied and Computational Harmonic Analysis 2006.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]

LANDMARKS, DIFFUSION_LANDMARKS, ROWS_PER_LANDMARK, HARMONICS = 200, 400, 8, 96
NEAREST = 3
"""A row mixes the inputs of this many landmarks."""

_LINKS = ((1, 1.0), (2, 0.5))
"""Weights of the links from the nearest landmark to the second and third nearest."""


@dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    """A function of vectors.

    Parameters
    ----------
    start, stop : int
        The components.
    landmarks : array, (m, stop − start), optional
        c; None for components.
    mixing : array, (m, w), optional
        What the kernels, or the weights of the nearest landmarks, are multiplied with.
    gamma : float
        γ.
    nearest : int
        How many landmarks a row mixes; 0 for kernels.
    """

    start: int
    stop: int
    landmarks: Floats | None = None
    mixing: Floats | None = None
    gamma: float = 0.0
    nearest: int = 0

    @classmethod
    def kernels(cls, vectors: Floats, block: slice, width: float, seed: int) -> Inputs:
        """Choose landmarks, and γ by `width` times the median distance of in-house rows."""
        own = vectors[:, block].astype(np.float64)
        marks = _landmarks(own, min(LANDMARKS, max(len(own) // 3, 2)), seed)
        between = squared_distances(own[:1000], own[:200])
        typical = float(np.median(between[between > 0])) if (between > 0).any() else 1.0
        gamma = 1 / (width**2 * typical)
        values, axes = np.linalg.eigh(np.exp(-gamma * squared_distances(marks, marks)))
        mixing = axes / np.sqrt(np.maximum(values, 1e-4))
        return cls(block.start, block.stop, _single(marks), _single(mixing), gamma)

    @classmethod
    def diffusion(cls, vectors: Floats, block: slice, steps: float, seed: int) -> Inputs:
        """Choose landmarks, and link them by the in-house rows between them."""
        own = vectors[:, block].astype(np.float64)
        count = min(DIFFUSION_LANDMARKS, max(len(own) // ROWS_PER_LANDMARK, NEAREST + 1))
        marks = _landmarks(own, count, seed)
        distances = squared_distances(own, marks)
        order = np.argsort(distances, axis=1)[:, : NEAREST + 1]
        used = np.unique(order[:, 0])
        if len(used) > NEAREST:  # landmarks that no row is nearest to are not linked
            marks, distances = marks[used], distances[:, used]
            order = np.argsort(distances, axis=1)[:, : NEAREST + 1]
        mixing = _harmonics(order, len(marks), steps)
        size = np.sqrt((mixing[order[:, 0]] ** 2).sum(axis=1).mean())
        first, second = np.take_along_axis(distances, order[:, :2], axis=1).T
        gamma = 1 / (2 * max(float(np.median(second - first)), 1e-9))
        mixing = mixing / max(float(size), 1e-12)
        return cls(block.start, block.stop, _single(marks), _single(mixing), gamma, NEAREST)

    @property
    def linear(self) -> bool:
        """Whether the inputs are components themselves."""
        return self.landmarks is None

    @property
    def width(self) -> int:
        """How many inputs there are, the constant included."""
        return 1 + (self.stop - self.start if self.mixing is None else self.mixing.shape[1])

    def __call__(self, vectors: Floats) -> Floats:
        """Compute the inputs, with a constant last."""
        own = vectors[:, self.start : self.stop]
        if self.landmarks is not None:
            assert self.mixing is not None
            own = self._weights(squared_distances(own, self.landmarks)) @ self.mixing
        return np.hstack([own, np.ones((len(own), 1), np.float32)]).astype(np.float32)

    def _weights(self, distances: npt.NDArray[Any]) -> Floats:
        if not self.nearest:
            return _single(np.exp(-self.gamma * distances))
        last = np.partition(distances, self.nearest - 1, axis=1)[:, self.nearest - 1]
        closer = distances - distances.min(axis=1, keepdims=True)
        weights = np.where(distances <= last[:, None], np.exp(-self.gamma * closer), 0.0)
        return _single(weights / weights.sum(axis=1, keepdims=True))

    def parts(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return JSON-ready parameters, and arrays by name."""
        plain = {"start": self.start, "stop": self.stop}
        if self.landmarks is None or self.mixing is None:
            return plain, {}
        plain |= {"gamma": self.gamma, "nearest": self.nearest}  # type: ignore[dict-item]
        return plain, {"landmarks": self.landmarks, "mixing": self.mixing}

    @classmethod
    def from_parts(cls, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> Inputs:
        """Rebuild what `parts` took apart; refuse arrays that do not fit each other."""
        start, stop = int(plain["start"]), int(plain["stop"])
        if "landmarks" not in arrays:
            return cls(start, stop)
        marks, mixing = (np.asarray(arrays[name], np.float32) for name in ("landmarks", "mixing"))
        nearest = int(plain["nearest"])
        fits = marks.ndim == mixing.ndim == 2 and marks.shape == (len(mixing), stop - start)
        if not fits or not 0 <= nearest <= len(marks):
            raise ValueError("inputs: landmarks and mixing must fit each other")
        return cls(start, stop, marks, mixing, float(plain["gamma"]), nearest)


def squared_distances(rows: npt.NDArray[Any], marks: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute the squared distances of rows from landmarks."""
    squared = (rows**2).sum(axis=1)[:, None] + (marks**2).sum(axis=1) - 2 * rows @ marks.T
    return np.asarray(np.maximum(squared, 0.0))


def _landmarks(own: Reals, count: int, seed: int) -> Reals:
    from sklearn.cluster import MiniBatchKMeans

    settings: dict[str, Any] = {"n_init": 1, "batch_size": 4096, "max_iter": 40}
    clustering = MiniBatchKMeans(min(count, len(own)), random_state=seed, **settings)
    return np.asarray(clustering.fit(own).cluster_centers_)


def _harmonics(order: npt.NDArray[np.int64], count: int, steps: float) -> Reals:
    """Compute the harmonics of the links after a walk, one row per landmark; no constant."""
    links = np.full((count, count), 1e-6)  # keeps the graph connected, whatever the rows
    for place, weight in _LINKS:
        if place < order.shape[1]:
            np.add.at(links, (order[:, 0], order[:, place]), weight)
    links = links + links.T
    sums = links.sum(axis=1)
    values, axes = np.linalg.eigh(links / np.sqrt(sums[:, None] * sums))
    kept = slice(-2, -2 - HARMONICS, -1)  # the last one is constant
    walked = np.clip(values[kept], 0.0, 1.0) ** (steps / 2)
    return np.asarray(axes[:, kept] * walked / np.sqrt(sums)[:, None])


def _single(array: npt.NDArray[Any]) -> Floats:
    return array.astype(np.float32)
