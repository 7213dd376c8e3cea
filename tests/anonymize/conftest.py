"""Rows in which a task and two private labels are planted, and networks that learn in a second."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tacit.anonymize.training import AdversarialSchedule


class Planted(NamedTuple):
    """Columns: the task and the person, twice each, and a second private label."""

    rows: Any
    task: Any
    person: Any
    group: Any


def _plant(rows: int = 800, people: int = 4, seed: int = 0) -> Planted:
    """Each label is plainly written into columns of its own."""
    rng = np.random.default_rng(seed)
    task, group = rng.integers(2, size=(2, rows))
    person = rng.integers(people, size=rows)
    columns = np.c_[3 * task, 3 * task, person, person, 2 * group]
    return Planted(columns + rng.normal(0, 0.1, columns.shape), task, person, group)


@pytest.fixture(scope="session")
def planted() -> Planted:
    return _plant()


@pytest.fixture
def small() -> dict[str, Any]:
    """Settings that learn in a second."""
    schedule = AdversarialSchedule(pretraining=20, adversary=10, rounds=8)
    return {"encoder": (32,), "branches": (16,), "schedule": schedule, "device": "cpu"}
