r"""The linear classifier through flipped labels, by scipy: no torch is needed.

.. math:: \max_W \; \frac{1}{n} \sum_{i=1}^n \log \sum_{y=1}^C p(\tilde y_i \mid y)\,
          \mathrm{softmax}(W^\top \tilde x_i)_y \; - \; \frac{w}{2} \lVert W \rVert^2

The objective of `tacit.inference.neural` without hidden layers and without a bias, maximised from
zero weights until convergence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import softmax

Reals = npt.NDArray[np.float64]


def climb(features: Any, labels: Any, flip: Any, penalty: float) -> tuple[Reals, Reals, Reals]:
    """Return centre and spread of the features, and the weights (D, C) of scaled features."""
    rows = np.asarray(features, np.float64)
    center, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    rows = (rows - center) / spread
    seen = np.asarray(flip)[:, labels].T
    shape = rows.shape[1], seen.shape[1]

    def loss(flat: Reals) -> tuple[float, Reals]:
        weights = flat.reshape(shape)
        odds = softmax(rows @ weights, axis=1)
        joint = odds * seen
        total = joint.sum(axis=1, keepdims=True)
        pull = rows.T @ (joint / total - odds) / len(rows)
        value = penalty / 2 * (weights**2).sum() - np.log(total).mean()
        return float(value), (penalty * weights - pull).ravel()

    solution = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B")
    return center, spread, solution.x.reshape(shape)
