"""One mean and deviation for all columns: what a row adds, and what comes out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tacit.central.statistics.standardization import norm_above, standardize, steps_of
from tacit.privacy.randomness import Seeded

CORNERS = [-np.inf, -3.0, -1.0, -0.3, 0.0, 1e-30, 0.9999999, 1.0, 7.0, np.nan]


def test_a_row_adds_no_more_than_is_claimed() -> None:
    """Every row of three columns with such numbers, also beyond the bounds."""
    rows = np.array(list(itertools.product(CORNERS, repeat=3)))
    low, high = np.full(3, -1.0), np.full(3, 1.0)
    first, second, count = steps_of(rows, low, high, pooled=True)
    assert first.shape == second.shape == (count, 1)
    assert np.abs(first).max() == norm_above(1)
    assert np.abs(second).max() == norm_above(1, half=True)
    assert count == np.isfinite(rows).all(axis=1).sum()


@pytest.mark.parametrize("columns", [9, 10_000])
def test_a_row_adds_what_it_adds_alone(columns: int) -> None:
    rows = np.asfortranarray(np.random.default_rng(1).random((50, columns)))
    low, high = np.zeros(columns), np.ones(columns)
    first, second, _ = steps_of(rows, low, high, pooled=True)
    alone = [steps_of(row[None], low, high, pooled=True) for row in rows]
    assert np.array_equal(first, np.concatenate([one[0] for one in alone]))
    assert np.array_equal(second, np.concatenate([one[1] for one in alone]))


def test_moments_are_those_of_all_numbers() -> None:
    rows = np.random.default_rng(2).integers(0, 256, (3000, 49)) / 255
    found = standardize(rows, 0, 1, pooled=True, epsilon=2, delta=1e-5, rng=Seeded(3))
    assert found.value.mean == pytest.approx(np.full(49, rows.mean()), abs=0.01)
    assert found.value.deviation == pytest.approx(np.full(49, rows.std()), abs=0.02)
    assert found.value.transform(rows).std() == pytest.approx(1, abs=0.05)
    assert found.guarantee.epsilon <= 2  # type: ignore[attr-defined]
    # One number each has far less noise than 49 of them.
    wide = standardize(rows, 0, 1, noise_multiplier=1.0)
    one = standardize(rows, 0, 1, pooled=True, noise_multiplier=1.0)
    assert max(map(noise_of, leaves(one))) < min(map(noise_of, leaves(wide)[:1])) / 5


def leaves(released: object) -> list[object]:
    from tacit.privacy import events

    return events.leaves(released.event)  # type: ignore[attr-defined, return-value]


def noise_of(event: object) -> float:
    return float(event.sigma)  # type: ignore[attr-defined]
