"""Linear layers with ReLU between them, many networks side by side: the first axis counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: products this small are slower in several, and much slower on a busy machine.

    The number of threads is global to the process, so it is restored.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def start(count: int, sizes: Sequence[int], generator: Any) -> list[Tensor]:
    """Return initial weights and biases; a zero last layer makes all classes equally likely."""
    import torch

    layers: list[Tensor] = []
    for index, (wide, out) in enumerate(pairwise(sizes)):
        last = index == len(sizes) - 2
        # The same start for all: differences between them are then not due to chance.
        weight = torch.randn(1, wide, out, generator=generator) * (0 if last else (2 / wide) ** 0.5)
        layers += [weight.repeat(count, 1, 1), torch.zeros(count, 1, out)]
    return layers


def forward(layers: Sequence[Tensor], x: Tensor) -> Tensor:
    """Compute the logits of (networks, rows, inputs)."""
    import torch

    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = torch.relu(torch.baddbmm(bias, x, weight))
    return torch.baddbmm(layers[-1], x, layers[-2])


def snapshot(layers: Sequence[Tensor]) -> list[Tensor]:
    """Copy the layers, so that training does not change them."""
    return [layer.detach().clone() for layer in layers]


def size(layers: Sequence[Tensor]) -> Tensor:
    """Sum the squared weights of each network, without biases."""
    import torch

    return torch.stack([(weight**2).sum(dim=(1, 2)) for weight in layers[::2]]).sum(dim=0)
