"""What every event has: the neighbours that it names, its theorem and its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness.reals import exp_floor

WEIGHT_BITS = 64
"""Finite mechanisms draw one 64-bit word: their probabilities are multiples of 2^-64."""

ONE_OR_NONE = (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)
"""Neighbours of which one has a unit that the other lacks or has blank: proofs are the same."""


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
