r"""A regression of the outcome on in-house rows, fitted to moments that reports estimate.

Every partition gives unbiased estimates m of moments of the outcome, with known covariance: the
mean of y times the indicator of a cell, or y times the sign of a half. A function f of rows implies
the same moments, as averages over in-house rows: with A their weights,

.. math:: m = A f + \text{noise}, \qquad \text{noise} \sim N(0, \Sigma), \qquad
          f = \Phi w, \quad w_j \sim N(0, \tau^2).

The weights have a closed form. Candidates are linear functions and Gaussian kernels of two widths
(`tacit.inference.views`) with strengths τ from 0, which is the constant mean, upwards. They are
averaged with the weights

.. math:: p(m \mid \Phi, \tau) \, e^{-\tau / \lambda},

where the first factor is the probability of each partition's moments given those before them: how
well a candidate predicts reports that it has not seen. It needs no outcomes. At small ε it favours
functions that vary little, so that predictions fall back to the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, cholesky, solve_triangular

from tacit.local.inference.views import Inputs
from tacit.privacy.mechanisms import SubsetSelection

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

STRENGTHS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""τ, the standard deviation of f in units of half the distance between the bounds."""

TYPICAL = 0.15
"""λ: outcomes vary less than their declared bounds allow."""

WIDTHS = (0.7, 1.4)
MOST_ROWS = 4_000
_CONSTANT, _LEAST_WEIGHT, _JITTER = 1.0, 0.01, 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Unbiased estimates of some moments of an outcome that is scaled to [−1, 1].

    Parameters
    ----------
    weights : array, (M, N)
        A: the moments of a function of in-house rows are A times its values on them.
    values : array, (M,)
        m.
    covariance : array, (M, M)
        Σ.
    """

    weights: Reals
    values: Reals
    covariance: Reals

    def whitened(self) -> tuple[Reals, Reals]:
        """Return weights and values with independent noise of variance 1."""
        size = len(self.values)
        jitter = _JITTER * float(np.trace(self.covariance)) / size
        root = cholesky(self.covariance + jitter * np.eye(size), lower=True)
        white = solve_triangular(root, np.column_stack([self.weights, self.values]), lower=True)
        return white[:, :-1], white[:, -1]


def of_signs(signs: Integers, scores: Reals, variance: float) -> Moments:
    """Return the moment of one pair of halves: −1 or 1 for each in-house row, and reports' scores.

    `variance` is that of one score, from the reports of all partitions.
    """
    weights = signs[None].astype(np.float64) / len(signs)
    return Moments(weights, np.array([scores.mean()]), np.array([[variance / len(scores)]]))


def of_cells(
    cells: Integers, sets: Integers, law: SubsetSelection, grid: Reals, shares: Reals
) -> Moments:
    r"""Return the moments of the cells of one partition, from sets of (cell, level) symbols.

    Parameters
    ----------
    cells : array, (N,)
        The cell of each in-house row.
    sets : array, (n, d)
        The reports.
    law : SubsetSelection
        Their law, over K cells times L levels.
    grid : array, (L,)
        The scaled outcome of each level.
    shares : array, (K, L)
        Approximate shares of the symbols, for the covariance, which is linear in them.
    """
    count = len(shares)
    p, q = law.inclusion
    named = np.bincount(sets.ravel(), minlength=law.categories) / len(sets)
    scores = np.kron(np.eye(count), grid) / (p - q)
    covariance = scores @ set_covariance(law, shares.ravel()) @ scores.T / len(sets)
    own = np.bincount(cells, minlength=count)
    weights = np.zeros((count, len(cells)))
    # Of the rows in a cell, times the share of the cell.
    weights[cells, np.arange(len(cells))] = (shares.sum(axis=1) / np.maximum(own, 1))[cells]
    return Moments(weights, scores @ (named - q), covariance)


def set_covariance(law: SubsetSelection, shares: Reals) -> Reals:
    r"""Compute the covariance of which symbols a report names, for people with these shares.

    With n symbols and sets of size d, a set that holds its own symbol with probability p names
    any other one with probability :math:`a = p (d-1)/(n-1)` as well, and two others with b.
    """
    n, d, (p, q) = law.categories, law.event.size, law.inclusion
    beside = p * (d - 1) / (n - 1)
    others = (p * (d - 1) * (d - 2) + (1 - p) * d * (d - 1)) / ((n - 1) * max(n - 2, 1))
    joint = others + (beside - others) * (shares[:, None] + shares)
    named = q + (p - q) * shares
    np.fill_diagonal(joint, named)
    return np.asarray(joint - np.outer(named, named))


@dataclass(frozen=True, eq=False, repr=False)
class Regression:
    """A sum of linear functions of inputs: what is predicted, and what is stored.

    Parameters
    ----------
    members : tuple of (Inputs, array)
        Weights of the inputs; the last one is that of the constant.
    """

    members: tuple[tuple[Inputs, Floats], ...]

    def __call__(self, vectors: Floats) -> Reals:
        """Compute the scaled outcome that is expected of each vector."""
        blocks = [
            np.sum([seen(block) @ weights for seen, weights in self.members], axis=0)
            for block in np.array_split(vectors, max(len(vectors) // 4096, 1))
        ]
        return np.concatenate(blocks).astype(np.float64)

    def linear_scores(self, width: int) -> list[Floats]:
        """Return the linear members as scores of a whole vector; see `Partitions.adapted`."""
        scores = []
        for seen, weights in self.members:
            if seen.linear and bool(weights[:-1].any()):
                whole = np.zeros((width + 1, 2), np.float32)
                whole[seen.start : seen.stop, 0], whole[-1, 0] = weights[:-1], weights[-1]
                scores.append(whole)
        return scores

    def parts(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return JSON-ready parameters, and arrays by name."""
        described: list[dict[str, Any]] = []
        arrays: dict[str, Floats] = {}
        for index, (seen, weights) in enumerate(self.members):
            plain, own = seen.parts()
            described.append(plain)
            arrays |= {f"{index}.{k}": a for k, a in {**own, "weights": weights}.items()}
        return {"members": described}, arrays

    @classmethod
    def from_parts(
        cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Regression:
        """Rebuild what `parts` took apart; refuse arrays that do not fit each other."""
        members = []
        for index, told in enumerate(parameters["members"]):
            prefix = f"{index}."
            own = {
                key.removeprefix(prefix): np.asarray(array, np.float32)
                for key, array in arrays.items()
                if key.startswith(prefix)
            }
            seen, weights = Inputs.from_parts(told, own), own["weights"]
            if weights.shape != (seen.width,) or not np.isfinite(weights).all():
                raise ValueError("moments: weights must be finite and fit their inputs")
            members.append((seen, weights))
        return cls(tuple(members))


class _Candidate(NamedTuple):
    evidence: float
    weights: Reals


def fit(
    moments: Sequence[Moments], vectors: Floats, blocks: Sequence[slice], seed: int
) -> Regression:
    """Fit all candidates to the moments, and average them."""
    white = [one.whitened() for one in moments]
    weights, values = (np.concatenate(part) for part in zip(*white, strict=True))
    inputs = list(_candidates(vectors, blocks, seed))
    tried = [list(posteriors(weights, values, seen(vectors)[:, :-1])) for seen in inputs]
    best = max(one.evidence for each in tried for one in each)
    total = sum(_odds(one, best) for each in tried for one in each)
    members = []
    for seen, each in zip(inputs, tried, strict=True):
        mean = sum(_odds(one, best) / total * one.weights for one in each)
        if np.any(mean):
            members.append((seen, np.asarray(mean, np.float32)))
    return Regression(tuple(members))


def averaged(weights: Reals, values: Reals, inputs: npt.NDArray[Any]) -> Reals:
    """Return the weights of these inputs and a constant, averaged over all strengths."""
    tried = list(posteriors(weights, values, inputs))
    best = max(one.evidence for one in tried)
    odds = [_odds(one, best) for one in tried]
    return np.asarray(
        sum(odd / sum(odds) * one.weights for odd, one in zip(odds, tried, strict=True))
    )


def _odds(candidate: _Candidate, best: float) -> float:
    odds = math.exp(candidate.evidence - best)
    return odds if odds >= _LEAST_WEIGHT else 0.0


def posteriors(weights: Reals, values: Reals, inputs: npt.NDArray[Any]) -> Iterator[_Candidate]:
    """Yield the expected weights of inputs and a constant for each strength, and its evidence."""
    center = inputs.mean(axis=0, dtype=np.float64)
    scale = math.sqrt(max(float(inputs.var(axis=0, dtype=np.float64).sum()), 1e-24))
    scaled = np.column_stack([(inputs - center) / scale, np.ones(len(inputs))])
    seen = weights @ scaled
    for strength in STRENGTHS:
        prior = np.full(scaled.shape[1], strength**2)
        prior[-1] = _CONSTANT
        root = cholesky((seen * prior) @ seen.T + np.eye(len(values)), lower=True)
        evidence = -float(np.log(np.diag(root)).sum())
        evidence -= float((solve_triangular(root, values, lower=True) ** 2).sum()) / 2
        found = prior * (seen.T @ cho_solve((root, True), values))
        found[:-1] /= scale
        found[-1] -= center @ found[:-1]
        yield _Candidate(evidence - strength / TYPICAL, found)


def _candidates(vectors: Floats, blocks: Sequence[slice], seed: int) -> Iterator[Inputs]:
    for block in blocks:
        yield Inputs(block.start, block.stop)
        for width in WIDTHS:
            yield Inputs.kernels(vectors, block, width, seed)
