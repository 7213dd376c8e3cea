r"""Networks for `TorchModel`: a small convolutional network, and initialization by pre-training.

The convolutional network is designed for noisy gradients. It has no batch normalisation, under
which no gradient belongs to one example alone; the inputs of the last layer have norm 1, so that
one clip norm fits every image; and the last layer is initialized at 0, so that its first step goes
in the right direction.

A builder is a pure function of sizes and weights: every party that builds it gets the same module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.privacy import errors

Weights = Mapping[str, npt.NDArray[np.float32]]
"""Weights of a module, by the names in its state dictionary."""

_KERNEL = 3
_GROUPS = 4


class Images(nn.Module):
    """A layer that reshapes rows of pixels to images with one channel."""

    def __init__(self, image: tuple[int, int]) -> None:
        super().__init__()
        self.image = image

    def forward(self, rows: Tensor) -> Tensor:
        return rows.reshape(len(rows), 1, *self.image)


class UnitNorm(nn.Module):
    """A layer that centres each row and scales it to the unit sphere."""

    def forward(self, rows: Tensor) -> Tensor:
        width = rows.shape[1]
        scaled: Tensor = F.layer_norm(rows, (width,)) / width**0.5
        return scaled


def small_cnn(
    image: tuple[int, int] = (28, 28), classes: int = 2, channels: tuple[int, ...] = (32, 64)
) -> Callable[[], nn.Module]:
    """Build a network of strided convolutions with group normalisation and one linear layer.

    Parameters
    ----------
    image : (int, int)
        Height and width. Rows are images, or flattened images.
    classes : int
        Number of outputs.
    channels : tuple of int
        Channels of each convolution, multiples of 4. Each convolution halves height and width.

    Examples
    --------
    >>> from tacit.federated.torch_model import TorchModel
    >>> TorchModel(small_cnn()).layout.size
    25282
    """
    where = "small_cnn"
    height, width = (errors.whole(where, "image", side, least=1, most=4096) for side in image)
    outputs = errors.whole(where, "classes", classes, least=2)
    if not channels:
        errors.refuse(where, "channels", "at least one", channels)
    for count in channels:
        if errors.whole(where, "channels", count, least=1) % _GROUPS:
            errors.refuse(where, "channels", f"multiples of {_GROUPS}", count)

    def build() -> nn.Module:
        layers: list[nn.Module] = [Images((height, width))]
        inputs, rows, columns = 1, height, width
        for count in channels:
            convolution = nn.Conv2d(inputs, count, _KERNEL, stride=2, padding=_KERNEL // 2)
            layers += [convolution, nn.GroupNorm(_GROUPS, count), nn.ReLU()]
            inputs, rows, columns = count, -(-rows // 2), -(-columns // 2)
        layers += [nn.Flatten(), UnitNorm()]
        head = nn.Linear(inputs * rows * columns, outputs)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return nn.Sequential(nn.Sequential(*layers), head)

    return build


def pretrained(
    build: Callable[[], nn.Module], weights: Weights, *, frozen: bool = False
) -> Callable[[], nn.Module]:
    """Build the same network with the features of another one: all layers but the last.

    Parameters
    ----------
    build : callable
        Builds a network that consists of features and a last layer, such as `small_cnn`'s.
    weights : mapping
        Weights of the features, as `feature_weights` reads them from a trained network. They must
        come from public data: no guarantee covers the data that they were learned from.
    frozen : bool
        Train only the last layer. The features are then public constants and do not travel.
    """

    def built() -> nn.Module:
        module = build()
        features = _features(module)
        own = {name: tuple(value.shape) for name, value in features.state_dict().items()}
        if {name: tuple(value.shape) for name, value in weights.items()} != own:
            remedy = "Take them from a network of the same sizes."
            errors.refuse("pretrained", "weights", "those of the features", len(weights), remedy)
        features.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        features.requires_grad_(not frozen)
        return module

    return built


def feature_weights(module: nn.Module) -> dict[str, npt.NDArray[np.float32]]:
    """Return the weights of all layers but the last."""
    state = _features(module).state_dict()
    return {name: value.detach().cpu().numpy().copy() for name, value in state.items()}


def _features(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Sequential) or len(module) != 2:
        errors.refuse("pretrained", "build", "of features and a last layer", type(module).__name__)
    return module[0]
