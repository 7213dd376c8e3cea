r"""One training of the hospitals' study: pretraining, silos, rounds, evaluation.

Each hospital is a `Silo`: it releases a noisy mean and standard deviation of its pixels, then noisy
gradients, and nothing else. All of it together is (ε, δ)-DP towards each of its images.

Classes are weighted in the loss: a normal image counts `PrimiaSettings.normal` times as much
as one with pneumonia. The share of patients who are ill is not public, and differs from place to
place; so this weight is a setting like any other, chosen beforehand, and not read off the images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import matthews_corrcoef
from torch import Tensor
from torch.nn import functional as F

from tacit.data.datasets.base import Dataset
from tacit.federated import networks, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.model import Data
from tacit.federated.networks import Weights
from tacit.federated.payload import Vector
from tacit.federated.record_level.normalisation import Normalisation, combine
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.server import SiloServer
from tacit.federated.record_level.silo import Silo
from tacit.federated.rounds import RunOptions
from tacit.federated.torch_model import TorchModel
from tacit.privacy.randomness import Randomness
from tacit_papers.parts.primia_settings import CHANNELS, PRETRAINING, PrimiaSettings

BOUNDS = (0.0, 1.0)
"""Public bounds of pixels."""


class Quality(NamedTuple):
    """Quality of predictions on some images."""

    mcc: float
    accuracy: float


@dataclass(frozen=True)
class TrainedFederation:
    """A global model, the normalisation of its rows, and its cost."""

    model: TorchModel
    weights: Vector
    normalisation: Normalisation
    epsilon: float | None
    facts: dict[str, Any]

    def quality(self, data: Data) -> Quality:
        """Evaluate the model on these images; it predicts the class of the larger output."""
        rows = self.normalisation.apply(data.rows)
        self.model.load(self.weights)
        with torch.no_grad():
            answers = self.model.module(self.model.tensor(rows)).argmax(dim=1).cpu().numpy()
        mcc = float(matthews_corrcoef(data.labels, answers))
        return Quality(mcc, float((answers == data.labels).mean()))


def pretrain(public: Dataset, *, epochs: float, seed: int, device: str = "cpu") -> Weights:
    """Train a network on public images without privacy, and return the weights of its features."""
    pixels = np.asarray(public.schema.rows(public.rows).numbers, dtype=np.float32)
    rows = torch.from_numpy((pixels - pixels.mean()) / pixels.std()).to(device)
    labels = torch.from_numpy(public.labels).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        height, width = public.rows.shape[1:]
        module = networks.small_cnn((height, width), len(public.classes), CHANNELS)().to(device)
    rates = [PRETRAINING["features_rate"], PRETRAINING["head_rate"]]
    groups = [{"params": part.parameters()} for part in module.children()]
    optimizer = torch.optim.Adam(groups, lr=rates[0])
    size = PRETRAINING["batch_size"]
    steps = max(2, round(epochs * len(rows) / size))
    falling = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps)
    draws = np.random.default_rng(seed)
    for _ in range(steps):
        chosen = torch.from_numpy(draws.integers(0, len(rows), size)).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(module(rows[chosen]), labels[chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        falling.step()
    return networks.feature_weights(module)


def network(
    image: tuple[int, int],
    settings: PrimiaSettings,
    features: Weights | None,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> TorchModel:
    """Make the model that hospitals train: from scratch, or on public features."""
    build = networks.small_cnn(image, 2, CHANNELS)
    if features is not None:
        build = networks.pretrained(build, features, frozen=settings.frozen)
    return TorchModel(build, weighted(settings.normal, device), seed=seed, device=device)


def weighted(normal: float, device: str = "cpu") -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross-entropy in which a normal image has this weight, and another 1."""
    weights = torch.tensor([normal, 1.0], device=device)

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        return (F.cross_entropy(outputs, labels, reduction="none") * weights[labels]).mean()

    return loss


def private(
    model: TorchModel,
    hospitals: Sequence[Data],
    settings: PrimiaSettings,
    *,
    epsilon: float,
    delta: float,
    rng: Callable[[int], Randomness | None] = lambda _: None,
    seed: int = 0,
) -> TrainedFederation:
    """Train by federated averaging over silos, each of which spends (ε, δ) on its own images.

    Parameters
    ----------
    model : TorchModel
        The model that `network` makes.
    hospitals : sequence of Data
        Pixels within `BOUNDS`, and labels.
    settings : PrimiaSettings
        Settings of the training.
    epsilon, delta : float
        Guarantee for all that a hospital releases: mean and standard deviation of its pixels, and
        its replies.
    rng : callable, optional
        Returns the randomness of a hospital by its number; by default the operating system's.
    seed : int
        Seed of the order of messages' placeholders; it touches no image.
    """
    fedavg = algorithm("fedavg")
    config = fedavg.config(**settings.local)
    privacy = RecordPrivacy(
        epsilon,
        delta,
        settings.rounds,
        clip_norm=settings.clip_norm,
        statistics=settings.statistics,
        bounds=BOUNDS,
    )
    silos = [
        Silo(model, data, privacy, fedavg, config, rng=rng(number))
        for number, data in enumerate(hospitals)
    ]
    normalisation = combine([silo.statistics() for silo in silos], BOUNDS)
    for silo in silos:
        silo.normalise(normalisation)
    server = SiloServer(delta, epsilon=epsilon)
    end = rounds.run(
        fedavg,
        model,
        silos,
        settings.rounds,
        RunOptions(config=config, coordinator=server, seed=seed),
    )
    plan = silos[0].plan
    facts = {
        "delta": delta,
        "rounds": len(end.history),
        "steps": plan.draws * settings.rounds,
        "sampling_probability": plan.probability,
        "noise_multiplier": float(plan.multiplier),
        "spent_epsilon": server.spent,
    }
    return TrainedFederation(model, end.model, normalisation, server.spent, facts)


def without_privacy(
    model: TorchModel, hospitals: Sequence[Data], settings: PrimiaSettings, *, seed: int = 0
) -> TrainedFederation:
    """Train the same federation without clipping and noise, with settings that suit it."""
    fedavg = algorithm("fedavg")
    pixels = np.concatenate([data.rows for data in hospitals])
    normalisation = Normalisation(np.array([pixels.mean()]), np.array([pixels.std()]), BOUNDS)
    clients = [Data(normalisation.apply(data.rows), data.labels) for data in hospitals]
    config = fedavg.config(**settings.local)
    end = rounds.run(fedavg, model, clients, settings.rounds, RunOptions(config=config, seed=seed))
    return TrainedFederation(model, end.model, normalisation, None, {"rounds": len(end.history)})
