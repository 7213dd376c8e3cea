"""JSON as it is hashed: equal bodies have equal bytes."""

from __future__ import annotations

import hashlib

import pytest

from tacit.privacy import canonical


def test_order_does_not_count_and_characters_stand_for_themselves() -> None:
    assert canonical.text({"b": [1, 2.5], "a": "ε"}) == '{"a": "ε", "b": [1, 2.5]}'
    assert canonical.text({"a": 1, "b": 2}, 2) == canonical.text({"b": 2, "a": 1}, 2)
    assert canonical.lines({"a": 1}, 1) == b'{\n "a": 1\n}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_cannot_say_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical.text({"a": value})


def test_text_is_hashed_as_utf8() -> None:
    assert canonical.sha256("ε") == hashlib.sha256("ε".encode()).hexdigest()
    assert canonical.sha256(b"a") == hashlib.sha256(b"a").hexdigest()
