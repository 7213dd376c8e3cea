r"""The theorem of each mechanism: from one draw to its guarantee.

References
----------
.. [War65] Warner. Randomized response. JASA 1965; K-ary: Kairouz, Oh, Viswanath. NIPS 2014.
.. [YB18] Ye, Barg. Optimal schemes for discrete distribution estimation under locally
   differential privacy. IEEE Trans. IT 2018 (subset selection).
.. [MT07] McSherry, Talwar. Mechanism design via differential privacy. FOCS 2007.
.. [MS20] McKenna, Sheldon. Permute-and-flip. NeurIPS 2020.
.. [LSL17] Lyu, Su, Li. Understanding the sparse vector technique. VLDB 2017 (Algorithm 7).
.. [NRS07] Nissim, Raskhodnikova, Smith. Smooth sensitivity. STOC 2007.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tacit.privacy import events, rounding
from tacit.privacy.accounting import gaussian, perturbed
from tacit.privacy.guarantees import ZCDP, ApproxDP, Guarantee, PureDP
from tacit.privacy.rounding import float_above


def of_leaf(event: events.Event, delta: float | None = None) -> Guarantee:
    """Return the guarantee of one draw: at this δ, or without one its natural statement."""
    scope = events.scope_of(event)
    match event:
        case events.Declared():
            return event.guarantee
        case events.Laplace():
            # |‖y − x‖₁ − ‖y − x'‖₁| ≤ Δ for every y, and the normaliser does not depend on x.
            return PureDP(epsilon=float_above(event.l1_sensitivity / event.scale), **scope)
        case events.RandomizedResponse() | events.SubsetSelection():
            # The event's constructor has compared the odds with e^ε in integers [War65, YB18].
            return PureDP(epsilon=float_above(event.epsilon), **scope)
        case events.Exponential():
            # A score changes a weight by a factor of at most e^{Δ/t}, and so the normaliser: 2Δ/t
            # [MT07]; permute-and-flip: [MS20].
            return PureDP(epsilon=float_above(event.epsilon), **scope)
        case events.SparseVector():
            # Algorithm 7 of [LSL17], with the scales that were used.
            return PureDP(epsilon=float_above(sum(event.shares, Fraction(0))), **scope)
        case events.SmoothLaplace():
            return ApproxDP(epsilon=smooth_laplace_epsilon(event), delta=event.delta, **scope)
        case events.CertifiedTable():
            # The definition itself, checked: a finite channel is (ε, δ)-DP if and only if
            # Σ_r (P(r | x) − e^ε P(r | x'))₊ ≤ δ for all neighbours, and no pair is left out.
            epsilon = float_above(event.epsilon)
            if event.delta == 0:
                return PureDP(epsilon=epsilon, **scope)
            return ApproxDP(epsilon=epsilon, delta=event.delta, **scope)
        case events.Gaussian():
            if delta is None:
                rho = (event.l2_sensitivity / event.sigma) ** 2 / 2
                return ZCDP(xi=0.0, rho=float_above(rho), **scope)
            epsilon = gaussian.epsilon_of(event.sigma / event.l2_sensitivity, delta)
            return ApproxDP(epsilon=epsilon, delta=delta, **scope)
        case events.DiscreteGaussian():
            return _discrete_gaussian(event, delta)
        case events.ObjectivePerturbation():
            return perturbed.guarantee(event, delta)
    raise AssertionError(f"no theorem for {type(event).__name__}")


def proves(event: events.Event, epsilon: float, delta: float) -> bool:
    """Return whether a Gaussian draw is (ε, δ)-DP, by its profile at this very ε.

    `of_leaf` searches for the smallest ε at δ, and may stop a last digit above one that holds.
    """
    match event:
        case events.Gaussian():
            multiplier = event.sigma / event.l2_sensitivity
            return gaussian.delta_of(multiplier, epsilon) <= delta
        case events.DiscreteGaussian() if gaussian.discrete_is_exact(
            event.variance, event.squared_sensitivity, event.dimension
        ):
            shift = math.isqrt(int(event.squared_sensitivity))
            return gaussian.discrete_delta_of(event.variance, shift, epsilon) <= delta
    return False


def _discrete_gaussian(event: events.DiscreteGaussian, delta: float | None) -> Guarantee:
    scope = events.scope_of(event)
    rho = event.squared_sensitivity / (2 * event.variance)
    concentrated = ZCDP(xi=0.0, rho=float_above(rho), **scope)
    if delta is None:
        return concentrated
    if gaussian.discrete_is_exact(event.variance, event.squared_sensitivity, event.dimension):
        sensitivity = math.isqrt(int(event.squared_sensitivity))
        epsilon = gaussian.discrete_epsilon_of(event.variance, sensitivity, delta)
        return ApproxDP(epsilon=epsilon, delta=delta, **scope)
    return concentrated.at_delta(delta)


def smooth_laplace_epsilon(event: events.SmoothLaplace) -> float:
    r"""Return :math:`\varepsilon = \alpha + \max(\beta, \ln(2/\delta)(e^\beta - 1))` at scale S/α.

    With :math:`t = S(x)/\alpha`, :math:`t' = S(x')/\alpha` and :math:`k = y - f(x)` the masses are
    :math:`\tanh(1/2t)\,e^{-|k|/t}`. If :math:`t' \ge t` their ratio is at most
    :math:`(t'/t)\,e^{\Delta/t'} \le e^{\beta + \alpha}`, as tanh(u)/u decreases and the local
    sensitivity is at most S(x'). If :math:`t' < t` it is at most
    :math:`e^{\Delta/t' + |k|/t\,(e^\beta - 1)}`, and :math:`|k|/t > \ln(2/\delta)` has probability
    at most δ. This is [NRS07]_ carried over to the integers.
    """
    with rounding.precision():
        alpha, beta = rounding.high(event.alpha), rounding.high(event.beta)
        tail = (2 / rounding.low(event.delta)).log()
        return max(rounding.above(alpha + beta), rounding.above(alpha + tail * beta.expm1()))
