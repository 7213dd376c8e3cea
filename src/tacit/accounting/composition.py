"""What several guarantees about the same people amount to.

All but `naive`, `concentrated` and `renyi` (sums, which also hold when parameters are chosen
adaptively) need the list to be fixed before the first draw.

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
from scipy.special import gammaln

from tacit import errors, events
from tacit.accounting.theorems import float_above
from tacit.guarantees import (
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


def sequential(guarantees: Sequence[Guarantee]) -> Guarantee:
    """The plain sum in the strongest notion that all of them have."""
    scope = same_scope("sequential", list(guarantees))
    for absorbing in (NotPrivate, Unproven):
        if found := next((one for one in guarantees if isinstance(one, absorbing)), None):
            return found
    if all(isinstance(one, PureDP | ApproxDP) for one in guarantees):
        return naive(guarantees)
    if any(isinstance(one, ApproxDP) for one in guarantees):
        raise errors.IncompatibleGuarantees(
            "sequential: (epsilon, delta) does not add to concentrated or Rényi guarantees. "
            "Convert those with at_delta(delta) first."
        )
    if any(isinstance(one, RenyiDP) for one in guarantees):
        return renyi(guarantees)
    if all(isinstance(one, ConcentratedDP) for one in guarantees):
        return ConcentratedDP(
            mu=math.fsum(one.mu for one in guarantees if isinstance(one, ConcentratedDP)),
            tau=math.hypot(*(one.tau for one in guarantees if isinstance(one, ConcentratedDP))),
            **scope,
        )
    return concentrated(guarantees)


def naive(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Sums of ε and of δ."""
    scope = same_scope("naive", list(guarantees))
    for one in guarantees:
        if not isinstance(one, PureDP | ApproxDP):
            _refused("naive", one)
    # As rationals, rounded up: a sum of floats may fall below what it sums.
    parts = [one.epsilon for one in guarantees if isinstance(one, PureDP | ApproxDP)]
    epsilon = float_above(sum((Fraction(repr(one)) for one in parts), Fraction(0)))
    delta = math.fsum(one.delta for one in guarantees if isinstance(one, PureDP | ApproxDP))
    if delta >= 1:
        return NotPrivate(**scope)
    if delta == 0:
        return PureDP(epsilon=epsilon, **scope)
    return ApproxDP(epsilon=epsilon, delta=delta, **scope)


def concentrated(guarantees: Sequence[Guarantee]) -> ZCDP:
    """Sums of ξ and of ρ [BS16]_; pure and (μ, τ) guarantees are converted."""
    scope = same_scope("concentrated", list(guarantees))
    parts = []
    for one in guarantees:
        if isinstance(one, PureDP | ConcentratedDP):
            parts.append(one.zcdp())
        elif isinstance(one, ZCDP):
            parts.append(one)
        else:
            _refused("concentrated", one)
    xi, rho = math.fsum(part.xi for part in parts), math.fsum(part.rho for part in parts)
    return ZCDP(xi=max(xi, -rho), rho=rho, **scope)


def renyi(guarantees: Sequence[Guarantee]) -> RenyiDP:
    """Sums of curves at the orders that all curves share [Mir17]_."""
    scope = same_scope("renyi", list(guarantees))
    curves = [one for one in guarantees if isinstance(one, RenyiDP)]
    shared = set.intersection(*(set(curve.orders) for curve in curves)) if curves else set()
    orders = tuple(sorted(shared))
    if not orders:
        errors.refuse("renyi", "orders", "shared by all curves", "none")
    total = np.zeros(len(orders))
    for one in guarantees:
        if isinstance(one, PureDP | ZCDP):
            one = one.renyi(orders)
        elif isinstance(one, ConcentratedDP):
            one = one.zcdp().renyi(orders)
        elif not isinstance(one, RenyiDP):
            _refused("renyi", one)
        curve = dict(zip(one.orders, one.epsilons, strict=True))
        total += [curve[order] for order in orders]
    return RenyiDP(orders=orders, epsilons=tuple(total.tolist()), **scope)


def parallel(guarantees: Sequence[Guarantee]) -> Guarantee:
    """The weakest one: parts of the data that share no unit, split without looking at the data."""
    scope = same_scope("parallel", list(guarantees))
    for absorbing in (NotPrivate, Unproven):
        if found := next((one for one in guarantees if isinstance(one, absorbing)), None):
            return found
    if len(set(guarantees)) == 1:
        return guarantees[0]
    if all(isinstance(one, ZCDP) for one in guarantees):
        return ZCDP(
            xi=max(one.xi for one in guarantees if isinstance(one, ZCDP)),
            rho=max(one.rho for one in guarantees if isinstance(one, ZCDP)),
            **scope,
        )
    if not all(isinstance(one, PureDP | ApproxDP) for one in guarantees):
        raise errors.IncompatibleGuarantees(
            "parallel: guarantees of different kinds have no maximum. "
            "Convert them with at_delta(delta) first."
        )
    epsilon = max(one.epsilon for one in guarantees if isinstance(one, PureDP | ApproxDP))
    delta = max(one.delta for one in guarantees if isinstance(one, PureDP | ApproxDP))
    if delta == 0:
        return PureDP(epsilon=epsilon, **scope)
    return ApproxDP(epsilon=epsilon, delta=delta, **scope)


