"""The model that an algorithm gets inside a silo: its gradients are noisy and ignore the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from tacit.central.training.gradients import NoisyGradients
from tacit.federated.model import Evaluation
from tacit.federated.payload import Layout, Vector
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors


class PrivateModel:
    """A model whose gradients are noisy sums over Poisson samples of a silo's rows.

    Parameters
    ----------
    model : TorchModel
        The network.
    gradients : NoisyGradients
        Source of gradients; it holds the rows.
    draws : int
        Number of gradients that were planned. Further ones are refused.
    """

    def __init__(self, model: TorchModel, gradients: NoisyGradients, draws: int) -> None:
        self._model, self._gradients, self._remaining = model, gradients, draws

    @property
    def layout(self) -> Layout:
        return self._model.layout

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._model.dtype

    def start(self) -> Vector:
        return self._model.start()

    def gradient(self, parameters: Vector, rows: Any, labels: Any) -> Vector:
        """Draw a noisy gradient; the rows and labels that are passed are ignored."""
        if self._remaining <= 0:
            raise errors.TacitError("Silo: a round must have no more draws than were planned.")
        self._remaining -= 1
        self._model.load(parameters)
        return np.asarray(self._gradients.draw().cpu().numpy())

    def evaluate(self, parameters: Vector, rows: Any, labels: Any) -> Evaluation:
        """Return no information: an accuracy of 0 passes a threshold of 0, and no other."""
        return Evaluation(float("nan"), 0.0)


class ExampleLosses:
    """The loss of each example alone; zero for examples that do not count."""

    def __init__(self, model: TorchModel) -> None:
        self._model = model

    def __call__(self, module: nn.Module, rows: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return self._model.losses(module(rows), labels) * counts
