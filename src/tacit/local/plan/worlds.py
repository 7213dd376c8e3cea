r"""Worlds: ways in which labels may depend on rows, drawn given whatever is known of them.

A world gives every row its label probabilities, the softmax of

.. math:: f_c(x) = b_c + \sum_{j=1}^{3} s_j \, \phi_j(x) \cdot w_{jc},

with three kinds of inputs: the row's vector in units of the in-house spread, Gaussian kernels on
landmarks, and the group of the row among a few groups of in-house rows. Where cells follow clusters
of any shape, so do the groups: real classes may too. The inputs are scaled so that
each part has variance 1 over rows before its amplitude s. Under the prior all of w, b and the
log-amplitudes are Gaussian. Given a pilot's
labels, or reports, worlds are drawn from the posterior by elliptical slice sampling [MAM10]_, which
has no step size to choose. Worlds differ where the evidence leaves room: in the shares of the
classes, in how noisy labels are, and in how they depend on rows.

References
----------
.. [MAM10] Murray, Adams, MacKay. Elliptical slice sampling. AISTATS 2010.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local.learned import quantizer as quantizers

Reals = npt.NDArray[np.float64]
Parts = tuple[Reals, ...]
Likelihood = Callable[[Reals], float]
"""The log-likelihood of what is known, as a function of the logits of the rows it is about."""

LANDMARKS = 100
GROUPS = 4
"""Groups of in-house rows, per class."""

AMPLITUDES = ((0.0, 1.0), (-0.7, 0.7), (-0.7, 1.0))
"""Mean and deviation of the log-amplitudes under the prior: linear, smooth, by group."""

BIAS = 1.5
"""Deviation of b under the prior."""

CHAINS, WARM_UP, THINNING = 4, 1200, 10
_LEAST_EIGENVALUE, _LEAST_PROBABILITY = 1e-4, 1e-12
_ROWS_PER_GROUP = 10


@dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    r"""What the worlds of a table see of a row's vector.

    Parameters
    ----------
    mean, scale : array, float
        Centre and spread of the in-house vectors.
    landmarks : array, (m, q)
        Of the kernels, in units of the spread.
    gamma : float
        Kernels are :math:`e^{-\gamma \lVert u - c_j \rVert^2}`.
    mixing : array, (m, m)
        The inverse square root of the kernel matrix of the landmarks.
    centres : array, (m, q)
        Of small cells.
    groups : array of int, (m,)
        The group of each small cell.
    """

    mean: Reals
    scale: float
    landmarks: Reals
    gamma: float
    mixing: Reals
    centres: Reals
    groups: npt.NDArray[np.int64]

    @classmethod
    def fit(
        cls, vectors: npt.NDArray[Any], classes: int, seed: int, clustered: bool = False
    ) -> Inputs:
        """Choose units, landmarks, the kernels' width and groups from in-house vectors."""
        mean = vectors.mean(axis=0, dtype=np.float64)
        scale = math.sqrt(float(vectors.var(axis=0, dtype=np.float64).sum())) or 1.0
        own = (vectors - mean) / scale
        marks = _centres(own, LANDMARKS, seed)
        centres, groups = grouped(own, GROUPS * classes, seed, clustered)
        between = _squared_distances(own[:500], own[:200])
        gamma = 1 / float(np.median(between[between > 0])) if (between > 0).any() else 1.0
        values, axes = np.linalg.eigh(np.exp(-gamma * _squared_distances(marks, marks)))
        mixing = axes / np.sqrt(np.maximum(values, _LEAST_EIGENVALUE))
        return cls(mean, scale, marks, gamma, mixing, centres, groups)

    def __call__(self, vectors: npt.NDArray[Any]) -> Parts:
        """Compute the three kinds of inputs of some vectors."""
        own = (vectors - self.mean) / self.scale
        kernels = np.exp(-self.gamma * _squared_distances(own, self.landmarks))
        group = self.groups[_squared_distances(own, self.centres).argmin(axis=1)]
        return own, kernels @ self.mixing, np.eye(int(self.groups.max()) + 1)[group]


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """One way in which labels may depend on rows; weights are those of the formula above."""

    amplitudes: Reals
    weights: Parts
    bias: Reals

    def __call__(self, inputs: Parts) -> Reals:
        """Compute the label probabilities of each row, (n, classes)."""
        scores = [own @ weights for own, weights in zip(inputs, self.weights, strict=True)]
        return softmax(_logits(scores, self.bias, self.amplitudes))


def labelled(codes: npt.NDArray[np.int64]) -> Likelihood:
    """Return the likelihood of the labels of a pilot's rows."""
    places = np.arange(len(codes))

    def likelihood(logits: Reals) -> float:
        highest = logits.max(axis=1)
        total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
        return float((logits[places, codes] - total).sum())

    return likelihood


def together(
    observed: Sequence[Parts], likelihoods: Sequence[Likelihood]
) -> tuple[Parts, Likelihood]:
    """Put several sources of evidence together: their rows, and the sum of their likelihoods."""
    ends = np.cumsum([len(own[0]) for own in observed])[:-1]
    stacked = tuple(np.vstack(parts) for parts in zip(*observed, strict=True))

    def likelihood(logits: Reals) -> float:
        parts = zip(likelihoods, np.split(logits, ends), strict=True)
        return sum(known(own) for known, own in parts)

    return stacked, likelihood


