"""A loop of one's own: it is `train` in other words, and what it loads is what was sampled."""

from __future__ import annotations

import copy
import os
import pickle
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tacit.central.training import TrainingLoop, train
from tacit.central.training.noise import Noise
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Seeded

SIGNIFICANCE = 1e-6
QUICK: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp"}
EXAMPLE = torch.zeros(8), torch.tensor(0)


def toy(records: int = 300) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(records, 8, generator=torch.Generator().manual_seed(1))
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def weights(module: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in module.parameters()])


class Records(Dataset):
    """Records by place; each place that is asked for is written down."""

    def __init__(self, data: tuple[Tensor, ...]) -> None:
        self.data, self.asked = data, []

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, place: int) -> tuple[Any, ...]:
        self.asked.append(place)
        return tuple(part[place] for part in self.data)


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noise, "add_to", lambda self, sums, divisor=1.0: sums.div_(divisor))


def test_train_is_the_short_form(naive) -> None:
    first, second = mlp(), mlp()
    given = {**QUICK, "batch_size": 30, "steps": 6}
    stated = train(
        first, toy(), naive.cross_entropy, **given, rng=Seeded(3), optimizer="sgd",
        learning_rate=0.5,
    )  # fmt: skip
    loop = TrainingLoop(second, toy(), naive.cross_entropy, **given, rng=Seeded(3))
    optimizer = torch.optim.SGD(second.parameters(), lr=0.5, fused=True)
    seen = []
    for step in loop:
        optimizer.step()
        seen.append(step)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert torch.equal(weights(first), weights(second))
    assert loop.trained == stated
    assert all(one.grad is None for one in second.parameters())


def test_any_optimiser_and_schedule(naive) -> None:
    module, data = mlp(), toy(2000)
    loop = TrainingLoop(module, data, naive.cross_entropy, **QUICK, batch_size=200, epochs=10)
    optimizer = torch.optim.RMSprop(module.parameters(), lr=0.02)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loop))
    for _ in loop:
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    assert float((module(data[0]).argmax(1) == data[1]).float().mean()) > 0.85
    assert loop.trained.guarantee == guarantee_of(loop.event, 1e-5)
    loop.trained.certificate().verify()


def test_there_is_one_sequence_of_steps(naive) -> None:
    loop = TrainingLoop(mlp(), toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=4)
    for step in loop:
        if step == 2:
            break
    assert list(loop) == [3, 4]
    assert list(loop) == []
    assert isinstance(loop.event, events.Repeated)
    assert loop.event.count == 4
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="would draw again"):
            copied(loop)


def test_the_mode_may_change_in_between(naive, monkeypatch) -> None:
    """Dropout stays as it was when the loop was made."""
    without_noise(monkeypatch)
    module = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2))
    found = []
    for mode in (True, False):
        loop = TrainingLoop(
            module.train(), toy(), naive.cross_entropy, **QUICK, batch_size=300, steps=1,
            rng=Seeded(1),
        )  # fmt: skip
        module.train(mode)
        next(loop)
        found.append(torch.cat([one.grad.flatten() for one in module.parameters()]))
    assert torch.equal(*found)


def test_every_step_that_is_drawn_has_its_own_noise(naive, monkeypatch) -> None:
    """As many gradients with noise as the event says, with accumulation too."""
    added: list[float] = []
    add_to = Noise.add_to

    def counted(self: Noise, sums: Tensor, divisor: float = 1.0) -> None:
        added.append(self.sigma)
        add_to(self, sums, divisor)

    monkeypatch.setattr(Noise, "add_to", counted)
    data = Records(toy())
    for given in ({"data": toy()}, {"data": data, "example": EXAMPLE}):
        added.clear()
        loop = TrainingLoop(
            mlp(), loss=naive.cross_entropy, **QUICK, batch_size=60, steps=5, microbatch=8, **given
        )
        list(loop)
        assert isinstance(loop.event, events.Repeated)
        assert len(added) == loop.event.count == 5
        assert {*added} == {float(loop.event.event.event.sigma)}  # type: ignore[attr-defined]


