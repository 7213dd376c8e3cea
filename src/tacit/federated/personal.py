"""Accuracy of the models that clients keep for themselves."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from tacit.federated.algorithms.registry import Algorithm
from tacit.federated.model import Data, Model
from tacit.federated.rounds import RunResult


def accuracy(
    algorithm: Algorithm, model: Model, outcome: RunResult, tests: Sequence[Data]
) -> float:
    """Average over clients the accuracy of each one's own model on its own test rows.

    A client without its own model uses the global model.
    """
    accuracies = []
    for client, test in enumerate(tests):
        state = outcome.states.get(client, {})
        own = outcome.model if algorithm.personal is None else state.get(algorithm.personal)
        weights = outcome.model if own is None else own
        accuracies.append(copy.deepcopy(model).evaluate(weights, test.rows, test.labels).accuracy)
    return float(np.mean(accuracies))
