"""Training in a fixed order: what is mixed over steps moves by the stated sensitivity at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tacit.central.training import train_in_order

from .adversary import Columns
from .paths_training import Words, loss, mlp, steep, training
from .refuter import Outcome, Path
from .tape import Coins


def in_order(name: str, make: Any, device: str, **options: Any) -> Path:
    """The neighbours of `train`, trained in their order."""
    settings = {"epsilon": 1.0, "delta": 1e-5, "steps": 3, **options}

    def run(data: Columns, coins: Coins) -> Outcome:
        torch.manual_seed(3)
        module = make().to(device)
        rows = torch.tensor(data[0], dtype=torch.float32, device=device)
        labels = torch.tensor(data[1], device=device)
        done = train_in_order(module, (rows, labels), loss, **settings, rng=coins)
        state = {key: value.cpu().numpy() for key, value in module.state_dict().items()}
        return Outcome((state, str(done.guarantee), done.assumptions), done.event)

    like, called = training(name, make, device=device), "private_training.train_in_order"
    title = like.name.replace("private_training.train", called)
    return replace(like, name=title, run=run, covers=(called,))


def paths() -> list[Path]:
    return [
        path
        for device in ("cpu", "cuda")
        for path in (
            in_order("mlp", mlp, device, batch_size=8, steps=12),
            in_order("mlp, one pass", mlp, device, batch_size=9, steps=5),
            in_order("mlp, every record", mlp, device, batch_size=41),
            in_order("steep", steep, device, batch_size=16, steps=7),
            in_order("words", Words, device, batch_size=20, steps=4),
            in_order("microbatches", mlp, device, batch_size=20, steps=4, microbatch=7),
        )
    ]
