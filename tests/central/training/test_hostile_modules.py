"""Each animal of the zoo is refused, or one record moves the clipped sum by its share at most.

Neighbours are zero-out, at the batch size that is trained, through what training runs.
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import probing, train
from tacit.central.training.clipping import Clipper
from tacit.privacy.errors import InvalidParameter

_SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).with_name("zoo.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
zoo = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(zoo)

SLOTS = 200
MOST = 1 + 1e-3  # clip norms: rounding of the sum included
REFUSED = {
    *("Selects", "Rolls", "Flips", "Reshapes", "Routes", "Masks", "Gathers", "RollsFlat"),
    *("Experts", "Means", "Peaks", "Sums", "Writes", "Assigns", "Hidden", "Numpy"),
    *("InPlace", "InPlaceView", "BatchAttention", "ByHandNorm", "FunctionalNorm", "Linalg"),
    *("Distances", "Memory", "GRU over rows", "OwnMap", "Chunks", "Caches", "Global"),
    "ForwardHook",
}
"""Without a gradient per example, or not to be traced; the others have one, and are measured."""


def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return (module(x) - y) ** 2


def crowd(kind: str) -> tuple[Tensor, Tensor]:
    """Rows that make much of a neighbour: equal, ordered, enormous, at edges."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SLOTS, zoo.WIDE, generator=generator)
    y = torch.where(torch.arange(SLOTS) % 2 == 0, 1e4, 0.0)
    match kind:
        case "equal":
            x[:] = x[0].clone()
        case "ordered":
            x[:, 0] = torch.linspace(-2, 60, SLOTS)
        case "enormous":
            x[SLOTS // 2] = 1e6
            x[3] = 60
    return x, y


def summed(made: Clipper, batch: tuple[Tensor, ...], missing: int | None) -> Tensor:
    """As a step sums: blanks in the place of who is missing; two passes, as state would show."""
    there = torch.ones(SLOTS, dtype=torch.bool)
    rows = tuple(part.clone() for part in batch)
    if missing is not None:
        there[missing] = False
        for part in rows:
            part[missing] = 0
    torch.manual_seed(0)
    return made.sums(rows, 1.0, present=there)[0].double()


def worst(made: Clipper) -> float:
    moved = 0.0
    for kind in ("plain", "equal", "ordered", "enormous"):
        batch = crowd(kind)
        whole = summed(made, batch, None)
        for missing in (0, 3, SLOTS // 2, SLOTS - 1):
            moved = max(moved, float((summed(made, batch, missing) - whole).norm()))
        again = summed(made, batch, None)
        assert torch.equal(whole, again), "a pass leaves something behind"
    return moved


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", zoo.ANIMALS)
def test_no_record_moves_a_sum_by_more_than_its_share(name: str) -> None:
    torch.manual_seed(1)
    module = zoo.ANIMALS[name]()
    before = copy.deepcopy(module.state_dict())
    if name in REFUSED:
        with pytest.raises(InvalidParameter, match=r"^test: [^\n]*$"):
            probing.clipper("test", module, loss, crowd("plain")).prepare(SLOTS)
        return
    made = probing.clipper("test", module, loss, crowd("plain"))
    assert 0.01 < worst(made) <= MOST
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


@pytest.mark.parametrize("name", ["Sorts", "Counts", "Rare", "BackwardHook", "Backwards"])
def test_those_that_are_not_refused_train(name: str) -> None:
    torch.manual_seed(1)
    module, data = zoo.ANIMALS[name](), crowd("enormous")
    trained = train(module, data, loss, epsilon=8.0, delta=1e-5, batch_size=40, steps=3,
                    noise_multiplier=2.0, accountant="rdp")  # fmt: skip
    assert trained.guarantee.adjacency == "zero-out"
    assert all(torch.isfinite(one).all() for one in module.parameters())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.norm = nn.GroupNorm(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(self.norm(torch.relu_(self.first(x)))))


TAME = {
    "mlp": (nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)), (12,)),
    "cnn": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
                      nn.Linear(16, 1)),
        (3, 6, 6),
    ),
    "residual": (
        nn.Sequential(Residual(), Residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                      nn.Linear(3, 1)),
        (3, 6, 6),
    ),
    "transformer": (
        nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(),
                      nn.Linear(20, 1)),
        (5, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAME)
def test_usual_modules_are_book_kept(name: str) -> None:
    module, shape = TAME[name]
    rows = (torch.randn(9, *shape), torch.randn(9))

    def usual(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return (module(x)[:, 0] - y) ** 2

    assert probing.clipper("test", module, usual, rows).book_kept


def test_a_compiled_module_is_run_as_it_was_written() -> None:
    module = torch.compile(zoo.ANIMALS["SharedDraw"](), backend="eager")
    assert probing.clipper("test", module, loss, crowd("plain")).book_kept
