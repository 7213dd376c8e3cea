"""What all estimators share: bounds that are refused, and a ledger that is charged and copied."""

from __future__ import annotations

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
