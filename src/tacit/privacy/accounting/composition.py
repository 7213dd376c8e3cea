"""Composition of several guarantees about the same people.

All but `naive`, `concentrated` and `renyi` need the list to be fixed before the first draw; these
three are sums, which also hold when parameters are chosen adaptively.

References
----------
.. [KOV15] Kairouz, Oh, Viswanath. The composition theorem for differential privacy. ICML 2015.
.. [DR16] Dwork, Rothblum. Concentrated differential privacy. 2016.
.. [BS16] Bun, Steinke. Concentrated differential privacy. TCC 2016.
.. [Mir17] Mironov. Rényi differential privacy. CSF 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from flint import arb
from scipy.special import gammaln

from tacit.privacy import errors, events, gaussian, rounding
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    ConcentratedDP,
    Guarantee,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unproven,
    same_scope,
)
from tacit.privacy.rounding import above, ball, float_above, high, low, sum_above


def sequential(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Add guarantees in the strongest notion that all of them have."""
    scope = same_scope("sequential", list(guarantees))
    for absorbing in (NotPrivate, Unproven):
        if absorbed := next((part for part in guarantees if isinstance(part, absorbing)), None):
            return absorbed
    if all(isinstance(part, PureDP | ApproxDP) for part in guarantees):
        return naive(guarantees)
    if any(isinstance(part, ApproxDP) for part in guarantees):
        raise errors.IncompatibleGuarantees(
            "sequential: (epsilon, delta) does not add to concentrated or Rényi guarantees. "
            "Convert those with at_delta(delta) first."
        )
    if any(isinstance(part, RenyiDP) for part in guarantees):
        return renyi(guarantees)
    if all(isinstance(part, ConcentratedDP) for part in guarantees):
        parts = [part for part in guarantees if isinstance(part, ConcentratedDP)]
        with rounding.precision():
            tau = above(sum((ball(part.tau) ** 2 for part in parts), arb(0)).sqrt())
        return ConcentratedDP(mu=sum_above([part.mu for part in parts]), tau=tau, **scope)
    return concentrated(guarantees)


