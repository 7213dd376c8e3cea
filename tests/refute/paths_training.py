"""Training by noisy gradients: a blank record (not finite) keeps its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tacit.central.training import train

from .adversary import Columns, neighbours
from .refuter import Outcome, Pair, Path
from .tape import Coins

CLASSES, COLUMNS = 3, 8


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(COLUMNS, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 4, 1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def steep() -> nn.Module:
    """Weights that cancel, and a last layer that makes signs of what rounding leaves."""
    made = mlp()
    with torch.no_grad():
        made[0].weight.sub_(made[0].weight.mean(1, keepdim=True))
        made[0].bias.zero_()
        made[2].weight.mul_(1e9)
    return made


class Positions(nn.Module):
    """A layer on two halves of a row, with opposite signs: what they add may cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(COLUMNS // 2, 4), nn.Linear(4, CLASSES)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        halves = self.inner(rows.reshape(len(rows), 2, COLUMNS // 2))
        return self.last(1e6 * (halves[:, 0] - halves[:, 1]))


class Words(nn.Module):
    """Signs of a row as words of a table, added up; of a blank, which has no signs, no number."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, CLASSES)
        self.register_buffer("scales", 10.0 ** torch.arange(COLUMNS))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        words = self.table((rows > 0).long()) + 0 * rows[..., None]
        return (words * self.scales[:, None]).sum(1)


class Sorted(nn.Module):
    """Rows in the order of their first column, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        order = torch.argsort(rows[:, 0], stable=True)
        return self.inner(rows[order])[torch.argsort(order)]


class Experts(nn.Module):
    """Two experts that take four rows each, in the order of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.first, self.second = nn.Linear(COLUMNS, 2), mlp(), mlp()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        chosen = self.gate(rows).argmax(1)
        room = [((chosen == e) & ((chosen == e).cumsum(0) <= 4))[:, None] for e in range(2)]
        weights = self.gate(rows).softmax(1)
        return sum(
            expert(rows) * weights[:, i : i + 1] * room[i]
            for i, expert in enumerate((self.first, self.second))
        )


def loss(module: nn.Module, rows: Any, labels: Any) -> Any:
    return cross_entropy(module(rows), labels, reduction="none")


def training(
    name: str, make: Any, refused: bool = False, device: str = "cpu", **options: Any
) -> Path:
    settings = {"epsilon": 1.0, "delta": 1e-5, "batch_size": 30, "steps": 3, **options}

    def run(data: Columns, coins: Coins) -> Outcome:
        torch.manual_seed(3)
        module = make().to(device)
        rows = torch.tensor(data[0], dtype=torch.float32, device=device)
        labels = torch.tensor(data[1], device=device)
        done = train(module, (rows, labels), loss, **settings, rng=coins)
        state = {key: value.cpu().numpy() for key, value in module.state_dict().items()}
        return Outcome((state, str(done.guarantee), done.assumptions), done.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        drawn = np.random.default_rng(5)
        base = drawn.uniform(-1, 1, (40, COLUMNS)), drawn.integers(0, CLASSES, 40)
        one = np.repeat(base[0][:1], 40, axis=0), np.repeat(base[1][:1], 40)
        yield from neighbours(one, "zero-out", -1, 1, everything, (0,))
        if everything:
            yield from neighbours(base, "zero-out", -1, 1, everything, (0, CLASSES - 1))

    covers = ("private_training.train",)
    where = "" if device == "cpu" else " on a GPU"
    title = f"private_training.train {name}{where}"
    there = device == "cpu" or torch.cuda.is_available()
    given = (title, "zero-out", run, pairs, covers)
    return Path(*given, refused=refused, available=lambda: there)


def paths() -> list[Path]:
    return [
        path
        for device in ("cpu", "cuda")
        for path in (
            training("mlp", mlp, device=device),
            training("mlp, every record", mlp, device=device, batch_size=41),
            training("convolutional", convolutional, device=device),
            training("steep", steep, device=device),
            training("positions", Positions, device=device),
            training("words", Words, device=device),
            training("microbatches", mlp, device=device, microbatch=7),
            training("per layer", mlp, device=device, clipping="per-layer"),
            training("automatic", mlp, device=device, clipping="automatic"),
            training("adaptive", mlp, device=device, clipping="adaptive"),
            training("adaptive, steep", steep, device=device, clipping="adaptive", microbatch=7),
            training("sorted rows", Sorted, device=device),
            training("experts", Experts, device=device, refused=True),
        )
    ]
