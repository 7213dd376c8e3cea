"""Training in a loop of one's own: data sets, views, several processes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import Dataset

from tacit.central.training import TrainingLoop
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP

from .adversary import Columns
from .paths_training import COLUMNS, Words, convolutional, loss, mlp, steep, training
from .refuter import Outcome, Path
from .tape import Coins
from .together import Member, Together

CALLED = "private_training.TrainingLoop"
EXAMPLE = torch.zeros(COLUMNS), torch.tensor(0)


class Records(Dataset):
    """Records that are fetched one by one; each view is moved a little."""

    def __init__(self, data: Columns) -> None:
        self.rows = torch.tensor(data[0], dtype=torch.float32)
        self.labels = torch.tensor(data[1])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        return self.rows[place] + torch.rand(COLUMNS), self.labels[place]


class Raising(Records):
    """A blank raises, and so do records that draw as much as they are large."""

    def __getitem__(self, place: int) -> Any:
        torch.rand(int(self.rows[place].abs().sum()))
        return super().__getitem__(place)


def own_loop(loop: TrainingLoop, module: Any) -> Outcome:
    """Everything that a loop shows while it runs."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5)
    shown = []
    for step in loop:
        optimizer.step()
        shown.append((step, loop.guarantee.epsilon, loop._gradients.bounding.clip_norm))
    state = {key: value.cpu().numpy() for key, value in module.state_dict().items()}
    stated = loop.trained
    return Outcome((state, shown, str(stated.guarantee), stated.assumptions), loop.event)


def looped(name: str, make: Any, kind: Any, **options: Any) -> Path:
    settings = {"epsilon": 1.0, "delta": 1e-5, "batch_size": 30, "steps": 3, **options}

    def run(data: Columns, coins: Coins) -> Outcome:
        torch.manual_seed(3)
        module = make()
        loop = TrainingLoop(module, kind(data), loss, **settings, rng=coins, example=EXAMPLE)
        return own_loop(loop, module)

    return _like(name, make, run)


def several(name: str, make: Any, size: int = 2, loaded: bool = False, **options: Any) -> Path:
    settings = {"epsilon": 1.0, "delta": 1e-5, "batch_size": 30, "steps": 3, **options}

    def run(data: Columns, coins: Coins) -> Outcome:
        rows, labels = torch.tensor(data[0], dtype=torch.float32), torch.tensor(data[1])

        def one(member: Member) -> Outcome:
            torch.manual_seed(3)
            module = make()
            own = Coins(coins._tape, member.rank)
            given = Records(data) if loaded else (rows, labels)
            example = EXAMPLE if loaded else None
            loop = TrainingLoop(
                module, given, loss, **settings, rng=own, group=member, example=example
            )
            return own_loop(loop, module)

        found = Together(size).run(one)
        return Outcome([one.released for one in found], found[0].event)

    return _like(name, make, run)


class Secret(Coins):
    """Coins that a resumed training takes: it refuses seeds, which would draw the same again."""

    secure = True


def resumed(name: str, make: Any) -> Path:
    """Killed after its end, and resumed from its first step: everything is shown and charged."""
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "batch_size": 41, "steps": 3}

    def run(data: Columns, coins: Coins) -> Outcome:
        rows, labels = torch.tensor(data[0], dtype=torch.float32), torch.tensor(data[1])
        with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/ledger") as ledger:
            scope = {"adjacency": "zero-out", "unit": "record"}
            ledger.open("rows", ApproxDP(9.0, 1e-3, **scope))
            kept = {"journal": f"{folder}/journal", "ledger": ledger, "account": "rows"}

            def started(seed: int) -> tuple[Any, TrainingLoop]:
                torch.manual_seed(3)
                module, own = make(), Secret(coins._tape, seed)
                made = TrainingLoop(module, (rows, labels), loss, **settings, **kept, rng=own)
                return module, made

            module, loop = started(0)
            next(loop)
            state = loop.state_dict()
            shown = [own_loop(loop, module).released]
            module, loop = started(1)
            loop.load_state_dict(state, shown=True)
            shown.append(own_loop(loop, module).released)
            paid, *again = (one.event for one in ledger.show("rows").charges)
        # A charge for lost steps declares what they cost. The noise behind it is compared, if the
        # declared guarantee covers it.
        lost = [loop._event_of(count, alone=True) for count in loop._lost.charged]
        covered = [
            event
            for charge, event in zip(again, lost, strict=False)
            if charge.guarantee.epsilon >= guarantee_of(event, settings["delta"]).epsilon
        ]
        return Outcome((shown, state["clip_norm"]), events.Composed((paid, *covered)))

    return _like(name, make, run)


def _like(name: str, make: Any, run: Any) -> Path:
    return replace(training(name, make), name=f"{CALLED} {name}", run=run, covers=(CALLED,))


def paths() -> list[Path]:
    return [
        looped("a data set", mlp, Records),
        looped("a data set in pieces", mlp, Records, microbatch=7),
        looped("a data set that raises", mlp, Raising),
        looped("views", convolutional, Records, views=3),
        looped("views, adaptive", mlp, Records, views=2, clipping="adaptive", microbatch=7),
        looped("views, steep", steep, Records, views=2),
        several("two processes", mlp),
        several("two processes, a data set", mlp, loaded=True, microbatch=7),
        several("two processes, every record", mlp, batch_size=41),
        several("three processes, in pieces", steep, size=3, microbatch=7),
        several("two processes, adaptive", Words, clipping="adaptive"),
        resumed("resumed", mlp),
        several("two processes, per layer", mlp, clipping="per-layer"),
    ]
