"""Several processes: together they are one, and what their parts get wrong is found."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import Dataset

from refute.together import Member, Together
from tacit.central.training import TrainingLoop, gradients, ranks
from tacit.central.training.auditing import Canaries, TrainingAudit
from tacit.central.training.noise import Noise
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors
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
    made = TrainingLoop(
        module, loss=squared, **{**QUICK, "data": ROWS, **given}, group=group, rng=rng
    )
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


class Rows(Dataset):
    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, place: int) -> Tensor:
        return ROWS[place]


def test_processes_load_their_own_records(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Noise, "add_to", lambda self, sums, divisor=1.0: sums.div_(divisor))
    given = {"batch_size": 81, "steps": 3}
    loaded = {"data": Rows(), "example": ROWS[0], "workers": 1, "microbatch": 16}
    one = trained(None, **given)
    first, second = in_processes(
        tmp_path, lambda rank: trained(dist.group.WORLD, **given, **loaded)
    )
    assert torch.equal(first["weights"], second["weights"])
    assert torch.allclose(first["weights"], one["weights"], rtol=1e-4, atol=1e-6)


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


@pytest.mark.parametrize("other", [{"noise_multiplier": 1.0}, {"rng": Seeded(1)}, {"records": 99}])
def test_processes_with_other_settings_are_refused_in_all(other) -> None:
    """One with less noise leaves it off its slice, and the first would state its own."""

    def one(member: Member) -> str:
        given = {"noise_multiplier": 2.0, "records": 100, "rng": None} | (
            other if member.rank else {}
        )
        made = TrainingLoop(
            nn.Linear(6, 2), torch.zeros(given.pop("records"), 6), squared, epsilon=50.0,
            delta=1e-5, accountant="rdp", batch_size=25, steps=2, group=member, **given,
        )  # fmt: skip
        with pytest.raises(errors.InvalidParameter, match="settings must be the same in all"):
            next(made)
        return "refused"

    assert Together(2).run(one) == ["refused"] * 2


# --- the law of sums, noise and coins, with members that take turns ------------------------------


def gradients_of(
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    size: int = 2,
    streams: Callable[[int], Randomness] = lambda rank: Keystream(),
) -> tuple[Tensor, list[list[set[int]]]]:
    """Every sum of a loop on blank records, in noise multipliers; whom each member sampled."""
    own = [streams(rank) for rank in range(size)]
    sampled: dict[int, list[set[int]]] = {id(stream): [] for stream in own}
    sample = Schedule.sample

    def kept(self: Schedule, stream: Randomness) -> Tensor:
        chosen = sample(self, stream)
        sampled[id(stream)].append(set(chosen.tolist()))
        return chosen

    def one(member: Member) -> list[Tensor]:
        module = nn.Linear(50, 40, bias=False)
        made = TrainingLoop(
            module, torch.zeros(100, 50), squared, epsilon=50.0, delta=1e-5, accountant="rdp",
            batch_size=25, steps=steps, noise_multiplier=2.0, group=member, rng=own[member.rank],
        )  # fmt: skip
        weight = module.weight
        return [weight.grad.flatten() * 25 / 2.0 for _ in made if weight.grad is not None]

    with monkeypatch.context() as watched:
        watched.setattr(Schedule, "sample", kept)
        found, *others = Together(size).run(one)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(found, other, strict=True))
    return torch.stack(found), [sampled[id(stream)] for stream in own]


def fits(found: Tensor) -> bool:
    """Whether all entries together have the spread of standard normals, and half of them too."""
    for part in (found, *found.tensor_split(2, dim=1)):
        below = stats.chi2.cdf(float(part.double().square().sum()), part.numel())
        if not SIGNIFICANCE < below < 1 - SIGNIFICANCE:
            return False
    both = float((found[:, ::2] * found[:, 1::2]).sum()) / (found.numel() / 2) ** 0.5
    return abs(both) < stats.norm.isf(SIGNIFICANCE / 2)


def add_shares(share: Callable[[int], float]) -> Any:
    """Every process adds a share of the noise to its own sum."""

    def together(among: Any, sums: Tensor, tally: Any, noise: Noise, divisor: float) -> Any:
        whole = sums.double()
        Noise(noise.sigma * share(among.size), noise.stream).add_to(whole, divisor)
        among.add(whole)
        return whole, tally

    return together


def on_slices(noise_of: Callable[[Noise, int], Noise]) -> Any:
    right = ranks.together

    def together(among: Any, sums: Tensor, tally: Any, noise: Noise, divisor: float) -> Any:
        return right(among, sums, tally, noise_of(noise, among.size), divisor)

    return together


MUTANTS = {
    "noise over the number of processes": on_slices(
        lambda one, n: Noise(one.sigma / n, one.stream)
    ),
    "shares of σ over the number of processes": add_shares(lambda n: 1 / n),
}


def test_sums_have_noise_once(monkeypatch) -> None:
    found, _ = gradients_of(monkeypatch, steps=40)
    assert fits(found)
    monkeypatch.setattr(gradients, "together", add_shares(lambda n: n**-0.5))
    assert fits(gradients_of(monkeypatch, steps=40)[0])  # shares would do, at this size


@pytest.mark.parametrize("name", MUTANTS)
def test_less_noise_is_found(name, monkeypatch) -> None:
    monkeypatch.setattr(gradients, "together", MUTANTS[name])
    assert not fits(gradients_of(monkeypatch, steps=40)[0])


def is_one_sample(sampled: list[list[set[int]]]) -> bool:
    """Whether places of two members are sampled with the stated probability, independently."""
    first, second = sampled
    trials, q = len(first) * 50, 0.25
    counts = [(sum(map(len, one)), q) for one in sampled]
    counts.append((sum(len(a & b) for a, b in zip(first, second, strict=True)), q * q))
    return all(stats.binomtest(hits, trials, p).pvalue > SIGNIFICANCE for hits, p in counts)


def test_samples_of_processes_are_independent(monkeypatch) -> None:
    _, sampled = gradients_of(monkeypatch, steps=60)
    assert is_one_sample(sampled)
    _, alike = gradients_of(monkeypatch, steps=60, streams=lambda rank: Seeded(1))
    assert alike[0] == alike[1]
    assert not is_one_sample(alike)


# --- canaries ------------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank, B = 0 at first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Linear(6, 2).requires_grad_(False)
        self.a, self.b = nn.Linear(6, 2, bias=False), nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, rows: Tensor) -> Tensor:
        return self.frozen(rows) + self.b(self.a(rows))


def audited(size: int, epsilon: float = 1.0, module: nn.Module | None = None) -> TrainingAudit:
    """One step on everybody, in a loop of one's own that so many members share."""
    beside = (None, None, None) if module is None else (module, ROWS, squared)
    canaries = Canaries(*beside, canaries=1000, rng=Seeded(0))

    def one(member: Member | None) -> Any:
        whole = copy.deepcopy(canaries.module) if member and member.rank else canaries.module
        made = TrainingLoop(
            whole, canaries.data, canaries.loss, epsilon=epsilon, delta=1e-6, batch_size=1200,
            steps=1, group=member, rng=Seeded(1 + (member.rank if member else 0)),
        )  # fmt: skip
        optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
        for _ in made:
            optimizer.step()
        return made.trained

    trained = one(None) if size == 1 else Together(size).run(one)[0]
    return canaries.audit(trained, epsilon=epsilon, delta=1e-6, rng=Seeded(0))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("adapted", [False, True])
