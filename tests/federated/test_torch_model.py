"""A module as a model of flat vectors: the numbers that plain torch gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tacit.federated import rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.model import Data
from tacit.federated.rounds import RunOptions
from tacit.federated.torch_model import TorchModel, mlp
from tacit.privacy import errors

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 5)).astype(np.float32)
LABELS = RNG.integers(3, size=40)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return mlp(5, 4, 3)()


def flat(module: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def test_start_gradient_and_evaluation_are_torchs() -> None:
    model, plain = TorchModel(mlp(5, 4, 3), seed=3), network()
    np.testing.assert_array_equal(model.start(), flat(plain))
    loss = F.cross_entropy(plain(torch.from_numpy(ROWS)), torch.from_numpy(LABELS))
    loss.backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])  # type: ignore[union-attr]
    for _ in range(2):  # gradients do not add up over calls
        found = model.gradient(model.start(), ROWS, LABELS)
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-7)
    judged = model.evaluate(model.start(), ROWS, LABELS)
    assert judged.loss == pytest.approx(loss.item(), abs=1e-6)
    right = plain(torch.from_numpy(ROWS)).argmax(dim=1).numpy() == LABELS
    assert judged.accuracy == pytest.approx(right.mean())


def test_local_steps_are_those_of_torchs_optimiser() -> None:
    chosen = {"learning_rate": 0.1, "momentum": 0.5, "weight_decay": 0.01, "epochs": 3}
    config = algorithm("fedavg").config(**chosen, batch_size=16)
    found = rounds.run(
        "fedavg",
        TorchModel(mlp(5, 4, 3), seed=3),
        [Data(ROWS, LABELS)],
        1,
        RunOptions(config=config),
    )
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
    order = torch.from_numpy(rounds.client_rng(0, 1, 0, 0).permutation(40))
    for _ in range(3):
        for batch in order.split(16):
            optimizer.zero_grad()
            outputs = plain(torch.from_numpy(ROWS)[batch])
            F.cross_entropy(outputs, torch.from_numpy(LABELS)[batch]).backward()
            optimizer.step()
    assert np.abs(found.model - flat(plain)).max() < 1e-6


def test_rows_of_any_usual_kind() -> None:
    model = TorchModel(mlp(5, 4, 3))
    expected = model.gradient(model.start(), ROWS, LABELS).copy()
    frozen = ROWS.copy()
    frozen.setflags(write=False)
    for rows, labels in [(ROWS.astype(np.float64), LABELS.astype(np.int32)), (frozen, LABELS)]:
        np.testing.assert_array_equal(model.gradient(model.start(), rows, labels), expected)


def test_constants_do_not_travel() -> None:
    def build() -> nn.Module:
        module = mlp(5, 4, 3)()
        module[0].requires_grad_(False)  # type: ignore[index]
        return module

    model = TorchModel(build)
    assert [name for name, _ in model.layout.shapes] == ["2.weight", "2.bias"]


def test_building_leaves_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    TorchModel(mlp(5, 4, 3), seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_modules_that_no_mean_covers_are_refused() -> None:
    with pytest.raises(
        errors.InvalidParameter, match=r"without running statistics, got 'BatchNorm1d'"
    ):
        TorchModel(lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))
    with pytest.raises(errors.InvalidParameter, match="one with parameters to train"):
        TorchModel(nn.ReLU)
    with pytest.raises(errors.InvalidParameter, match="parameters must be float32"):
        TorchModel(lambda: nn.Linear(2, 2, dtype=torch.float64))
    TorchModel(lambda: nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)))


def test_data_without_rows_or_labels_is_refused() -> None:
    with pytest.raises(errors.InvalidData, match="one label for each row, got 2 rows and 3 labels"):
        Data(np.zeros((2, 1)), np.zeros(3))
    with pytest.raises(errors.InvalidData, match="at least one row"):
        Data(np.zeros((0, 1)), np.zeros(0))
