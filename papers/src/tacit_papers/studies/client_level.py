r"""Images over many simulated clients with a guarantee for each: features fixed, sums noised.

Softmax regression on scattering features (`dpsgd_features`: nothing of them is learned from the
images) by FedAvg, with everything a client sends hidden by `tacit.federated.client_level.privacy`.

All settings are public. They were chosen on MNIST: trained on 50,000 of the training images and
tried on the other 10,000, after fifteen rougher tries that were judged on the test images. Choosing
is not accounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from tacit.data.datasets.base import Dataset
from tacit.data.schema import ArraySchema
from tacit.federated import partition, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.model import Data
from tacit.federated.rounds import Reply
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness


@dataclass(frozen=True)
class Settings:
    """Of the training: few rounds with everybody, and several local steps on all of one's rows.

    Parameters
    ----------
    rounds, cohort : int, float
        How many rounds, and the share of the clients in one on average.
    epochs, learning_rate, server_rate, clip_norm
        Of FedAvg and of the server's clipping.
    """

    rounds: int = 8
    cohort: float = 1.0
    epochs: int = 5
    learning_rate: float = 20.0
    server_rate: float = 1.5
    clip_norm: float = 5.0


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows of features and labels: to learn from, and to test on."""

    training: Data
    test: Data
    classes: int


@dataclass(frozen=True)
class Outcome:
    """How right the global model is, what it cost each client, and what ran."""

    accuracy: float
    epsilon: float
    delta: float
    rounds: int
    skipped: int
    answered: float
    """Replies that counted, as a share of those asked for. In-house only."""
    noise_multiplier: float


def prepare(
    dataset: Dataset, *, device: str = "cpu", seed: int = 0, quick: bool = False
) -> Prepared:
    """Features of all images, once for every run; `quick` takes fewer strokes for their scale."""
    from tacit_papers.studies.dpsgd_features import rows_of

    if not isinstance(dataset.schema, ArraySchema) or dataset.schema.image is None:
        errors.refuse("study", "data", "images: mnist or digits", dataset.name)
    pixels = dataset.schema.rows(dataset.rows).numbers
    rows = rows_of(pixels, dataset.rows.shape[1:], 1, device, quick=quick)[:, 0]
    training, test = dataset.pools.halves(np.random.default_rng(seed), len(dataset))
    held = [Data(rows[part], dataset.labels[part].astype(np.int64)) for part in (training, test)]
    return Prepared(held[0], held[1], len(dataset.classes))


def measure(
    prepared: Prepared,
    *,
    clients: int = 1000,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    dropout: float = 0.0,
    settings: Settings = Settings(),  # noqa: B008
    seed: int = 0,
    rng: Randomness | None = None,
) -> Outcome:
    """Train once over so many clients, split at random, each protected at (ε, δ).

    Parameters
    ----------
    prepared : Prepared
        Of `prepare`.
    clients, epsilon, delta
        How many, and what the last model may cost each of them.
    dropout : float
        Chance of a reply to be lost on its way.
    settings : Settings
        Of the training.
    seed : int
        Of the split and of what is lost.
    rng : Randomness, optional
        Of cohorts and noise. The operating system's without it.
    """
    errors.probability("study", "dropout", dropout)
    data = prepared.training
    held = [
        Data(data.rows[part], data.labels[part])
        for part in partition.iid(len(data), clients, seed=seed)
    ]
    fedavg = algorithm("fedavg")
    private = ClientPrivacy(
        clients,
        cohort=settings.cohort * clients,
        epsilon=epsilon,
        delta=delta,
        rounds=settings.rounds,
        clip_norm=settings.clip_norm,
        rng=rng,
    )
    model = TorchModel(lambda: _softmax(data.rows, prepared.classes))

    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        # By client and round alone: whose reply is lost must not depend on who else is asked.
        lost = np.random.default_rng([seed, 1, number, client]).random() < dropout
        return None if lost else reply

    end = rounds.run(
        fedavg,
        model,
        held,
        settings.rounds,
        config=fedavg.config(
            weighted=False,
            epochs=settings.epochs,
            batch_size=None,
            learning_rate=settings.learning_rate,
            server_rate=settings.server_rate,
        ),
        seed=seed,
        coordinator=private,
        intercept=drop if dropout else None,
    )
    right = model.evaluate(end.model, prepared.test.rows, prepared.test.labels).accuracy
    return _outcome(right, end, private)


def _outcome(accuracy: float, end: rounds.RunResult, private: ClientPrivacy) -> Outcome:
    asked = sum(one.asked for one in end.history)
    return Outcome(
        accuracy=accuracy,
        epsilon=private.spent,
        delta=private.plan.delta,
        rounds=len(end.history),
        skipped=sum(one.skipped for one in end.history),
        answered=sum(one.counted for one in end.history) / max(asked, 1),
        noise_multiplier=float(private.plan.multiplier),
    )


def _softmax(rows: npt.NDArray[Any], classes: int) -> nn.Module:
    """One weight for every column and class, all 0: the constant column stands for a bias."""
    layer = nn.Linear(rows.shape[1], classes, bias=False)
    nn.init.zeros_(layer.weight)
    return layer
