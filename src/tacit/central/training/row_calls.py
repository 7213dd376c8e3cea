"""The place of rows in a value, and the arguments of an operator, as the rules need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from torch import fx

from tacit.central.training.operators import argument
from tacit.central.training.tracing import Unfit

if TYPE_CHECKING:
    from tacit.central.training.rowwise import States


@dataclass(frozen=True)
class RowAxis:
    """The place of the examples: on this axis, of size outer · n · inner."""

    axis: int
    outer: int = 1
    inner: int = 1


State = Any
"""None for public values, `RowAxis`, or a list of states for several outputs."""


@dataclass(frozen=True)
class Call:
    """One operator, its arguments by name, and the place of their rows."""

    states: States
    node: fx.Node
    name: str

    def arg(self, name: str) -> Any:
        """Return an argument, or its default."""
        return argument(self.node, name)

    def rows(self, value: Any) -> RowAxis | None:
        state = self.states.of[value] if isinstance(value, fx.Node) else None
        return state if isinstance(state, RowAxis) else None

    def public(self, *names: str) -> None:
        """Refuse the call if one of these has rows."""
        for name in names:
            value = self.arg(name)
            parts = value if isinstance(value, list | tuple) else [value]
            if any(self.rows(one) is not None for one in parts):
                self.refuse()

    def shape(self, value: Any) -> tuple[int, ...]:
        return tuple(value_of(value).shape)

    @property
    def out(self) -> tuple[int, ...]:
        return self.shape(self.node)

    def own(self, name: str = "self") -> tuple[RowAxis, tuple[int, ...]]:
        """Return state and shape of an argument that must have rows."""
        value = self.arg(name)
        rows = self.rows(value)
        if rows is None:
            self.refuse()
        return rows, self.shape(value)

    def single(self) -> tuple[RowAxis, tuple[int, ...]]:
        """Do the same for `self`, if nothing else may have rows."""
        if any(self.rows(one) for one in self.node.all_input_nodes if one is not self.arg("self")):
            self.refuse()
        return self.own()

    def refuse(self) -> NoReturn:
        raise Unfit(f"{self.name} is not proved to keep rows apart here")


def value_of(node: Any) -> Any:
    """Return the fake tensor of a node, which has its shape and type."""
    return node.meta["val"]
