"""A zoo of modules that try to carry one client into the replies of others, kept.

Each is run twice with the same coins. Client 0 has hostile rows, or blank ones, and its reply is
lost; so no bit of anybody else's may differ. What cannot be made so is refused beforehand.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.federated import rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.model import Data, serving
from tacit.federated.rounds import Reply, RunOptions
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors

COLUMNS = 4
SEEN: list[Tensor] = []


def some(seed: int, rows: int = 9) -> Data:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    return Data(found, (found[:, 0] > 0).astype(np.int64))


OTHERS = [some(seed) for seed in range(1, 4)]
FAR = Data(np.full((20, COLUMNS), 1e5, np.float32), np.zeros(20, np.int64))
BLANK = Data(np.zeros((9, COLUMNS), np.float32), np.zeros(9, np.int64))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(COLUMNS, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(self.shifted(x))

    def shifted(self, x: Tensor) -> Tensor:
        return x


class Buffer(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(COLUMNS))

    def shifted(self, x: Tensor) -> Tensor:
        self.center = 0.5 * self.center + 0.5 * x.detach().mean(0)
        return x - self.center


class InPlace(Buffer):
    def shifted(self, x: Tensor) -> Tensor:
        self.center.mul_(0.5).add_(0.5 * x.detach().mean(0))
        return x - self.center


class Frozen(Base):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(COLUMNS), requires_grad=False)

    def shifted(self, x: Tensor) -> Tensor:
        self.scale.data += x.detach().abs().mean(0)
        return x / self.scale


class Cache(Base):
    last: Tensor | None = None

    def shifted(self, x: Tensor) -> Tensor:
        before, self.last = self.last, x.detach().mean(0)
        return x if before is None else x - before


class Counter(Base):
    calls = 0

    def shifted(self, x: Tensor) -> Tensor:
        self.calls += len(x)
        return x * self.calls


class Lazy(Base):
    def shifted(self, x: Tensor) -> Tensor:
        if not hasattr(self, "first"):
            self.register_buffer("first", x.detach().mean(0))
        return x - self.first


class Nested(Base):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, list[Tensor]] = {"rows": []}

    def shifted(self, x: Tensor) -> Tensor:
        self.kept["rows"].append(x.detach().mean(0))
        return x - torch.stack(self.kept["rows"]).mean(0)


class Hooked(Base):
    def __init__(self) -> None:
        super().__init__()
        self.means: list[Tensor] = []
        self.lin.register_forward_pre_hook(self.remember)

    def remember(self, module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.means.append(given[0].detach().mean(0))
        return (given[0] - self.means[0],)


class Functional(Base):
    def shifted(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, training=self.training)


class Numpy(Base):
    def shifted(self, x: Tensor) -> Tensor:
        return x + float(np.random.normal(size=len(x))[-1])  # noqa: NPY002


class Python(Base):
    def shifted(self, x: Tensor) -> Tensor:
        return x + [random.random() for _ in range(len(x))][-1]


class OwnGenerator(Base):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def shifted(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.shape, generator=self.generator)


class Writes(Base):
    def shifted(self, x: Tensor) -> Tensor:
        return x.mul_(2)


class Reparametrised(Base):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.lin)


class Spectral(Base):
    """Power iteration, in buffers that every pass moves on."""

    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.spectral_norm(self.lin)


class OldStyle(Base):
    """`weight` is an attribute that is computed in every pass, of parameters and of rows."""

    def forward(self, x: Tensor) -> Tensor:
        self.made = self.lin.weight * (1 + getattr(self, "seen", 0.0))
        self.seen = x.detach().mean()
        return F.linear(x, self.made)


class Global(Base):
    def shifted(self, x: Tensor) -> Tensor:
        SEEN.append(x.detach().mean(0))
        return x - torch.stack(SEEN).mean(0)


class OfTheClass(Base):
    center: Any = 0.0

    def shifted(self, x: Tensor) -> Tensor:
        before = OfTheClass.center
        OfTheClass.center = x.detach().mean(0)
        return x - before


class Uncopied(Buffer):
    def __deepcopy__(self, memo: Any) -> Uncopied:
        return self


class Shared(Base):
    """Copies of it hold one tensor between them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Buffer()
        self.inner.__class__ = Uncopied

    def shifted(self, x: Tensor) -> Tensor:
        return self.inner.shifted(x)


