"""The networks that `private_step_gpu` trains, with inputs and targets, in two sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A network and a batch; targets have one class per example, or one per position."""

    network: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    targets: Callable[[], Tensor]


class CNN(nn.Sequential):
    """The network of Abadi et al. for MNIST, as in Opacus: 26 thousand parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 8, 2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )


class Residual(nn.Module):
    """Two convolutions with group norms, and a way around them."""

    def __init__(self, wide: int, high: int, stride: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([_norm(wide), _norm(high)])
        self.first = nn.Conv2d(wide, high, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(high, high, 3, 1, 1, bias=False)
        self.around = None if wide == high else nn.Conv2d(wide, high, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norms[0](x))
        around = x if self.around is None else self.around(active)
        return around + self.second(F.relu(self.norms[1](self.first(active))))


class WideResNet(nn.Module):
    """WRN-depth-width with group norms; 16-4 has 2.7 million parameters."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
        wide = 16
        for group, high in enumerate((16 * width, 32 * width, 64 * width)):
            for place in range((depth - 4) // 6):
                layers.append(Residual(wide, high, 2 if group and not place else 1))
                wide = high
        self.body, self.norm, self.head = nn.Sequential(*layers), _norm(wide), nn.Linear(wide, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.body(x))).mean((2, 3)))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(16, channels), channels)


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank (LoRA)."""

    def __init__(self, inner: nn.Linear, rank: int) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Linear(inner.in_features, rank, bias=False)
        self.up = nn.Linear(rank, inner.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.up(self.down(x))


class Block(nn.Module):
    """Attention and a layer of hidden units, each with a norm before it."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.units = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.mixed(self.before(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.units(self.between(x))


class Decoder(nn.Module):
    """A decoder over tokens; with a rank, only adapters of its attention are trained."""

    def __init__(
        self, words: int, length: int, width: int, depth: int, rank: int | None = None
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(
            *[Block(width, max(1, width // 64), True) for _ in range(depth)]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if rank is not None:
            self.requires_grad_(False)
            for block in self.blocks:
                block.mixed = Adapted(block.mixed, rank)
                block.out = Adapted(block.out, rank)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device).expand(x.shape).contiguous()
        seen = self.blocks(self.words(x) + self.places(places))
        return self.head(self.norm(seen))


class ViT(nn.Module):
    """A vision transformer: patches, places, blocks, and the mean over patches."""

    def __init__(self, side: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Embedding((side // patch) ** 2, width)
        self.blocks = nn.Sequential(
            *[Block(width, max(1, width // 64), False) for _ in range(depth)]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.patches(x).flatten(2).transpose(1, 2).contiguous()
        places = torch.arange(seen.shape[1], device=x.device).expand(seen.shape[:2]).contiguous()
        return self.head(self.norm(self.blocks(seen + self.places(places))).mean(1))


def _images(count: int, channels: int, side: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(count, channels, side, side)


def _tokens(words: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, words, shape)


CASES = {
    "cnn": Case(CNN, _images(2048, 1, 28), _tokens(10, 2048)),
    "wideresnet": Case(lambda: WideResNet(16, 4), _images(512, 3, 32), _tokens(10, 512)),
    "transformer": Case(
        lambda: Decoder(8192, 128, 512, 6), _tokens(8192, 64, 128), _tokens(8192, 64, 128)
    ),
    "vit": Case(lambda: ViT(32, 4, 384, 12), _images(256, 3, 32), _tokens(10, 256)),
    "lora": Case(
        lambda: Decoder(8192, 128, 512, 6, rank=8), _tokens(8192, 64, 128), _tokens(8192, 64, 128)
    ),
}
TINY = {
    "cnn": Case(CNN, _images(8, 1, 28), _tokens(10, 8)),
    "wideresnet": Case(lambda: WideResNet(10, 1), _images(4, 3, 16), _tokens(10, 4)),
    "transformer": Case(lambda: Decoder(40, 8, 64, 1), _tokens(40, 4, 8), _tokens(40, 4, 8)),
    "vit": Case(lambda: ViT(8, 4, 64, 1), _images(4, 3, 8), _tokens(10, 4)),
    "lora": Case(lambda: Decoder(40, 8, 64, 1, rank=2), _tokens(40, 4, 8), _tokens(40, 4, 8)),
}


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return one number per example: the mean over its positions."""
    found = F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
    return found.view(len(outputs), -1).mean(1)
