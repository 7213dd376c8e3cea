"""Guarantees as frozen values, and the theorems that convert them.

Every guarantee names its `adjacency` (which two inputs an attacker cannot tell apart) and its
`unit` (what these inputs differ in). Post-processing never weakens a guarantee, so there is no
function for it. Composition is in `tacit.accounting.composition`.

References
----------
.. [DR16] Dwork, Rothblum. Concentrated differential privacy. 2016.
.. [BS16] Bun, Steinke. Concentrated differential privacy: simplifications, extensions, and lower
   bounds. TCC 2016.
.. [Mir17] Mironov. Rényi differential privacy. CSF 2017.
.. [KOV15] Kairouz, Oh, Viswanath. The composition theorem for differential privacy. ICML 2015.
.. [CKS20] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from flint import arb
from scipy.optimize import minimize_scalar

from tacit.privacy import decimals as digits
from tacit.privacy import errors, rounding, shown
from tacit.privacy.neighbours import Adjacency as Adjacency
from tacit.privacy.neighbours import Unit as Unit
from tacit.privacy.neighbours import steps_between
from tacit.privacy.rounding import above, ball, float_above


@dataclass(frozen=True, kw_only=True)
class Guarantee(ABC):
    """Abstract base of all guarantees: use one of the concrete classes."""

    adjacency: Adjacency
    unit: Unit

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "adjacency", Adjacency.of(name, self.adjacency))
        object.__setattr__(self, "unit", Unit.of(name, self.unit))

    @property
    def whom(self) -> str:
        """Describe the neighbours in words."""
        return f"{self.adjacency.model}, {self.adjacency}, unit: {self.unit}"

    @property
    def scope(self) -> dict[str, Any]:
        """Return adjacency and unit, to build another guarantee about the same neighbours."""
        return {"adjacency": self.adjacency, "unit": self.unit}

    def _repr_html_(self) -> str:
        about = {"neighbours": self.adjacency, "unit": self.unit}
        return shown.table("Guarantee", {"states": self, **about})

    @abstractmethod
    def at_delta(self, delta: float) -> Guarantee:
        """Return the smallest (ε, δ) statement at this δ that follows; unknown stays unknown."""

    @abstractmethod
    def group(self, size: int) -> Guarantee:
        """Return the guarantee for `size` units at once."""

    def towards(self, adjacency: Adjacency | str) -> Guarantee:
        """Restate the guarantee for other neighbours, if a theorem allows it, at its price.

        A blank unit contributes nothing. Mechanisms that state add-remove treat it as an absent
        one. For mechanisms that state replace-one it is one more value (it can be treated like some
        fixed value). Either way zero-out says that the release is close to one that does not depend
        on the unit's data:

        - zero-out follows from add-remove, and from replace-one, unchanged;
        - replace-one follows from add-remove (one removal, one addition) and from zero-out (one
          unit blanked, another put in its place), as for a group of two;
        - add-remove follows from nothing else: the others do not hide the number of units.
        """
        steps = steps_between("towards", self.adjacency, adjacency)
        wanted = Adjacency(adjacency)
        return replace(self if steps == 1 else self.group(steps), adjacency=wanted)


@dataclass(frozen=True)
class PureDP(Guarantee):
    r"""ε-differential privacy: no output's odds change by more than :math:`e^\varepsilon`."""

    epsilon: float
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _store_float(self, "epsilon", least=0.0)

    def at_delta(self, delta: float) -> ApproxDP:
        r"""Return the tight :math:`\varepsilon' = \ln(e^\varepsilon - \delta(1 + e^\varepsilon))`.

        Randomized response is the worst ε-DP pair [KOV15]_, so its profile applies.
        """
        delta = errors.probability("PureDP.at_delta", "delta", delta)
        spent = _spent_above(self.epsilon, rounding.least(delta))
        return ApproxDP(epsilon=spent, delta=delta, **self.scope)

    def group(self, size: int) -> PureDP:
        return replace(self, epsilon=_times(_group_size(size), self.epsilon))

    def concentrated(self) -> ConcentratedDP:
        r"""Return (μ, τ)-CDP, :math:`\mu = \varepsilon\tanh(\varepsilon/2), \tau = \varepsilon`.

        The mean of the loss is at most that of randomized response [KOV15]_ and the loss lies in
        [−ε, ε], so Hoeffding's lemma gives τ [DR16]_.
        """
        with rounding.precision():
            mean = above(ball(self.epsilon) * (ball(self.epsilon) / 2).tanh())
        return ConcentratedDP(mu=mean, tau=self.epsilon, **self.scope)

    def zcdp(self) -> ZCDP:
        r"""Return :math:`\varepsilon^2/2`-zCDP [BS16]_, Proposition 1.4."""
        return ZCDP(xi=0.0, rho=float_above(_decimal(self.epsilon) ** 2 / 2), **self.scope)

    def renyi(self, orders: tuple[float, ...]) -> RenyiDP:
        r"""Return the Rényi curve of randomized response, the worst ε-DP pair.

        .. math:: e^{(\alpha - 1) D_\alpha} = \frac{\sinh(\alpha\varepsilon)
                  - \sinh((\alpha - 1)\varepsilon)}{\sinh\varepsilon}
        """
        return RenyiDP(
            orders=orders,
            epsilons=tuple(_renyi_of_response(self.epsilon, order) for order in orders),
            **self.scope,
        )

    def __str__(self) -> str:
        return f"{digits.above(self.epsilon)}-DP ({self.whom})"


