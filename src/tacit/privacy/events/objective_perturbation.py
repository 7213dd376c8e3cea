r"""The theorem of objective perturbation: a minimiser of losses with a random linear term.

With losses of a linear score, rows of norm at most 1 and a random vector b,

.. math:: \theta^* = \arg\min_\theta \sum_i \ell(x_i^\top\theta, y_i)
          + \tfrac\lambda2\lVert\theta\rVert^2 + b^\top\theta

is an invertible function of b: :math:`b = -\sum_i \nabla\ell_i(\theta) - \lambda\theta`. So
:math:`\theta^*` has the density of b there, times the determinant of
:math:`H = \sum_i \ell_i'' x_i x_i^\top + \lambda I`.

Notes
-----
Let one more record (x, y) have gradient :math:`g = \ell' x`, :math:`\lVert g\rVert \le \Delta`, and
curvature :math:`\ell''\lVert x\rVert^2 \le \beta`. Then

- the determinant grows by the factor :math:`1 + \ell'' x^\top H^{-1} x`, between 1 and
  :math:`1 + \beta/\lambda` (matrix determinant lemma). In either direction this contributes at most
  :math:`c = \ln(1 + \beta/\lambda)` to the loss;
- b becomes b − g. With Laplace entries of scale s the density changes by a factor of at most
  :math:`e^{\lVert g\rVert_1/s}`. With Gaussian entries the loss is
  :math:`(\lVert g\rVert^2 \pm 2 b^\top g)/2\sigma^2`. Here g depends on b, but its *direction* x
  does not: so the loss is at most :math:`\tau^2/2 + \tau|N|` with :math:`\tau = \Delta/\sigma` and
  :math:`N = b^\top x/(\sigma\lVert x\rVert)` standard normal [RKW23]_.

A loss whose slope has kinks (Huber's) is allowed: b is a Lipschitz function of θ and θ of b, and
the density formula holds except on a set of measure 0.

A solver does not find :math:`\theta^*` itself. Its result lies within a distance r of it, and is a
function of b and the data; so it is :math:`\theta^*` plus a vector of sensitivity 2r [INS19]_. With
noise added to it, that is one more Gaussian, :math:`\mu = 2r/\sigma_2`, or Laplace.

For K problems on the same records, each with its own vector b, the losses add up. With signs
:math:`s \in \{-1, 1\}^K` the sum of the |N| is the largest of :math:`2^K` normal variables, so

.. math:: \delta(\varepsilon) \le 2^K \delta_z(\varepsilon - Kc), \quad
          \tfrac{1}{z^2} = K(\tau^2 + \mu^2),

where :math:`\delta_z` is the profile of the Gaussian mechanism with noise multiplier z. For K = 1
and :math:`\varepsilon - c \ge \tau^2/2` that is Theorem 3.1 of [RKW23]_, with
:math:`\ln(1 + \beta/\lambda)` for their :math:`-\ln(1 - \beta/\lambda)`. The Rényi divergence is
at most

.. math:: K\Big(c + \tfrac\alpha2(\tau^2 + \mu^2)
          + \frac{\ln 2\Phi((\alpha - 1)\tau)}{\alpha - 1}\Big),

and as :math:`\ln 2\Phi(x) \le x\sqrt{2/\pi}` (it is concave) that is (ξ, ρ)-zCDP with
:math:`\xi = K(c + \tau\sqrt{2/\pi})` and :math:`\rho = K(\tau^2 + \mu^2)/2`.

References
----------
.. [CMS11] Chaudhuri, Monteleoni, Sarwate. Differentially private empirical risk minimization.
   JMLR 2011.
.. [KST12] Kifer, Smith, Thakurta. Private convex empirical risk minimization and
   high-dimensional regression. COLT 2012.
.. [INS19] Iyengar, Near, Song, Thakkar, Thakurta, Wang. Towards practical differentially private
   convex optimization. IEEE S&P 2019 (approximate minima perturbation).
.. [RKW23] Redberg, Koskela, Wang. Improving the privacy and practicality of objective perturbation
   for differentially private linear learners. NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from flint import arb

from tacit.privacy import errors, gaussian, rounding
from tacit.privacy.decimals import below
from tacit.privacy.events.base import ONE_OR_NONE, Leaf
from tacit.privacy.guarantees import ZCDP, ApproxDP, Guarantee, PureDP
from tacit.privacy.rounding import above, float_below, low, normal_below

__all__ = ["LAWS", "ObjectivePerturbation"]

LAWS = ("gaussian", "laplace")
"""Laws of the linear term."""


@dataclass(frozen=True)
class ObjectivePerturbation(Leaf):
    r"""Approximate minimisers of convex sums with a random linear term, plus output noise.

    Each of `problems` objectives sums losses of a linear score, one per record. The linear term has
    independent entries of this law and scale; `sensitivity` bounds the gradient of a record's loss
    (ℓ2 for "gaussian", ℓ1 for "laplace"), `smoothness` bounds its only curvature, and `convexity`
    is a lower bound on that of the rest of the objective. The approximate minimisers are off by at
    most `output_sensitivity` / 2 in the same norm, and have noise of `output_scale`.
    """

    law: str
    sensitivity: Fraction
    scale: Fraction
    smoothness: Fraction
    convexity: Fraction
    output_sensitivity: Fraction
    output_scale: Fraction
    problems: int

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "ObjectivePerturbation"
        object.__setattr__(self, "law", errors.choice(name, "law", self.law, LAWS))
        self._positive("sensitivity", "scale", "smoothness", "convexity")
        self._positive("output_sensitivity", "output_scale")
        self._whole("problems", least=1, most=256)
        if self.adjacency not in ONE_OR_NONE:
            remedy = "The proof compares data with one record and without it."
            errors.refuse(name, "adjacency", "add-remove or zero-out", str(self.adjacency), remedy)
        for scale, sensitivity in (
            (self.scale, self.sensitivity),
            (self.output_scale, self.output_sensitivity),
        ):
            if not 1e-6 <= scale / sensitivity <= 10**12:
                ratio = float(scale / sensitivity)
                errors.refuse(name, "scale / sensitivity", "from 1e-6 to 1e12", ratio)
        if not 1e-12 <= self.smoothness / self.convexity <= 10**12:
            ratio = float(self.smoothness / self.convexity)
            errors.refuse(name, "smoothness / convexity", "from 1e-12 to 1e12", ratio)

    def words(self) -> str:
        law = {"gaussian": "Gaussian", "laplace": "Laplace"}[self.law]
        return (
            f"{self.problems} convex problem(s) solved with a random linear term ({law} "
            f"noise, {below(self.scale / self.sensitivity, 4)} times the largest gradient "
            f"of one {self.unit}) and a penalty with "
            f"{below(self.convexity / self.smoothness, 4)} times the curvature of one "
            f"{self.unit}. The solutions have {law} noise, "
            f"{below(self.output_scale / self.output_sensitivity, 4)} times what the error "
            "of the solver may add."
        )

    @rounding.precision()
    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee at this δ, or without one zCDP, or pure DP for Laplace entries."""
        lost = self.problems * self._distortion()
        if self.law == "laplace":
            ratios = self.sensitivity / self.scale + self.output_sensitivity / self.output_scale
            return PureDP(epsilon=above(lost + self.problems * low(ratios)), **self.scope)
        tau, mu = self._shifts()
        squares = self.problems * (tau**2 + mu**2)
        if delta is None:
            xi = lost + self.problems * tau * (2 / arb.pi()).sqrt()
            return ZCDP(xi=above(xi), rho=above(squares / 2), **self.scope)
        share = float_below(rounding.least(delta) / 2**self.problems)
        epsilon = gaussian.epsilon_of(rounding.below(1 / squares.sqrt()), share)
        return ApproxDP(epsilon=above(lost + rounding.high(epsilon)), delta=delta, **self.scope)

    @rounding.precision()
    def renyi(self, orders: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Bound the Rényi curve of the Gaussian law from above."""
        tau, mu = self._shifts()
        lost, squares = self._distortion(), tau**2 + mu**2

        def at(order: float) -> float:
            alpha = rounding.ball(order)
            folded = (2 * normal_below((alpha - 1) * tau)).log() / (alpha - 1)
            return above(self.problems * (lost + alpha * squares / 2 + folded))

        return np.array([at(float(order)) for order in orders])

    @rounding.precision()
    def distortion(self) -> float:
        r"""Return :math:`\ln(1 + \beta/\lambda)`, one record's effect on the volume, rounded up."""
        return above(self._distortion())

    def _distortion(self) -> arb:
        return low(self.smoothness / self.convexity).log1p()

    def _shifts(self) -> tuple[arb, arb]:
        return (
            low(self.sensitivity / self.scale),
            low(self.output_sensitivity / self.output_scale),
        )
