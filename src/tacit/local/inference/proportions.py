r"""A linear model on in-house rows, fitted to reports through codebook and channel.

The reports tell how many people have each (codeword, label) pair; the in-house rows tell what rows
of a codeword look like. A logistic model of the label given the row is fitted to the reports,
through the shares that it implies,

.. math:: \theta_{k,y}(w) = \pi_k \, \frac{1}{|D_k|} \sum_{x \in D_k} p_w(y \mid x), \qquad
          \max_w \; \ell(\theta(w)) - \frac{\lambda}{2} \lVert w \rVert^2,

with D_k the in-house rows of codeword k, :math:`\pi_k` the codeword's share and ℓ the likelihood of
`tacit.inference.finite`. A few hundred weights are learned from all reports together, instead of a
share for every pair, which reduces the noise. A class that in-house data lacks is modelled as an
exponential tilt of the in-house rows,

.. math:: \theta_k(w) \propto \sum_{x \in D_k} e^{w \cdot x},

whose exponent is the log odds of the new class against the in-house rows, up to a constant.

References
----------
.. [QSCL09] Quadrianto, Smola, Caetano, Le. Estimating labels from label proportions. JMLR 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from tacit.local.inference.finite import Evidence
from tacit.local.inference.neural import Network

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

PENALTY = 20.0
"""λ: with inputs of unit standard deviation, weights of about 0.2 are common."""


@dataclass(frozen=True, eq=False, repr=False)
class Inhouse:
    """In-house rows sorted by codeword, scaled, with a column of ones."""

    inputs: Floats
    codes: Integers
    starts: Integers
    present: Integers
    center: Floats
    spread: Floats

    @classmethod
    def of(cls, vectors: Floats, codes: Integers) -> Inhouse:
        """Sort and scale rows; one spread for all components keeps their relative sizes."""
        center = vectors.mean(axis=0)
        spread = np.full(vectors.shape[1], max(float(vectors.std(axis=0).mean()), 1e-12))
        order = np.argsort(codes, kind="stable")
        ones = np.ones((len(vectors), 1), np.float32)
        inputs = np.hstack([(vectors[order] - center) / spread, ones]).astype(np.float32)
        present, starts = np.unique(codes[order], return_index=True)
        return cls(inputs, codes[order], starts, present, center, spread.astype(np.float32))

    def totals(self, values: npt.NDArray[Any], codewords: int) -> Reals:
        """Sum over the rows of each codeword; 0 for a codeword without rows."""
        sums = np.zeros((codewords, *values.shape[1:]))
        sums[self.present] = np.add.reduceat(values, self.starts, axis=0)
        return sums

    def network(self, weights: Reals) -> Network:
        """Return the linear classifier with these weights; the last row is the constant."""
        return Network(
            self.center,
            self.spread,
            (weights[:-1].astype(np.float32),),
            (weights[-1].astype(np.float32),),
        )


def fit_labels(
    inhouse: Inhouse, evidence: Evidence, shares: Reals, penalty: float = PENALTY
) -> Network:
    """Fit the logistic model of the label to labelled reports, given the codewords' `shares`."""
    counts = np.bincount(inhouse.codes, minlength=evidence.codewords)
    weight = (shares / np.maximum(counts, 1))[inhouse.codes][:, None].astype(np.float32)

    def objective(weights: Reals) -> tuple[float, Reals]:
        odds = _softmax(inhouse.inputs @ weights.astype(np.float32))
        value, slope = evidence.likelihood(inhouse.totals(odds * weight, evidence.codewords))
        pull = slope[inhouse.codes].astype(np.float32) * weight
        pull = odds * (pull - (odds * pull).sum(axis=1, keepdims=True))
        return value, (inhouse.inputs.T @ pull).astype(np.float64)

    shape = (inhouse.inputs.shape[1], evidence.classes)
    return inhouse.network(_maximise(objective, shape, penalty))


def fit_tilt(
    inhouse: Inhouse, evidence: Evidence, penalty: float = PENALTY
) -> tuple[Network, Reals]:
    """Fit the log odds of a class that in-house data lacks, from unlabelled reports of its people.

    The network has two classes, in-house and new, as if they were equally frequent. With it come
    the shares of both among the codewords, (codewords, 2).
    """

    def objective(weights: Reals) -> tuple[float, Reals]:
        score = (inhouse.inputs @ weights.astype(np.float32)).astype(np.float64)
        tilt = np.exp(score - score.max())
        tilt /= tilt.sum()
        value, slope = evidence.likelihood(inhouse.totals(tilt, evidence.codewords))
        pull = tilt * slope[inhouse.codes]
        pull = pull - tilt * pull.sum()
        return value, (inhouse.inputs.T @ pull.astype(np.float32)).astype(np.float64)

    weights = _maximise(objective, (inhouse.inputs.shape[1], 1), penalty)
    score = (inhouse.inputs[:, :-1] @ weights[:-1]).astype(np.float64)[:, 0]
    tilt = np.exp(score - score.max())
    weights[-1] = -(np.log(tilt.mean()) + score.max())
    both = np.stack([np.ones_like(tilt) / len(tilt), tilt / tilt.sum()], axis=1)
    network = inhouse.network(np.hstack([np.zeros_like(weights), weights]))
    return network, inhouse.totals(both, evidence.codewords)


def _maximise(
    objective: Callable[[Reals], tuple[float, Reals]], shape: tuple[int, int], penalty: float
) -> Reals:
    def loss(flat: Reals) -> tuple[float, Reals]:
        weights = flat.reshape(shape)
        value, slope = objective(weights)
        held = np.vstack([weights[:-1], np.zeros((1, shape[1]))])  # no penalty on the constant
        return -value + penalty / 2 * float((held**2).sum()), (penalty * held - slope).ravel()

    solution = minimize(
        loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200}
    )
    return np.asarray(solution.x.reshape(shape))


def _softmax(logits: Floats) -> Floats:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
