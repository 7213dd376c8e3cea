"""What travels: exact there and back, and whatever else arrives is refused with a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.federated.payload import (
    Layout,
    Payload,
    PayloadPart,
    Record,
    Rejected,
    ReplyLimits,
    decode,
    encode,
    nbytes,
    norms,
)

LAYOUT = Layout((("a.weight", (3, 4)), ("a.bias", (3,)), ("scale", ())))
UPDATE = (PayloadPart("update"),)
PRUNED = (PayloadPart("mask", clip_unit=None, binary=True), PayloadPart("update", kept="mask"))
RNG = np.random.default_rng(0)
VECTOR = RNG.normal(size=LAYOUT.size).astype(np.float32)


def sent() -> Record:
    return encode(Payload({"update": VECTOR}), UPDATE, LAYOUT)


def test_vectors_and_named_arrays_are_the_same_thing() -> None:
    named = LAYOUT.unflatten(VECTOR)
    assert {name: array.shape for name, array in named.items()} == dict(LAYOUT.shapes)
    np.testing.assert_array_equal(LAYOUT.flatten(named), VECTOR)
    np.testing.assert_array_equal(LAYOUT.flatten(dict(reversed(named.items()))), VECTOR)


def test_there_and_back() -> None:
    record = sent()
    assert set(record) == {"update/a.weight", "update/a.bias", "update/scale"}
    assert {array.dtype for array in record.values()} == {np.dtype(np.float32)}
    assert nbytes(record) == 4 * LAYOUT.size
    read = decode(record, 7, UPDATE, LAYOUT)
    assert isinstance(read, Payload)
    assert read.weight == 7
    np.testing.assert_array_equal(read.parts["update"], VECTOR)


@pytest.mark.parametrize("kept", [0.0, 0.3, 1.0])
def test_only_what_is_kept_is_sent(kept: float) -> None:
    mask = (RNG.random(LAYOUT.size) < kept).astype(np.float32)
    record = encode(Payload({"update": VECTOR * mask, "mask": mask}), PRUNED, LAYOUT)
    bits = 2 + 1 + 1  # bytes for 12, 3 and 1 entries
    assert nbytes(record) == 4 * int(mask.sum()) + bits
    read = decode(record, 1.0, PRUNED, LAYOUT)
    assert isinstance(read, Payload)
    np.testing.assert_array_equal(read.parts["mask"], mask)
    np.testing.assert_array_equal(read.parts["update"], VECTOR * mask)


def test_one_norm_over_all_parts_of_a_unit() -> None:
    declared = (
        PayloadPart("one"),
        PayloadPart("two"),
        PayloadPart("three", clip_unit="own"),
        PayloadPart("four", clip_unit=None),
    )
    parts = {
        name: np.full(1, value)
        for name, value in zip(("one", "two", "three", "four"), (3, 4, 5, 6), strict=True)
    }
    assert norms(Payload(parts), declared) == {"update": 5.0, "own": 5.0}
    big = Payload(
        {"one": np.full(2, 1e30, dtype=np.float32), "two": np.zeros(2), "three": np.zeros(2)}
    )
    assert norms(big, declared[:3])["update"] == pytest.approx(math.sqrt(2) * 1e30, rel=1e-6)


def change(name: str, value: object) -> Callable[[Record], Any]:
    return lambda record: {**record, name: value}


HOSTILE: dict[str, tuple[Callable[[Record], Any], str]] = {
    "nan": (change("update/scale", np.array(np.nan, dtype=np.float32)), "not finite"),
    "inf": (change("update/a.bias", np.full(3, -np.inf, dtype=np.float32)), "not finite"),
    "1e30": (change("update/a.bias", np.full(3, 1e30, dtype=np.float32)), r"beyond 1e\+06"),
    "integers": (change("update/a.bias", np.ones(3, dtype=np.int64)), "not an array of float32"),
    "float64": (change("update/a.bias", np.ones(3)), "not an array of float32"),
    "objects": (change("update/a.bias", np.array([None] * 3)), "not an array of float32"),
    "a list": (change("update/a.bias", [1.0, 2.0, 3.0]), "not an array of float32"),
    "a shape": (change("update/a.bias", np.ones((3, 1), dtype=np.float32)), "another shape"),
    "a size": (change("update/scale", np.ones(0, dtype=np.float32)), "another shape"),
    "another name": (change("update/b.bias", np.ones(3, dtype=np.float32)), "other names"),
    "a missing one": (lambda record: dict(list(record.items())[1:]), "other names"),
    "nothing": (lambda record: {}, "other names"),
    "no record": (lambda record: None, "other names"),
    "no names": (lambda record: {0: 1}, "other names"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_arrays_are_refused_with_a_reason(kind: str) -> None:
    tamper, reason = HOSTILE[kind]
    read = decode(tamper(sent()), 1.0, UPDATE, LAYOUT)
    assert isinstance(read, Rejected)
    assert re.search(reason, read.reason)


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, 1e30, "3", None, True, 1j, [1]])
def test_hostile_weights_are_refused(weight: object) -> None:
    read = decode(sent(), weight, UPDATE, LAYOUT)
    assert isinstance(read, Rejected)
    assert "weight" in read.reason


def test_a_zero_reply_is_a_reply() -> None:
    read = decode({k: np.zeros_like(v) for k, v in sent().items()}, 1, UPDATE, LAYOUT)
    assert isinstance(read, Payload)


def test_values_that_do_not_fit_their_mask_are_refused() -> None:
    mask = np.ones(LAYOUT.size, dtype=np.float32)
    record = encode(Payload({"update": VECTOR, "mask": mask}), PRUNED, LAYOUT)
    record["mask/a.bias"] = np.zeros(1, dtype=np.uint8)
    read = decode(record, 1, PRUNED, LAYOUT)
    assert isinstance(read, Rejected)
    assert "another shape" in read.reason


def test_limits_are_the_servers() -> None:
    assert isinstance(decode(sent(), 5, UPDATE, LAYOUT, ReplyLimits(weight=4)), Rejected)
    assert isinstance(decode(sent(), 5, UPDATE, LAYOUT, ReplyLimits(magnitude=0.01)), Rejected)
