r"""Privacy filters: the sums that an account may use when charges are chosen adaptively.

Each charge may be chosen after seeing what was released before. A *filter* is a rule whose
guarantee holds nevertheless. Only sums are filters:

- (ε, δ): the sums of ε and of δ stay within the budget [RRUV16]_;
- ρ-zCDP: the sum of ρ does [WRRW23]_;
- Rényi: the sum of the curves does, at every order of the budget; each fixed order is a filter
  [FZ21]_, so the whole curve holds.

The budget is fixed beforehand: `tacit.accounting.odometer` states what holds once it was raised.
Advanced, optimal and PLD composition need a list fixed beforehand and are not offered here: build
the list as one event (`events.Composed`, `events.Repeated`) and charge that.

References
----------
.. [RRUV16] Rogers, Roth, Ullman, Vadhan. Privacy odometers and filters: pay-as-you-go composition.
   NIPS 2016.
.. [FZ21] Feldman, Zrnic. Individual privacy accounting via a Rényi filter. NeurIPS 2021.
.. [WRRW23] Whitehouse, Ramdas, Rogers, Wu. Fully-adaptive composition in differential privacy.
   ICML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NoReturn

from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.privacy_loss import Unsupported, renyi_of
from tacit.privacy.decimals import above
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    ConcentratedDP,
    Guarantee,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unproven,
)
from tacit.privacy.neighbours import steps_between
from tacit.privacy.rounding import float_above, sum_above

Amounts = dict[str, Fraction]
"""Sums of a filter by name: epsilon and delta, or rho, or epsilon at each Rényi order."""
_SHOWN = Fraction(1, 10**12)
"""Smallest remaining amount that a refusal states; calibration leaves less than this unspent."""


def limits_of(where: str, budget: Guarantee) -> Amounts:
    """Return the largest sums that a budget allows; raise if it has no filter."""
    if not isinstance(budget, PureDP | ApproxDP | ZCDP | RenyiDP):
        errors.refuse(where, "budget", "PureDP, ApproxDP, ZCDP or RenyiDP", budget)
    if isinstance(budget, PureDP | ApproxDP) and budget.epsilon == 0:
        errors.refuse(where, "epsilon", "above 0 in a budget", budget.epsilon)
    if isinstance(budget, ZCDP) and budget.xi != 0:
        errors.refuse(where, "xi", "0 in a budget", budget.xi, "Set rho alone.")
    if isinstance(budget, RenyiDP) and math.inf in budget.epsilons:
        remedy = "Leave such orders out."
        errors.refuse(where, "budget", "finite at every order", budget.epsilons, remedy)
    return {name: errors.rational(where, name, value) for name, value in _terms(budget)}


def spent_as(budget: Guarantee, spent: Amounts) -> Guarantee:
    """Return sums as a guarantee of the budget's kind, in floats that are not below them.

    `tacit.accounting.odometer` decides whether it is a valid guarantee.
    """
    values = [float_above(spent[name]) for name, _ in _terms(budget)]
    match budget:
        case PureDP():
            return replace(budget, epsilon=values[0])
        case ApproxDP():
            return replace(budget, epsilon=values[0], delta=values[1])
        case ZCDP():
            return replace(budget, rho=values[0])
        case RenyiDP():
            return replace(budget, epsilons=tuple(values))
    raise AssertionError(f"no filter for {type(budget).__name__}")


def part_of(event: events.Event, budget: Guarantee, amount: Amounts) -> events.Event:
    """Return the event for the budget's neighbours, if its natural guarantee is the amount charged.

    Otherwise return the amount, `Declared`.
    """
    price = spent_as(budget, amount)
    try:
        restated = events.towards(event, budget.adjacency)
        natural = guarantee_of(restated)
    except errors.TacitError:
        return events.Declared(price)
    same_notion = isinstance(natural, type(price)) or (
        isinstance(natural, PureDP) and isinstance(price, ApproxDP)
    )
    if same_notion and _terms(natural) == _terms(price) and getattr(natural, "xi", 0.0) == 0:
        return restated
    return events.Declared(price)


def _terms(guarantee: Guarantee) -> list[tuple[str, float]]:
    match guarantee:
        case PureDP() | ApproxDP():
            return [("epsilon", guarantee.epsilon), ("delta", guarantee.delta)]
        case ZCDP():
            return [("rho", guarantee.rho)]
        case RenyiDP():
            names = [f"epsilon at order {order!r}" for order in guarantee.orders]
            return list(zip(names, guarantee.epsilons, strict=True))
    raise AssertionError(f"no filter for {type(guarantee).__name__}")


def afford(
    where: str, account: str, budget: Guarantee, spent: Amounts, price: Guarantee
) -> Amounts:
    """Add the price to the sums, exactly; raise if one would exceed the budget."""
    limits, cost = limits_of(where, budget), {}
    for name, amount in _terms(price):
        remaining = limits[name] - spent[name]
        # An infinite price is not a fraction; it exceeds every budget.
        if math.isinf(amount) or errors.rational(where, name, amount) > remaining:
            rest = remaining if remaining >= _SHOWN else Fraction(0)  # only in the text
            raise errors.BudgetExceeded(
                f"{where}: {name} must be at most {digits(rest)}, the remaining budget of "
                f"account {account!r}, got {amount!r}. Nothing was charged."
            )
        cost[name] = errors.rational(where, name, amount)
    return cost


def digits(amount: Fraction) -> str:
    """Format a decimal, with the fraction if it is inexact, so that close amounts differ."""
    text = repr(float(amount))
    return text if Fraction(text) == amount else f"{text} (exactly {amount})"


def shown(amounts: Amounts, as_text: Callable[[Fraction], str] = above) -> str:
    """Format amounts that are not zero: rounded up, as for what is spent; `below` for the rest."""
    parts = [f"{name} = {as_text(amount)}" for name, amount in amounts.items() if amount]
    return ", ".join(parts) or "nothing"


def price_of(
    where: str, event: events.Event, budget: Guarantee, delta: float | None = None
) -> Guarantee:
    """Return the guarantee of an event, in the notion of the budget; unproved events are refused.

    Events about other neighbours than the account's are charged at the price of the conversion
    (`Guarantee.towards`): no price to zero-out, that of a group of two to replace-one. For a zCDP
    budget the price has ξ = 0. δ is only for budgets in (ε, δ), and for events such as a Gaussian
    that have no δ of their own.
    """
    for leaf in events.leaves(event):
        if isinstance(leaf, events.Declared):
            _proved(where, leaf.guarantee)
    stated = _in_one_step if _steps(where, event, budget) == 1 else _in_two_steps
    if delta is not None and not isinstance(budget, PureDP | ApproxDP):
        errors.refuse(where, "delta", f"None for a {type(budget).__name__} account", delta)
    try:
        return replace(stated(where, event, budget, delta), adjacency=budget.adjacency)
    except Unsupported as unsupported:
        _no_statement(where, event, type(budget).__name__, unsupported)
    except ArithmeticError:
        errors.refuse(where, "event", "within the range of floats", event)


def _steps(where: str, event: events.Event, budget: Guarantee) -> int:
    """Return how many steps of the event's neighbours make one of the account's, or refuse."""
    charged = events.scope_of(event)
    if charged["unit"] is budget.unit:
        try:
            return steps_between(where, charged["adjacency"], budget.adjacency)
        except errors.IncompatibleGuarantees:
            pass
    raise errors.IncompatibleGuarantees(
        f"{where}: the charge must have its account's unit, and neighbours that convert to its own "
        f"({budget.adjacency}/{budget.unit}), got {charged['adjacency']}/{charged['unit']}. "
        "A zero-out account takes all central events, a replace-one account takes the others at "
        "the price of two, and an add-remove account takes only its own."
    )


def _in_one_step(
    where: str, event: events.Event, budget: Guarantee, delta: float | None
) -> Guarantee:
    if isinstance(budget, RenyiDP):
        return renyi_of(event, budget.orders)
    if isinstance(budget, ZCDP):
        return _concentrated(where, event)
    return _at_delta(where, event, delta)


def _in_two_steps(
    where: str, event: events.Event, budget: Guarantee, delta: float | None
) -> Guarantee:
    """Return the price of two of the event's units, by the group theorem of the budget's notion."""
    if isinstance(budget, RenyiDP):
        return _renyi_of_two(where, event, budget.orders)
    if isinstance(budget, ZCDP):
        return _concentrated(where, event).group(2)
    if delta is None:
        return _proved(where, _at_delta(where, event, None).group(2))
    # (ε, δ₀) becomes (2ε, δ₀(1 + e^ε)). Any δ₀ for which that is at most δ is valid.
    inner = delta / 2
    while inner > 0:
        single = _at_delta(where, event, inner)
        two = single.group(2)
        if isinstance(two, PureDP) or (isinstance(two, ApproxDP) and two.delta <= delta):
            return two
        assert isinstance(single, PureDP | ApproxDP)
        inner = min(inner / 2, delta * math.exp(-min(single.epsilon, 700)) / 2)
    errors.refuse(where, "delta", "large enough for two units of this event", delta)


def _renyi_of_two(where: str, event: events.Event, orders: tuple[float, ...]) -> Guarantee:
    try:
        natural = guarantee_of(event)
    except errors.TacitError:
        natural = None  # for example a subsampled Gaussian, which has only its curve
    if isinstance(natural, PureDP | ZCDP):
        # Tighter than through its curve, and at every order.
        return natural.group(2).renyi(orders)
    doubled = renyi_of(event, tuple(2 * order for order in orders)).group(2)
    if not isinstance(doubled, RenyiDP) or doubled.orders != orders:
        raise Unsupported("a group of two has a curve only at orders of 2 and above")
    return doubled


def _at_delta(where: str, event: events.Event, delta: float | None) -> Guarantee:
    guarantee = guarantee_of(event, delta)
    if isinstance(guarantee, ZCDP | ConcentratedDP | RenyiDP):
        if delta is None:
            remedy = f"{type(event).__name__} has no (epsilon, delta) of its own."
            errors.refuse(where, "delta", "given for this event, above 0", delta, remedy)
        guarantee = guarantee.at_delta(delta)
    return _proved(where, guarantee)


def _concentrated(where: str, event: events.Event) -> ZCDP:
    try:
        natural = guarantee_of(event)
    except (errors.InvalidParameter, errors.IncompatibleGuarantees) as refusal:
        # For example a subsampled Gaussian, which has no useful ρ.
        _no_statement(where, event, "ZCDP", refusal)
    concentrated = _proved(where, natural)
    if isinstance(concentrated, PureDP | ConcentratedDP):
        concentrated = concentrated.zcdp()
    if not isinstance(concentrated, ZCDP):
        _no_statement(where, event, "ZCDP", concentrated)
    if concentrated.xi <= 0:
        return replace(concentrated, xi=0.0)
    # For every α > 1: ξ + ρα ≤ (ξ + ρ)α.
    return replace(concentrated, xi=0.0, rho=sum_above([concentrated.rho, concentrated.xi]))


def _proved(where: str, guarantee: Guarantee) -> Guarantee:
    if isinstance(guarantee, NotPrivate | Unproven):
        remedy = "Unknown never counts as zero; nothing was charged."
        errors.refuse(where, "event", "proved private", str(guarantee), remedy)
    return guarantee


def _no_statement(where: str, event: events.Event, kind: str, reason: object) -> NoReturn:
    raise errors.IncompatibleGuarantees(
        f"{where}: event must have a statement for a {kind} account, got {type(event).__name__} "
        f"({str(reason).rstrip('.')}). Charge it to an account of another notion."
    )
