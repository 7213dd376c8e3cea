"""What every mechanism offers, and what a channel offers beyond it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness


@runtime_checkable
class Mechanism(Protocol):
    """A randomised function of sensitive input with a guarantee."""

    @property
    def guarantee(self) -> Guarantee:
        """What it promises, to whom."""
        ...

    @property
    def event(self) -> Event:
        """What accounting composes."""
        ...

    def release(self, raw: Any, rng: Randomness | None = None) -> Any:
        """The draw: from OS entropy, unless a test passes its own `rng`."""
        ...


@runtime_checkable
class Channel(Mechanism, Protocol):
    """A mechanism that can state its own law."""

    def log_prob(self, released: Any, raw: Any) -> Any:
        """Natural logarithm of the exact probability of `released` given `raw`."""
        ...


@runtime_checkable
class FiniteChannel(Channel, Protocol):
    """A channel whose inputs and outputs can be listed."""

    def inputs(self) -> Iterable[Any]:
        """Every raw value."""
        ...

    def outputs(self) -> Iterable[Any]:
        """Every released value."""
        ...

    def adjacent(self, first: Any, second: Any) -> bool:
        """Whether the guarantee speaks of this pair of inputs."""
        ...
