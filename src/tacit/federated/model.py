"""What an algorithm asks of a model: a layout, a start, a gradient, a judgement.

Parameters are one flat numpy vector. `tacit.federated.torch_model` makes such a model of a torch
module; a quadratic with a closed form is another.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tacit.federated.payload import Layout, Vector
from tacit.privacy import copies, errors


class Evaluation(NamedTuple):
    """Mean loss and share of right answers; NaN where a model has no answers."""

    loss: float
    accuracy: float


class Model(Protocol):
    """A differentiable function of a flat vector of parameters."""

    @property
    def layout(self) -> Layout:
        """Names and shapes of the parameters."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """In which clients compute."""

    def start(self) -> Vector:
        """Parameters to begin with, the same at every call."""

    def gradient(self, parameters: Vector, rows: Any, labels: Any) -> Vector:
        """Of the mean loss over the rows. The caller may change it; the next call overwrites it."""

    def evaluate(self, parameters: Vector, rows: Any, labels: Any) -> Evaluation:
        """How good the parameters are on these rows."""


@dataclass(frozen=True, eq=False)
class Data:
    """One client's rows and labels; they never leave it."""

    rows: npt.NDArray[Any]
    labels: npt.NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.labels):
            raise errors.InvalidData(
                f"Data: there must be one label for each row, got {len(self.rows)} rows and "
                f"{len(self.labels)} labels."
            )
        if len(self.rows) == 0:
            raise errors.InvalidData("Data: a client must have at least one row. Leave it out.")

    def __len__(self) -> int:
        return len(self.rows)


def serving(model: Model, data: Data, rng: np.random.Generator) -> AbstractContextManager[Model]:
    """A copy of a model that one client's part of one phase has to itself.

    The engine's own model meets no rows, so every copy is as it was built; one that shares what can
    change with its copy is refused. A model whose passes also draw, or keep what a deep copy does
    not cover, has a `serving` of its own.
    """
    own = getattr(model, "serving", None)
    if own is not None:
        found: AbstractContextManager[Model] = own(data, rng)
        return found
    return nullcontext(copied(model))


def copied(model: Model) -> Model:
    """Copy a model whole, or refuse it."""
    found = copy.deepcopy(model)
    if copies.shared(model, found):
        remedy = "What one client's pass writes would reach the next."
        errors.refuse("run", "model", "one that copy.deepcopy copies whole", "a part", remedy)
    return found
