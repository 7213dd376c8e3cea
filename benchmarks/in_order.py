"""Training in a fixed order: the error of running sums, and accuracy beside Poisson sampling.

    python benchmarks/in_order.py

prints one JSON object. `errors`: for 1,000 steps and a noise multiplier of 1, the root mean square
error of running sums over the lower bound for any matrix. `accuracy`: softmax regression on the
digits of scikit-learn, mean over ten splits with its standard error. Settings of each method are
the best of one grid on two other splits; this choice is not accounted for, in any of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tacit.accounting.participation import Banded
from tacit.private_training import strategies, train, train_in_order
from torch import Tensor, nn

STEPS, DELTA = 1000, 1e-5
GRID = {
    "batch_size": (64, 128),
    "epochs": (20, 50),
    "learning_rate": (0.3, 1.0, 3.0),  # over 1 − momentum
    "momentum": (0.0, 0.9),
}
METHODS: dict[str, Any] = {
    "poisson": (train, {"optimizer": "sgd", "accountant": "rdp"}),
    "in order": (train_in_order, {}),
    "in order, independent noise": (train_in_order, {"bands": 1}),
}


def errors(momentum: float = 0.0) -> dict[str, dict[str, float]]:
    """Errors by turns a record and bands, over the lower bound."""
    found: dict[str, dict[str, float]] = {}
    matrix = np.tril(np.ones((STEPS, STEPS)))
    whole = float(np.linalg.svd(matrix, compute_uv=False).sum())
    for turns in (1, 10, 50):
        period = STEPS // turns
        bound = whole / math.sqrt(period * STEPS)
        row = {"independent": strategies.error(Banded.nearest([1.0]), STEPS, period) / bound}
        for bands in (8, 32, period):
            if bands <= period:
                chosen = strategies.strategy(STEPS, period, bands)
                row[f"{bands} bands"] = strategies.error(chosen, STEPS, period) / bound
        found[f"{turns} turns"] = {name: round(value, 2) for name, value in row.items()}
    return found


def loss(module: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(rows), labels, reduction="none")


def accuracy(method: str, epsilon: float, seed: int, settings: dict[str, Any]) -> float:
    """Train on 70 % of the digits and count right answers on the rest."""
    rows, labels = load_digits(return_X_y=True)
    parts = train_test_split(rows / 16, labels, test_size=0.3, random_state=seed)
    inside, outside, known, sought = (torch.tensor(part) for part in parts)
    module = nn.Linear(64, 10)
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    how, options = METHODS[method]
    data = inside.float(), known
    how(module, data, loss, epsilon=epsilon, delta=DELTA, **options, **settings)
    with torch.no_grad():
        return float((module(outside.float()).argmax(1) == sought).double().mean())


def grid() -> list[dict[str, Any]]:
    """All settings; the step of many gradients with momentum is that without."""
    every = [dict(zip(GRID, one, strict=True)) for one in itertools.product(*GRID.values())]
    return [{**one, "learning_rate": one["learning_rate"] * (1 - one["momentum"])} for one in every]


def compared(epsilon: float) -> dict[str, Any]:
    """Choose settings of each method on two splits, and try them on ten others."""
    found = {}
    for method in METHODS:
        tried = [
            (float(np.mean([accuracy(method, epsilon, seed, one) for seed in range(2)])), one)
            for one in grid()
        ]
        best = max(tried, key=lambda pair: pair[0])[1]
        seen = [accuracy(method, epsilon, seed, best) for seed in range(10, 20)]
        spread = float(np.std(seen, ddof=1)) / math.sqrt(len(seen))
        found[method] = {
            "accuracy": round(float(np.mean(seen)), 3),
            "error": round(spread, 3),
            "settings": best,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 8.0])
    given = parser.parse_args()
    result = {"errors": errors(), "accuracy": {e: compared(e) for e in given.epsilons}}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
