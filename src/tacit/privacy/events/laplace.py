r"""Laplace noise on integers: of a scale that is fixed, or that follows the data.

References
----------
.. [NRS07] Nissim, Raskhodnikova, Smith. Smooth sensitivity. STOC 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tacit.privacy import errors, rounding
from tacit.privacy.decimals import above, below
from tacit.privacy.events.base import Leaf
from tacit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from tacit.privacy.rounding import float_above

__all__ = ["Laplace", "SmoothLaplace"]


@dataclass(frozen=True)
class Laplace(Leaf):
    """Discrete Laplace noise of this scale on integers of this ℓ1 sensitivity."""

    l1_sensitivity: Fraction
    scale: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("l1_sensitivity", "scale")

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # |‖y − x‖₁ − ‖y − x'‖₁| ≤ Δ for every y, and the normaliser does not depend on x.
        return PureDP(epsilon=float_above(self.l1_sensitivity / self.scale), **self.scope)

    def words(self) -> str:
        return (
            f"Discrete Laplace noise of scale {below(self.scale)} on whole numbers that "
            f"one {self.unit} can change by at most {above(self.l1_sensitivity)} in total."
        )


@dataclass(frozen=True)
class SmoothLaplace(Leaf):
    r"""Discrete Laplace noise of scale S(x)/α, with S a β-smooth bound of the local sensitivity.

    Sensitivity and scale depend on the data; their ratio is α. ε follows from α, β and δ.
    """

    alpha: Fraction
    beta: Fraction
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("alpha", "beta")
        for name in ("alpha", "beta"):
            errors.epsilon_in_range("SmoothLaplace", getattr(self, name), least=Fraction(0))
        delta = errors.probability("SmoothLaplace", "delta", self.delta, zero=False)
        object.__setattr__(self, "delta", delta)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        return ApproxDP(epsilon=self.epsilon, delta=self.delta, **self.scope)

    def words(self) -> str:
        return (
            f"Discrete Laplace noise on a value that one {self.unit} can change, in data like "
            f"these, by at most a smooth bound (smoothness {above(self.beta)}). The scale of "
            f"the noise is this bound divided by {above(self.alpha)}."
        )

    def assumption(self) -> str:
        return "The bound that sets the scale of the noise is as smooth as stated."

    @property
    def epsilon(self) -> float:
        r""":math:`\varepsilon = \alpha + \max(\beta, \ln(2/\delta)(e^\beta - 1))` at scale S/α.

        With :math:`t = S(x)/\alpha`, :math:`t' = S(x')/\alpha` and :math:`k = y - f(x)` the masses
        are :math:`\tanh(1/2t)\,e^{-|k|/t}`. If :math:`t' \ge t` their ratio is at most
        :math:`(t'/t)\,e^{\Delta/t'} \le e^{\beta + \alpha}`, as tanh(u)/u decreases and the local
        sensitivity is at most S(x'). If :math:`t' < t` it is at most
        :math:`e^{\Delta/t' + |k|/t\,(e^\beta - 1)}`, and :math:`|k|/t > \ln(2/\delta)` has
        probability at most δ. This is [NRS07]_ carried over to the integers.
        """
        with rounding.precision():
            alpha, beta = rounding.high(self.alpha), rounding.high(self.beta)
            tail = (2 / rounding.low(self.delta)).log()
            return max(rounding.above(alpha + beta), rounding.above(alpha + tail * beta.expm1()))
