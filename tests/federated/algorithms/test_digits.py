"""Digits, ten clients with two shards of labels each: rounds to 90 %, and models of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.federated import personal, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.config import Pruning
from tacit.federated.model import Data
from tacit.federated.rounds import RunOptions
from tacit_papers.parts.convergence import Convergence, FederatedTask, first_at, measure

Digits = Callable[[int], FederatedTask]


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "most"), [("fedsgd", 30), ("feddyn", 15), ("fsvrg", 12)])
def test_rounds_to_ninety_percent(name: str, most: int, digits: Digits) -> None:
    found = measure(name, digits, most, targets=(0.8, 0.9))
    reached = found.rounds_to["0.9"]
    assert reached is not None, found
    assert reached <= most
    assert found.best_accuracy >= 0.9
    both_ways = {"fedsgd": 2, "feddyn": 2, "fsvrg": 5}[name] * 10 * 2410 * 4
    assert found.bytes_to["0.9"] == reached * both_ways


@pytest.mark.slow
def test_fsvrg_row_by_row(digits: Digits) -> None:
    found = measure("fsvrg", digits, 12, config=algorithm("fsvrg").config(batch_size=1))
    assert (found.rounds_to["0.9"] or math.inf) <= 12


@pytest.mark.slow
def test_fedavg_needs_more_rounds_than_feddyn(digits: Digits) -> None:
    fedavg, feddyn = (measure(name, digits, 60) for name in ("fedavg", "feddyn"))
    assert (fedavg.rounds_to["0.9"] or math.inf) > 1.3 * (feddyn.rounds_to["0.9"] or math.inf)


def own_tests(setting: FederatedTask) -> list[Data]:
    """For each client the test rows with labels that it knows."""
    rows, labels = setting.test.rows, setting.test.labels
    known = [np.isin(labels, one.labels) for one in setting.clients]
    return [Data(rows[mask], labels[mask]) for mask in known]


@pytest.mark.parametrize("kind", ["unstructured", "structured"])
def test_a_pruned_model_of_ones_own(kind: str, digits: Digits) -> None:
    setting, chosen = digits(0), algorithm("subfedavg")
    config = chosen.config(pruning=Pruning(kind, target=0.4, step=0.2))
    found = rounds.run(chosen, setting.model, setting.clients, 5, RunOptions(config=config))
    ups = [one.bytes_up for one in found.history]
    masks = 10 * (256 + 4 + 40 + 2)  # packed bits
    left = {"unstructured": 1 - 0.4 * 2368 / 2410, "structured": 1 - 12 * 65 / 2410}[kind]
    assert ups == sorted(ups, reverse=True)
    assert ups[-1] - masks == pytest.approx(left * 10 * 2410 * 4, rel=0.03)
    own = personal.accuracy(chosen, setting.model, found, own_tests(setting))
    everybodys = setting.model.evaluate(found.model, *vars(setting.test).values()).accuracy
    assert own > 0.7 > everybodys + 0.15


def test_medians_and_what_is_not_reached() -> None:
    def history(*accuracies: float) -> list[Any]:
        given = (3, 3, (), False, 0.0)
        return [
            rounds.Round(n, *given, accuracy, 10, 5) for n, accuracy in enumerate(accuracies, 1)
        ]

    assert first_at(history(0.5, 0.9, 0.8), 0.8) == (2, 30)
    assert first_at(history(0.5, 0.6), 0.8) == (math.inf, math.inf)
    assert Convergence("fedavg", {"0.9": None}, {"0.9": None}, 0.5).rounds_to["0.9"] is None
