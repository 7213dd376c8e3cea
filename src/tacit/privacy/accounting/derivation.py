"""Derivation of the guarantee of a tree of events."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from tacit.privacy import errors, events
from tacit.privacy.accounting import composition, privacy_loss
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
from tacit.privacy.rounding import above, ball, float_above, precision


def guarantee_of(event: events.Event, delta: float | None = None) -> Guarantee:
    """Return the guarantee of an event: at this δ, or without one its natural statement."""
    if not isinstance(event, events.Event):
        kind = type(event).__name__
        errors.refuse("guarantee_of", "event", "an event", kind, "Did you mean mechanism.event?")
    for node in events.nodes(event):
        if type(node) not in events.KINDS.values():  # a theorem is Tacit's, or it is declared
            kinds = ", ".join(events.KINDS)
            errors.refuse("guarantee_of", "event", f"one of {kinds}", type(node).__name__)
    for leaf in events.leaves(event):
        # If nothing is known about one part, nothing is known about the whole.
        if isinstance(leaf, events.Declared) and isinstance(leaf.guarantee, NotPrivate | Unproven):
            return leaf.guarantee
    if delta is not None and errors.probability("guarantee_of", "delta", delta) > 0:
        return _at_delta(event, delta)
    return _natural(event)


def _at_delta(event: events.Event, delta: float) -> Guarantee:
    if isinstance(event, events.Parallel):
        return composition.parallel([guarantee_of(part, delta) for part in event.events])
    if isinstance(event, events.Single):
        natural = event.guarantee_at(delta)
        return natural if isinstance(natural, PureDP) else natural.at_delta(delta)
    accounted = privacy_loss.best(event, delta)
    try:
        summed = _natural(event).at_delta(delta)
    except errors.TacitError:
        return accounted
    proved = [one for one in (accounted, summed) if isinstance(one, ApproxDP)]
    return min(proved, key=lambda one: one.epsilon) if proved else accounted


def _natural(event: events.Event) -> Guarantee:
    match event:
        case events.Single():
            return event.guarantee_at()
        case events.Parallel():
            return composition.parallel([_natural(part) for part in event.events])
        case events.Composed():
            return composition.sequential([_natural(part) for part in event.events])
        case events.Repeated():
            return _times(_natural(event.event), event.count)
        case events.PoissonSampled():
            inner = _natural(event.event)
            if event.probability < 1 and not isinstance(inner, PureDP | ApproxDP):
                remedy = "Ask at a delta above 0."
                errors.refuse("guarantee_of", "delta", "given for a sampled Gaussian", 0, remedy)
            return privacy_loss.sampled(inner, event.probability)
    raise AssertionError(f"no theorem for {type(event).__name__}")


def _times(guarantee: Guarantee, count: int) -> Guarantee:
    """Compose `count` equal guarantees, without listing them."""

    def times(number: float) -> float:
        return float_above(count * Fraction(repr(number))) if number < math.inf else number

    match guarantee:
        case PureDP(epsilon=epsilon):
            return replace(guarantee, epsilon=times(epsilon))
        case ApproxDP(epsilon=epsilon, delta=delta) if times(delta) < 1:
            return replace(guarantee, epsilon=times(epsilon), delta=times(delta))
        case ConcentratedDP(mu=mu, tau=tau):
            with precision():
                return replace(guarantee, mu=times(mu), tau=above(ball(count).sqrt() * ball(tau)))
        case ZCDP(xi=xi, rho=rho):
            return replace(guarantee, xi=max(times(xi), -times(rho)), rho=times(rho))
        case RenyiDP(epsilons=epsilons):
            return replace(guarantee, epsilons=tuple(map(times, epsilons)))
    return NotPrivate(**guarantee.scope)
