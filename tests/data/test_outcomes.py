"""Numeric outcomes: positions between bounds, and their rounding to levels."""

import numpy as np
import pytest

import tacit
from tacit.data.outcomes import STEPS, Numeric, level_chances, rounded
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.randomness import Seeded


def test_positions_are_clipped_and_see_one_number_alone():
    hours = Numeric(-10, 10)
    given = [-99, -10, 0, 5, 10, 1e300]
    found = hours.positions("hours", given)
    assert found.tolist() == [0, 0, STEPS // 2, 3 * STEPS // 4, STEPS, STEPS]
    assert [hours.positions("hours", [one])[0] for one in given] == found.tolist()


@pytest.mark.parametrize("levels", [2, 3, 5])
@pytest.mark.parametrize("position", [0, 1, STEPS // 3, STEPS - 1, STEPS])
def test_rounding_has_the_position_as_its_mean_exactly(levels, position):
    below, above, share = (one[0] for one in level_chances(np.array([position]), levels))
    assert 0 <= below <= above <= levels - 1
    mean = (1 - share) * below + share * above
    assert mean * STEPS == pytest.approx(position * (levels - 1), rel=1e-15, abs=1e-9)


def test_draws_follow_the_stated_chances():
    position = np.full(200_000, STEPS // 3)
    drawn = rounded(position, 3, Seeded(0))
    _, above, share = level_chances(position[:1], 3)
    assert set(drawn.tolist()) == {above[0] - 1, above[0]}
    assert (drawn == above[0]).mean() == pytest.approx(share[0], abs=5e-3)


@pytest.mark.parametrize(
    "bounds", [(0, 0), (1, 0), (float("nan"), 1), (0, float("inf")), (0, 1e300), ("a", 1)]
)
def test_bounds_must_be_bounds(bounds):
    with pytest.raises(InvalidParameter, match="Numeric"):
        Numeric(*bounds)


@pytest.mark.parametrize("values", [[], [[1.0]], ["a"], [float("nan")]])
def test_outcomes_are_one_column_of_numbers(values):
    with pytest.raises(InvalidData):
        Numeric(0, 1).positions("hours", values)


def test_it_is_a_public_name_and_survives_json():
    made = tacit.Numeric(0, 80)
    assert Numeric.from_plain(made.to_plain()) == made
    assert Numeric.from_plain(None) is None
