"""Checks of parameters. Each takes the name and the value, and returns the value to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tacit.privacy import devices, errors

WHERE = "study"
Check = Callable[[str, Any], Any]


def one_of(choices: Sequence[str]) -> Check:
    """Check that a word is one of these."""

    def check(name: str, value: Any) -> Any:
        errors.choice(WHERE, name, value, tuple(choices))
        return value

    return check


def whole(least: int, most: int) -> Check:
    """Check that a number is an integer within these bounds."""
    return lambda name, value: errors.whole(WHERE, name, value, least=least, most=most)


def within(least: float, most: float) -> Check:
    """Check that a number is within these bounds."""

    def check(name: str, value: Any) -> Any:
        if not least <= value <= most:
            bounds = f"from {least:g} to {most:g}".replace("e-0", "e-")
            errors.refuse(WHERE, name, bounds, value)
        return value

    return check


def epsilon(name: str, value: Any) -> Any:
    """Check that a number is an ε that mechanisms take."""
    errors.epsilon_in_range(WHERE, value)
    return value


def epsilon_or_none(name: str, value: Any) -> Any:
    """Check an ε; ∞ stands for no guarantee."""
    return value if value == math.inf else epsilon(name, value)


def probability(name: str, value: Any) -> float:
    """Check that a number is in (0, 1)."""
    return errors.probability(WHERE, name, value, zero=False)


def positive(name: str, value: Any) -> Any:
    """Check that a number is finite and above 0."""
    errors.positive(WHERE, name, value)
    return value


def share(name: str, value: Any) -> Any:
    """Check that a number is in (0, 1]."""
    if not 0 < value <= 1:
        errors.refuse(WHERE, name, "in (0, 1]", value)
    return value


def device(name: str, value: str) -> str:
    """Resolve a device: "auto" becomes the one that there is."""
    return devices.resolve(WHERE, value)
