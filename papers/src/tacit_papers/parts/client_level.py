r"""Federated learning over many simulated clients, with a guarantee for each client.

Softmax regression on scattering features (`dpsgd_features`, none of which is learned from the
images) is trained by FedAvg; `tacit.federated.client_level.privacy` protects what a client sends.

All settings are public. They were chosen on MNIST: trained on 50,000 of the training images and
tried on the other 10,000, after fifteen rougher tries that were judged on the test images. The
choice is not accounted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from tacit.data.datasets.base import Dataset
from tacit.data.schema import ArraySchema
from tacit.federated import partition, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level.distributed import SecureClientPrivacy
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.model import Data
from tacit.federated.rounds import Reply, RunOptions
from tacit.federated.secure import Stage
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness


@dataclass(frozen=True)
class ClientLevelSettings:
    """Settings of the training: few rounds with everybody, and several local steps on all rows.

    Parameters
    ----------
    rounds, cohort : int, float
        Number of rounds, and the expected share of the clients in each.
    epochs, learning_rate, server_rate, clip_norm
        Settings of FedAvg, and of the clipping of updates.
    """

    rounds: int = 8
    cohort: float = 1.0
    epochs: int = 5
    learning_rate: float = 20.0
    server_rate: float = 1.5
    clip_norm: float = 5.0


@dataclass(frozen=True, eq=False)
class PreparedImages:
    """Features and labels of training and test rows."""

    training: Data
    test: Data
    classes: int


@dataclass(frozen=True)
class ClientLevelResult:
    """Accuracy of the global model, its cost to each client, and what ran."""

    accuracy: float
    epsilon: float
    delta: float
    rounds: int
    skipped: int
    answered: float
    """Share of the replies asked for that were counted. In-house only."""
    noise_multiplier: float


def prepare(
    dataset: Dataset, *, device: str = "cpu", seed: int = 0, quick: bool = False
) -> PreparedImages:
    """Compute the features of all images; `quick` scales them by fewer synthetic strokes."""
    from tacit_papers.parts.dpsgd_features import rows_of

    if not isinstance(dataset.schema, ArraySchema) or dataset.schema.image is None:
        errors.refuse("study", "data", "images: mnist or digits", dataset.name)
    pixels = dataset.schema.rows(dataset.rows).numbers
    rows = rows_of(pixels, dataset.rows.shape[1:], 1, device, quick=quick)[:, 0]
    training, test = dataset.pools.halves(np.random.default_rng(seed), len(dataset))
    held = [Data(rows[part], dataset.labels[part].astype(np.int64)) for part in (training, test)]
    return PreparedImages(held[0], held[1], len(dataset.classes))


def measure(
    prepared: PreparedImages,
    *,
    clients: int = 1000,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    dropout: float = 0.0,
    corrupt: float | None = None,
    settings: ClientLevelSettings = ClientLevelSettings(),  # noqa: B008
    seed: int = 0,
    rng: Randomness | None = None,
) -> ClientLevelResult:
    """Train once over clients that share the images at random, each protected at (ε, δ).

    Parameters
    ----------
    prepared : PreparedImages
        The outcome of `prepare`.
    clients, epsilon, delta
        Number of clients, and what the last model may cost each of them.
    dropout : float
        Probability that a reply is lost.
    corrupt : float, optional
        Share of the clients who may side with the server. With it the clients add the noise, and
        nobody has to trust the server; all are asked in every round. Masks are left out of the
        simulation: sums are the same.
    settings : ClientLevelSettings
        Settings of the training.
    seed : int
        Seed of the split and of lost replies.
    rng : Randomness, optional
        Randomness of cohorts and noise; by default the operating system's.
    """
    errors.probability("study", "dropout", dropout)
    data = prepared.training
    held = [
        Data(data.rows[part], data.labels[part])
        for part in partition.iid(len(data), clients, seed=seed)
    ]
    fedavg = algorithm("fedavg")
    model = TorchModel(lambda: _softmax(data.rows, prepared.classes))
    private = _private(
        clients,
        model.layout.size,
        settings.cohort * clients,
        corrupt,
        dropout,
        seed,
        epsilon=epsilon,
        delta=delta,
        rounds=settings.rounds,
        clip_norm=settings.clip_norm,
        rng=rng,
    )

    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        # By client and round alone: whose reply is lost must not depend on who else is asked.
        lost = np.random.default_rng([seed, 1, number, client]).random() < dropout
        return None if lost else reply

    end = rounds.run(
        fedavg,
        model,
        held,
        settings.rounds,
        RunOptions(
            config=fedavg.config(
                weighted=False,
                epochs=settings.epochs,
                batch_size=None,
                learning_rate=settings.learning_rate,
                server_rate=settings.server_rate,
            ),
            seed=seed,
            coordinator=private,
            intercept=drop if dropout and corrupt is None else None,
        ),
    )
    right = model.evaluate(end.model, prepared.test.rows, prepared.test.labels).accuracy
    return _outcome(right, end, private)


def _private(
    clients: int,
    size: int,
    cohort: float,
    corrupt: float | None,
    dropout: float,
    seed: int,
    **budget: Any,
) -> ClientPrivacy | SecureClientPrivacy:
    """Build the guarantee: with a trusted server, or with noise from the clients."""
    if corrupt is None:
        return ClientPrivacy(clients, cohort=cohort, **budget)
    return SecureClientPrivacy(
        clients,
        size=size,
        corrupt=round(corrupt * clients),
        lost=_most_lost(clients, dropout),
        masks=False,
        losses=lambda number: _losses(seed, number, clients, dropout),
        **budget,
    )


def _most_lost(clients: int, dropout: float) -> int:
    """Return how many clients are lost in a round at most, but once in thirty thousand."""
    spread = math.sqrt(clients * dropout * (1 - dropout))
    return math.ceil(clients * dropout + 4 * spread)


def _losses(seed: int, number: int, clients: int, dropout: float) -> dict[int, Stage]:
    """Return at which step which client is lost: any step before its vector is sent."""
    drawn = np.random.default_rng([seed, 1, number])
    gone = np.flatnonzero(drawn.random(clients) < dropout)
    return {int(client): Stage(int(drawn.integers(Stage.MASKED + 1))) for client in gone}


def _outcome(
    accuracy: float, end: rounds.RunResult, private: ClientPrivacy | SecureClientPrivacy
) -> ClientLevelResult:
    requests = sum(one.asked for one in end.history)
    if isinstance(private, SecureClientPrivacy):
        counted, noise = private.survivors, private.plan.noise_multiplier
    else:
        counted = [one.counted for one in end.history]
        noise = float(private.plan.multiplier)
    return ClientLevelResult(
        accuracy=accuracy,
        epsilon=private.spent,
        delta=private.plan.delta,
        rounds=len(end.history),
        skipped=sum(one.skipped for one in end.history),
        answered=sum(counted) / max(requests, 1),
        noise_multiplier=noise,
    )


def _softmax(rows: npt.NDArray[Any], classes: int) -> nn.Module:
    """Make a linear layer, all 0 and without a bias: the rows have a constant column."""
    layer = nn.Linear(rows.shape[1], classes, bias=False)
    nn.init.zeros_(layer.weight)
    return layer
