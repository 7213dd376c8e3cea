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

from tacit.local import graphs

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]

LANDMARKS, DIFFUSION_LANDMARKS, ROWS_PER_LANDMARK, HARMONICS = 200, 400, 8, 96
NEAREST = 3
"""A row mixes the inputs of this many landmarks."""


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
        most = max(len(own) // ROWS_PER_LANDMARK, graphs.LEAST_LINKED + 1)
        marks = _landmarks(own, min(DIFFUSION_LANDMARKS, most), seed)
        used = np.unique(graphs.nearest(own, marks))
        if len(used) > graphs.LEAST_LINKED:  # landmarks that no row is nearest to are not linked
            marks = marks[used]
        mixing = np.ones((len(marks), 1))
        if len(marks) > graphs.LEAST_LINKED:
            functions, values = graphs.harmonics(graphs.graph(own, marks), HARMONICS)
            mixing = functions * values ** (steps / 2)
        order = graphs.ranked(own, marks, 2)
        size = np.sqrt((mixing[order[:, 0]] ** 2).sum(axis=1).mean())
        first, *others = (((own - marks[place]) ** 2).sum(axis=1) for place in order.T)
        apart = float(np.median(others[0] - first)) if others else 0.0
        mixing = mixing / max(float(size), 1e-12)
        nearest = min(NEAREST, len(marks))
        gamma = 1 / (2 * max(apart, 1e-9))
        return cls(block.start, block.stop, _single(marks), _single(mixing), gamma, nearest)

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


def _single(array: npt.NDArray[Any]) -> Floats:
    return array.astype(np.float32)