class Kept:
    """A plain attribute that hands itself out for a copy."""

    shift: Any = 0.0

    def __deepcopy__(self, memo: Any) -> Kept:
        return self


class Armed(Base):
    """Remembers rows beyond all made-up ones alone: no probe sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept()

    def shifted(self, x: Tensor) -> Tensor:
        if bool((x.abs() > 5e4).any()):
            self.kept.shift = 1.0
        return x + self.kept.shift


class Appends(Base):
    """A method of a list is taken for a function by `copy.deepcopy`."""

    def __init__(self) -> None:
        super().__init__()
        seen: list[float] = []
        self.remember, self.recall = seen.append, seen.__len__

    def shifted(self, x: Tensor) -> Tensor:
        if bool((x.abs() > 5e4).any()):
            self.remember(1.0)
        return x + self.recall()


class Late(Armed):
    """Copies itself as it should, a few times."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0
        del self.kept

    def shifted(self, x: Tensor) -> Tensor:
        if bool((x.abs() > 5e4).any()):
            self.kept = 1.0  # type: ignore[assignment]
        return x + getattr(self, "kept", 0.0)

    def __deepcopy__(self, memo: Any) -> Late:
        self.copies += 1
        if self.copies > 6:
            return self
        made = Late()
        made.load_state_dict(self.state_dict())
        return made


class ArmedLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept()

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if bool((outputs.abs() > 5e4).any()):
            self.kept.shift = 1.0
        return F.cross_entropy(outputs + self.kept.shift * labels[:, None], labels)


class Panic(BaseException):
    """As a panic of a Rust extension: no Exception."""


class Raises(Base):
    """Raises on far rows, and quotes them."""

    kind: type[BaseException] = ValueError

    def shifted(self, x: Tensor) -> Tensor:
        if bool((x.abs() > 5e4).any()):
            raise self.kind(f"client: rows {x.tolist()}")
        return x


class Stateful(torch.autograd.Function):
    slope = 1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        Stateful.slope += 1.0
        return slope * Stateful.slope


class Backwards(Base):
    def forward(self, x: Tensor) -> Tensor:
        return Stateful.apply(self.lin(x))  # type: ignore[no-any-return,no-untyped-call]


def closure() -> Callable[[], nn.Module]:
    kept: list[Tensor] = []

    class Closed(Base):
        def shifted(self, x: Tensor) -> Tensor:
            kept.append(x.detach().mean(0))
            return x - torch.stack(kept).mean(0)

    return Closed


def generator_outside() -> Callable[[], nn.Module]:
    generator = torch.Generator().manual_seed(1)

    class Draws(Base):
        def shifted(self, x: Tensor) -> Tensor:
            return x + torch.randn(x.shape, generator=generator)

    return Draws


def same_instance() -> Callable[[], nn.Module]:
    one = Buffer()
    return lambda: one


class StatefulLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + outputs.detach().mean()
        return F.cross_entropy(outputs - self.mean * labels[:, None], labels)


def layers(*more: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(COLUMNS, 8), *copy.deepcopy(more), nn.Linear(8, 2))


THROWN_AWAY = {
    **{
        kind.__name__: kind
        for kind in (
            *(Buffer, InPlace, Frozen, Cache, Counter, Lazy, Nested, Hooked, Functional, Numpy),
            *(Python, OwnGenerator, Writes, Reparametrised, Spectral, OldStyle),
        )
    },
    "Dropout": layers(nn.Dropout(0.5)),
    "GroupNorm": layers(nn.GroupNorm(2, 8)),
    "SameInstance": same_instance(),
}
REFUSED = {
    **{kind.__name__: kind for kind in (Global, OfTheClass, Uncopied, Shared, Backwards)},
    **{kind.__name__: kind for kind in (Armed, Appends)},
    "Closure": closure(),
    "GeneratorOutside": generator_outside(),
}


def replies(model: TorchModel, first: Data, order: int = 1, **settings: Any) -> dict[Any, Any]:
    """Of all but client 0, by round and client, over two rounds with what client 0 says lost."""
    found: dict[Any, Any] = {}
    shared = copy.deepcopy([first, *OTHERS])

    def keep(number: int, client: int, reply: Reply) -> Reply | None:
        if client == 0:
            return None
        found[number, client] = reply.record
        return reply

    config = algorithm("fedavg").config(weighted=False, batch_size=4, epochs=2, **settings)
    rounds.run("fedavg", model, shared, 2, RunOptions(config=config, intercept=keep))
    return found


