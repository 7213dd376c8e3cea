"""Values as JSON and arrays, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.privacy import codec
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import Unit


@dataclass
class Point:
    x: float
    at: Any


KNOWN = {"Point": Point}


def there_and_back(value: Any) -> Any:
    writer = codec.Writer(KNOWN)
    text = json.dumps(writer.plain("here", value), allow_nan=False)
    return codec.Reader("test", writer.arrays, KNOWN).value(json.loads(text))


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, "ε", Fraction(1, 3), [1, (2, Fraction(3))], (), {"a": (1,)}, {"of": 1}],
)
def test_values_keep_their_type(value: Any) -> None:
    found = there_and_back(value)
    assert found == value
    assert type(found) is type(value)


def test_arrays_keep_type_and_order_in_memory() -> None:
    for array in (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["a", "bc"]),
        np.array([1, "bc"], dtype=object),
    ):
        found = there_and_back(array)
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()
        assert found.flags.c_contiguous == array.flags.c_contiguous


def test_declared_records_alone_are_built() -> None:
    found = there_and_back(Point(0.5, np.arange(3)))
    assert (found.x, found.at.tolist()) == (0.5, [0, 1, 2])
    made = {"record": {"x": 1, "at": 2}, "of": "Point"}
    with pytest.raises(InvalidParameter, match="test: record must be"):
        codec.Reader("test", {}, {}).value(made)
    with pytest.raises(InvalidParameter, match="of a known form"):
        codec.Reader("test", {}, KNOWN).value({"fraction": "1/2", "more": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.array([np.nan]), object()])
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(InvalidParameter, match="save: here must be finite numbers"):
        codec.Writer(KNOWN).plain("here", value)


def test_settings_whose_types_are_known() -> None:
    thing = SimpleNamespace(a=Fraction(1, 3), b=("x", np.int64(2)), c=None, unit=Unit.PERSON)
    stored = codec.settings(thing, ("a", "b", "c", "unit"))
    assert stored == {"a": "1/3", "b": ["x", 2], "c": None, "unit": "person"}
    assert codec.exact("test", stored, "a") == {**stored, "a": Fraction(1, 3)}
    with pytest.raises(InvalidParameter, match="test: b must be"):
        codec.exact("test", stored, "b")


def test_arrays_of_parts() -> None:
    inner = {"a": np.zeros(1), "b.c": np.ones(1)}
    whole = {**codec.nested(inner, "in"), "inside": np.ones(2)}
    assert codec.part(whole, "in").keys() == inner.keys()
