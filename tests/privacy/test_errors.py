"""Checks of parameters: an interval is checked as it is written."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.privacy import errors


@pytest.mark.parametrize("lower", "[(")
@pytest.mark.parametrize("upper", "])")
def test_ends_belong_to_an_interval_as_its_brackets_say(lower: str, upper: str) -> None:
    interval = f"{lower}0, 1/2{upper}"
    inside = [0.25, Fraction(1, 3), np.float32(0.1)]
    inside += [0] if lower == "[" else []
    inside += [0.5] if upper == "]" else []
    outside: list[Any] = [-0.1, 0.6, float("nan"), float("inf")]
    outside += [] if lower == "[" else [0]
    outside += [] if upper == "]" else [0.5]
    for value in inside:
        assert errors.within("here", "x", value, interval) == float(value)
    for value in outside:
        with pytest.raises(errors.InvalidParameter, match=re.escape(f"x must be in {interval}")):
            errors.within("here", "x", value, interval)


@pytest.mark.parametrize("value", ["x", None, [1], 10**400])
def test_what_is_no_number_is_said_to_be_none(value: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match="here: x must be a number"):
        errors.within("here", "x", value, "[0, 1]")
    with pytest.raises(errors.InvalidParameter, match="here: x must be a number"):
        errors.probability("here", "x", value)