def test_the_account_is_charged_before_the_first_step(naive, tmp_path) -> None:
    with Ledger(tmp_path / "budget") as ledger:
        ledger.open("rows", ApproxDP(4.0, 1e-4, adjacency="zero-out", unit="record"))
        paid = {"ledger": ledger, "account": "rows"}
        loop = TrainingLoop(
            mlp(), toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=4, **paid
        )
        assert not ledger.show("rows").charges
        next(loop)
        (charge,) = ledger.show("rows").charges
        assert charge.event == loop.event
        list(loop)
        assert len(ledger.show("rows").charges) == 1
        poor = TrainingLoop(
            mlp(), Records(toy()), naive.cross_entropy, **QUICK, batch_size=30, steps=4, **paid,
            example=EXAMPLE,
        )  # fmt: skip
        with pytest.raises(errors.BudgetExceeded):
            next(poor)
        assert poor._loading.data_set.asked == []
        assert poor.step == 0


def test_an_interrupted_step_is_used_up(naive, monkeypatch) -> None:
    loop = TrainingLoop(mlp(), toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=3)
    next(loop)
    with monkeypatch.context() as broken:
        broken.setattr(Noise, "add_to", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(loop)
    assert list(loop) == [3]


def test_an_interrupted_step_of_loaded_records_ends_the_loop(naive, monkeypatch) -> None:
    """The next blocks are those of that step: a record could be in one sum twice."""
    loop = TrainingLoop(
        mlp(), Records(toy()), naive.cross_entropy, **QUICK, batch_size=60, steps=3, microbatch=8,
        example=EXAMPLE,
    )  # fmt: skip
    next(loop)
    with monkeypatch.context() as broken:
        broken.setattr(Noise, "add_to", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(loop)
    with pytest.raises(errors.InvalidParameter, match="the last step must be whole"):
        next(loop)


def _interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


def test_the_callers_draws_are_its_own(naive) -> None:
    """What is drawn in between is what it would be without the loop, and does not steer it."""
    found = []
    for seeds in ((5, 5), (6, 7)):
        module = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2))
        torch.manual_seed(0)
        for one in module.parameters():
            nn.init.normal_(one)
        loop = TrainingLoop(
            module, toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=2, rng=Seeded(1)
        )
        for seed in seeds:
            torch.manual_seed(seed)
            next(loop)
            drawn = torch.rand(3)
            torch.manual_seed(seed)
            assert torch.equal(drawn, torch.rand(3))
        found.append(torch.cat([one.grad.flatten() for one in module.parameters()]))
    assert torch.equal(*found)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("microbatch", [None, 7])
def test_loaded_records_are_those_of_tensors(naive, monkeypatch, workers, microbatch) -> None:
    """Every record in every step: the sums are those of the whole tensors."""
    without_noise(monkeypatch)
    found = []
    for given in ({"data": toy(60)}, {"data": Records(toy(60)), "example": EXAMPLE}):
        module = mlp()
        loop = TrainingLoop(
            module, loss=naive.cross_entropy, **QUICK, batch_size=60, steps=2,
            microbatch=microbatch, **given, **({"workers": workers} if "example" in given else {}),
        )  # fmt: skip
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        for _ in loop:
            optimizer.step()
        found.append(weights(module))
    assert torch.allclose(*found, atol=1e-6)
    assert not torch.equal(found[0], weights(mlp()))


