"""Encoder and branches as in [FPBD22]_: any torch modules, or layers of ReLU units with dropout.

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
"""Layers of [FPBD22]_ for pen digits; a branch has three, the last of which is its output."""

DROPOUT = 0.1


class L1Ball(nn.Module):
    """A layer that scales values outside the ℓ1 ball onto its surface."""

    def __init__(self, radius: float = 1.0) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, values: Tensor) -> Tensor:
        """Scale each row to an ℓ1 norm of at most `radius`."""
        norms = values.abs().sum(dim=1, keepdim=True)
        return values * (self.radius / norms.clamp(min=self.radius))


class TrainingLaplaceNoise(nn.Module):
    """Floating-point Laplace noise on every number, for training and not for release."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, values: Tensor) -> Tensor:
        """Add noise to the values."""
        uniform = torch.rand_like(values).clamp(min=1e-7) - 0.5
        return values - self.scale * uniform.sign() * torch.log1p(-2 * uniform.abs())


class Flips(nn.Module):
    """Randomized response on indicators of cells, for training and not for release."""

    def __init__(self, truth: float) -> None:
        super().__init__()
        self.truth = truth

    def forward(self, hot: Tensor) -> Tensor:
        """Replace some indicators by those of other cells."""
        rows, cells = hot.shape
        away = torch.randint(1, cells, (rows,), device=hot.device)
        kept = torch.rand(rows, device=hot.device) < self.truth
        codes = (hot.argmax(dim=1) + torch.where(kept, 0, away)) % cells
        return torch.eye(cells, device=hot.device, dtype=hot.dtype)[codes]


class Networks(nn.Module):
    """An encoder, a branch for the task, and a branch for each private label.

    Parameters
    ----------
    encoder : Module
        Module from inputs (n, p) to representations (n, d).
    regular : Module
        Module from representations to logits of the regular label.
    private : sequence of Module
        Modules from representations to logits of each private label.
    noise : Module, optional
        Noise on representations before the branches, if they are released with noise.
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
    """Build linear, ReLU and dropout layers of these sizes, beginning with the input's.

    Initial weights have the variance 2 / inputs. With torch's default, a sixth of that, signals
    fade in eight layers and SGD makes no progress for many epochs.
    """
    built: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        linear = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)
        built += [linear, nn.ReLU(), nn.Dropout(dropout)]
    return built


def encoder(
    inputs: int, hidden: Sequence[int], dropout: float, dimensions: int | None, bounded: bool
) -> nn.Sequential:
    """Build layers of ReLU units, with a final linear layer to `dimensions` if given.

    With `bounded` the result is scaled into the ℓ1 ball. The paper's representation is the last
    layer of ReLU units itself.
    """
    sizes = _sizes("encoder", hidden)
    built = layers([inputs, *sizes], dropout)
    if dimensions is not None:
        width = errors.whole("AnonymizingEncoder", "dimensions", dimensions, least=1, most=2**16)
        built = [*built, nn.Linear(sizes[-1], width)]
    return nn.Sequential(*built, *([L1Ball()] if bounded else []))


def branch(inputs: int, hidden: Sequence[int], dropout: float, outputs: int) -> nn.Sequential:
    """Build layers of ReLU units, and a last linear layer whose softmax is the prediction."""
    sizes = [inputs, *_sizes("branches", hidden)]
    return nn.Sequential(*layers(sizes, dropout), nn.Linear(sizes[-1], outputs))


def _sizes(name: str, sizes: Sequence[int]) -> list[int]:
    where = "AnonymizingEncoder"
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        errors.refuse(where, name, "sizes of layers, or a torch module", sizes)
    return [errors.whole(where, f"a layer of {name}", size, least=1, most=2**16) for size in sizes]
