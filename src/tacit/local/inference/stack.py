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
    """Products this small are slower in several threads, and many times slower beside other work.

    The number of threads is torch's own and belongs to the process: it is put back.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def start(count: int, sizes: Sequence[int], generator: Any) -> list[Tensor]:
    """Weights and biases in turn; the last layer starts at zero: every class is as likely."""
    import torch

    layers: list[Tensor] = []
    for index, (wide, out) in enumerate(pairwise(sizes)):
        last = index == len(sizes) - 2
        # The same start for all: differences between them are then not luck.
        weight = torch.randn(1, wide, out, generator=generator) * (0 if last else (2 / wide) ** 0.5)
        layers += [weight.repeat(count, 1, 1), torch.zeros(count, 1, out)]
    return layers


def forward(layers: Sequence[Tensor], x: Tensor) -> Tensor:
    """Logits of (networks, rows, inputs)."""
    import torch

    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = torch.relu(torch.baddbmm(bias, x, weight))
    return torch.baddbmm(layers[-1], x, layers[-2])


def snapshot(layers: Sequence[Tensor]) -> list[Tensor]:
    """A copy that training leaves alone."""
    return [layer.detach().clone() for layer in layers]


def size(layers: Sequence[Tensor]) -> Tensor:
    """Sum of the squared weights of each network; biases are free."""
    import torch

    return torch.stack([(weight**2).sum(dim=(1, 2)) for weight in layers[::2]]).sum(dim=0)
