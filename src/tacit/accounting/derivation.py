"""From a tree of events to the guarantee of the whole."""

from __future__ import annotations

from tacit import errors, events
from tacit.accounting import composition, privacy_loss
from tacit.accounting.theorems import of_leaf
from tacit.guarantees import ZCDP, Guarantee, PureDP


def guarantee_of(event: events.Event, delta: float | None = None) -> Guarantee:
    """The guarantee that an event gives: at this δ, or without one its natural statement."""
    if delta is not None:
        errors.probability("guarantee_of", "delta", delta)
    if isinstance(event, events.Parallel):
        return composition.parallel([guarantee_of(part, delta) for part in event.events])
    if isinstance(event, events.Leaf | events.Declared):
        return of_leaf(event, delta or None)
    if delta:
        return privacy_loss.best(event, delta)
    return _natural(event)


def _natural(event: events.Event) -> Guarantee:
    if isinstance(event, events.Composed):
        return composition.sequential([guarantee_of(part) for part in event.events])
    if isinstance(event, events.Repeated):
        return _times(guarantee_of(event.event), event.count)
    if isinstance(event, events.PoissonSampled):
        inner = guarantee_of(event.event)
        if event.probability == 1 or not isinstance(inner, ZCDP):
            return privacy_loss.sampled(inner, event.probability)
        errors.refuse(
            "guarantee_of", "delta", "given for a sampled Gaussian", None, "Ask at a delta above 0."
        )
    raise AssertionError(f"no theorem for {type(event).__name__}")


def _times(guarantee: Guarantee, count: int) -> Guarantee:
    """`count` equal guarantees, without a list of them."""
    scope = guarantee.scope
    if isinstance(guarantee, PureDP):
        return PureDP(epsilon=count * guarantee.epsilon, **scope)
    if isinstance(guarantee, ZCDP):
        return ZCDP(xi=count * guarantee.xi, rho=count * guarantee.rho, **scope)
    return composition.sequential([guarantee] * count)
