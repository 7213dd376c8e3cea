"""Protocols: what every mechanism offers, and what a channel adds to it.

`ThroughNoise` is the base of mechanisms that transform data and then add another mechanism's noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness
from tacit.privacy.shown import Shown


@runtime_checkable
class Mechanism(Protocol):
    """A randomised function of sensitive input with a guarantee."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee, with the neighbours and unit that it holds for."""
        ...

    @property
    def event(self) -> Event:
        """The event that accounting composes."""
        ...

    def release(self, raw: Any, rng: Randomness | None = None) -> Any:
        """Draw a release, from OS entropy unless a test passes its own `rng`."""
        ...


@runtime_checkable
class Channel(Mechanism, Protocol):
    """A mechanism that can state its own law."""

    def log_prob(self, released: Any, raw: Any) -> Any:
        """Compute the natural logarithm of the exact probability of `released` given `raw`."""
        ...


@runtime_checkable
class FiniteChannel(Channel, Protocol):
    """A channel whose inputs and outputs can be listed."""

    def inputs(self) -> Iterable[Any]:
        """List every raw value."""
        ...

    def outputs(self) -> Iterable[Any]:
        """List every released value."""
        ...

    def adjacent(self, first: Any, second: Any) -> bool:
        """Test whether the guarantee covers this pair of inputs."""
        ...


class ThroughNoise(Shown):
    """A mechanism whose guarantee is that of the noise that it adds; subclasses name the event."""

    def __post_init__(self) -> None:
        _ = self._noise  # its checks

    @cached_property
    def _noise(self) -> Channel:
        raise NotImplementedError

    @property
    def guarantee(self) -> Guarantee:
        return self._noise.guarantee