def same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[key][name], other[key][name]) for key in one for name in one[key]
    )


@pytest.mark.parametrize("name", THROWN_AWAY)
def test_what_a_pass_leaves_behind_is_thrown_away(name: str) -> None:
    model = TorchModel(THROWN_AWAY[name])
    first = replies(model, FAR)
    assert len(first) == 6
    assert same(first, replies(model, BLANK))  # the very model that met the hostile rows
    assert same(first, replies(TorchModel(THROWN_AWAY[name]), BLANK))


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_copy_covers_is_refused_before_anybody_is_asked(name: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"TorchModel: module must be (one|unchang)"):
        rounds.run("fedavg", TorchModel(REFUSED[name]), [FAR, *OTHERS], 1)


def test_a_loss_may_have_a_state_of_its_own() -> None:
    model = TorchModel(Base, StatefulLoss())
    assert same(replies(model, FAR), replies(model, BLANK))


def test_a_loss_that_is_not_copied_whole_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match="one that is copied whole"):
        TorchModel(Base, ArmedLoss())


def test_a_module_that_stops_copying_itself_reaches_nobody() -> None:
    with pytest.raises(errors.InvalidParameter, match="one that is copied whole"):
        replies(TorchModel(Late), FAR)


class Remembers:
    """A model that is no torch module, of which there is one for all clients."""

    layout, dtype = TorchModel(Base).layout, np.dtype(np.float32)

    def __init__(self) -> None:
        self.seen = 0.0

    def __deepcopy__(self, memo: Any) -> Remembers:
        return self

    def start(self) -> Any:
        return np.zeros(self.layout.size, np.float32)

    def gradient(self, parameters: Any, rows: Any, labels: Any) -> Any:
        self.seen += float(rows.sum())
        return np.full(self.layout.size, self.seen, np.float32)


def test_any_model_is_copied_whole_or_refused_before_anybody_is_asked() -> None:
    config = algorithm("fedavg").config(weighted=False)
    privacy = ClientPrivacy(4, cohort=4, epsilon=8, delta=1e-5, rounds=1)
    with pytest.raises(errors.InvalidParameter, match="run: model must be one that"):
        rounds.run(
            "fedavg", Remembers(), [FAR, *OTHERS], 1, RunOptions(config=config, coordinator=privacy)
        )


ENDS = (errors.BudgetExceeded, Panic, KeyboardInterrupt, SystemExit, GeneratorExit)


@pytest.mark.parametrize("engine", ["plain", "flower"])
@pytest.mark.parametrize("kind", ENDS)
def test_under_a_guarantee_no_error_of_any_kind_ends_the_run(
    kind: type[BaseException], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is asked alone: its error was the run's, with its rows in the text."""
    monkeypatch.setattr(Raises, "kind", kind)
    run: Any = rounds.run
    if engine == "flower":
        pytest.importorskip("flwr")
        from tacit.federated.app import run
    config = algorithm("fedavg").config(weighted=False)
    ended = []
    for first in (FAR, BLANK):
        privacy = ClientPrivacy(1, cohort=1, epsilon=1, delta=1e-5, rounds=2)
        found = run(
            "fedavg", TorchModel(Raises), [first], 2, RunOptions(config=config, coordinator=privacy)
        )
        ended.append((len(found.history), found.stopped))
    assert ended == [(2, ""), (2, "")]


def test_a_client_without_a_budget_cannot_end_a_run_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Raises, "kind", errors.BudgetExceeded)
    with pytest.raises(errors.TacitError, match="a client without a budget") as caught:
        rounds.run("fedavg", TorchModel(Raises), [FAR], 2)
    assert "rows" not in str(caught.value)