def naive(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Add ε and δ."""
    scope = same_scope("naive", list(guarantees))
    for part in guarantees:
        if not isinstance(part, PureDP | ApproxDP):
            _refused("naive", part)
    parts = [part for part in guarantees if isinstance(part, PureDP | ApproxDP)]
    epsilon = sum_above([part.epsilon for part in parts])
    delta = sum_above([part.delta for part in parts])
    if delta >= 1:
        return NotPrivate(**scope)
    if delta == 0:
        return PureDP(epsilon=epsilon, **scope)
    return ApproxDP(epsilon=epsilon, delta=delta, **scope)


def concentrated(guarantees: Sequence[Guarantee]) -> ZCDP:
    """Add ξ and ρ [BS16]_; pure and (μ, τ) guarantees are converted."""
    scope = same_scope("concentrated", list(guarantees))
    parts = []
    for one in guarantees:
        if isinstance(one, PureDP | ConcentratedDP):
            parts.append(one.zcdp())
        elif isinstance(one, ZCDP):
            parts.append(one)
        else:
            _refused("concentrated", one)
    xi, rho = sum_above([part.xi for part in parts]), sum_above([part.rho for part in parts])
    return ZCDP(xi=max(xi, -rho), rho=rho, **scope)


def renyi(guarantees: Sequence[Guarantee]) -> RenyiDP:
    """Add Rényi curves at the orders that all of them share [Mir17]_."""
    scope = same_scope("renyi", list(guarantees))
    curves = [one for one in guarantees if isinstance(one, RenyiDP)]
    shared = set.intersection(*(set(curve.orders) for curve in curves)) if curves else set()
    orders = tuple(sorted(shared))
    if not orders:
        errors.refuse("renyi", "orders", "shared by all curves", "none")
    parts: list[list[float]] = [[] for _ in orders]
    for one in guarantees:
        if isinstance(one, PureDP | ZCDP):
            one = one.renyi(orders)
        elif isinstance(one, ConcentratedDP):
            one = one.zcdp().renyi(orders)
        elif not isinstance(one, RenyiDP):
            _refused("renyi", one)
        curve = dict(zip(one.orders, one.epsilons, strict=True))
        for part, order in zip(parts, orders, strict=True):
            part.append(curve[order])
    return RenyiDP(orders=orders, epsilons=tuple(map(sum_above, parts)), **scope)


def parallel(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Return the weakest guarantee, for parts without a common unit, split without the data."""
    scope = same_scope("parallel", list(guarantees))
    for absorbing in (NotPrivate, Unproven):
        if absorbed := next((part for part in guarantees if isinstance(part, absorbing)), None):
            return absorbed
    if len(set(guarantees)) == 1:
        return guarantees[0]
    if all(isinstance(part, ZCDP) for part in guarantees):
        return ZCDP(
            xi=max(part.xi for part in guarantees if isinstance(part, ZCDP)),
            rho=max(part.rho for part in guarantees if isinstance(part, ZCDP)),
            **scope,
        )
    if not all(isinstance(part, PureDP | ApproxDP) for part in guarantees):
        raise errors.IncompatibleGuarantees(
            "parallel: guarantees of different kinds have no maximum. "
            "Convert them with at_delta(delta) first."
        )
    epsilon = max(part.epsilon for part in guarantees if isinstance(part, PureDP | ApproxDP))
    delta = max(part.delta for part in guarantees if isinstance(part, PureDP | ApproxDP))
    if delta == 0:
        return PureDP(epsilon=epsilon, **scope)
    return ApproxDP(epsilon=epsilon, delta=delta, **scope)


def advanced(guarantees: Sequence[Guarantee], slack: float) -> Guarantee:
    r"""Compose by heterogeneous advanced composition [KOV15]_, Theorem 3.5: the best of its bounds.

    .. math:: \varepsilon = \sum_i \varepsilon_i\tanh(\varepsilon_i/2)
              + \sqrt{2\ln(1/\tilde\delta)\textstyle\sum_i\varepsilon_i^2},
              \qquad \delta = 1 - (1 - \tilde\delta)\textstyle\prod_i(1 - \delta_i)
    """
    scope = same_scope("advanced", list(guarantees))
    slack = errors.probability("advanced", "slack", slack, zero=False)
    parts = [part for part in guarantees if isinstance(part, PureDP | ApproxDP)]
    if len(parts) != len(guarantees):
        _refused("advanced", next(g for g in guarantees if not isinstance(g, PureDP | ApproxDP)))
    epsilon = advanced_epsilon(np.array([part.epsilon for part in parts]), 1, slack)
    failing, delta = [part.delta for part in parts if part.delta], slack
    if failing:
        with rounding.precision():
            success = math.prod((1 - high(part) for part in failing), start=1 - high(slack))
            delta = above(1 - success)
    if delta >= 1:
        return NotPrivate(**scope)
    return ApproxDP(epsilon=epsilon, delta=delta, **scope)


def advanced_epsilon(epsilons: npt.NDArray[np.float64], count: int, slack: float) -> float:
    """Return the ε of `advanced` for these, each `count` times."""
    with rounding.precision():
        losses = [high(float(epsilon)) for epsilon in epsilons]
        mean = count * sum((loss * (loss / 2).tanh() for loss in losses), arb(0))
        squares = count * sum((loss**2 for loss in losses), arb(0))
        tails = (1 / low(slack)).log(), (arb.const_e() + squares.sqrt() / low(slack)).log()
        return min(
            float_above(count * sum((Fraction(repr(float(one))) for one in epsilons), Fraction(0))),
            *(above(mean + (2 * squares * tail).sqrt()) for tail in tails),
        )


def optimal(guarantee: PureDP | ApproxDP, count: int, delta: float) -> Guarantee:
    r"""Return the smallest ε at δ of `count` equal (ε₀, δ₀) guarantees [KOV15]_, Theorem 3.3.

    The worst case is a `count`-fold randomized response that fails with probability δ₀ each time.
    With :math:`A_L, B_L` the probabilities of fewer than L flips under the two inputs, and s the
    part of δ that is left after failures, :math:`\varepsilon = \max_L \ln\frac{A_L - s}{B_L}`.
    """
    if not isinstance(guarantee, PureDP | ApproxDP):
        _refused("optimal", guarantee)
    count = errors.whole("optimal", "count", count, least=1)
    delta = errors.probability("optimal", "delta", delta)
    spare = _spare(guarantee.delta, count, delta)
    if spare < 0:
        reason = f"{count} failures of chance {guarantee.delta:g} exceed delta {delta:g}"
        return Unproven(reason=reason, **guarantee.scope)
    epsilon = float_above(count * Fraction(repr(guarantee.epsilon)))
    if spare > 0 and epsilon > 0:
        epsilon = min(epsilon, _optimal_epsilon(guarantee.epsilon, count, spare))
    return ApproxDP(epsilon=epsilon, delta=delta, **guarantee.scope)


@rounding.precision()
def _spare(failing: float, count: int, delta: float) -> float:
    """Bound what is left of δ after `count` failures from below; negative if they exceed it."""
    if (failing == 0 and delta == 0) or (count == 1 and failing == delta):
        return 0.0
    return rounding.below(1 - (1 - low(delta)) / (1 - high(failing)) ** count)


def _optimal_epsilon(epsilon: float, count: int, spare: float) -> float:
    """Find ε in floats, and certify it by the profile of `count` randomized responses."""

    def certain(total: float) -> float:
        return _responses_delta(epsilon, count, total)

    rough = _rough_optimal(epsilon, count, spare)
    if rough <= 0 and certain(0.0) <= spare:
        return 0.0
    return gaussian.certified(certain, certain, spare, max(rough, 1e-12))


def _rough_optimal(epsilon: float, count: int, spare: float) -> float:
    flips = np.arange(count + 1)
    log_binomial = gammaln(count + 1) - gammaln(flips + 1) - gammaln(count - flips + 1)
    normaliser = count * np.logaddexp(0, epsilon)
    log_first = log_binomial + (count - flips) * epsilon - normaliser
    log_second = log_binomial + flips * epsilon - normaliser
    excess = np.exp(np.logaddexp.accumulate(log_first)) - spare
    some = excess > 0
    log_odds = np.log(excess[some]) - np.logaddexp.accumulate(log_second)[some]
    return float(log_odds.max(initial=0.0))


@rounding.precision(192)
def _responses_delta(epsilon: float, count: int, total: float) -> float:
    r"""Bound δ at `total` of n randomized responses from above.

    .. math:: \sum_{L:\,(n - 2L)\varepsilon_0 > \varepsilon} \binom nL
              \frac{e^{(n - L)\varepsilon_0} - e^{\varepsilon + L\varepsilon_0}}
              {(1 + e^{\varepsilon_0})^n}

    The sum runs from the largest L down; ratios of the terms fall, so a geometric series bounds
    the rest.
    """
    each_epsilon, total_epsilon = rounding.most(epsilon), rounding.least(total)
    flips = math.ceil((count - total_epsilon / each_epsilon) / 2) - 1
    if flips < 0:
        return 0.0
    loss, n = low(each_epsilon), ball(count)
    log_binomial = (n + 1).lgamma() - ball(flips + 1).lgamma() - ball(count - flips + 1).lgamma()
    term = (log_binomial + (count - flips) * loss - count * loss.exp().log1p()).exp()
    taken, shrink = low(total_epsilon - (count - 2 * flips) * each_epsilon).exp(), (-2 * loss).exp()
    odds, excess, rest = loss.exp(), arb(0), arb(0)
    for left in range(flips, -1, -1):
        excess += term * (1 - taken)
        taken *= shrink
        ratio = odds * left / (count - left + 1)
        term *= ratio
        if left % 32 == 0 and ratio < 1 and term < excess * (1 - ratio) * arb(2) ** -90:
            rest = term / (1 - ratio)
            break
    return max(above(excess + rest), 0.0)


def amplified(guarantee: PureDP | ApproxDP, probability: float) -> PureDP | ApproxDP:
    r"""Amplify by Poisson sampling: :math:`\ln(1 + q(e^\varepsilon - 1))` and :math:`q\delta`."""
    try:
        inside = 0 < probability <= 1
    except TypeError:
        inside = False
    if not inside:
        errors.refuse("amplified", "probability", "in (0, 1]", probability)
    if guarantee.adjacency not in events.ONE_OR_NONE:
        named = str(guarantee.adjacency)
        errors.refuse("amplified", "adjacency", "add-remove or zero-out", named)
    if probability == 1:
        return guarantee
    with rounding.precision():
        chance = high(probability)
        epsilon = above((chance * high(guarantee.epsilon).expm1()).log1p())
        epsilon = min(max(epsilon, 0.0), guarantee.epsilon)
        if isinstance(guarantee, PureDP):
            return PureDP(epsilon=epsilon, **guarantee.scope)
        delta = above(chance * high(guarantee.delta)) if guarantee.delta else 0.0
    return ApproxDP(epsilon=epsilon, delta=delta, **guarantee.scope)


def _refused(where: str, guarantee: Guarantee) -> NoReturn:
    raise errors.IncompatibleGuarantees(
        f"{where}: cannot compose a {type(guarantee).__name__} this way. Convert it first."
    )