def test_loaded_records_are_sampled_as_stated(naive) -> None:
    """Each record in each step with probability q, independently."""
    data, steps = Records(toy(400)), 50
    loop = TrainingLoop(
        mlp(), data, naive.cross_entropy, **QUICK, batch_size=40, steps=steps, example=EXAMPLE,
        microbatch=16,
    )  # fmt: skip
    per_step = []
    for _ in loop:
        per_step.append(Counter(data.asked))
        data.asked.clear()
    assert max(max(one.values()) for one in per_step) == 1
    sizes = [len(one) for one in per_step]
    q, n = loop.trained.sampling_probability, len(data)
    assert stats.binomtest(sum(sizes), n * steps, q).pvalue > SIGNIFICANCE
    # Independent records: sizes vary as a binomial does, which batches of one size would not.
    spread = (steps - 1) * np.var(sizes, ddof=1) / (n * q * (1 - q))
    assert SIGNIFICANCE < stats.chi2.cdf(spread, steps - 1) < 1 - SIGNIFICANCE
    both = sum(len(one & other) for one, other in pairwise(per_step))
    assert stats.binomtest(both, n * (steps - 1), q * q).pvalue > SIGNIFICANCE


class Augmented(Records):
    """Noise on every view, from three generators; rows are near their record."""

    def __getitem__(self, place: int) -> tuple[Any, ...]:
        row, label = super().__getitem__(place)
        moved = torch.rand(8) + float(np.random.random()) + random.random()  # noqa: NPY002
        if place % 2:  # how much a record draws is its own affair
            torch.rand(100)
            np.random.random(100)  # noqa: NPY002
        return row + moved, label


def test_the_gradient_of_several_views_is_clipped_once(naive, monkeypatch) -> None:
    """It is that of the mean over views, whose norm is bounded by the one clip norm."""
    without_noise(monkeypatch)
    data, views = toy(12), 4
    module = mlp()
    loop = TrainingLoop(
        module, Records(data), naive.cross_entropy, **QUICK, batch_size=12, steps=1, clip_norm=0.1,
        example=EXAMPLE, views=views,
    )  # fmt: skip
    next(loop)
    found = torch.cat([one.grad.flatten() for one in module.parameters()])
    expected = naive.clipped_sum(module, naive.cross_entropy, data, 0.1) / 12  # all views are alike
    assert torch.allclose(found, expected, rtol=0.01, atol=1e-5)
    assert loop._gradients.clipper.book_kept
    alone = TrainingLoop(
        mlp(), Records(data), naive.cross_entropy, **QUICK, batch_size=12, steps=1, clip_norm=0.1,
        example=EXAMPLE,
    )  # fmt: skip
    assert loop.event == alone.event


def test_views_are_fresh_and_each_record_draws_for_itself(naive, monkeypatch) -> None:
    """What record 0 draws does not depend on what is done with record 1."""
    seen: list[list[Tensor]] = []
    for change in (0.0, torch.nan):
        data = toy(6)
        data[0][1] += change
        batches = []
        loop = TrainingLoop(
            mlp(), Augmented(data), naive.cross_entropy, **QUICK, batch_size=6, steps=2,
            example=EXAMPLE, views=3, rng=Seeded(4),
        )  # fmt: skip
        tallied = loop._gradients.clipper.tallied_blocks

        def kept(blocks: Any, *given: Any, own: Any = tallied, to: Any = batches) -> Any:
            rows = list(blocks)
            to.append(rows[0][0].clone())
            return own(rows, *given)

        monkeypatch.setattr(loop._gradients.clipper, "tallied_blocks", kept)
        state = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
        list(loop)
        assert random.getstate() == state[0]
        assert (np.random.get_state()[1] == state[1]).all()  # noqa: NPY002
        seen.append(batches)
    for one, other in zip(*seen, strict=True):
        assert one.shape == (6, 3, 8)
        rest = [0, 2, 3, 4, 5]
        assert torch.equal(one[rest], other[rest])
        assert len(torch.unique(one[0], dim=0)) == 3
    assert not torch.equal(seen[0][0], seen[0][1])


