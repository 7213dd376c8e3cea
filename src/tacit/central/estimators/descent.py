r"""Linear regression by noisy gradient steps on Huber's loss, from the solution of AdaSSP.

Half of the budget is spent on noisy sums of products (see `tacit.estimators.sufficient`). They give
an initial :math:`\beta_0`, and a matrix P that inverts the curvature of the loss as far as the
noise allows. The other half is spent on T steps. With v the entries (x, 1) of a row of `Frame`, r
its residual and ψ the residual clipped to [−C, C],

.. math:: \beta_{t+1} = \beta_t + P\left(\sum_i \psi_C(r_i(\beta_t))\,v_i + E_t
          - \alpha\beta_t\right).

The error of P affects only how fast steps converge: each step multiplies the remaining error by
:math:`I - PA`, and its new noise scales with C instead of the range of the target. Clipping
residuals does not change the loss arbitrarily: it gives the gradient of Huber's loss, which is
convex [Hub64]_.

Notes
-----
Sensitivity: :math:`\lVert\psi_C(r)\,v\rVert_2 \le C\,\lVert v\rVert`, in whole numbers [BST14]_.
Rows are on their grid, and β is on a grid of 2^-20 with a norm of at most 2^15, so products,
targets and residuals are whole numbers, exact in floats in any order. A residual is then rounded to
C/2^13 by a rule that sees only that residual. In these steps the sensitivity is the same whatever C
is, so C may be chosen from earlier releases. Gaussians whose multipliers are fixed beforehand
compose exactly [DRS22]_.

References
----------
.. [BST14] Bassily, Smith, Thakurta. Private empirical risk minimization: efficient algorithms and
   tight error bounds. FOCS 2014.
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3).
.. [Hub64] Huber. Robust estimation of a location parameter. Ann. Math. Statist. 1964.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from tacit.central.estimators.base import Reals
from tacit.central.estimators.frames import BITS, Frame, Integers
from tacit.central.estimators.sufficient import NoisyMoments, gaussian_moments
from tacit.central.statistics.released import Spending
from tacit.privacy.events import Event
from tacit.privacy.mechanisms.bounding import project_l2

START_SHARE = Fraction(1, 2)
"""Share of the budget for the sums of products."""

_FINE = 2.0**20
_LARGEST = 2.0**15
_DEVIATIONS = 3.0
_SMALLEST_CLIP = 2.0**-6


@dataclass(frozen=True, eq=False)
class Descent:
    """Gradient steps, with residuals clipped to `clip` half-widths of the target's bounds.

    Without `clip`, residuals are clipped to three of their standard deviations, as estimated from
    the sums of products, and to at most 1.
    """

    frame: Frame
    spending: Callable[[], Spending]
    steps: int
    clip: float | None

    @cached_property
    def sensitivity(self) -> int:
        """Return the sensitivity of a sum of gradients, in grid steps times C over 2^13."""
        return int(self.frame.reach * 2**BITS)

    @cached_property
    def share(self) -> Fraction:
        """Return the share of the budget of one step."""
        return (1 - START_SHARE) / self.steps

    @property
    def event(self) -> Event:
        """Return the event of `run`."""
        spending = self.spending()
        steps = [(self.sensitivity, self.share)] * self.steps
        for sensitivity, share in [(self.frame.radius**2, START_SHARE), *steps]:
            spending.charge(sensitivity, spending.sigma(sensitivity, share), share)
        return spending.released(None).event

    def run(
        self, X: Reals, y: Reals, repair: str, penalty: Reals
    ) -> tuple[Reals, NoisyMoments, Event]:
        """Return the coefficients of a row's entries, the sums of products, and the event."""
        spending = self.spending()
        blocks = list(self.frame.blocks(X, y))
        products = self.frame.products(blocks)
        moments = gaussian_moments(self.frame, spending, products, START_SHARE)
        inverse = moments.inverse(repair, penalty)
        beta = _on_grid(inverse @ moments.correlation)
        limit = self._held(moments.residual(beta))
        unit = limit / 2**BITS * self.frame.step
        for _ in range(self.steps):
            raw = self.gradient(blocks, beta, limit)
            slope = spending.add(raw, self.sensitivity, self.share) * unit - penalty * beta
            beta = _on_grid(beta + inverse @ slope)
        return beta, moments, spending.released(None).event

    def gradient(self, blocks: list[Reals], beta: Reals, held: float) -> Integers:
        """Sum clipped residuals, in steps of C/2^13, times rows in grid steps."""
        size, fine = self.frame.size, beta * _FINE
        scale = self.frame.step / (held * _FINE)
        total = np.zeros(size, dtype=np.int64)
        for rows in blocks:
            residual = rows[:, -1] * _FINE - rows[:, :size] @ fine
            rounded = np.rint(np.clip(residual * scale, -1.0, 1.0) * 2**BITS)
            total += (rounded @ rows[:, :size]).astype(np.int64)
        return total

    def _held(self, residual: float) -> float:
        """Return C, in the units of a row's last entry."""
        weight = self.frame.weight
        if self.clip is not None:
            return self.clip * weight
        return weight * min(max(_DEVIATIONS * residual / weight, _SMALLEST_CLIP), 1.0)


def _on_grid(beta: Reals) -> Reals:
    """Round to multiples of 2^-20, with a norm at which every product with a row is exact."""
    return np.asarray(np.rint(project_l2(beta, _LARGEST) * _FINE) / _FINE)
