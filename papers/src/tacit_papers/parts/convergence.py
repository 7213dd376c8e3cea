"""Rounds and bytes until an accuracy is reached, over several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from tacit.federated.algorithms.registry import Algorithm
from tacit.federated.algorithms.registry import algorithm as named
from tacit.federated.config import Config
from tacit.federated.model import Data, Model
from tacit.federated.rounds import Round, RunOptions, run

TARGETS = (0.8, 0.9)


class FederatedTask(NamedTuple):
    """A model, clients and test rows, made for one seed."""

    model: Model
    clients: Sequence[Data]
    test: Data


@dataclass(frozen=True)
class Convergence:
    """Medians over seeds; None where half of them or more did not reach the target.

    `rounds_to` and `bytes_to` are by target; bytes are those of both directions.
    """

    algorithm: str
    rounds_to: dict[str, float | None]
    bytes_to: dict[str, float | None]
    best_accuracy: float


def first_at(history: Sequence[Round], target: float) -> tuple[float, float]:
    """Return the first round with this accuracy, and the bytes until then; ∞ where none has it."""
    total = 0
    for one in history:
        total += one.bytes_up + one.bytes_down
        if one.accuracy >= target:
            return one.number, total
    return math.inf, math.inf


def measure(
    algorithm: Algorithm | str,
    make: Callable[[int], FederatedTask],
    rounds: int,
    *,
    config: Config | None = None,
    targets: Sequence[float] = TARGETS,
    seeds: Sequence[int] = (0, 1, 2),
    participation: float = 1.0,
    to_the_end: bool = False,
) -> Convergence:
    """Run an algorithm for every seed, and measure how soon it reached the targets.

    Parameters
    ----------
    algorithm : Algorithm or str
        The algorithm to run.
    make : callable
        Returns a setting for a seed: partition, start and split may all depend on it.
    rounds : int
        Largest number of rounds.
    config : Config, optional
        Settings of the algorithm; by default its own.
    targets : sequence of float
        Accuracies to reach.
    seeds : sequence of int
        Seeds, with one run each.
    participation : float
        Share of the clients in a round.
    to_the_end : bool
        Whether to go on after the last target, for the best accuracy of all rounds.
    """
    chosen = named(algorithm) if isinstance(algorithm, str) else algorithm
    histories = []
    for seed in seeds:
        model, clients, test = make(seed)
        outcome = run(
            chosen,
            model,
            clients,
            rounds,
            RunOptions(
                config=config,
                participation=participation,
                seed=seed,
                test=test,
                callback=lambda one: not to_the_end and one.accuracy >= max(targets),
            ),
        )
        histories.append(outcome.history)
    return medians(chosen.name, histories, targets)


def medians(
    algorithm: str, histories: Sequence[Sequence[Round]], targets: Sequence[float] = TARGETS
) -> Convergence:
    """Summarize runs that differ only in their seed."""
    reached = {f"{goal:g}": [first_at(one, goal) for one in histories] for goal in targets}
    return Convergence(
        algorithm,
        {goal: finite(median(at for at, _ in runs)) for goal, runs in reached.items()},
        {goal: finite(median(size for _, size in runs)) for goal, runs in reached.items()},
        median(max(one.accuracy for one in history) for history in histories),
    )


def finite(value: float) -> float | None:
    """Replace ∞, which stands for a target that was not reached, by None."""
    return value if math.isfinite(value) else None
