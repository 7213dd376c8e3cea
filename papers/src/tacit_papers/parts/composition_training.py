"""Records, models and attackers of the study of accounting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit import attributes, membership
from tacit.central.training.training import optimizer_of
from tacit.data.datasets.base import Dataset
from tacit.data.schema import TableSchema
from tacit.local.learned.features import Raw

WIDTH = 256
SETTINGS: dict[str, dict[str, Any]] = {
    "logistic": {"optimizer": "adam", "learning_rate": 0.01},
    "network": {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9},
}
"""Settings of both models, the same with and without noise, for every ε and accountant."""

_ATTRIBUTES = {"adult": "marital_status"}
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Attribute:
    """What the attacker does not know of a record: columns that are set together, and values."""

    name: str
    columns: list[int]
    values: Any


@dataclass(frozen=True, eq=False)
class MembershipRecords:
    """Members and non-members of the training data, on one device."""

    members: tuple[Tensor, Tensor]
    others: tuple[Tensor, Tensor]
    classes: int
    attribute: Attribute
    prior: Any

    @property
    def width(self) -> int:
        return int(self.members[0].shape[1])


def records(dataset: Dataset, chosen: Any, device: str) -> MembershipRecords:
    """Make the first half of the chosen rows members, and the others non-members."""
    half = len(chosen) // 2
    rows = Raw(dataset.schema).transform(dataset.schema.rows(dataset.take(chosen)))
    labels = dataset.labels[chosen]
    attribute = attribute_of(dataset)
    gaps = [np.abs(rows[:, attribute.columns] - one).sum(axis=1) for one in attribute.values]
    shares = np.bincount(np.argmin(gaps, axis=0), minlength=len(gaps)) / len(rows)
    sides = [
        (torch.from_numpy(rows[part]).to(device), torch.from_numpy(labels[part]).to(device))
        for part in (slice(half), slice(half, 2 * half))
    ]
    return MembershipRecords(sides[0], sides[1], len(dataset.classes), attribute, shares)


def attribute_of(dataset: Dataset) -> Attribute:
    """Choose a categorical column, or whether the middle of an image is inked."""
    if isinstance(dataset.schema, TableSchema):
        codes = dataset.schema.categorical
        name = _ATTRIBUTES.get(dataset.name, codes[0].name)
        place = [column.name for column in codes].index(name)
        slots = [len(column.categories) + (column.unseen == "other") for column in codes]
        # Indicators of codes are the last columns of a row.
        start = Raw(dataset.schema).dimension - sum(slots[place:])
        columns = list(range(start, start + slots[place]))
        return Attribute(name.replace("_", " "), columns, np.eye(slots[place], dtype=np.float32))
    height, width = dataset.rows.shape[1:]
    middle = np.arange(height * width).reshape(height, width)
    patch = middle[height * 3 // 7 : -(-height * 4 // 7), width * 3 // 7 : -(-width * 4 // 7)]
    values = np.repeat([[0.0], [1.0]], patch.size, axis=1).astype(np.float32)
    return Attribute("ink in the middle", patch.ravel().tolist(), values)


def untrained(model: str, width: int, classes: int, seed: int) -> nn.Module:
    """Make softmax regression from zero, or two hidden layers from a seed; never from data."""
    if model == "logistic":
        linear = nn.Linear(width, classes)
        for parameter in linear.parameters():
            nn.init.zeros_(parameter)
        return linear
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, classes),
        )  # fmt: skip


def losses(module: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each row."""
    return nn.functional.cross_entropy(module(rows), labels, reduction="none")


def train_plainly(
    module: nn.Module,
    data: tuple[Tensor, Tensor],
    *,
    batch_size: int,
    steps: int,
    seed: int,
    optimizer: str,
    learning_rate: float,
    momentum: float = 0.0,
) -> None:
    """Train in the same way, without clipping and noise."""
    rows, labels = data
    draws = torch.Generator().manual_seed(seed)
    stepper = optimizer_of(optimizer, list(module.parameters()), learning_rate, momentum)
    for _ in range(steps):
        taken = torch.rand(len(rows), generator=draws) < batch_size / len(rows)
        chosen = taken.nonzero().flatten().to(rows.device)
        stepper.zero_grad()
        loss = losses(module, rows[chosen], labels[chosen]).sum() / batch_size
        loss.backward()  # type: ignore[no-untyped-call]
        stepper.step()


@torch.no_grad()
def attacked(module: nn.Module, records: MembershipRecords) -> dict[str, Any]:
    """Measure the accuracy of a model, and the advantage of both attackers."""
    module.eval()
    right, mine = [], []
    for rows, labels in (records.members, records.others):
        right.append(float((module(rows).argmax(dim=1) == labels).double().mean()))
        mine.append(_finite(losses(module, rows, labels)))
    seen = membership.loss_threshold(mine[0], mine[1], threshold="mean")
    inference = attributes.attribute_inference(
        _losses_of(module),
        _numpy(records.members),
        _numpy(records.others),
        columns=records.attribute.columns,
        values=records.attribute.values,
        prior=records.prior,
    )
    return {
        "accuracy": right[1],
        "training_accuracy": right[0],
        "membership_advantage": seen.advantage.value,
        "membership_interval": [seen.advantage.low, seen.advantage.high],
        "attribute_advantage": inference.advantage.value,
        "attribute_interval": [inference.advantage.low, inference.advantage.high],
        "attribute_right": inference.on_members.value,
    }


def _numpy(side: tuple[Tensor, Tensor]) -> tuple[Any, Any]:
    return side[0].cpu().numpy(), side[1].cpu().numpy()


def _losses_of(module: nn.Module) -> Callable[[Any, Any], Any]:
    device = next(module.parameters()).device

    def of(rows: Any, labels: Any) -> Any:
        parts = [
            losses(module, torch.from_numpy(x).to(device), torch.from_numpy(y).to(device))
            for x, y in zip(_blocks(rows), _blocks(labels), strict=True)
        ]
        return _finite(torch.cat(parts))

    return of


def _blocks(rows: Any) -> list[Any]:
    return [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]


def _finite(each: Tensor) -> Any:
    """Replace infinite losses by very large ones: weights that are all noise can overflow."""
    return np.nan_to_num(each.double().cpu().numpy(), nan=1e30, posinf=1e30)
