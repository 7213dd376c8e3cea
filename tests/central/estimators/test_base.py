"""What all estimators share: bounds that are refused, and a ledger that is charged and copied."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from tacit import ApproxDP, Ledger, Seeded
from tacit.central.estimators import LinearRegression
from tacit.central.estimators.base import Box
from tacit.privacy import errors

SCOPE: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}


@pytest.mark.parametrize(
    "bounds", [None, 3, (1, 1), (0, np.nan), ([0, 0], [1, 1]), ("a", "b"), (0, 1, 2)]
)
def test_bounds_that_do_not_do(bounds: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match="bounds must be") as caught:
        Box.of("here", "bounds", bounds, 3)
    assert "\n" not in str(caught.value)


def test_box_clips_and_counts() -> None:
    held, outside = Box.of("here", "bounds", (-1, 1), 2).clip(np.array([[0.0, 2.0], [3.0, -3.0]]))
    assert held.tolist() == [[0, 1], [1, -1]]
    assert outside == 2


def test_copies_of_an_estimator_spend_from_one_ledger(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (600, 2))
    target = rows[:, 0] * 0.5
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(epsilon=2.5, delta=1e-5, **SCOPE))
        made = LinearRegression(
            epsilon=1.0, bounds=(-1, 1), target_bounds=(-1, 1), ledger=ledger, account="study",
            rng=Seeded(0),
        )  # fmt: skip
        assert clone(made).ledger is ledger
        made.fit(rows, target)
        assert len(ledger.show("study").charges) == 1
        with pytest.raises(errors.BudgetExceeded):
            cross_val_score(made, rows, target, cv=3, error_score="raise")
        assert len(ledger.show("study").charges) == 2


def test_a_pickle_has_no_ledger_and_is_not_fitted_without_one(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(epsilon=9.5, delta=1e-4, **SCOPE))
        made = LinearRegression(
            epsilon=1.0, bounds=(-1, 1), target_bounds=(-1, 1), ledger=ledger, account="study"
        ).fit(rows, rows[:, 0])
        loaded = pickle.loads(pickle.dumps(made))
        assert loaded.ledger is None
        assert made.ledger is ledger
        assert np.array_equal(loaded.predict(rows), made.predict(rows))
        assert loaded.guarantee_ == made.guarantee_
        with pytest.raises(
            errors.InvalidParameter, match=r"together.*a pickle does not contain it"
        ):
            loaded.fit(rows, rows[:, 0])
        assert copy.deepcopy(made).ledger is ledger
        copy.deepcopy(made).fit(rows, rows[:, 0])
        loaded.set_params(ledger=ledger).fit(rows, rows[:, 0])
        assert len(ledger.show("study").charges) == 3


def test_a_ledger_may_be_a_path_also_in_other_processes(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    settings = {"epsilon": 1.0, "bounds": (-1, 1), "target_bounds": (-1, 1), "account": "study"}
    with pytest.raises(errors.InvalidParameter, match="ledger must be an existing file"):
        LinearRegression(ledger=tmp_path / "ledger", **settings).fit(rows, rows[:, 0])
    assert not (tmp_path / "ledger").exists()
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(epsilon=9.5, delta=1e-4, **SCOPE))
    made = LinearRegression(ledger=str(tmp_path / "ledger"), **settings).fit(rows, rows[:, 0])
    pickle.loads(pickle.dumps(made)).fit(rows, rows[:, 0])
    with Ledger(tmp_path / "ledger") as ledger:
        assert len(ledger.show("study").charges) == 2