def advanced(guarantees: Sequence[Guarantee], slack: float) -> Guarantee:
    r"""Heterogeneous advanced composition [KOV15]_, Theorem 3.5: the best of its three bounds.

    .. math:: \varepsilon = \sum_i \varepsilon_i\tanh(\varepsilon_i/2)
              + \sqrt{2\ln(1/\tilde\delta)\textstyle\sum_i\varepsilon_i^2},
              \qquad \delta = 1 - (1 - \tilde\delta)\textstyle\prod_i(1 - \delta_i)
    """
    scope = same_scope("advanced", list(guarantees))
    slack = errors.probability("advanced", "slack", slack, zero=False)
    parts = [one for one in guarantees if isinstance(one, PureDP | ApproxDP)]
    if len(parts) != len(guarantees):
        _refused("advanced", next(g for g in guarantees if not isinstance(g, PureDP | ApproxDP)))
    epsilon = advanced_epsilon(np.array([one.epsilon for one in parts]), 1, slack)
    failures = math.fsum(math.log1p(-one.delta) for one in parts)
    delta = -math.expm1(math.log1p(-slack) + failures)
    if delta >= 1:
        return NotPrivate(**scope)
    return ApproxDP(epsilon=epsilon, delta=delta, **scope)


def advanced_epsilon(epsilons: npt.NDArray[np.float64], count: int, slack: float) -> float:
    """The ε of `advanced` for these, each `count` times."""
    mean = count * math.fsum(epsilons * np.tanh(epsilons / 2))
    squares = count * math.fsum(epsilons**2)
    return min(
        count * math.fsum(epsilons),
        mean + math.sqrt(2 * squares * math.log(1 / slack)),
        mean + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack)),
    )


def optimal(guarantee: PureDP | ApproxDP, count: int, delta: float) -> Guarantee:
    r"""Smallest ε at δ of `count` equal (ε₀, δ₀) guarantees [KOV15]_, Theorem 3.3.

    The worst case is a `count`-fold randomized response that fails with δ₀ each time. With
    :math:`A_L, B_L` the chances of fewer than L flips under the two inputs, and s what is left of
    δ after failures, :math:`\varepsilon = \max_L \ln\frac{A_L - s}{B_L}`.
    """
    if not isinstance(guarantee, PureDP | ApproxDP):
        _refused("optimal", guarantee)
    count = errors.whole("optimal", "count", count, least=1)
    delta = errors.probability("optimal", "delta", delta)
    spare = -math.expm1(math.log1p(-delta) - count * math.log1p(-guarantee.delta))
    if spare < 0:
        reason = f"{count} failures of chance {guarantee.delta:g} exceed delta {delta:g}"
        return Unproven(reason=reason, **guarantee.scope)
    flips = np.arange(count + 1)
    log_binomial = gammaln(count + 1) - gammaln(flips + 1) - gammaln(count - flips + 1)
    normaliser = count * np.logaddexp(0, guarantee.epsilon)
    log_first = log_binomial + (count - flips) * guarantee.epsilon - normaliser
    log_second = log_binomial + flips * guarantee.epsilon - normaliser
    held = np.exp(np.logaddexp.accumulate(log_first)) - spare
    above = held > 0
    log_odds = np.log(held[above]) - np.logaddexp.accumulate(log_second)[above]
    epsilon = max(float(log_odds.max(initial=0.0)), 0.0)
    epsilon = min(epsilon, count * guarantee.epsilon)
    return ApproxDP(epsilon=epsilon, delta=delta, **guarantee.scope)


def amplified(guarantee: PureDP | ApproxDP, probability: float) -> PureDP | ApproxDP:
    r"""Poisson sampling: :math:`\ln(1 + q(e^\varepsilon - 1))` and :math:`q\delta`."""
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
    if guarantee.epsilon < 1:
        epsilon = math.log1p(probability * math.expm1(guarantee.epsilon))
    else:
        epsilon = float(
            np.logaddexp(math.log1p(-probability), math.log(probability) + guarantee.epsilon)
        )
    if isinstance(guarantee, PureDP):
        return PureDP(epsilon=max(epsilon, 0.0), **guarantee.scope)
    delta = probability * guarantee.delta
    return ApproxDP(epsilon=max(epsilon, 0.0), delta=delta, **guarantee.scope)


def _refused(where: str, guarantee: Guarantee) -> NoReturn:
    raise errors.IncompatibleGuarantees(
        f"{where}: cannot compose a {type(guarantee).__name__} this way. Convert it first."
    )
