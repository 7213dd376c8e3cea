r"""Odometers: the guarantee of everything that an account has charged, at any time.

A filter guarantees its budget, which is fixed beforehand: that holds as long as the budget is not
raised. Someone who stops, or raises the budget, after looking at what was released needs an
*odometer* [RRUV16]_: a number ε(v) that depends on the transcript v and satisfies

.. math:: P(S) \le \int_S e^{\varepsilon(v)} dP'(v) + \delta \qquad\text{for every set S}

for neighbours P and P', with δ fixed beforehand. If ε is constant, this is (ε, δ)-DP.

- *Sums of (ε, δ)* are an odometer, at the δ that the account was opened with, however often ε is
  raised. The first charge is (ε₁, δ₁)-DP and fixed; after its output v₁ the rest satisfies the
  claim with the remaining δ − δ₁. So :math:`P(S) \le \int g\,dP_1 + \delta - \delta_1` with
  :math:`g(v_1) = \min(1, \int_{S_{v_1}} e^{\varepsilon - \varepsilon_1} dP')`, and
  :math:`\int g\,dP_1 \le e^{\varepsilon_1}\int g\,dP_1' + \delta_1`, as g has values in [0, 1]. The
  claim follows by induction over the charges. δ itself is never raised: its sum must have a bound
  that does not depend on outcomes.
- *Sums of ρ or of Rényi divergences* are not an odometer: raised after every look, a ρ that was
  converted at δ = 0.05 was exceeded with probability 0.116. But each stretch between two raises is
  a filter whose budget was fixed when it began, hence (ε_k, δ_k)-DP given what came before. With
  δ_k = δ / 2^{k+1}, fixed beforehand and δ in all, the sum of ε_k is an odometer by the same
  induction.

References
----------
.. [RRUV16] Rogers, Roth, Ullman, Vadhan. Privacy odometers and filters: pay-as-you-go composition.
   NIPS 2016.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tacit.privacy import errors
from tacit.privacy.accounting import composition, filters
from tacit.privacy.accounting.filters import Amounts
from tacit.privacy.guarantees import ApproxDP, Guarantee, NotPrivate, PureDP, Unproven

_WHERE = "Account"


def stretches(history: Iterable[Guarantee | Amounts]) -> list[Guarantee]:
    """List the budgets between raises: the first budget, then what remained after each raise.

    The history contains budgets as they were set, and charges. A budget that is set before the next
    charge replaces the one before it; a smaller one is a filter that ends early.
    """
    budgets: list[Guarantee] = []
    limits: Amounts = {}
    spent: Amounts = {}
    charged = True
    for step in history:
        if not isinstance(step, Guarantee):
            spent = {name: spent.get(name, Fraction(0)) + cost for name, cost in step.items()}
            charged = charged or any(step.values())
            continue
        wanted = filters.limits_of(_WHERE, step)
        if any(limit > limits.get(name, -1) for name, limit in wanted.items()):
            remaining = {name: limit - spent.get(name, 0) for name, limit in wanted.items()}
            budgets = [*(budgets if charged else budgets[:-1]), filters.spent_as(step, remaining)]
            limits, charged = wanted, False
    return budgets


def guarantee(
    budget: Guarantee, spent: Amounts, history: Iterable[Guarantee | Amounts]
) -> Guarantee:
    """Return what holds without a choice of δ: sums, or a budget that was never raised."""
    if isinstance(budget, PureDP):
        return filters.spent_as(budget, spent)
    if isinstance(budget, ApproxDP):
        return filters.spent_as(
            budget, spent | {"delta": filters.limits_of(_WHERE, budget)["delta"]}
        )
    parts = stretches(history)
    if len(parts) == 1:
        return parts[0]
    reason = "the budget was raised after releases were seen; ask at a delta, which pays for that"
    return Unproven(reason=reason, **budget.scope)


def unspent(budget: Guarantee, remaining: Amounts) -> Amounts:
    """Return the part of what remains that `guarantee` counts as spent: all but ε of (ε, δ)."""
    if isinstance(budget, PureDP | ApproxDP):
        return remaining | {"epsilon": Fraction(0)}
    return remaining


def at_delta(
    budget: Guarantee, spent: Amounts, history: Iterable[Guarantee | Amounts], delta: float
) -> Guarantee:
    """Return what holds at this δ, whether the budget was raised or not."""
    delta = errors.probability(_WHERE, "delta", delta, zero=False)
    if isinstance(budget, PureDP | ApproxDP):
        stated = guarantee(budget, spent, history)
        assert isinstance(stated, PureDP | ApproxDP)
        if stated.delta > delta:
            return stated.at_delta(delta)  # unproven, with its reason
        return ApproxDP(epsilon=stated.epsilon, delta=delta, **budget.scope)
    parts = stretches(history)
    if len(parts) == 1:
        return parts[0].at_delta(delta)
    stated_parts = [part.at_delta(delta / 2 ** (k + 1)) for k, part in enumerate(parts)]
    for part in stated_parts:
        if isinstance(part, NotPrivate | Unproven):
            return part
    total = composition.naive(stated_parts)
    assert isinstance(total, ApproxDP)
    return ApproxDP(epsilon=total.epsilon, delta=delta, **budget.scope)