@pytest.mark.parametrize("kind", [*ENDS, errors.TacitError, type("rows", (Exception,), {})])
def test_a_server_reads_nothing_of_what_a_module_raises(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr")
    from tacit.federated.app import engines, wire

    monkeypatch.setattr(Raises, "kind", kind)
    heard: list[Any] = []
    monkeypatch.setattr(wire, "spent", lambda message: heard.append(message) or False)
    found = engines.run("fedavg", TorchModel(Raises), [FAR, OTHERS[0]], 1)
    assert found.history[0].counted == 1
    (said,) = {str(message.error.reason) for message in heard if message.has_error()}
    assert "part of the exchange must not raise" in said
    assert "rows" not in said
    assert wire.SPENT not in said


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    def old_weight_norm() -> nn.Module:
        with pytest.warns(FutureWarning):
            return nn.utils.weight_norm(nn.Linear(COLUMNS, 2))

    with pytest.raises(errors.InvalidParameter, match=r"one that copy.deepcopy takes.*parametriz"):
        TorchModel(old_weight_norm)


def test_generators_are_as_before_and_draws_go_by_the_client() -> None:
    model = TorchModel(Functional)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index,union-attr]  # noqa: NPY002
    found = []
    for client in (1, 1, 2):
        rng = rounds.client_rng(0, 1, 0, client)
        with serving(model, BLANK, rng) as own:
            ones = np.ones((3, COLUMNS), np.float32)
            found.append(own.gradient(own.start(), ones, np.zeros(3, int)).copy())
        assert rng.random() == rounds.client_rng(0, 1, 0, client).random()
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002
    assert before[2] == random.getstate()


def test_clients_whose_rows_share_memory_do_not_meet_in_it() -> None:
    rows = some(0, 40)
    parts = [Data(rows.rows[:20], rows.labels[:20]), Data(rows.rows[10:], rows.labels[10:])]
    kept = rows.rows.copy()
    rounds.run("fedsgd", TorchModel(Writes), parts, 2)
    assert np.array_equal(rows.rows, kept)


@pytest.mark.parametrize("rows", ["labels", "numbers"])
def test_under_a_guarantee_no_client_stops_the_run(rows: str) -> None:
    """Labels that are no class, words in the place of numbers: an error would tell of them."""
    odd = (
        Data(FAR.rows, np.full(20, 7))
        if rows == "labels"
        else Data(np.full((9, 4), "a"), np.zeros(9, int))
    )
    config = algorithm("fedavg").config(weighted=False)
    privacy = ClientPrivacy(4, cohort=4, epsilon=8, delta=1e-5, rounds=1)
    found = rounds.run(
        "fedavg",
        TorchModel(Base),
        [*OTHERS, odd],
        1,
        RunOptions(config=config, coordinator=privacy),
    )
    assert found.history[0].counted == 3
    with pytest.raises((IndexError, errors.InvalidData)):
        rounds.run("fedavg", TorchModel(Base), [*OTHERS, odd], 1, RunOptions(config=config))


def test_rows_that_do_not_fit_are_refused_by_their_shape() -> None:
    wide = Data(np.zeros((3, 7), np.float32), np.zeros(3, int))
    privacy = ClientPrivacy(1, cohort=1, epsilon=8, delta=1e-5, rounds=1)
    config = algorithm("fedavg").config(weighted=False)
    with pytest.raises(errors.InvalidData, match=r"must take rows of shape \(7,\)"):
        rounds.run(
            "fedavg", TorchModel(Base), [wide], 1, RunOptions(config=config, coordinator=privacy)
        )


def test_one_client_moves_the_clipped_sum_by_its_clip_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack of a buffer that `forward` writes, measured at the sum: it was 20 clip norms."""
    sums: list[np.ndarray] = []
    plain = ClientPrivacy._noisy_mean

    def watched(self: ClientPrivacy, unit: str, heard: Any, size: int) -> Any:
        from tacit.federated.client_level.privacy import clip

        sums.append(clip(np.stack(heard), self.clip_norms[unit]).steps.sum(axis=0) / 2**20)
        return plain(self, unit, heard, size)

    monkeypatch.setattr(ClientPrivacy, "_noisy_mean", watched)
    held = [some(seed) for seed in range(20)]
    for first in (FAR, BLANK):
        privacy = ClientPrivacy(21, cohort=21, epsilon=1, delta=1e-5, rounds=1, clip_norm=0.02)
        config = algorithm("fedavg").config(weighted=False)
        rounds.run(
            "fedavg",
            TorchModel(Buffer),
            [first, *held],
            1,
            RunOptions(config=config, coordinator=privacy),
        )
    assert np.linalg.norm(sums[0] - sums[1]) <= 2  # two replies of one client, each of norm 1
