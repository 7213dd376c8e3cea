"""A path with a guarantee that is not registered fails here."""

from __future__ import annotations

import pytest

from .refuter import refute
from .registry import ELSEWHERE, ROOT, drawing, offered, paths
from .tape import load_all


def test_all_that_is_offered_is_tried() -> None:
    tried = {name for path in paths() for name in path.covers} | ELSEWHERE.keys()
    assert sorted(offered() - tried) == []


def test_nothing_is_tried_that_is_not_offered() -> None:
    named = {name for path in paths() for name in path.covers} | ELSEWHERE.keys()
    assert sorted(named - offered()) == []


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_suites_are_there(name: str) -> None:
    assert name.split(".")[1] in (ROOT / ELSEWHERE[name]).read_text()


@pytest.mark.slow
def test_every_function_that_draws_noise_was_replayed() -> None:
    load_all()
    seen = {place for path in paths() if path.available() for place in refute(path).seen}
    assert sorted(drawing() - seen - _BY_LAW) == []


_BY_LAW: set[str] = set()
"""Functions of mechanisms whose law is tested, and that no registered path uses."""
