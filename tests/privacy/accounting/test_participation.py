"""The sensitivity under correlated noise, against every pattern of turns and every sign."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import toeplitz

from tacit.privacy import errors
from tacit.privacy.accounting.participation import Banded

STRATEGIES = {
    "independent": [1.0],
    "two bands": [1.0, 0.5],
    "square root": [1.0, 0.5, 0.375, 0.3125],
    "flat": [1.0, 1.0, 1.0],
    "falling to zero": [1.0, 0.9, 0.0],
}


def matrix(chosen: Banded, steps: int) -> np.ndarray:
    column = np.zeros(steps)
    kept = min(steps, chosen.bands)
    column[:kept] = [float(one) for one in chosen.coefficients[:kept]]
    return np.tril(toeplitz(column))


def patterns(steps: int, period: int, turns: int) -> Iterator[tuple[int, ...]]:
    """Yield all sets of at most so many turns that are at least a period apart."""
    for count in range(1, turns + 1):
        for chosen in itertools.combinations(range(steps), count):
            if all(b - a >= period for a, b in itertools.pairwise(chosen)):
                yield chosen


def by_force(mixed: np.ndarray, period: int, turns: int) -> float:
    """Return the largest movement over all patterns and signs."""
    worst = 0.0
    for chosen in patterns(len(mixed), period, turns):
        for signs in itertools.product([1, -1], repeat=len(chosen) - 1):
            moved = mixed[:, chosen] @ np.array([1, *signs])
            worst = max(worst, float(np.linalg.norm(moved)))
    return worst


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("period", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_it_is_the_largest_of_all_patterns_and_signs(
    name: str, period: int, turns: int, steps: int
) -> None:
    chosen = Banded.nearest(STRATEGIES[name])
    exact = by_force(matrix(chosen, steps), period, turns)
    stated = chosen.sensitivity(steps, period, turns)
    assert exact <= float(stated) * (1 + 1e-12)
    assert float(stated) == pytest.approx(exact, rel=1e-12)
    assert stated**2 >= chosen.squared_sensitivity(steps, period, turns)


def test_moves_in_any_direction_are_not_larger() -> None:
    rng = np.random.default_rng(0)
    chosen = Banded.nearest(STRATEGIES["square root"])
    mixed, stated = matrix(chosen, 8), float(chosen.sensitivity(8, 2, 3))
    for pattern in patterns(8, 2, 3):
        moves = rng.normal(size=(len(pattern), 3))
        moves /= np.linalg.norm(moves, axis=1, keepdims=True)
        assert np.linalg.norm(mixed[:, pattern] @ moves) <= stated


def test_turns_that_do_not_overlap_add_their_squares() -> None:
    chosen = Banded.nearest(STRATEGIES["square root"])
    column = sum(one**2 for one in chosen.coefficients)
    assert chosen.squared_sensitivity(400, 4) == 100 * column
    assert chosen.squared_sensitivity(400, 4, 1) == column
    assert chosen.squared_sensitivity(401, 4) == 100 * column + 1  # the last turn has one step left


@pytest.mark.parametrize(
    "wrong",
    [
        lambda chosen: chosen.sensitivity(9, 4, 1),  # one column, where a record has three turns
        lambda chosen: chosen.sensitivity(9, 9),  # turns further apart than they are
        lambda chosen: Banded.nearest([1.0]).sensitivity(9, 4),  # that of independent noise
    ],
)
def test_mutants_are_below_what_is_reached(wrong: object) -> None:
    chosen = Banded.nearest(STRATEGIES["square root"])
    assert float(wrong(chosen)) < 0.99 * by_force(matrix(chosen, 9), 4, 3)  # type: ignore[operator]


def test_a_record_that_is_used_too_soon_moves_more() -> None:
    chosen = Banded.nearest(STRATEGIES["square root"])
    assert by_force(matrix(chosen, 9), 1, 2) > 1.1 * float(chosen.sensitivity(9, 4, 2))


def test_coefficients_are_rounded_to_what_is_exact() -> None:
    chosen = Banded.nearest([1.0, 1 / 3, 1 / 3 + 1e-9, -1e-12])
    assert chosen.coefficients[1] == chosen.coefficients[2] == Fraction(round(2**20 / 3), 2**20)
    assert chosen.coefficients[3] == 0
    assert all(Fraction(float(one)) == one for one in chosen.coefficients)


@pytest.mark.parametrize(
    "wrong",
    [(), (0.5,), (1, 0.5, 0.75), (1, -0.5), (1, Fraction(1, 3)), (1, 2)],
)
def test_refusals(wrong: tuple[float, ...]) -> None:
    with pytest.raises(errors.InvalidParameter, match="Banded: coefficients must be 1 first"):
        Banded(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["steps", "period", "turns"])
def test_numbers_are_whole(name: str) -> None:
    given = {"steps": 3, "period": 2, "turns": 1, name: 0}
    with pytest.raises(errors.InvalidParameter, match=f"{name} must be an integer from 1"):
        Banded.nearest([1.0]).sensitivity(**given)
