r"""A clip norm that follows a quantile of the clients' norms, and what following it costs.

In every round each reply gives one bit, whether its norm is within the clip norm C, and the noisy
share of such replies moves C [ATM21]_:

.. math:: \bar b = \frac12 + \frac1m \Big(\sum_k (b_k - \tfrac12) + \mathcal N(0, \sigma_b^2)\Big),
          \qquad C \leftarrow C\, e^{-\eta (\bar b - \gamma)}

with the expected cohort m. Where C is the quantile :math:`\gamma` of the norms it stays.

Notes
-----
Privacy: a client more or less moves :math:`\sum_k (b_k - 1/2)` by 1/2, so the count is a Gaussian
mechanism with multiplier :math:`2\sigma_b`. Beside an update with multiplier :math:`z_\Delta` on
the same sample the two are one Gaussian mechanism with multiplier z (Theorem 1 of [ATM21]_):

.. math:: z^{-2} = z_\Delta^{-2} + (2\sigma_b)^{-2}

Here z is what is asked for and accounted, and :math:`z_\Delta` what the update gets. C is computed
from what was released before, so the next round may use it.

The bits are read off the replies by the server, which sees them anyway. A client that does not
answer gives no bit: with :math:`\gamma \ne 1/2` and a share p of answers, C follows the quantile
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

from tacit.central.statistics.released import root_above
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, rounded_gaussian

_SMALLEST, _LARGEST = 2.0**-64, 2.0**64
_USUAL_NOISE = Fraction(1, 20)


@dataclass(frozen=True)
class Adaptive:
    r"""How the clip norm moves.

    Parameters
    ----------
    quantile : float
        :math:`\gamma`, the share of clients whose replies should not be clipped.
    rate : float
        :math:`\eta`: a round changes C by a factor of up to about :math:`e^{\eta}`.
    count_noise : float, optional
        :math:`\sigma_b`, the deviation of the noise on the count. A twentieth of the expected
        cohort without it, as in the paper.
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
        r""":math:`2\sigma_b`: the noise on a sum of ±1, which is twice that of :math:`b - 1/2`."""
        if self.count_noise is not None:
            return 2 * errors.positive("Adaptive", "count_noise", self.count_noise)
        return 2 * _USUAL_NOISE * Fraction(cohort)

    def moved(self, norm: float, signs: int, cohort: float, rng: Randomness) -> float:
        """The next clip norm, from the sum of +1 for norms within and −1 for norms beyond."""
        noisy = signs + int(rounded_gaussian(self.deviation(cohort), 1, rng)[0])
        share = 0.5 + noisy / (2 * cohort)
        # In logarithms, between bounds: no run of bad luck makes it 0 or infinite.
        found = math.log(norm) - self.rate * (share - self.quantile)
        return math.exp(min(max(found, math.log(_SMALLEST)), math.log(_LARGEST)))


def update_multiplier(
    multiplier: Fraction, releases: int, deviation: Fraction | None = None
) -> Fraction:
    r"""What each of R updates of a round gets, so that all together have this multiplier.

    .. math:: R \left(z_\Delta^{-2} + (2\sigma_b)^{-2}\right) \le z^{-2}

    Parameters
    ----------
    multiplier : Fraction
        z of the whole round.
    releases : int
        R, updates that are noised in a round.
    deviation : Fraction, optional
        :math:`2\sigma_b` where each comes with a count.

    Notes
    -----
    Rounded up, exactly: no rounding makes a round cost more than is stated.
    """
    precision = 1 / (releases * multiplier**2)
    if deviation is not None:
        precision -= 1 / deviation**2
    if precision <= 0:
        least = math.sqrt(releases) * float(multiplier) / 2
        errors.refuse(
            "Adaptive", "count_noise", f"above {least:.6g}", float(deviation or 0) / 2,
            "The count alone costs more than the round may: give it more noise.",
        )  # fmt: skip
    return root_above(1 / precision)
