r"""Networks of linear layers and ReLUs, trained by DP-SGD.

.. math:: f(v) = W_L\,\mathrm{relu}(\cdots\mathrm{relu}(W_1 v + b_1)\cdots) + b_L

Weights of hidden layers start as normal draws (half of He's rule in the first, for rows of length
about L), those of the last layer at zero: before the first step all classes are equally likely. The
draws come from the fit's own stream; torch's generator is not used.

Notes
-----
The guarantee is that of `tacit.private_training.train`: Gaussians on Poisson samples, composed with
the event of what ran before on the same records. The number of records is public: it sets the
sampling probability and the size of a step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.central.estimators.base import Reals
from tacit.central.estimators.recipe import Recipe
from tacit.privacy import devices, errors
from tacit.privacy.events import Composed, Event, towards
from tacit.privacy.guarantees import Adjacency
from tacit.privacy.randomness import Randomness, source

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tacit.central.training.schedule import Schedule

Layer = tuple[Reals, Reals]
"""Weights of shape (inputs, outputs), and biases."""

LENGTH = 3.0
"""L: approximate length of rows. Longer rows make the first layer learn faster than the others."""

LOSSES = ("squared", "logistic", "softmax")
_BLOCK = 4096
_START = math.sqrt(1 / 2)


@dataclass(frozen=True)
class NetworkTraining:
    """Sizes, settings and budget of one training; it uses only the number of the records."""

    where: str
    rows: int
    sizes: tuple[int, ...]
    """Inputs, hidden layers, outputs."""
    loss: str
    recipe: Recipe
    epsilon: float
    delta: float
    unit: str
    device: str
    beside: Event | None

    @property
    def weights(self) -> int:
        """Return the number of trained weights."""
        return sum((one + 1) * other for one, other in itertools.pairwise(self.sizes))

    @cached_property
    def event(self) -> Event:
        """Return the event of `solve`, together with what ran before it."""
        # Settings without a privacy cost are checked too: a refused fit must not be charged.
        clip = errors.positive(self.where, "clip_norm", self._settings["clip_norm"])
        own = self._schedule.event(clip, self.unit)
        parts = (own,) if self.beside is None else (self.beside, own)
        stated = tuple(towards(part, Adjacency.ZERO_OUT) for part in parts)
        return stated[0] if len(stated) == 1 else Composed(stated)

    @property
    def noise(self) -> float:
        r"""Return the norm of the noise on all steps together, over one record's contribution.

        .. math:: \frac{\sigma\sqrt{T p}}{T q}

        for p weights: where there are no more records than this, steps are mostly noise.
        """
        plan = self._schedule
        scale = float(plan.noise_multiplier) / plan.probability
        return scale * math.sqrt(self.weights / plan.steps)

    def solve(
        self, inputs: npt.NDArray[np.float32], targets: npt.NDArray[Any], rng: Randomness | None
    ) -> tuple[list[Layer], Event]:
        """Return the layers of the trained network, and the event."""
        import torch

        from tacit.central.training.training import train

        device = devices.resolve(self.where, self.device)
        module = _module(self.sizes, source(rng)).to(device)
        wanted = torch.int64 if self.loss == "softmax" else torch.float32
        data = (
            torch.as_tensor(inputs, device=device),
            torch.as_tensor(targets, dtype=wanted, device=device),
        )
        trained = train(
            module,
            data,
            _loss(self.loss),
            epsilon=self.epsilon,
            delta=self.delta,
            beside=self.beside,
            unit=self.unit,
            rng=rng,
            **self._settings,
        )
        return _layers(module), towards(trained.event, Adjacency.ZERO_OUT)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """Return the settings of `train`."""
        steps = self.recipe.steps(self._schedule, self.weights, self.loss)
        return {**self.recipe.length(self.rows), **steps}

    @cached_property
    def _schedule(self) -> Schedule:
        from tacit.central.training.schedule import schedule

        return schedule(
            self.rows,
            epsilon=self.epsilon,
            delta=self.delta,
            **self.recipe.length(self.rows),
            steps=None,
            noise_multiplier=None,
            accountant="pld",
            beside=self.beside,
        )


def forward(layers: list[Layer], rows: Reals) -> Reals:
    """Compute outputs for rows, in blocks."""
    outputs = [_outputs(layers, rows[i : i + _BLOCK]) for i in range(0, len(rows), _BLOCK)]
    return np.concatenate(outputs)


def _outputs(layers: list[Layer], rows: Reals) -> Reals:
    for weights, bias in layers[:-1]:
        rows = np.maximum(rows @ weights + bias, 0)
    weights, bias = layers[-1]
    return np.asarray(rows @ weights + bias)


def _module(sizes: tuple[int, ...], stream: Randomness) -> nn.Sequential:
    """Build the network with its initial weights."""
    import torch
    from torch import nn

    from tacit.central.training.noise import standard_normal

    module = nn.Sequential()
    last = len(sizes) - 2
    for place, (one, other) in enumerate(itertools.pairwise(sizes)):
        layer = nn.utils.skip_init(nn.Linear, one, other)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            layer.bias.zero_()
            layer.weight.zero_()
            if place < last:
                # Rows have length LENGTH for any number of columns; hidden layers, √size.
                scale = _START / (LENGTH if place == 0 else math.sqrt(one / 4))
                layer.weight.copy_(standard_normal(one * other, stream).view(other, one) * scale)
        module.append(layer)
        if place < last:
            module.append(nn.ReLU())
    return module


def _layers(module: nn.Sequential) -> list[Layer]:
    arrays = [
        parameter.detach().cpu().numpy().astype(np.float64) for parameter in module.parameters()
    ]
    pairs = zip(arrays[::2], arrays[1::2], strict=True)
    return [(weights.T.copy(), bias) for weights, bias in pairs]


def _loss(name: str) -> Callable[..., Tensor]:
    """Return the loss function, which gives one number per example."""
    from torch.nn import functional

    if name == "softmax":
        return lambda module, x, y: functional.cross_entropy(module(x), y, reduction="none")
    if name == "logistic":
        return lambda module, x, y: functional.binary_cross_entropy_with_logits(
            module(x)[:, 0], y, reduction="none"
        )
    return lambda module, x, y: (module(x)[:, 0] - y) ** 2