def test_canaries_do_not_refute_the_loop(size, adapted) -> None:
    found = audited(size, 8.0, Adapted() if adapted else None)
    assert 0.5 < found.proof.epsilon <= 8.0


def test_canaries_of_processes_of_their_own(tmp_path) -> None:
    def task(rank: int) -> list[float]:
        canaries = Canaries(canaries=1000, rng=Seeded(0))  # the same coins in both
        made = TrainingLoop(
            canaries.module, canaries.data, canaries.loss, epsilon=8.0, delta=1e-6,
            batch_size=1000, steps=1, group=dist.group.WORLD, rng=Seeded(5 + rank),
        )  # fmt: skip
        next(made)
        torch.optim.SGD(canaries.module.parameters(), lr=0.1).step()
        found = canaries.audit(made.trained, epsilon=8.0, delta=1e-6, rng=Seeded(0))
        return [found.proof.epsilon]

    first, second = in_processes(tmp_path, task)
    assert first == second
    assert 0.5 < first[0] <= 8.0


@pytest.mark.parametrize("name", MUTANTS)
def test_canaries_find_less_noise(name, monkeypatch) -> None:
    assert not audited(16).refuted
    monkeypatch.setattr(gradients, "together", MUTANTS[name])
    assert audited(16).refuted


def test_canaries_find_updates_that_are_not_counted(monkeypatch) -> None:
    """Sixteen noisy updates are added up, and counted as one."""
    draw = gradients.NoisyGradients.draw

    def many(self: Any) -> Tensor:
        return torch.stack([draw(self) for _ in range(16)]).sum(0)

    monkeypatch.setattr(gradients.NoisyGradients, "draw", many)
    assert audited(1).refuted
