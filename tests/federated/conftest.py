"""A quadratic with a closed form, and digits over ten clients with two shards of labels each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tacit.federated import partition
from tacit.federated.model import Data, Evaluation
from tacit.federated.payload import Layout
from tacit.federated.torch_model import TorchModel, mlp
from tacit_papers.parts.convergence import FederatedTask

SIZE = 6


class Quadratic:
    r"""f_i(w) = ½ Σ_j a_ij (w_j − b_ij)², a row being the pair (a_i, b_i)."""

    layout = Layout((("left", (2, 2)), ("right", (SIZE - 4,))))
    dtype = np.dtype(np.float64)

    def start(self) -> np.ndarray:
        return np.linspace(-1, 1, SIZE)

    def gradient(self, parameters: Any, rows: Any, labels: Any) -> np.ndarray:
        return np.mean(rows[:, 0] * (parameters - rows[:, 1]), axis=0)

    def evaluate(self, parameters: Any, rows: Any, labels: Any) -> Evaluation:
        loss = np.mean(np.sum(rows[:, 0] * (parameters - rows[:, 1]) ** 2 / 2, axis=1))
        return Evaluation(float(loss), 1.0)


def clients(count: int = 5, seed: int = 0) -> list[Data]:
    """Clients of different sizes, whose curvatures and minima differ."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(count):
        size = 4 + 3 * k
        curvature = rng.uniform(0.3, 1.5, SIZE) + rng.uniform(0, 0.2, (size, SIZE))
        minimum = rng.normal(0, 1, SIZE) + rng.normal(0, 0.3, (size, SIZE))
        found.append(Data(np.stack([curvature, minimum], axis=1), np.zeros(size, dtype=int)))
    return found


def optimum(held: Sequence[Data], *, weighted: bool) -> np.ndarray:
    """Where the (weighted) mean of the clients' losses is least."""
    sizes = [len(one) if weighted else 1 for one in held]
    slopes = [n * one.rows[:, 0].mean(axis=0) for n, one in zip(sizes, held, strict=True)]
    pulls = [n * one.rows.prod(axis=1).mean(axis=0) for n, one in zip(sizes, held, strict=True)]
    return np.asarray(sum(pulls) / sum(slopes))


@dataclass(frozen=True)
class Problem:
    """The model, its clients, and the answer."""

    model: Quadratic
    held: list[Data]

    def distance(self, model: np.ndarray, *, weighted: bool = True) -> float:
        return float(np.abs(model - optimum(self.held, weighted=weighted)).max())


@pytest.fixture(scope="session")
def quadratic() -> Problem:
    return Problem(Quadratic(), clients())


@pytest.fixture(scope="session")
def digits() -> Callable[[int], FederatedTask]:
    found = load_digits()
    rows = (found.data / 8 - 1).astype(np.float32)

    def make(seed: int) -> FederatedTask:
        order = np.random.default_rng(seed).permutation(len(rows))
        train, test = order[360:], order[:360]
        labels = found.target[train]
        parts = partition.shards(labels, 10, per_client=2, seed=seed)
        held = [Data(rows[train[part]], labels[part]) for part in parts]
        return FederatedTask(
            TorchModel(mlp(64, 32, 10), seed=seed), held, Data(rows[test], found.target[test])
        )

    return make
