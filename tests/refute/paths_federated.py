"""Federations: clients towards the server's model, and records of a silo towards the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.federated import rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level.adaptive import Adaptive
from tacit.federated.client_level.distributed import SecureClientPrivacy
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.model import Data
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.silo import Silo
from tacit.federated.rounds import RunOptions
from tacit.federated.secure import Stage
from tacit.federated.torch_model import TorchModel, mlp

from .adversary import FEW, Columns, hostile_rows, neighbours
from .refuter import Outcome, Pair, Path
from .tape import Coins, Query

COLUMNS, CLASSES, CLIENTS = 4, 3, 6


class Centred(nn.Module):
    """Rows less a running mean, which a pass writes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(COLUMNS, CLASSES)
        self.register_buffer("center", torch.zeros(COLUMNS))
        self.calls = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.training:
            self.center = 0.9 * self.center + 0.1 * rows.detach().mean(0)
        return self.inner(rows - self.center) * (1 + 0.01 * self.calls)


def held(seed: int, rows: int = 8) -> Data:
    drawn = np.random.default_rng(seed)
    return Data(
        drawn.normal(size=(rows, COLUMNS)).astype(np.float32), drawn.integers(0, CLASSES, rows)
    )


def pairs_of_clients(everything: bool) -> Iterator[Pair]:
    others = [held(seed) for seed in range(1, CLIENTS)]
    blank = Data(np.full((8, COLUMNS), np.nan, np.float32), np.zeros(8, np.int64))
    rows = hostile_rows(COLUMNS, -1, 1)
    for kind in rows if everything else (*FEW, "far"):
        row = np.full(COLUMNS, 1e5) if kind == "far" else rows[kind]
        with np.errstate(over="ignore"):
            mine = Data(np.tile(row, (8, 1)).astype(np.float32), np.arange(8) % CLASSES)
        for place in (0, 3, CLIENTS - 1) if everything else (0,):
            with_it, without = list(others), list(others)
            with_it.insert(place, mine)
            without.insert(place, blank)
            yield Pair(f"client of {kind} rows at {place}", with_it, without)


def clients(name: str, chosen: str, module: Any, **options: Any) -> Path:
    settings = {"cohort": CLIENTS, "epsilon": 1, "delta": 1e-5, "rounds": 2, "clip_norm": 0.1}

    def run(people: list[Data], coins: Coins) -> Outcome:
        privacy = ClientPrivacy(CLIENTS, **{**settings, **options}, rng=coins)
        torch.manual_seed(0)
        made = TorchModel(module)
        config = algorithm(chosen).config(weighted=False)
        found = rounds.run(
            chosen, made, people, 2, RunOptions(config=config, coordinator=privacy, seed=0)
        )
        return Outcome((np.asarray(found.model), privacy.clip_norms), privacy.event)

    def claim(query: Query) -> float:
        # Sums are in 2^20 steps of the clip norm, signs in whole numbers.
        return query.claim or 2.0**20

    covers = ("federated.ClientPrivacy",)
    return Path(f"ClientPrivacy {name}", ADJACENCY, run, pairs_of_clients, covers, claim)


def secure_clients(name: str, chosen: str, module: Any, **options: Any) -> Path:
    """Noise from the clients, under masks that cancel; some of them lost."""

    def run(people: list[Data], coins: Coins) -> Outcome:
        torch.manual_seed(0)
        made = TorchModel(module)
        budget = {"size": made.layout.size, "epsilon": 1, "delta": 1e-5, "rounds": 2}
        privacy = SecureClientPrivacy(CLIENTS, **budget, clip_norm=0.1, **options, rng=coins)
        config = algorithm(chosen).config(weighted=False)
        found = rounds.run(
            chosen, made, people, 2, RunOptions(config=config, coordinator=privacy, seed=0)
        )
        return Outcome(np.asarray(found.model), privacy.event)

    covers = ("federated.SecureClientPrivacy",)
    return Path(f"SecureClientPrivacy {name}", ADJACENCY, run, pairs_of_clients, covers)


ADJACENCY = "zero-out"


def silo(name: str, chosen: str, **options: Any) -> Path:
    """Statistics, two rounds, and an evaluation."""

    def run(data: Columns, coins: Coins) -> Outcome:
        torch.manual_seed(0)
        model, how = TorchModel(mlp(COLUMNS, CLASSES)), algorithm(chosen)
        settings = {"batch_size": None, "epochs": 1} if "epochs" in how.reads else {}
        privacy = RecordPrivacy(
            **{
                "epsilon": 4.0,
                "delta": 1e-4,
                "rounds": 2,
                "evaluations": 1,
                "held_out": 8,
                **options,
            }
        )
        with np.errstate(over="ignore"):
            rows = Data(data[0].astype(np.float32), data[1])
        one = Silo(model, rows, privacy, how, how.config(**settings), rng=coins)
        state: dict[str, Any] = {}
        weights, replies = model.start(), []
        for number in (1, 2):
            draws = np.random.default_rng(0)
            found = one.answer(number, how.phases[0], {"model": weights}, state, draws)
            reply, state = found[0], found[1]
            replies.append({key: np.asarray(value) for key, value in reply.record.items()})
        matrix = one.evaluate(weights)
        return Outcome((replies, matrix), one.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        drawn = np.random.default_rng(4)
        base = drawn.uniform(-1, 1, (24, COLUMNS)), drawn.integers(0, CLASSES, 24)
        yield from neighbours(base, "zero-out", -1, 1, everything, (0, CLASSES - 1))

    return Path(f"Silo {name}", "zero-out", run, pairs, ("federated.Silo",))


def paths() -> list[Path]:
    return [
        clients("fedavg", "fedavg", mlp(COLUMNS, CLASSES)),
        clients(
            "adaptive clipping",
            "fedavg",
            mlp(COLUMNS, CLASSES),
            adaptive=Adaptive(count_noise=20.0),
        ),
        clients("a buffer that a pass writes", "fedavg", Centred),
        secure_clients("fedavg", "fedavg", mlp(COLUMNS, CLASSES)),
        secure_clients("fsvrg", "fsvrg", mlp(COLUMNS, CLASSES), masks=False),
        secure_clients(
            "some are lost",
            "fedavg",
            Centred,
            lost=2,
            losses=lambda number: {1: Stage(number), 4: Stage.MASKED},
        ),
        silo("fedavg", "fedavg"),
        silo("fedsgd", "fedsgd"),
    ]
