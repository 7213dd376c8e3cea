"""The neighbours of a guarantee: their adjacency, and the unit in which they differ."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tacit.privacy import errors


class Adjacency(StrEnum):
    """The pairs of inputs that a guarantee ranges over."""

    ANY_TWO_INPUTS = "any-two-inputs"
    """Local model: any input of one person, against any other."""
    REPLACE_ONE = "replace-one"
    """Central model: one unit's data replaced by other data; the number of units is public."""
    ADD_REMOVE = "add-remove"
    """Central model: one unit's data added or removed; the number of units is hidden too."""
    ZERO_OUT = "zero-out"
    """Central model: one unit's data blanked, its place kept; the number of units is public."""

    @property
    def model(self) -> str:
        return "local" if self is Adjacency.ANY_TWO_INPUTS else "central"

    @classmethod
    def of(cls, where: str, value: Any) -> Adjacency:
        """Return the member with this name; refuse any other name."""
        return cls(errors.choice(where, "adjacency", value, list(cls)))


class Unit(StrEnum):
    """The unit in which two neighbours differ."""

    RECORD = "record"
    LABEL = "label"
    PERSON = "person"
    CLIENT = "client"

    @classmethod
    def of(cls, where: str, value: Any) -> Unit:
        """Return the member with this name; refuse any other name."""
        return cls(errors.choice(where, "unit", value, list(cls)))


_STEPS: dict[tuple[Adjacency, Adjacency], int] = {
    (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT): 1,
    (Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT): 1,
    (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE): 2,
    (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE): 2,
}
"""Number of steps of the first adjacency that make one step of the second."""


def steps_between(where: str, stated: Adjacency, wanted: Adjacency | str) -> int:
    """Count the steps of the stated adjacency that make one step of the wanted one, or raise."""
    wanted = Adjacency.of(where, wanted)
    steps = 1 if wanted is stated else _STEPS.get((stated, wanted))
    if steps is None:
        raise errors.IncompatibleGuarantees(
            f"{where}: adjacency must be one that follows from {stated}, got {wanted}. "
            "State the guarantee for the neighbours that it was proved for."
        )
    return steps
