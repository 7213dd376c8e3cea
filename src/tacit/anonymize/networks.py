"""Encoder and branches of [FPBD22]_: any torch modules, or layers of ReLU units with dropout.

References
----------
.. [FPBD22] Feutry, Piantanida, Bengio, Duhamel. Learning anonymized representations with
   adversarial neural networks. 2022. Section IV.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.privacy import errors

PENDIGITS = {"encoder": (700,) * 8, "branches": (700,) * 2}
"""Layers of [FPBD22]_ for pen-digits: a branch has three, and the last is its output."""

DROPOUT = 0.1


class L1Ball(nn.Module):
    """Scales what lies outside the ℓ1 ball onto its surface."""

    def __init__(self, radius: float = 1.0) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, values: Tensor) -> Tensor:
        """The same direction, with an ℓ1 norm of at most `radius`."""
        norms = values.abs().sum(dim=1, keepdim=True)
        return values * (self.radius / norms.clamp(min=self.radius))


class LaplaceNoise(nn.Module):
    """Laplace noise on every number, in floating point: for training, not for release."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, values: Tensor) -> Tensor:
        """Values with noise."""
        uniform = torch.rand_like(values).clamp(min=1e-7) - 0.5
        return values - self.scale * uniform.sign() * torch.log1p(-2 * uniform.abs())


class Flips(nn.Module):
    """Indicators of cells, each kept with a probability, else one of the others: for training."""

    def __init__(self, truth: float) -> None:
        super().__init__()
        self.truth = truth

    def forward(self, hot: Tensor) -> Tensor:
        """Indicators, some of another cell."""
        rows, cells = hot.shape
        away = torch.randint(1, cells, (rows,), device=hot.device)
        kept = torch.rand(rows, device=hot.device) < self.truth
        codes = (hot.argmax(dim=1) + torch.where(kept, 0, away)) % cells
        return torch.eye(cells, device=hot.device, dtype=hot.dtype)[codes]


class Networks(nn.Module):
    """An encoder, a branch for the task, and one for each private label.

    Parameters
    ----------
    encoder : Module
        Inputs (n, p) to representations (n, d).
    regular : Module
        Representations to logits of the regular label.
    private : sequence of Module
        Representations to logits of each private label.
    noise : Module, optional
        What happens to representations before a branch sees them, where they are released so.
    """

    def __init__(
        self,
        encoder: nn.Module,
        regular: nn.Module,
        private: Sequence[nn.Module],
        noise: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.regular = encoder, regular
        self.private = nn.ModuleList(private)
        self.noisy = noise or nn.Identity()


def layers(sizes: Sequence[int], dropout: float = DROPOUT) -> list[nn.Module]:
    """Linear, ReLU and dropout between these sizes, the input's first.

    Weights begin with a variance of 2 over the inputs: with torch's own, a third of that, signals
    fade in eight layers and SGD stands still for many epochs.
    """
    found: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        linear = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)
        found += [linear, nn.ReLU(), nn.Dropout(dropout)]
    return found


def encoder(
    inputs: int, hidden: Sequence[int], dropout: float, dimensions: int | None, bounded: bool
) -> nn.Sequential:
    """Layers of ReLU units; a linear one to fewer `dimensions` at the end, in the ℓ1 ball if asked.

    The paper's representation is the last layer of ReLU units itself.
    """
    sizes = _sizes("encoder", hidden)
    found = layers([inputs, *sizes], dropout)
    if dimensions is not None:
        width = errors.whole("AnonymizingEncoder", "dimensions", dimensions, least=1, most=2**16)
        found = [*found, nn.Linear(sizes[-1], width)]
    return nn.Sequential(*found, *([L1Ball()] if bounded else []))


def branch(inputs: int, hidden: Sequence[int], dropout: float, outputs: int) -> nn.Sequential:
    """Layers of ReLU units, and a last linear one whose softmax is the prediction."""
    sizes = [inputs, *_sizes("branches", hidden)]
    return nn.Sequential(*layers(sizes, dropout), nn.Linear(sizes[-1], outputs))


def _sizes(name: str, given: Sequence[int]) -> list[int]:
    where = "AnonymizingEncoder"
    if not isinstance(given, Sequence) or isinstance(given, str):
        errors.refuse(where, name, "sizes of layers, or a torch module", given)
    return [errors.whole(where, f"a layer of {name}", size, least=1, most=2**16) for size in given]
