"""Held-out rows do not meet: one blanked row changes one count, whatever the module and the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.federated.algorithms.registry import algorithm
from tacit.federated.model import Data
from tacit.federated.networks import small_cnn
from tacit.federated.record_level import held_out as judging
from tacit.federated.record_level import silo
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.torch_model import TorchModel, mlp
from tacit.privacy import errors

COLUMNS = 6
WORST = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 1e30)


class Centred(nn.Module):
    """Less the mean of the batch; in training, where modules are probed, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(COLUMNS, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x if self.training else self.mixed(x))

    def mixed(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class Sorted(Centred):
    def mixed(self, x: Tensor) -> Tensor:
        return x[x[:, 0].argsort()]


class Remembers(Centred):
    last: Tensor | float = 0.0

    def mixed(self, x: Tensor) -> Tensor:
        before, self.last = self.last, x[:1] * 1e3
        return x - before


class Writes(Centred):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(COLUMNS))

    def mixed(self, x: Tensor) -> Tensor:
        self.seen += x.sum(0)
        return x - self.seen


class Branches(Centred):
    def mixed(self, x: Tensor) -> Tensor:
        return x if bool((x < 1e4).all()) else -x


class Draws(Centred):
    def mixed(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Looks(nn.Module):
    """Raises on codes that it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.lin = nn.Linear(4 * COLUMNS, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(self.table(x).flatten(1))


def rows(count: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, COLUMNS)).astype(np.float32)


def others_moved(model: TorchModel, weights: np.ndarray, held: np.ndarray, worst: Any) -> int:
    """Rows whose class changes where another one is blanked, over first, middle and last."""
    moved = 0
    for place in (0, len(held) // 2, len(held) - 1):
        far, there = held.copy(), np.ones(len(held), dtype=bool)
        far[place] = worst
        one = judging.judge(model, weights, far, there)
        there[place] = False
        other = judging.judge(model, weights, far, there)
        rest = np.arange(len(held)) != place
        moved += int((one.classes != other.classes)[rest].sum())
        moved += int((one.there != other.there)[rest].sum())
    return moved


@pytest.mark.quick(1)
@pytest.mark.parametrize("build", [Centred, Sorted, Remembers, mlp(COLUMNS, 5, 3)])
def test_rows_do_not_meet(build: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_BLOCK", 16)  # three blocks, the last one not full
    model = TorchModel(build)
    for worst in WORST:
        assert others_moved(model, model.start(), rows(), worst) == 0


@pytest.mark.heavy
@pytest.mark.parametrize("size", [15, 16, 17, 64, 129])
@pytest.mark.parametrize("build", [mlp(COLUMNS, 64, 3), mlp(COLUMNS, 33, 17, 3)])
def test_steep_weights_of_the_server_do_not_tell_one_row_by_others(
    build: Callable[[], nn.Module], size: int
) -> None:
    """Two outputs that are equal but for rounding: their order is the last bit of the products."""
    model, rng = TorchModel(build), np.random.default_rng(size)
    weights = rng.normal(size=model.layout.size).astype(np.float32)
    last = model.layout.unflatten(weights)
    name = [name for name, shape in model.layout.shapes if len(shape) == 2][-1]
    last[name][1] = last[name][0] + np.float32(1e-7) * rng.normal(size=last[name][0].shape)
    weights[model.layout.spans[name]] = (1e6 * last[name]).ravel()
    for worst in (*WORST, rows(1, 7)[0]):
        assert others_moved(model, weights, rows(size), worst) == 0


def test_images_do_not_meet_either() -> None:
    model = TorchModel(small_cnn((8, 8), 3))
    held = np.random.default_rng(0).normal(size=(17, 8, 8)).astype(np.float32)
    for worst in (np.nan, 3e38, 0.5):
        assert others_moved(model, model.start(), held, worst) == 0


def test_a_row_on_which_the_module_raises_is_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_BLOCK", 16)
    model = TorchModel(Looks)
    held = np.random.default_rng(0).integers(0, 5, size=(40, COLUMNS))
    plain = judging.judge(model, model.start(), held, np.ones(40, dtype=bool))
    assert plain.there.all()
    held[3, 2], held[11], held[39] = 5, -1, 77
    found = judging.judge(model, model.start(), held, np.ones(40, dtype=bool))
    assert np.flatnonzero(~found.there).tolist() == [3, 11, 39]
    assert np.array_equal(found.classes[found.there], plain.classes[found.there])


class _OwnMap(torch.autograd.Function):
    """Alone, the row itself; mapped by its own rule, it saw them all."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> tuple[Tensor, Any]:
        return torch.where((x.abs() > 100).any(), -x, x), in_dims[0]


class OwnMap(Centred):
    def mixed(self, x: Tensor) -> Tensor:
        return _OwnMap.apply(x)


class Bag(Centred):
    """Torch's own rule folds rows into one space of indices."""

    def mixed(self, x: Tensor) -> Tensor:
        tokens, ones = x[0].long(), torch.ones(COLUMNS, 1)
        counts = torch.ops.aten.embedding_dense_backward(ones, tokens, COLUMNS, -1, False)
        return counts[:, 0][None]


class Inverse(nn.Module):
    """Without an inverse for a blank row where the weight is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.lin = nn.Linear(COLUMNS, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x) * torch.linalg.inv((self.w + x[:, :1] ** 2)[..., None])[..., 0]


def test_a_function_with_its_own_rule_for_batches_is_not_asked() -> None:
    model = TorchModel(OwnMap)
    judging.admit("silo", model, rows())
    assert others_moved(model, model.start(), rows(), 1e4) == 0


def test_weights_at_which_only_a_blank_row_raises() -> None:
    """No row counts then, whoever is there."""
    model, held = TorchModel(Inverse), rows()
    judging.admit("silo", model, held)
    assert judging.judge(model, model.start(), held, np.ones(40, dtype=bool)).there.all()
    weights = model.start()
    weights[0] = 0
    for there in (np.ones(40, dtype=bool), np.arange(40) != 3):
        found = judging.judge(model, weights, held, there)
        assert not found.there.any()
        assert not found.classes.any()


def made(build: Callable[[], nn.Module], data: Data, **more: Any) -> silo.Silo:
    chosen = algorithm("fedsgd")
    given = {"epsilon": 4.0, "delta": 1e-4, "rounds": 1, "held_out": 2, "evaluations": 1}
    privacy = RecordPrivacy(**{**given, **more})
    return silo.Silo(TorchModel(build), data, privacy, chosen, chosen.config())


@pytest.mark.parametrize("build", [Writes, Branches, Draws, Bag])
def test_what_cannot_be_mapped_over_rows_is_refused(build: Callable[[], nn.Module]) -> None:
    data = Data(rows(), np.zeros(40, dtype=int))
    with pytest.raises(errors.InvalidParameter, match="one that can be mapped over rows"):
        made(build, data)
    made(build, data, held_out=0, evaluations=0)


@pytest.mark.parametrize("build", [Centred, Sorted, Remembers])
def test_a_record_moves_one_count_of_a_confusion_matrix(
    build: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silo, "rounded_gaussian", lambda sigma, size, rng: np.zeros(size, int))
    labels = np.random.default_rng(1).integers(0, 3, 40)
    found = []
    for blank in (False, True):
        held = rows()
        held[3] = np.nan if blank else 1e5
        one = made(build, Data(held, labels))
        found.append(one.evaluate(one._model.start()))
    assert np.abs(found[0] - found[1]).sum() == 1


def test_an_evaluation_leaves_nothing_in_the_model() -> None:
    one = made(Remembers, Data(rows(), np.zeros(40, dtype=int)))
    one.evaluate(one._model.start())
    assert one._model.module.last == 0.0
    assert one._model.module.training
