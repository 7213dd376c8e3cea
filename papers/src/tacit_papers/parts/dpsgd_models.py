"""The models of the study, trained with and without privacy.

Rows are (n, views, columns). Where there are several views, the loss of an image is the mean over
its views, so that an image has one gradient, which is clipped once [DBH22]_; the prediction is the
class with the largest mean probability.

References
----------
.. [DBH22] De, Berrada, Hayes, Smith, Balle. Unlocking high-accuracy differentially private image
   classification through scale. 2022.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tacit.central.estimators import MLPClassifier
from tacit.central.estimators.base import MostlyNoise
from tacit.central.training.training import train
from tacit.privacy.events import Event
from tacit.privacy.randomness import Randomness
from tacit_papers.parts.dpsgd_settings import NETWORK

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]

_BATCH, _EPOCHS = 256, 30
_NETWORK_RATE, _LINEAR_RATE = 1e-3, 1e-2
_BLOCK = 2048


@dataclass(frozen=True)
class Task:
    """Rows and labels to learn from, and rows to predict."""

    rows: Floats
    labels: Codes
    test_rows: Floats
    classes: int
    device: str


def network(
    task: Task, epsilon: float, delta: float, settings: dict[str, Any], rng: Randomness
) -> tuple[Codes, Event]:
    """Train the network of the paper; return predictions and the event."""
    classifier = MLPClassifier(
        epsilon=epsilon,
        delta=delta,
        bounds=(-1.0, 1.0),  # pixels from 0 to 1, measured from 0
        classes=range(task.classes),
        device=task.device,
        rng=rng,
        **NETWORK,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MostlyNoise)  # the accuracy shows how much
        classifier.fit(task.rows[:, 0], task.labels)
    return np.asarray(classifier.predict(task.test_rows[:, 0])), classifier.event_


def linear(
    task: Task, epsilon: float, delta: float, settings: dict[str, Any], rng: Randomness
) -> tuple[Codes, Event]:
    """Train softmax regression on views, from zero; return predictions and the event.

    It runs in float64: sums over all images can then be computed in large blocks, and little of the
    clip norm is reserved for their rounding (`Schedule.rounding`).
    """
    layer = nn.Linear(task.rows.shape[2], task.classes, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    layer = layer.to(task.device)
    trained = train(
        layer,
        (_tensor(task.rows, task.device).double(), _tensor(task.labels, task.device)),
        _losses,
        epsilon=epsilon,
        delta=delta,
        optimizer="sgd",
        rng=rng,
        **settings,
    )
    return _answers(layer.float(), task), trained.event


def without_privacy(task: Task, model: str, seed: int) -> Codes:
    """Train a network of the same shape by Adam, without clipping and noise; return predictions."""
    rows, test_rows = (_tensor(part, task.device) for part in (task.rows, task.test_rows))
    hidden: tuple[int, ...] = ()
    if model == "paper":
        rows, test_rows = _projected(rows, test_rows, NETWORK["components"])
        hidden = NETWORK["hidden_layer_sizes"]
    truth = _tensor(task.labels, task.device)
    gpus = [task.device] if task.device.startswith("cuda") else []
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        module = _module((rows.shape[2], *hidden, task.classes)).to(task.device)
        _train(module, rows, truth, _NETWORK_RATE if hidden else _LINEAR_RATE)
    return _chosen(module, test_rows)


def _losses(module: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    """Return one loss per image: the mean over its views."""
    scores = module(rows)
    wanted = labels[:, None].expand(-1, scores.shape[1])
    return cross_entropy(scores.transpose(1, 2), wanted, reduction="none").mean(dim=1)


def _answers(module: nn.Module, task: Task) -> Codes:
    return _chosen(module, _tensor(task.test_rows, task.device))


@torch.no_grad()
def _chosen(module: nn.Module, test_rows: Tensor) -> Codes:
    means = [module(block).softmax(dim=2).mean(dim=1) for block in torch.split(test_rows, _BLOCK)]
    return np.asarray(torch.cat(means).argmax(dim=1).cpu().numpy())


def _projected(rows: Tensor, test_rows: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Project rows onto their principal components, in the units of the rows."""
    middle = rows.mean(dim=0)
    flat = (rows - middle).flatten(0, 1)
    _, vectors = torch.linalg.eigh(flat.T @ flat)
    axes = vectors[:, -min(components, vectors.shape[1]) :]
    return (rows - middle) @ axes, (test_rows - middle) @ axes


def _module(sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for one, other in pairwise(sizes):
        layers += [nn.Linear(one, other), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _train(module: nn.Module, rows: Tensor, truth: Tensor, rate: float) -> None:
    stepper = torch.optim.Adam(module.parameters(), lr=rate)
    total = _EPOCHS * -(-len(rows) // _BATCH)
    falling = torch.optim.lr_scheduler.LambdaLR(stepper, lambda step: 1 - step / total)
    for _ in range(_EPOCHS):
        order = torch.randperm(len(rows), device=rows.device)
        for batch in torch.split(order, _BATCH):
            stepper.zero_grad()
            _losses(module, rows[batch], truth[batch]).mean().backward()  # type: ignore[no-untyped-call]
            stepper.step()
            falling.step()


def _tensor(array: npt.NDArray[Any], device: str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
