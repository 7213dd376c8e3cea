r"""A clip norm that follows a quantile of the norms of the clients' replies, and its privacy cost.

In every round each reply yields one bit, whether its norm is within the clip norm C. The noisy
fraction of such replies updates C [ATM21]_:

.. math:: \bar b = \frac12 + \frac1m \Big(\sum_k (b_k - \tfrac12) + \mathcal N(0, \sigma_b^2)\Big),
          \qquad C \leftarrow C\, e^{-\eta (\bar b - \gamma)}

where m is the expected cohort. C is stationary at the quantile :math:`\gamma` of the norms.

Notes
-----
Privacy: blanking a client changes :math:`\sum_k (b_k - 1/2)` by 1/2, so the count is a Gaussian
mechanism with noise multiplier :math:`2\sigma_b`. Together with an update with multiplier
:math:`z_\Delta` on the same sample it is one Gaussian mechanism with multiplier z (Theorem 1 of
[ATM21]_, `tacit.privacy.accounting.plans.update_multiplier`):

.. math:: z^{-2} = z_\Delta^{-2} + (2\sigma_b)^{-2}

Here z is requested and accounted for, and :math:`z_\Delta` is what the update gets. C is computed
from earlier releases, so the next round may use it.

The server computes the bits from the replies, which it sees anyway. A client that does not reply
yields no bit: with :math:`\gamma \ne 1/2` and a fraction p of replies, C follows the quantile
:math:`1/2 + (\gamma - 1/2)/p`.

References
----------
.. [ATM21] Andrew, Thakkar, McMahan, Ramaswamy. Differentially private learning with adaptive
   clipping. NeurIPS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, rounded_gaussian

_SMALLEST, _LARGEST = 2.0**-64, 2.0**64
_USUAL_NOISE = Fraction(1, 20)


@dataclass(frozen=True)
class Adaptive:
    r"""Settings of a clip norm that adapts to a quantile.

    Parameters
    ----------
    quantile : float
        :math:`\gamma`, the fraction of clients whose replies should not be clipped.
    rate : float
        :math:`\eta`. A round changes C by a factor of up to about :math:`e^{\eta}`.
    count_noise : float, optional
        :math:`\sigma_b`, the standard deviation of the noise on the count. The default is a
        twentieth of the expected cohort, as in the paper.
    """

    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        errors.probability("Adaptive", "quantile", self.quantile, zero=False)
        errors.positive("Adaptive", "rate", self.rate)
        if self.count_noise is not None:
            errors.positive("Adaptive", "count_noise", self.count_noise)

    def deviation(self, cohort: float) -> Fraction:
        r"""Return :math:`2\sigma_b`: the noise on a sum of ±1, twice that on :math:`b - 1/2`."""
        if self.count_noise is not None:
            return 2 * errors.positive("Adaptive", "count_noise", self.count_noise)
        return 2 * _USUAL_NOISE * Fraction(cohort)

    def moved(self, norm: float, signs: int, cohort: float, rng: Randomness) -> float:
        """Compute the next clip norm; `signs` sums +1 per norm within the clip norm, else −1."""
        noisy = signs + int(rounded_gaussian(self.deviation(cohort), 1, rng)[0])
        share = 0.5 + noisy / (2 * cohort)
        # In logarithms and within bounds, so that no sequence of draws makes it 0 or infinite.
        moved = math.log(norm) - self.rate * (share - self.quantile)
        return math.exp(min(max(moved, math.log(_SMALLEST)), math.log(_LARGEST)))
