"""Events in general: what each states about itself, and how they combine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tacit.privacy import errors, guarantees
from tacit.privacy.guarantees import Guarantee, NotPrivate, Unproven
from tacit.privacy.neighbours import Adjacency, Unit, steps_between
from tacit.privacy.rounding import exp_floor

__all__ = [
    "ONE_OR_NONE",
    "WEIGHT_BITS",
    "Composed",
    "Declared",
    "Event",
    "Leaf",
    "Parallel",
    "PoissonSampled",
    "Repeated",
    "Single",
    "leaves",
    "nodes",
    "ratio_within",
    "scope_of",
    "towards",
]

WEIGHT_BITS = 64
"""Finite mechanisms draw one 64-bit word: their probabilities are multiples of 2^-64."""

ONE_OR_NONE = (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)
"""Adjacencies in which one neighbour has a unit that the other lacks or has blank."""


@dataclass(frozen=True)
class Event:
    """Abstract base of all events: use one of the concrete classes."""


@dataclass(frozen=True)
class Single(Event, ABC):
    """Abstract base of events that are not composed of others: each states its own guarantee."""

    @property
    @abstractmethod
    def scope(self) -> dict[str, Any]:
        """Adjacency and unit."""

    @abstractmethod
    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee: at this δ, or without one its natural statement."""

    @abstractmethod
    def words(self) -> str:
        """Describe what ran in one sentence, for someone who decides and does not compute."""

    def assumption(self) -> str | None:
        """Return what a certificate assumes for events of this kind alone, if anything."""
        return None

    def including(self) -> str | None:
        """Return whom it protects from beyond those who see what was released, if anybody."""
        return None

    def proves(self, epsilon: float, delta: float) -> bool:
        """Return whether it is (ε, δ)-DP, by its profile at this very ε.

        `guarantee_at` searches for the smallest ε at δ, and may stop a last digit above one that
        holds. Kinds that state their guarantee without a search have nothing to add.
        """
        return False


@dataclass(frozen=True, kw_only=True)
class Leaf(Single):
    """Abstract base of events that are one draw of one mechanism, for the neighbours it names.

    A concrete class has the numbers of the draw as fields, refuses in `__post_init__` those that
    would invalidate the guarantee, and states its theorem and its words.
    """

    adjacency: Adjacency
    unit: Unit

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "adjacency", Adjacency.of(name, self.adjacency))
        object.__setattr__(self, "unit", Unit.of(name, self.unit))

    @property
    def scope(self) -> dict[str, Any]:
        return {"adjacency": self.adjacency, "unit": self.unit}

    def _whole(self, name: str, *, least: int, most: int = errors.LARGEST_INTEGER) -> None:
        value = errors.whole(type(self).__name__, name, getattr(self, name), least=least, most=most)
        object.__setattr__(self, name, value)

    def _epsilon(self) -> None:
        raw = self.epsilon  # type: ignore[attr-defined]
        epsilon = errors.epsilon_in_range(type(self).__name__, raw, least=Fraction(0))
        object.__setattr__(self, "epsilon", epsilon)

    def _positive(self, *names: str) -> None:
        for name in names:
            value = errors.positive(type(self).__name__, name, getattr(self, name))
            object.__setattr__(self, name, value)


def ratio_within(numerator: int, denominator: int, epsilon: Fraction) -> bool:
    r"""Decide in integers whether numerator/denominator ≤ :math:`e^\varepsilon`."""
    bits = numerator.bit_length() + denominator.bit_length() + 64
    return numerator << bits <= denominator * exp_floor(epsilon, bits)


@dataclass(frozen=True)
class Declared(Single):
    """A guarantee of something outside Tacit, stated by its owner; a certificate says so."""

    guarantee: Guarantee

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            errors.refuse("Declared", "guarantee", "a guarantee", self.guarantee)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        return self.guarantee

    def words(self) -> str:
        match self.guarantee:
            case NotPrivate():
                return "Something was computed from the data without noise."
            case Unproven(reason=reason):
                return f"Something ran for which nothing is proved: {reason}."
        return f"Declared by its owner, not derived here: {self.guarantee}."

    def assumption(self) -> str | None:
        if isinstance(self.guarantee, NotPrivate | Unproven):
            return None
        return "What the owner declared is true."

    @property
    def scope(self) -> dict[str, Any]:
        return self.guarantee.scope


