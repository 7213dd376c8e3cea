"""Tight accounting of composed events: Rényi curves, and privacy loss distributions.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016 (moments accountant).
.. [MTZ19] Mironov, Talwar, Zhang. Rényi differential privacy of the sampled Gaussian. 2019.
.. [DGKKM22] Doroshenko et al. Connect the dots: tighter discrete approximations of privacy loss
   distributions. PETS 2022.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.privacy import errors, events, gaussian, rounding
from tacit.privacy.accounting import composition, loss_grid, sampled_gaussian
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    ConcentratedDP,
    Guarantee,
    PureDP,
    RenyiDP,
    Unproven,
)

ORDERS: tuple[float, ...] = (
    *(1 + step / 1000 for step in (1, 2, 5, 10, 20, 50)),
    *(1 + step / 10 for step in range(1, 100)),
    *range(11, 64),
    *(2.0**power for power in range(6, 13)),
)
"""Rényi orders: the usual ones, and a few more at both ends."""

SMALLEST_PLD_NOISE = Fraction(3, 10)
"""Below this multiplier the range of losses is too wide for a grid."""

_SMALLEST_PLD_DELTA = 1e-24  # below, the tails that a draw counts as infinite would matter
_MOST_COMPOSITIONS = 10**8


class Unsupported(errors.TacitError):
    """Raised where an accountant cannot express an event."""


def best(event: events.Event, delta: float) -> Guarantee:
    """Return the smallest ε at δ that either accountant proves for events fixed beforehand."""
    scope = events.scope_of(event)
    proved = []
    reason = f"nothing finite holds at delta {delta:g}"
    for account in (epsilon_rdp, epsilon_pld):
        try:
            proved.append(account(event, delta))
        except Unsupported as unsupported:
            reason = str(unsupported)
    proved = [epsilon for epsilon in proved if epsilon < math.inf]
    if not proved:
        return Unproven(reason=reason, **scope)
    return ApproxDP(epsilon=min(proved), delta=delta, **scope)


@lru_cache(maxsize=256)  # certifying and verifying derive the same guarantee again
def epsilon_rdp(event: events.Event, delta: float) -> float:
    """Return ε at δ by Rényi accounting."""
    return _epsilon_of(renyi_of(event), delta)


def _epsilon_of(curve: RenyiDP, delta: float) -> float:
    guarantee = curve.at_delta(delta)
    return guarantee.epsilon if isinstance(guarantee, ApproxDP) else math.inf


def renyi_of(event: events.Event, orders: tuple[float, ...] = ORDERS) -> RenyiDP:
    """Return the Rényi curve of an event."""
    curve = tuple(_curve(event, orders).tolist())
    return RenyiDP(orders=orders, epsilons=curve, **events.scope_of(event))


def _curve(event: events.Event, orders: tuple[float, ...]) -> np.ndarray:
    match event:
        case events.Repeated():
            return rounding.inflated(event.count * _curve(event.event, orders), 1)
        case events.Composed():
            parts = [_curve(part, orders) for part in event.events]
            return rounding.inflated(np.sum(parts, axis=0), len(parts))
        case events.Parallel():
            return np.asarray(np.max([_curve(part, orders) for part in event.events], axis=0))
        case events.Gaussian() | events.DiscreteGaussian():
            concentrated = event.guarantee_at()
            assert isinstance(concentrated, ZCDP)
            return rounding.inflated(concentrated.rho * np.array(orders), 1)
        case events.ObjectivePerturbation(law="gaussian"):
            return event.renyi(np.array(orders))
        case events.PoissonSampled(probability=1.0):
            return _curve(event.event, orders)
        case events.PoissonSampled(event=events.Composed() | events.Repeated()):
            one = merged(event)
            if one != event:
                return _curve(one, orders)
        case events.PoissonSampled(probability=probability, event=events.Gaussian() as inner):
            multiplier = inner.sigma / inner.l2_sensitivity
            return np.array(sampled_gaussian.renyi(probability, multiplier, orders))
    guarantee = _closed_form(event)
    if isinstance(guarantee, ConcentratedDP):
        guarantee = guarantee.zcdp()
    if isinstance(guarantee, PureDP | ZCDP):
        return np.array(guarantee.renyi(orders).epsilons)
    if isinstance(guarantee, RenyiDP) and set(orders) <= set(guarantee.orders):
        known = dict(zip(guarantee.orders, guarantee.epsilons, strict=True))
        return np.array([known[order] for order in orders])
    raise Unsupported(f"{type(event).__name__} has no Rényi curve")


@lru_cache(maxsize=256)
def epsilon_pld(event: events.Event, delta: float) -> float:
    """Return ε at δ by the discretised privacy loss distribution, rounded up."""
    event = merged(event)
    if isinstance(event, events.Gaussian):
        return gaussian.epsilon_of(event.sigma / event.l2_sensitivity, delta)
    if delta < _SMALLEST_PLD_DELTA:
        raise Unsupported(f"delta below {_SMALLEST_PLD_DELTA:g}")
    parts = _parts(event, 1)
    if sum(count for _, count in parts) > _MOST_COMPOSITIONS:
        raise Unsupported(f"more than {_MOST_COMPOSITIONS} compositions")
    try:
        return loss_grid.epsilon_of(parts, delta)
    except loss_grid.TooWide as reason:
        raise Unsupported(str(reason)) from None


def epsilon_pld_or_rdp(event: events.Event, delta: float) -> float:
    """Return ε by PLD, or by RDP if the noise is too small for PLD: the convention of `compare`."""
    try:
        return epsilon_pld(event, delta)
    except Unsupported:
        return epsilon_rdp(event, delta)


def merged(event: events.Event) -> events.Event:
    r"""Merge Gaussian draws with multipliers z_i into one, :math:`(\sum_i z_i^{-2})^{-1/2}`,
    exactly; so too if they share one Poisson sample.

    Given the sample, they are one draw of a vector with noise of one size, after scaling. Other
    events are not changed.
    """
    match event:
        case events.PoissonSampled(probability=1.0):
            return merged(event.event)
        case events.PoissonSampled(probability=probability, event=inner):
            inner = merged(inner)
            return events.PoissonSampled(probability, inner)
        case events.Repeated(event=inner, count=count):
            inner = merged(inner)
            if isinstance(inner, events.Gaussian):
                return _one_gaussian([inner], count)
            return events.Repeated(inner, count)
        case events.Composed(events=parts):
            return _merged_parts([merged(part) for part in parts])
    return event


def _merged_parts(parts: list[events.Event]) -> events.Event:
    flat: list[events.Event] = []
    for part in parts:
        flat += part.events if isinstance(part, events.Composed) else [part]
    draws = [part for part in flat if isinstance(part, events.Gaussian)]
    rest = [part for part in flat if not isinstance(part, events.Gaussian)]
    if draws:
        rest.append(_one_gaussian(draws))
    return rest[0] if len(rest) == 1 else events.Composed(tuple(rest))


def _one_gaussian(draws: list[events.Gaussian], count: int = 1) -> events.Gaussian:
    if len(draws) * count == 1:
        return draws[0]
    precision = count * sum((draw.l2_sensitivity / draw.sigma) ** 2 for draw in draws)
    with rounding.precision():
        sigma = rounding.below(rounding.low(Fraction(precision)).rsqrt())
    return events.Gaussian(
        Fraction(1), errors.rational("merged", "sigma", sigma), **events.scope_of(draws[0])
    )


def _parts(event: events.Event, count: int) -> loss_grid.Parts:
    """List draws that have a privacy loss distribution, and how often each is made."""
    match event:
        case events.Repeated():
            return _parts(event.event, count * event.count)
        case events.Composed():
            return [draw for part in event.events for draw in _parts(part, count)]
        case events.Gaussian():
            probability, inner = 1.0, event
        case events.PoissonSampled(probability=probability, event=events.Gaussian() as inner):
            pass
        case _:
            guarantee = _closed_form(event)
            if not isinstance(guarantee, PureDP | ApproxDP):
                raise Unsupported(f"{type(event).__name__} has no privacy loss distribution")
            return [(loss_grid.Response(guarantee.epsilon, guarantee.delta), count)]
    multiplier = inner.sigma / inner.l2_sensitivity
    if multiplier < SMALLEST_PLD_NOISE:
        raise Unsupported(f"noise multiplier below {float(SMALLEST_PLD_NOISE)}")
    return [(loss_grid.Normal(probability, multiplier), count)]


def _closed_form(event: events.Event) -> Guarantee:
    """Return the natural guarantee of a leaf, or of a sampled leaf."""
    inner = event.event if isinstance(event, events.PoissonSampled) else event
    if not isinstance(inner, events.Single):
        raise Unsupported(f"{type(event).__name__} of {type(inner).__name__} has no closed form")
    probability = event.probability if isinstance(event, events.PoissonSampled) else 1.0
    return sampled(inner.guarantee_at(), probability)


def sampled(guarantee: Guarantee, probability: float) -> Guarantee:
    """Amplify a guarantee by Poisson sampling, where there is a closed form."""
    if probability == 1:
        return guarantee
    if isinstance(guarantee, PureDP | ApproxDP):
        return composition.amplified(guarantee, probability)
    raise Unsupported(f"sampling of a {type(guarantee).__name__} has no closed form")


@dataclass(frozen=True)
class Comparison:
    """ε at one δ of the same training run, by five accountants."""

    naive: float
    advanced: float
    zcdp: float
    rdp: float
    pld: float
    notes: tuple[str, ...] = ()

    def epsilons(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if name != "notes"}


def compare(
    noise_multiplier: float, sampling_probability: float, steps: int, delta: float
) -> Comparison:
    r"""Compare what accountants state for a Poisson-subsampled Gaussian (q, σ, steps, δ).

    Conventions: naive and advanced use the analytic Gaussian at every step with
    :math:`\delta_0 = \delta / (2\,q\,steps)`, amplified by sampling, so that the steps use half of
    δ; advanced has the other half as its slack. zCDP does not use amplification. Below σ = 0.3, PLD
    falls back to RDP and says so in `notes`.
    """
    run = subsampled_gaussian(noise_multiplier, sampling_probability, steps)
    delta = errors.probability("compare", "delta", delta, zero=False)
    multiplier = errors.positive("compare", "noise_multiplier", noise_multiplier)
    per_step = _analytic_step(multiplier, float(sampling_probability), steps, delta)
    naive = rounding.float_above(int(steps) * Fraction(repr(per_step.epsilon)))
    rdp = epsilon_rdp(run, delta)
    notes: tuple[str, ...] = ()
    try:
        pld = epsilon_pld(run, delta)
    except Unsupported as reason:
        pld = rdp
        notes = (f"pld: fell back to RDP ({reason})",)
    rho = rounding.float_above(int(steps) / (2 * multiplier**2))
    concentrated = ZCDP(xi=0.0, rho=rho, **per_step.scope)
    return Comparison(
        naive=naive,
        advanced=composition.advanced_epsilon(np.array([per_step.epsilon]), int(steps), delta / 2),
        zcdp=concentrated.at_delta(delta).epsilon,  # type: ignore[attr-defined]
        rdp=rdp,
        pld=pld,
        notes=notes,
    )


def subsampled_gaussian(noise_multiplier: Any, probability: Any, steps: Any) -> events.Event:
    """Build the event of DP-SGD: `steps` Gaussian draws on Poisson samples."""
    steps = errors.whole("subsampled_gaussian", "steps", steps, least=1, most=10**9)
    sigma = errors.positive("subsampled_gaussian", "noise_multiplier", noise_multiplier)
    probability = errors.within(
        "subsampled_gaussian", "sampling_probability", probability, "(0, 1]"
    )
    draw = events.Gaussian(1, sigma, adjacency="add-remove", unit="record")  # type: ignore[arg-type]
    return events.Repeated(events.PoissonSampled(probability, draw), steps)


def _analytic_step(
    noise_multiplier: Fraction, probability: float, steps: int, delta: float
) -> ApproxDP:
    sampled_share = rounding.least(delta) / (2 * Fraction(repr(probability)) * int(steps))
    share = min(rounding.float_below(sampled_share), 0.5)
    scope = {"adjacency": "add-remove", "unit": "record"}
    epsilon = gaussian.epsilon_of(noise_multiplier, share)
    step = composition.amplified(ApproxDP(epsilon=epsilon, delta=share, **scope), probability)  # type: ignore[arg-type]
    assert isinstance(step, ApproxDP)
    return step
