"""The model protocol that algorithms rely on: layout, initial parameters, gradient, evaluation.

Parameters are one flat numpy vector. `tacit.federated.torch_model` turns a torch module into such a
model; a quadratic with a closed form is another example.
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
    """Mean loss and accuracy; NaN where a model predicts no classes."""

    loss: float
    accuracy: float


class Model(Protocol):
    """A differentiable function of a flat vector of parameters."""

    @property
    def layout(self) -> Layout:
        """Names and shapes of the parameters."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The floating-point type in which clients compute."""

    def start(self) -> Vector:
        """Return the initial parameters, the same at every call."""

    def gradient(self, parameters: Vector, rows: Any, labels: Any) -> Vector:
        """Return the gradient of the mean loss over the rows.

        The caller may modify the array in place; the next call overwrites it.
        """

    def evaluate(self, parameters: Vector, rows: Any, labels: Any) -> Evaluation:
        """Evaluate the parameters on these rows."""


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
    """Provide a copy of a model for one client in one phase, used by nobody else.

    The engine's own model never sees rows, so every copy is as it was built; a model that shares
    mutable state with its copy is refused. A model whose passes draw random numbers, or keep state
    that a deep copy does not cover, defines its own `serving`.
    """
    own = getattr(model, "serving", None)
    if own is not None:
        serving: AbstractContextManager[Model] = own(data, rng)
        return serving
    return nullcontext(copied(model))


def copied(model: Model) -> Model:
    """Copy a model whole, or refuse it."""
    own = copy.deepcopy(model)
    if copies.shared(model, own):
        remedy = "What one client's pass writes would reach the next."
        errors.refuse("run", "model", "one that copy.deepcopy copies whole", "a part", remedy)
    return own