@dataclass(frozen=True)
class ApproxDP(Guarantee):
    r"""(ε, δ)-differential privacy: :math:`P(S) \le e^\varepsilon P'(S) + \delta` for every S."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _store_float(self, "epsilon", least=0.0)
        delta = errors.probability("ApproxDP", "delta", self.delta)
        object.__setattr__(self, "delta", delta)

    def at_delta(self, delta: float) -> Guarantee:
        """Return the statement at a larger δ; at a smaller one nothing is known."""
        delta = errors.probability("ApproxDP.at_delta", "delta", delta)
        if delta < self.delta:
            stated = f"an (epsilon, {digits.above(self.delta)}) statement"
            reason = f"{stated} says nothing at delta {delta!r}"
            return Unproven(reason=reason, **self.scope)
        # Above its δ the pair still factors through randomized response that fails with δ.
        failing = _decimal(self.delta)
        spare = (_decimal(delta) - failing) / (1 - failing)
        return replace(self, epsilon=_spent_above(self.epsilon, spare), delta=delta)

    def group(self, size: int) -> Guarantee:
        r"""Return (kε, δ (e^{kε} − 1)/(e^ε − 1))."""
        size = _group_size(size)
        if size == 1:
            return self
        if self.epsilon == 0 or self.delta == 0:
            delta = _times(size, self.delta)
        elif size * self.epsilon > 700:
            delta = math.inf
        else:
            with rounding.precision():
                # The factor grows with ε.
                loss = rounding.high(self.epsilon)
                delta = above(rounding.high(self.delta) * ((size * loss).expm1() / loss.expm1()))
        if delta >= 1:
            return NotPrivate(**self.scope)
        return replace(self, epsilon=_times(size, self.epsilon), delta=delta)

    def __str__(self) -> str:
        return f"({digits.above(self.epsilon)}, {digits.above(self.delta)})-DP ({self.whom})"


@dataclass(frozen=True)
class ConcentratedDP(Guarantee):
    r"""(μ, τ)-concentrated DP [DR16]_: loss with mean ≤ μ, and τ-subgaussian about its mean."""

    mu: float
    tau: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _store_float(self, "mu", least=0.0)
        _store_float(self, "tau", least=0.0)

    def zcdp(self) -> ZCDP:
        r"""Return :math:`(\mu - \tau^2/2, \tau^2/2)`-zCDP [BS16]_, Lemma 4.2."""
        half = _decimal(self.tau) ** 2 / 2
        rho = float_above(half)
        return ZCDP(xi=max(float_above(_decimal(self.mu) - half), -rho), rho=rho, **self.scope)

    def at_delta(self, delta: float) -> Guarantee:
        return self.zcdp().at_delta(delta)

    def group(self, size: int) -> Guarantee:
        """Convert through zCDP, whose published constants are tighter."""
        return self.zcdp().group(size)

    def __str__(self) -> str:
        return f"({digits.above(self.mu)}, {digits.above(self.tau)})-CDP ({self.whom})"


@dataclass(frozen=True)
class ZCDP(Guarantee):
    r"""(ξ, ρ)-zCDP [BS16]_: :math:`D_\alpha \le \xi + \rho\alpha` for every α > 1."""

    xi: float
    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _store_float(self, "rho", least=0.0)
        _store_float(self, "xi", least=-self.rho)

    def at_delta(self, delta: float) -> Guarantee:
        """Return the smallest ε over all orders of the conversion in [CKS20]_."""
        delta = errors.probability("ZCDP.at_delta", "delta", delta)
        if self.rho == 0:
            return PureDP(epsilon=self.xi, **self.scope).at_delta(delta)
        if delta == 0:
            return _no_pure_statement(self)

        def epsilon_at(log_excess: float) -> float:
            order = max(1 + math.exp(log_excess), math.nextafter(1.0, 2.0))
            return _renyi_to_epsilon(order, self.xi + self.rho * order, delta)

        # The optimum is near α − 1 = √(ln(1/δ)/ρ); the bracket is ten e-folds either way.
        middle = math.log(-math.log(delta) / max(self.rho, 1e-300)) / 2
        bounds = (middle - 10, middle + 10)
        optimum = minimize_scalar(
            epsilon_at, bounds=bounds, method="bounded", options={"xatol": 1e-9}
        )
        log_excess = min((float(optimum.x), middle), key=epsilon_at)
        # Any order is valid, as long as ξ + ρα is computed at the same one.
        order = Fraction(max(1 + math.exp(log_excess), math.nextafter(1.0, 2.0)))
        with rounding.precision():
            divergence = ball(self.xi) + ball(self.rho) * ball(order)
            epsilon = above(_converted(ball(order), divergence, rounding.low(delta)))
        return ApproxDP(epsilon=max(epsilon, 0.0), delta=delta, **self.scope)

    def group(self, size: int) -> ZCDP:
        r"""Return :math:`(\xi k \sum_{i \le k} 1/i,\; k^2\rho)` [BS16]_, Proposition 1.9."""
        size = _group_size(size)
        if size == 1:
            return self
        with rounding.precision():
            harmonic = ball(size + 1).digamma() + arb.const_euler()
            # A negative ξ must not be scaled up: the proposition is for ξ ≥ 0.
            xi = above(ball(self.xi) * size * harmonic) if self.xi > 0 else 0.0
        return replace(self, xi=xi, rho=_times(size**2, self.rho))

    def renyi(self, orders: tuple[float, ...]) -> RenyiDP:
        xi, rho = _decimal(self.xi), _decimal(self.rho)
        curve = tuple(float_above(xi + rho * _decimal(order)) for order in orders)
        return RenyiDP(orders=orders, epsilons=curve, **self.scope)

    def __str__(self) -> str:
        return f"({digits.above(self.xi)}, {digits.above(self.rho)})-zCDP ({self.whom})"


@dataclass(frozen=True)
class RenyiDP(Guarantee):
    r"""Rényi DP, a curve of divergences [Mir17]_: at most ε(α) at each order α > 1."""

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        orders = _floats("orders", self.orders)
        epsilons = _floats("epsilons", self.epsilons)
        if not orders or not all(1 < order < math.inf for order in orders):
            errors.refuse("RenyiDP", "orders", "finite and above 1", self.orders)
        if list(orders) != sorted(set(orders)):
            errors.refuse("RenyiDP", "orders", "increasing", self.orders)
        if len(epsilons) != len(orders) or not all(epsilon >= 0 for epsilon in epsilons):
            errors.refuse("RenyiDP", "epsilons", "one number ≥ 0 for each order", self.epsilons)
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "epsilons", epsilons)

    def at_delta(self, delta: float) -> Guarantee:
        """Return the ε of the best order of the conversion in [CKS20]_."""
        delta = errors.probability("RenyiDP.at_delta", "delta", delta)
        if delta == 0:
            return _no_pure_statement(self)
        pairs = zip(self.orders, self.epsilons, strict=True)
        order, divergence = min(pairs, key=lambda pair: _renyi_to_epsilon(pair[0], pair[1], delta))
        if divergence == math.inf:
            return NotPrivate(**self.scope)
        with rounding.precision():
            # The conversion is evaluated at the order that the float denotes, in either reading.
            balls = ball(order), rounding.high(divergence), rounding.low(delta)
            epsilon = above(_converted(*balls))
        return ApproxDP(epsilon=max(epsilon, 0.0), delta=delta, **self.scope)

    def group(self, size: int) -> Guarantee:
        r"""Return :math:`3^c\varepsilon(\alpha)` at α/2^c for k ≤ 2^c, if α ≥ 2^{c+1} [Mir17]_."""
        doublings = (_group_size(size) - 1).bit_length()
        converted = [
            (order / 2**doublings, _times(3**doublings, epsilon))
            for order, epsilon in zip(self.orders, self.epsilons, strict=True)
            if order >= 2 ** (doublings + 1) or doublings == 0
        ]
        if not converted:
            reason = f"no order of the curve is large enough for groups of {size}"
            return Unproven(reason=reason, **self.scope)
        orders, epsilons = zip(*converted, strict=True)
        return replace(self, orders=orders, epsilons=epsilons)

    def __str__(self) -> str:
        best = min(zip(self.epsilons, self.orders, strict=True))
        least = f"{digits.above(best[0])} at {best[1]:g}"
        return f"Rényi DP, {len(self.orders)} orders, {least} ({self.whom})"


@dataclass(frozen=True)
class NotPrivate(Guarantee):
    """No guarantee: an output may reveal its input."""

    epsilon: ClassVar[float] = math.inf
    delta: ClassVar[float] = 0.0

    def at_delta(self, delta: float) -> NotPrivate:
        return self

    def group(self, size: int) -> NotPrivate:
        return self

    def __str__(self) -> str:
        return f"not private ({self.whom})"


@dataclass(frozen=True)
class Unproven(Guarantee):
    """No known proof; `reason` says which step fails. It has no ε: unknown is not a number."""

    reason: str

    def at_delta(self, delta: float) -> Unproven:
        return self

    def group(self, size: int) -> Unproven:
        return self

    def __str__(self) -> str:
        return f"unproven: {self.reason} ({self.whom})"


KINDS: dict[str, type[Guarantee]] = {
    kind.__name__: kind
    for kind in (PureDP, ApproxDP, ConcentratedDP, ZCDP, RenyiDP, NotPrivate, Unproven)
}


def same_scope(where: str, guarantees: list[Guarantee]) -> dict[str, Any]:
    """Return the adjacency and unit that all guarantees share; raise if they differ."""
    if not guarantees:
        errors.refuse(where, "guarantees", "at least one", [])
    scopes = {(guarantee.adjacency, guarantee.unit) for guarantee in guarantees}
    if len(scopes) > 1:
        listed = " and ".join(sorted(f"{adjacency}/{unit}" for adjacency, unit in scopes))
        raise errors.IncompatibleGuarantees(
            f"{where}: guarantees must share adjacency and unit, got {listed}. "
            "Restate one of them (for example with towards('zero-out'))."
        )
    return guarantees[0].scope


def _store_float(guarantee: Guarantee, name: str, *, least: float) -> None:
    """Check one number of a guarantee and store it as a float (NaN fails the comparison)."""
    value = getattr(guarantee, name)
    where = type(guarantee).__name__
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        errors.refuse(where, name, "a number", value)
    if not least <= number < math.inf:
        errors.refuse(where, name, f"finite and at least {least:g}", value)
    object.__setattr__(guarantee, name, number)


def _group_size(size: int) -> int:
    return errors.whole("group", "size", size, least=1)


def _no_pure_statement(guarantee: Guarantee) -> Unproven:
    reason = f"{type(guarantee).__name__} gives no statement at delta 0; ask for a delta above 0"
    return Unproven(reason=reason, **guarantee.scope)


def _decimal(number: float) -> Fraction:
    return Fraction(repr(number))


def _times(count: int, number: float) -> float:
    return float_above(count * _decimal(number)) if number < math.inf else math.inf


@rounding.precision()
def _spent_above(epsilon: float, spare: Fraction) -> float:
    """Bound the profile of ε-randomized response at δ = `spare` from above."""
    if spare == 0:
        return epsilon
    high, kept = rounding.high(epsilon), rounding.high(1 - spare)
    if high.expm1() * kept <= 2 * rounding.low(spare):
        return 0.0
    inner = rounding.low(-spare) * (1 + (-high).exp())
    return min(max(above(high + inner.log1p()), 0.0), epsilon)


def _renyi_to_epsilon(order: float, divergence: float, delta: float) -> float:
    """Compute `_converted` in floats, to search for the best order."""
    return divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _converted(order: arb, divergence: arb, delta: arb) -> arb:
    r"""Convert a Rényi divergence to ε at δ.

    .. math:: D_\alpha + \ln\frac{\alpha-1}{\alpha} - \frac{\ln\delta + \ln\alpha}{\alpha-1}
    """
    return divergence + (-1 / order).log1p() - (delta.log() + order.log()) / (order - 1)


@rounding.precision()
def _renyi_of_response(epsilon: float, order: float) -> float:
    """Bound the Rényi divergence between the two answers of ε-randomized response from above.

    The excess of its moment over 1 is 2 sinh(αε/2) sinh((α − 1)ε/2) / cosh(ε/2), which grows with
    both; the divergence itself grows with the order.
    """
    if epsilon == 0:
        return 0.0
    half, alpha = rounding.high(epsilon) / 2, rounding.high(order)
    excess = 2 * (alpha * half).sinh() * ((alpha - 1) * half).sinh() / half.cosh()
    return min(above(excess.log1p() / (alpha - 1)), epsilon)


def _floats(name: str, values: Any) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        errors.refuse("RenyiDP", name, "numbers", values)