@dataclass(frozen=True)
class PoissonSampled(Event):
    """The event on a sample that contains each unit independently with this probability."""

    probability: float
    event: Event

    def __post_init__(self) -> None:
        probability = errors.within("PoissonSampled", "probability", self.probability, "(0, 1]")
        object.__setattr__(self, "probability", probability)
        _must_be_event("PoissonSampled", self.event)
        for leaf in leaves(self.event):
            if leaf.scope["adjacency"] not in ONE_OR_NONE:
                errors.refuse(
                    "PoissonSampled",
                    "adjacency",
                    "add-remove or zero-out",
                    str(leaf.scope["adjacency"]),
                    "Amplification by Poisson sampling is proved for these neighbours.",
                )


@dataclass(frozen=True)
class Repeated(Event):
    """The event, `count` times, each on the whole data."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        _must_be_event("Repeated", self.event)
        count = errors.whole("Repeated", "count", self.count, least=1)
        object.__setattr__(self, "count", count)


@dataclass(frozen=True)
class Composed(Event):
    """Several events on the same data."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        _common_scope("Composed", self.events)


@dataclass(frozen=True)
class Parallel(Event):
    """Several events on disjoint parts of the data, split without looking at the data."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        _common_scope("Parallel", self.events)


def _must_be_event(where: str, event: object) -> None:
    if not isinstance(event, Event):
        errors.refuse(where, "event", "an event", type(event).__name__)


def leaves(event: Event) -> list[Single]:
    """List the events that are not composed of others, in order."""
    if isinstance(event, PoissonSampled | Repeated):
        return leaves(event.event)
    if isinstance(event, Composed | Parallel):
        return [leaf for part in event.events for leaf in leaves(part)]
    if not isinstance(event, Single):
        errors.refuse("event", "kind", "one that Tacit has", type(event).__name__)
    return [event]


def nodes(event: Event) -> list[Event]:
    """List the event and all that it is made of."""
    if isinstance(event, PoissonSampled | Repeated):
        return [event, *nodes(event.event)]
    if isinstance(event, Composed | Parallel):
        return [event, *(node for part in event.events for node in nodes(part))]
    return [event]


def scope_of(event: Event) -> dict[str, Any]:
    """Return adjacency and unit of an event."""
    return leaves(event)[0].scope


def towards(event: Event, adjacency: Adjacency | str) -> Event:
    """Restate an event for other neighbours that follow from its own at no price.

    That is zero-out, from add-remove or replace-one (`Guarantee.towards` has the reason): a
    sensitivity that bounds all pairs that differ in one unit also bounds those in which one has
    that unit blank. So every leaf keeps its numbers. To a sample, units that it leaves out are
    blank, so `PoissonSampled` keeps its probability; it never contains replace-one events.
    Conversions with a price apply to guarantees, not to events, and raise here.
    """
    match event:
        case PoissonSampled() | Repeated():
            return replace(event, event=towards(event.event, adjacency))
        case Composed() | Parallel():
            return replace(event, events=tuple(towards(part, adjacency) for part in event.events))
    stated = scope_of(event)["adjacency"]
    if steps_between("towards", stated, adjacency) > 1:
        raise errors.IncompatibleGuarantees(
            f"towards: adjacency must follow from {stated} at no price, got {adjacency}. "
            "Restate the guarantee of the event instead: Guarantee.towards pays the price."
        )
    if isinstance(event, Declared):
        return Declared(event.guarantee.towards(adjacency))
    assert isinstance(event, Leaf)
    return replace(event, adjacency=Adjacency(adjacency))


def _common_scope(where: str, events: tuple[Event, ...]) -> None:
    if not events:
        errors.refuse(where, "events", "at least one", events)
    for event in events:
        _must_be_event(where, event)
    placeholders: list[Guarantee] = [
        NotPrivate(**leaf.scope) for event in events for leaf in leaves(event)
    ]
    guarantees.same_scope(where, placeholders)
