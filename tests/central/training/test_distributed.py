"""Several processes: together they are one, and what their parts get wrong is found."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from refute.together import Member, Together
from scipy import stats
from torch import Tensor, nn

from tacit.audit import guesses as guessing
from tacit.central.training import TrainingLoop, loop, ranks
from tacit.central.training.auditing import _LOUD, _Beside, _Pull, _rows
from tacit.central.training.noise import Noise
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Keystream, Randomness, Seeded

SIGNIFICANCE = 1e-6
QUICK: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp"}
ROWS = torch.randn(81, 6, generator=torch.Generator().manual_seed(0))


def squared(module: nn.Module, rows: Tensor) -> Tensor:
    return (module(rows) - 1).square().sum(1)


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))


def weights(module: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in module.parameters()])


def in_processes(folder: Path, task: Callable[[int], Any], size: int = 2) -> list[Any]:
    """What the task gives in each of so many processes, joined by gloo."""
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                store = f"file://{folder}/store"
                dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
                torch.save(task(rank), folder / f"of {rank}")
                dist.destroy_process_group()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children]
    assert ended == [0] * size
    return [torch.load(folder / f"of {rank}") for rank in range(size)]


def trained(group: Any, seed: int | None = 0, **given: Any) -> dict[str, Any]:
    """The weights and what is stated of them."""
    rank = 0 if group is None else dist.get_rank()
    module = net(rank)  # only the first process's start counts
    rng = None if seed is None else Seeded(10 * seed + rank)
    made = TrainingLoop(module, ROWS, squared, **QUICK, **given, group=group, rng=rng)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in made:
        optimizer.step()
    stated = made.trained
    return {"weights": weights(module), "event": str(stated.event), "eps": str(stated.guarantee)}


def test_two_processes_equal_one_up_to_rounding(tmp_path, monkeypatch) -> None:
    """Everybody in every step, without noise."""
    monkeypatch.setattr(Noise, "add_to", lambda self, sums, divisor=1.0: sums.div_(divisor))
    given = {"batch_size": 81, "steps": 5}
    one = trained(None, **given)
    first, second = in_processes(tmp_path, lambda rank: trained(dist.group.WORLD, **given))
    assert torch.equal(first["weights"], second["weights"])
    assert torch.allclose(first["weights"], one["weights"], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(one["weights"], weights(net()), atol=1e-3)
    assert {first["event"], second["event"]} == {one["event"]}
    assert {first["eps"], second["eps"]} == {one["eps"]}


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
def test_processes_have_the_same_bits(tmp_path, clipping) -> None:
    given = {"batch_size": 27, "steps": 4, "clipping": clipping, "seed": None}
    first, second = in_processes(tmp_path, lambda rank: trained(dist.group.WORLD, **given))
    assert torch.equal(first["weights"], second["weights"])
    assert torch.isfinite(first["weights"]).all()


def test_the_first_process_pays_and_its_refusal_is_that_of_all(tmp_path) -> None:
    def task(rank: int) -> list[str]:
        with Ledger(tmp_path / f"budget {rank}") as ledger:
            if rank == 0:
                ledger.open("rows", ApproxDP(4.0, 1e-4, adjacency="zero-out", unit="record"))
            said = []
            for place in range(2):
                made = TrainingLoop(
                    net(), ROWS, squared, **QUICK, batch_size=27, steps=2, group=dist.group.WORLD,
                    ledger=ledger, account="rows", journal=tmp_path / f"journal {place}",
                )  # fmt: skip
                try:
                    next(made)
                    state = made.state_dict()
                    said.append("first" if "checkpoint" in state else "other")
                except errors.TacitError as error:
                    said.append(type(error).__name__)
            return said

    assert in_processes(tmp_path, task) == [["first", "BudgetExceeded"], ["other", "TacitError"]]


# --- the law of sums, noise and coins, with members that take turns ------------------------------


def gradients_of(
    sigma: float, steps: int, size: int = 2, streams: Callable[[int], Randomness] | None = None
) -> tuple[Tensor, list[list[set[int]]]]:
    """Every gradient of a loop on blank records, and who was sampled by each member."""

    def one(member: Member) -> tuple[list[Tensor], list[set[int]]]:
        module = nn.Linear(50, 40, bias=False)
        rng = Keystream() if streams is None else streams(member.rank)
        made = TrainingLoop(
            module, torch.zeros(100, 50), squared, epsilon=50.0, delta=1e-5, accountant="rdp",
            batch_size=25, steps=steps, noise_multiplier=sigma, group=member, rng=rng,
        )  # fmt: skip
        found, sampled = [], []
        own = made._gradients.part
        layout = own.sample

        def kept(self: Schedule, stream: Randomness) -> Tensor:
            chosen = layout(stream)
            sampled.append(set(chosen.tolist()))
            return chosen

        object.__setattr__(own, "sample", kept.__get__(own))
        made._gradients.__dict__["part"] = own
        for _ in made:
            found.append(next(module.parameters()).grad.flatten().clone())
        return found, sampled

    results = Together(size).run(one)
    for found, _ in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found, results[0][0], strict=True))
    return torch.stack(results[0][0]), [sampled for _, sampled in results]
