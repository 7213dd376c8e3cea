r"""Linear regression by noisy gradient steps on Huber's loss, from the solution of AdaSSP.

Half of the budget buys noisy sums of products (see `tacit.estimators.sufficient`): a first
:math:`\beta_0`, and a matrix P that inverts how the loss curves, as far as noise lets it be seen.
The other half buys T steps. With v the entries (x, 1) of a row of `Frame`, r its residual and ψ the
residual held to [−C, C],

.. math:: \beta_{t+1} = \beta_t + P\left(\sum_i \psi_C(r_i(\beta_t))\,v_i + E_t
          - \alpha\beta_t\right).

A step does not care how wrong P is, only how far: what is left of an error is its product with
:math:`I - PA`, and new noise follows C instead of the range of the target. Holding residuals is no
trick beside the loss; it is the gradient of Huber's, which is convex [Hub64]_.

Notes
-----
Sensitivity: :math:`\lVert\psi_C(r)\,v\rVert_2 \le C\,\lVert v\rVert`, in whole numbers [BST14]_.
Rows are on their grid and β is on one of 2^-20 of a norm up to 2^15, so that products, targets
and residuals are whole and exact in floats in any order; a residual is then rounded to C/2^13 by a
rule that sees it alone. In these steps the sensitivity is the same whatever C is, so that C may be
chosen by what was released before. Gaussians whose multipliers are fixed beforehand compose exactly
[DRS22]_.

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
from tacit.central.estimators.sufficient import Moments, gaussian_moments
from tacit.central.statistics.released import Spending
from tacit.privacy.events import Event
from tacit.privacy.mechanisms.bounding import project_l2

START_SHARE = Fraction(1, 2)
"""Of the budget, for the sums of products."""

_FINE = 2.0**20
_LARGEST = 2.0**15
_DEVIATIONS = 3.0
_SMALLEST_CLIP = 2.0**-6


@dataclass(frozen=True, eq=False)
class Descent:
    """So many steps, with residuals held to `clip` half-widths of the target's bounds.

    Without `clip`, to three deviations of the residuals, as the sums of products tell them, and to
    1 at most.
    """

    frame: Frame
    spending: Callable[[], Spending]
    steps: int
    clip: float | None

    @cached_property
    def sensitivity(self) -> int:
        """Of a sum of gradients, in steps of C times the grid's over 2^13."""
        return int(self.frame.reach * 2**BITS)

    @cached_property
    def share(self) -> Fraction:
        """Of a step."""
        return (1 - START_SHARE) / self.steps

    @property
    def event(self) -> Event:
        """What `run` runs."""
        spending = self.spending()
        steps = [(self.sensitivity, self.share)] * self.steps
        for sensitivity, share in [(self.frame.radius**2, START_SHARE), *steps]:
            spending.charge(sensitivity, spending.sigma(sensitivity, share), share)
        return spending.released(None).event

    def run(self, X: Reals, y: Reals, repair: str, penalty: Reals) -> tuple[Reals, Moments, Event]:
        """Coefficients of a row's entries, the sums of products, and what ran."""
        spending = self.spending()
        blocks = list(self.frame.blocks(X, y))
        products = self.frame.products(blocks)
        moments = gaussian_moments(self.frame, spending, products, START_SHARE)
        inverse = moments.inverse(repair, penalty)
        beta = _on_grid(inverse @ moments.correlation)
        held = self._held(moments.residual(beta))
        unit = held / 2**BITS * self.frame.step
        for _ in range(self.steps):
            raw = self.gradient(blocks, beta, held)
            slope = spending.add(raw, self.sensitivity, self.share) * unit - penalty * beta
            beta = _on_grid(beta + inverse @ slope)
        return beta, moments, spending.released(None).event

    def gradient(self, blocks: list[Reals], beta: Reals, held: float) -> Integers:
        """The sum of residuals, held and on 2^13 steps, times rows on theirs."""
        size, fine = self.frame.size, beta * _FINE
        scale = self.frame.step / (held * _FINE)
        total = np.zeros(size, dtype=np.int64)
        for rows in blocks:
            residual = rows[:, -1] * _FINE - rows[:, :size] @ fine
            kept = np.rint(np.clip(residual * scale, -1.0, 1.0) * 2**BITS)
            total += (kept @ rows[:, :size]).astype(np.int64)
        return total

    def _held(self, residual: float) -> float:
        """C, in the units of a row's last entry."""
        weight = self.frame.weight
        if self.clip is not None:
            return self.clip * weight
        return weight * min(max(_DEVIATIONS * residual / weight, _SMALLEST_CLIP), 1.0)


def _on_grid(beta: Reals) -> Reals:
    """Multiples of 2^-20, of a norm at which every product with a row is exact."""
    return np.asarray(np.rint(project_l2(beta, _LARGEST) * _FINE) / _FINE)