class Loud(Tensor):
    """A tensor whose class raises where it is used."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.stack, torch.cat):
            raise ValueError("that record")
        return super().__torch_function__(func, types, args, kwargs or {})


class Faulty(Records):
    """One record that raises, in any way or later, or has another shape."""

    def __init__(self, data: tuple[Tensor, ...], how: str) -> None:
        super().__init__(data)
        self.how = how

    def __getitem__(self, place: int) -> tuple[Any, ...]:
        row, label = super().__getitem__(place)
        if place == 7:
            if self.how == "shape":
                return row[:3], label
            if self.how == "kind":
                return "a text", label
            if self.how == "sparse":  # it would raise only where records are stacked
                return torch.full_like(row, torch.nan).to_sparse(), label
            if self.how == "loud":
                return torch.full_like(row, torch.nan).as_subclass(Loud), label
            if self.how == "exit":
                raise SystemExit(1)
            raise errors.BudgetExceeded("that record")
        return row, label


@pytest.mark.parametrize("how", ["shape", "kind", "exit", "budget", "sparse", "loud"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_record_that_cannot_be_loaded_is_a_blank(naive, how, workers, monkeypatch) -> None:
    without_noise(monkeypatch)
    data, module = toy(20), mlp()
    loop = TrainingLoop(
        module, Faulty(data, how), naive.cross_entropy, **QUICK, batch_size=20, steps=1,
        example=EXAMPLE, workers=workers,
    )  # fmt: skip
    next(loop)
    rest = tuple(torch.cat([part[:7], part[8:]]) for part in data)
    expected = naive.clipped_sum(module, naive.cross_entropy, rest, 1.0) / 20
    found = torch.cat([one.grad.flatten() for one in module.parameters()])
    assert torch.allclose(found, expected, rtol=0.01, atol=1e-5)
    assert loop.trained.dropped == 1


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(zip(*toy(), strict=True))


class Endless(Dataset):
    def __getitem__(self, place: int) -> Any:
        return toy()[0][0]


REFUSED = {
    "iterable": (Stream(), {}, "data must be a map-style data set, got 'Stream'.*train_in_order"),
    "loader": (DataLoader(Records(toy())), {}, "data must be a data set.*samples by itself"),
    "no example": (Records(toy()), {}, "example must be given.*no record is read"),
    "no length": (Endless(), {"example": EXAMPLE[0]}, "a data set with a length"),
    "views of tensors": (toy(), {"views": 2}, "left out if data are tensors"),
    "views": (Records(toy()), {"views": 0, "example": EXAMPLE}, "views must be an integer from 1"),
    "mapping": ({"a": toy()[0]}, {}, "tensors or a map-style data set"),
    "no checkpoints": (toy(), {"journal": "/nowhere/journal"}, "in a folder that exists"),
    "group": (toy(), {"group": "all"}, "group must be a group that this process is in"),
}


def test_a_module_that_is_wrapped_for_devices_is_refused(naive) -> None:
    with pytest.raises(errors.InvalidParameter, match="the module itself, got 'DataParallel'"):
        TrainingLoop(
            nn.DataParallel(mlp()), toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=2
        )


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(naive, name) -> None:
    data, given, message = REFUSED[name]
    with pytest.raises(errors.InvalidParameter, match=message):
        TrainingLoop(mlp(), data, naive.cross_entropy, **QUICK, batch_size=30, steps=2, **given)
    asked = getattr(data, "asked", [])
    assert asked == []


def test_a_fork_may_not_go_on(naive) -> None:
    loop = TrainingLoop(mlp(), toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=3)
    next(loop)
    child = os.fork()
    if child == 0:
        try:
            next(loop)
        except errors.TacitError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert list(loop) == [2, 3]


def test_tensor_data_sets_are_their_tensors(naive) -> None:
    data = TensorDataset(*toy())
    loop = TrainingLoop(mlp(), data, naive.cross_entropy, **QUICK, batch_size=30, steps=2)
    assert list(loop) == [1, 2]
    assert loop._loading is None


def test_what_a_data_set_is_trusted_with_is_said(naive) -> None:
    loop = TrainingLoop(
        mlp(), Records(toy()), naive.cross_entropy, **QUICK, batch_size=30, steps=1, example=EXAMPLE
    )
    assert any("What the data set gives" in line for line in loop.trained.assumptions)
    without = TrainingLoop(mlp(), toy(), naive.cross_entropy, **QUICK, batch_size=30, steps=1)
    assert not any("data set gives" in line for line in without.trained.assumptions)
