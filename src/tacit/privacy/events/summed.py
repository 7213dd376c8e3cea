r"""Sums of discrete Gaussians: noise that several parties add, each a share of it.

Theorem. Let Z be a vector of independent sums of h discrete Gaussians of variance parameter v, and
let x and x' be integer vectors that differ by at most Δ in ℓ2 norm, and in d entries. Then x + Z is
(ξ, ρ)-zCDP, with

.. math:: \rho = \frac{\Delta^2}{2hv}, \qquad
          \xi = d \sum_{k=1}^{h-1} \ln\frac{1 + 2r_k}{1 - 2r_k}, \qquad
          r_k = \frac{q_k}{1 - q_k}, \quad q_k = e^{-2\pi^2 v k/(k+1)}

Proof. One entry first. (1) Let :math:`P_k` be the law of a sum of k. By induction
:math:`P_k(y) = C_k e^{-y^2/(2kv)} g_k(y)`, where :math:`\ln g_k` varies by at most the first k − 1
terms of ξ/d. Indeed :math:`P_{k+1}(y) = \sum_x P_k(y - x) P_1(x)`, and completing the square gives
:math:`e^{-y^2/(2(k+1)v)} \sum_x e^{-(x - \mu)^2/(2c)} g_k(y - x)` with c = vk/(k + 1) and a real μ
that depends on y. By Poisson summation :math:`\sum_x e^{-(x-\mu)^2/(2c)} = \sqrt{2\pi c}\,(1 +
2\sum_{m \ge 1} e^{-2\pi^2 c m^2} \cos 2\pi m\mu)`, which is within a factor :math:`1 \pm 2r_k` of
:math:`\sqrt{2\pi c}`. (2) For a shift δ the log-ratio at y is :math:`(2y\delta - \delta^2)/(2hv)`
plus a difference of values of :math:`\ln g_h`, which is at most ξ/d. At y = δ + S the first part is
:math:`(2S\delta + \delta^2)/(2hv)`. (3) A discrete Gaussian has
:math:`E e^{tX} \le e^{t^2 v/2}` [CKS20]_, so :math:`E e^{tS} \le e^{t^2 hv/2}`, and for α > 1

.. math:: E e^{(\alpha - 1)\ell} \le \exp\Big((\alpha - 1)\Big[\frac{\xi}{d} +
          \frac{\delta^2}{2hv} + (\alpha - 1)\frac{\delta^2}{2hv}\Big]\Big).

(4) Entries are independent, so their divergences add up, and those that do not differ add nothing.
As entries are integers, no more than Δ² of them differ. More parties than h only add independent
noise, which is post-processing. ∎ Orders are above 1, so it is (ρ + ξ)-zCDP, which is stated.

Notes
-----
At v = 4 (two grid steps a party) ξ is below :math:`3 \cdot 10^{-17}` an entry, whatever h is. The
constant is better than that of [KLS21]_, whose theorem has :math:`\tau = 10\sum_k q_k`.

References
----------
.. [CKS20] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020.
.. [KLS21] Kairouz, Liu, Steinke. The distributed discrete Gaussian mechanism for federated learning
   with secure aggregation. ICML 2021 (Theorem 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from flint import arb

from tacit.privacy import errors, rounding
from tacit.privacy.decimals import above, below
from tacit.privacy.events.base import Leaf
from tacit.privacy.events.gaussian import shown_root
from tacit.privacy.guarantees import ZCDP, Guarantee

__all__ = ["SummedDiscreteGaussian"]

_LEAST_VARIANCE = Fraction(1, 4)
_TERMS = 64
"""Terms of ξ that are computed one by one; later ones are no larger than the last of these."""


@dataclass(frozen=True)
class SummedDiscreteGaussian(Leaf):
    """Sums of discrete Gaussians on integer vectors, one of this variance from each party.

    Parameters
    ----------
    squared_sensitivity : Fraction
        Square of the ℓ2 sensitivity.
    variance : Fraction
        v, the variance parameter of one party's noise; at least 1/4.
    honest : int
        h, the fewest parties whose noise nobody else knows.
    survivors : int
        The fewest parties whose noise is in a sum, for those who know nobody's noise.
    dimension : int
        Number of entries.
    """

    squared_sensitivity: Fraction
    variance: Fraction
    honest: int
    survivors: int
    dimension: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("squared_sensitivity", "variance")
        self._whole("honest", least=1, most=2**32)
        self._whole("survivors", least=self.honest, most=2**32)
        self._whole("dimension", least=1)
        if self.variance < _LEAST_VARIANCE:
            where, least = type(self).__name__, "at least 1/4 (half a step a party)"
            errors.refuse(where, "variance", least, float(self.variance), "Use a finer grid.")

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        rho = self.squared_sensitivity / (2 * self.honest * self.variance)
        entries = min(self.dimension, int(self.squared_sensitivity))
        with rounding.precision():
            extra = entries * rounding.high(variation(self.variance, self.honest))
            total = rounding.above(rounding.high(rho) + extra)
        concentrated = ZCDP(xi=0.0, rho=total, **self.scope)
        return concentrated if delta is None else concentrated.at_delta(delta)

    def words(self) -> str:
        share = shown_root(self.variance, below)
        moved = shown_root(self.squared_sensitivity, above)
        return (
            f"Discrete Gaussian noise, a share of standard deviation {share} from each party, on "
            f"whole numbers that one {self.unit} can change by at most {moved} (Euclidean norm). "
            f"At least {self.honest} shares are known to nobody but those who drew them."
        )

    def assumption(self) -> str:
        return (
            f"In every sum at least {self.honest} parties followed the protocol, and told nobody "
            "their share of the noise, nor the keys that hid it until it was in the sum."
        )

    def including(self) -> str:
        return (
            f"from the server too, as long as at least {self.honest} of those who answered are "
            "honest"
        )


@lru_cache(maxsize=256)
def variation(variance: Fraction, summands: int) -> float:
    r"""Bound how much the law of a sum differs in shape from a discrete Gaussian: ξ of one entry.

    Examples
    --------
    >>> variation(Fraction(1), 1)
    0.0
    >>> f"{variation(Fraction(4), 1000):.2g}"
    '2.9e-17'
    """
    with rounding.precision():
        rate = -2 * arb.pi() ** 2 * rounding.low(variance)
        total = arb(0)
        for k in range(1, min(summands, _TERMS)):
            total += _term(rate, k)
        if summands > _TERMS:
            total += (summands - _TERMS) * _term(rate, _TERMS)
        return max(rounding.above(total), 0.0)


def _term(rate: arb, k: int) -> arb:
    wave = (rate * k / (k + 1)).exp()
    ratio = 2 * wave / (1 - wave)
    return ((1 + ratio) / (1 - ratio)).log()
