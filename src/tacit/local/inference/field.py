r"""Label fields: the shares of labels in small cells, smooth on the graph of in-house rows.

Partitions may join the same small cells m in several ways (`tacit.learned.cells`). Let f be the
shares of labels in each small cell. What the reports of partition p say about the number of people
with label y in cell k is unbiased and linear in f,

.. math:: \hat n^p_{ky} = n_p \sum_{m \in D^p_k} s_m f_{my} + \text{noise}, \qquad
          f_{\cdot y} \sim N\Bigl(\tfrac1C, \; a \Sigma + c\,1 1^\top\Bigr), \qquad
          \Sigma = \frac13 \sum_{t \in \{2, 8, 32\}} \Phi \Lambda^t \Phi^\top,

with s the shares of small cells, the channel's own variance as noise, and Σ the diffusion by t
steps of the random walk on the graph of small cells, so that cells which many in-house rows lie
between have similar labels. The posterior is known in closed form, and so is the evidence, which
weighs how far the shares of labels may differ from each other (c). No label is needed for that.

A row has one label, so f is in the simplex and mostly near its corners. The estimate therefore
alternates between the posterior mean, drawn towards z, and :math:`z = \Pi((1 + \gamma) f)`, with Π
the projection onto the simplex. At small ε, where most of the error is noise, this matters most.

Notes
-----
a, γ, t were chosen on MNIST and on Fashion-MNIST, on splits other than those of the records.

References
----------
.. [ZGL03] Zhu, Ghahramani, Lafferty. Semi-supervised learning using Gaussian fields and harmonic
   functions. ICML 2003.
.. [CL06] Coifman, Lafon. Diffusion maps. Appl. Comput. Harmon. Anal. 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local import graphs
from tacit.local.inference.finite import Evidence

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

STEPS = (2, 8, 32)
"""t: steps of diffusion."""

VARIANCE, SHARE_VARIANCES = 0.09, (0.05, 0.005, 0.0005)
"""a, and the candidates for c."""

SHARPNESS = 0.25
"""γ."""

NEAREST = (1.0, 0.5, 0.25)
"""Weights of the cells nearest to a row, in its prediction."""

_ROUNDS, _SAMPLING = 100, 0.3
_PULL = 8.0  # a row of z weighs as much as an observation with this multiple of the variance a


@dataclass(frozen=True, eq=False, repr=False)
class JoinedReports:
    """The reports of one partition.

    Parameters
    ----------
    evidence : Evidence
        Its reports.
    groups : array of int, (M,)
        The cell of each small cell.
    shares : array, (K,)
        The shares of the cells among people.
    """

    evidence: Evidence
    groups: Integers
    shares: Reals


@dataclass(frozen=True, eq=False, repr=False)
class Field:
    """Labels of small cells: what is predicted, and what is stored.

    Parameters
    ----------
    centres : array, (M, q)
        Of the small cells.
    values : array, (M, classes)
        The estimated shares of labels in each.
    """

    centres: Floats
    values: Floats

    def predict_proba(self, vectors: Floats) -> Reals:
        """Average the labels of the nearest small cells."""
        weights = np.array(NEAREST[: len(self.centres)])
        order = graphs.ranked(vectors, self.centres, len(weights))
        total = np.tensordot(weights / weights.sum(), self.values[order.T], axes=1)
        return np.asarray(total / total.sum(axis=1, keepdims=True), np.float64)

    def parts(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return JSON-ready parameters, and arrays by name."""
        return {"kind": "field"}, {"centres": self.centres, "values": self.values}

    @classmethod
    def from_parts(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Field:
        """Rebuild what `parts` took apart."""
        centres, values = (np.asarray(arrays[name], np.float32) for name in ("centres", "values"))
        fits = centres.ndim == values.ndim == 2 and len(centres) == len(values) > 0
        if not fits or not np.isfinite(centres).all() or not (values.sum(axis=1) > 0).all():
            raise ValueError("field: values must be shares, one row for each centre")
        return cls(centres, values)


def fit(parts: Sequence[JoinedReports], vectors: Floats, centres: Floats, classes: int) -> Field:
    """Estimate the labels of small cells from the reports of all partitions."""
    own = graphs.nearest(vectors, centres)
    mass = (np.bincount(own, minlength=len(centres)) + 1e-3) / len(own)
    counts = _Counts.of(parts, mass, classes)
    covariance = diffusion(vectors, centres)
    values = np.zeros((len(centres), classes))
    for share, weight in zip(SHARE_VARIANCES, counts.weights(covariance), strict=True):
        if weight > 1e-3:
            values += weight * counts.field(VARIANCE * covariance + share)
    return Field(centres, (values / values.sum(axis=1, keepdims=True)).astype(np.float32))


def diffusion(vectors: Floats, centres: Floats) -> Reals:
    """Compute Σ, scaled to a mean variance of 1."""
    if len(centres) <= graphs.LEAST_LINKED:
        return np.eye(len(centres))
    functions, values = graphs.harmonics(graphs.graph(vectors, centres), len(centres))
    mean = np.zeros((len(centres), len(centres)))
    for steps in STEPS:
        smooth = (functions * values**steps) @ functions.T
        mean += smooth / max(float(np.diag(smooth).mean()), 1e-12)
    return np.asarray(mean / len(STEPS))


@dataclass(frozen=True, eq=False, repr=False)
class _Counts:
    """What all reports say: unbiased counts of (cell, label), as linear functions of the field.

    Parameters
    ----------
    design : array, (cells of all partitions, M)
        The people of each cell that are expected in each small cell.
    residuals : array, (cells of all partitions, classes)
        Counts, less what equal shares of all labels would give.
    noise : array, (cells of all partitions,)
        The variance of a count.
    """

    design: Reals
    residuals: Reals
    noise: Reals

    @classmethod
    def of(cls, parts: Sequence[JoinedReports], mass: Reals, classes: int) -> _Counts:
        design, residuals, noise = [], [], []
        for part in parts:
            people, cells = len(part.evidence), part.evidence.codewords
            if not people:
                continue
            inside = np.bincount(part.groups, mass, cells)
            own = np.zeros((cells, len(mass)))
            scale = part.shares / np.maximum(inside, 1e-12)
            own[part.groups, np.arange(len(mass))] = people * mass * scale[part.groups]
            channel = part.evidence.channel
            p, q = channel.inclusion
            counts = channel.estimate_counts(part.evidence.sets).counts.reshape(cells, classes)
            design.append(own)
            residuals.append(counts - own.sum(axis=1, keepdims=True) / classes)
            # The channel's noise, and people being a sample of those who might have come.
            drawn = people * q * (1 - q) / (p - q) ** 2
            noise.append(drawn + _SAMPLING * people * part.shares + 1e-3)
        return cls(np.vstack(design), np.vstack(residuals), np.concatenate(noise))

    def weights(self, covariance: Reals) -> Reals:
        """Return the posterior weights of the candidates for c, by their evidence."""
        smooth, constant = self.design @ covariance @ self.design.T, self.design.sum(axis=1)
        classes, found = self.residuals.shape[1], []
        for share in SHARE_VARIANCES:
            total = VARIANCE * smooth + share * np.outer(constant, constant) + np.diag(self.noise)
            root = np.linalg.cholesky(total)
            white = np.linalg.solve(root, self.residuals)
            # Of C labels, C − 1 vary freely.
            value = -(white**2).sum() / 2 - classes * np.log(np.diag(root)).sum()
            found.append(value * (classes - 1) / classes)
        odds = np.exp(np.array(found) - max(found))
        return np.asarray(odds / odds.sum())

    def field(self, prior: Reals) -> Reals:
        """Alternate between the posterior mean and its sharpened projection; return the latter."""
        classes, cells = self.residuals.shape[1], len(prior)
        slack = _PULL * VARIANCE
        # The covariance given z, then given the counts too: two updates of a Gaussian.
        within = prior - prior @ np.linalg.solve(prior + slack * np.eye(cells), prior)
        across = within @ self.design.T
        gain = np.linalg.solve(self.design @ across + np.diag(self.noise), across.T).T
        within = within - gain @ across.T
        told = within @ (self.design.T @ (self.residuals / self.noise[:, None]))
        drawn = np.zeros((cells, classes))
        for _ in range(_ROUNDS):
            mean = told + within @ (drawn / slack)
            drawn = _projected((1 + SHARPNESS) * (1 / classes + mean)) - 1 / classes
        return np.asarray(drawn + 1 / classes)


def _projected(points: Reals) -> Reals:
    """Project each row onto the simplex."""
    falling = -np.sort(-points, axis=1)
    excess = (np.cumsum(falling, axis=1) - 1) / np.arange(1, points.shape[1] + 1)
    last = (falling > excess).sum(axis=1) - 1
    return np.asarray(np.maximum(points - excess[np.arange(len(points)), last][:, None], 0.0))