def draw(
    observed: Parts, likelihood: Likelihood, classes: int, count: int, seed: int
) -> list[World]:
    """Draw worlds given what is known of the labels of the observed rows, by several chains."""
    streams = np.random.default_rng(seed).spawn(CHAINS)
    each = -(-count // CHAINS)
    found: list[World] = []
    for stream in streams:
        found += _Chain(observed, likelihood, classes, stream).drawn(each)
    return found[:count]


class _Chain:
    """One chain: all parameters have a standard Gaussian prior, amplitudes by their logarithm."""

    def __init__(self, observed: Parts, likelihood: Likelihood, classes: int, rng: Any) -> None:
        self.observed, self.likelihood, self.rng = observed, likelihood, rng
        self.weights = tuple(rng.normal(size=(own.shape[1], classes)) for own in observed)
        self.bias, self.levels = rng.normal(size=classes), rng.normal(size=len(observed))
        self.scores = self._scores(self.weights)
        self.value = self._value(self.scores, self.bias, self.levels)

    def drawn(self, count: int) -> list[World]:
        """Run the chain, and keep every so-manieth world after the warm-up."""
        kept = []
        for step in range(WARM_UP + count * THINNING):
            self._move_functions()
            self._move_amplitudes()
            if step >= WARM_UP and (step - WARM_UP) % THINNING == THINNING - 1:
                kept.append(World(_amplitudes(self.levels), self.weights, BIAS * self.bias))
        return kept

    def _move_functions(self) -> None:
        fresh = tuple(self.rng.normal(size=own.shape) for own in self.weights)
        scores, bias = self._scores(fresh), self.rng.normal(size=self.bias.shape)

        def turned(cos: float, sin: float) -> Any:
            mixed = [cos * old + sin * new for old, new in zip(self.scores, scores, strict=True)]
            return mixed, cos * self.bias + sin * bias, self.levels

        cos, sin = self._turn(turned)
        self.scores, self.bias, _ = turned(cos, sin)
        pairs = zip(self.weights, fresh, strict=True)
        self.weights = tuple(cos * old + sin * new for old, new in pairs)

    def _move_amplitudes(self) -> None:
        fresh = self.rng.normal(size=self.levels.shape)

        def turned(cos: float, sin: float) -> Any:
            return self.scores, self.bias, cos * self.levels + sin * fresh

        self.levels = turned(*self._turn(turned))[2]

    def _turn(self, turned: Callable[[float, float], Any]) -> tuple[float, float]:
        """Find an angle on the ellipse at which what is known is likely enough."""
        enough = self.value + math.log(1 - self.rng.random())
        angle = self.rng.uniform(0, 2 * math.pi)
        low, high = angle - 2 * math.pi, angle
        while True:
            cos, sin = math.cos(angle), math.sin(angle)
            value = self._value(*turned(cos, sin))
            if value >= enough or high - low < 1e-9:
                self.value = value
                return cos, sin
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = self.rng.uniform(low, high)

    def _scores(self, weights: tuple[Reals, ...]) -> list[Reals]:
        return [own @ weight for own, weight in zip(self.observed, weights, strict=True)]

    def _value(self, scores: list[Reals], bias: Reals, levels: Reals) -> float:
        return self.likelihood(_logits(scores, BIAS * bias, _amplitudes(levels)))


def smoothed(drawn: Sequence[Reals], best: float) -> Reals:
    """Return a world like the mean of those drawn, as predictable as its best classifier is to be.

    A drawn world turns at random wherever nothing is known, and is harder to learn than one whose
    labels depend on rows in a simpler way. The mean does not turn, but is too uncertain, so it is
    raised to the power at which the best classifier has the given accuracy.
    """
    logarithms = np.log(np.mean(drawn, axis=0) + _LEAST_PROBABILITY)
    low, high = -5.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        world = softmax(math.exp(middle) * logarithms)
        low, high = (middle, high) if world.max(axis=1).mean() < best else (low, middle)
    return world


def _amplitudes(levels: Reals) -> Reals:
    means, deviations = np.array(AMPLITUDES).T
    return np.asarray(np.exp(means + deviations * levels))


def _logits(scores: list[Reals], bias: Reals, amplitudes: Reals) -> Reals:
    parts = zip(amplitudes, scores, strict=True)
    return np.asarray(bias + sum(amplitude * own for amplitude, own in parts))


def softmax(logits: Reals) -> Reals:
    """Compute probabilities from logits."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def grouped(
    vectors: npt.NDArray[Any], count: int, seed: int, clustered: bool
) -> tuple[Reals, npt.NDArray[np.int64]]:
    """Divide vectors into groups: small cells, and the group of each.

    Groups are cells of k-means, or of any shape if they are to follow clusters.
    """
    if not clustered:
        centres = _centres(vectors, count, seed)
        return centres, np.arange(len(centres))
    most = max(len(vectors) // _ROWS_PER_GROUP, 1)
    single = np.ascontiguousarray(vectors, np.float32)
    cells, groups = quantizers.fit_cells(single, min(count, most), "linked", seed, most)
    return cells.astype(np.float64), groups


def _centres(vectors: npt.NDArray[Any], most: int, seed: int) -> Reals:
    from sklearn.cluster import MiniBatchKMeans

    count = min(most, max(len(vectors) // 2, 1))
    settings: dict[str, Any] = {"n_init": 1, "batch_size": 2048, "max_iter": 30}
    found = MiniBatchKMeans(count, random_state=seed, **settings).fit(vectors)
    return np.asarray(found.cluster_centers_, np.float64)


def _squared_distances(rows: npt.NDArray[Any], marks: npt.NDArray[Any]) -> Reals:
    squared = (rows**2).sum(axis=1)[:, None] + (marks**2).sum(axis=1) - 2 * rows @ marks.T
    return np.asarray(np.maximum(squared, 0.0))
