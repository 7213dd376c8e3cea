"""A study is declared once: options, checks and record follow from its parameters."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest

from tacit.privacy.errors import InvalidParameter
from tacit_papers.engine import checks, declare, parameters, registry
from tacit_papers.engine.parameters import Parameters

STUDIES = (
    *("agnostic", "anonymize", "classifiers", "collect", "composition", "dpsgd", "federated"),
    *("join", "novel-class", "posterior", "primia", "search", "tables", "threats"),
)


@dataclass(frozen=True)
class ToyParameters(Parameters):
    """Parameters of a study of these tests."""

    data: str = declare.option("rows", "The rows.", kw_only=True)
    words: tuple[str, ...] = declare.option(("one",), "Words", choices=("one", "two"))
    counts: tuple[int, ...] = declare.option((1, 2), check=checks.whole(1, 9), quick=(3,))
    epsilons: tuple[float | None, ...] = declare.option((1.0, None), check=checks.epsilon)
    central: tuple[float, ...] = declare.option((math.inf,), check=checks.epsilon_or_none)
    split: str | None = declare.option(None, record="join", otherwise="the first")
    file: str | None = declare.option(None, record=False)
    level: tuple[str, ...] = declare.option(("latent",), hidden=True)
    quick: bool = declare.quick()


def test_every_study_is_found_and_complete() -> None:
    assert set(STUDIES) <= set(registry.names())
    for study in registry.studies():
        assert registry.get(study.name) is study
        assert study.about.endswith(".")
        assert study.question.endswith("?")
        assert study.template.startswith(f"# {study.title}\n")
        assert callable(study.draw)
        assert all(callable(field) for field in study.fields.values())
        assert study.parameters.quickly().quick  # type: ignore[attr-defined]
        assert all(parameters.of(field).help for field in parameters.offered(study.parameters))
    assert registry.get("nothing") is None
    with pytest.raises(InvalidParameter, match="name must be one of agnostic"):
        registry.study("nothing")


def test_places_are_different() -> None:
    places = [study.place for study in registry.studies()]
    assert places == sorted(set(places))


def test_what_a_record_holds() -> None:
    assert ToyParameters().recorded() == {
        "data": "rows",
        "words": ["one"],
        "counts": [1, 2],
        "epsilons": [1.0, None],
        "central": ["inf"],
        "join": None,
        "level": ["latent"],
        "quick": False,
    }


def test_a_quick_run_has_values_of_its_own() -> None:
    assert ToyParameters.quickly().counts == (3,)
    assert ToyParameters.quickly(counts=(4,)).counts == (4,)
    assert ToyParameters.quickly().quick
    assert ToyParameters.quickly().epsilons == (1.0, None)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"words": ("three",)}, "study: words must be one of one, two, got 'three'"),
        ({"counts": (1, 10)}, "study: counts must be an integer from 1 to 9, got 10"),
        ({"counts": (1.5,)}, "study: counts must be an integer"),
        ({"epsilons": (0.0,)}, "study: epsilon must be above 0"),
        ({"epsilons": (math.inf,)}, "study: epsilon must be"),
        ({"epsilons": (math.nan,)}, "study: epsilon must be"),
        ({"central": (-1.0,)}, "study: epsilon must be above 0"),
    ],
)
def test_every_item_is_checked(given: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter, match=line):
        ToyParameters(**given)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.within(1, 5), (1, 5, 2.5), (0.99, 5.01, math.nan)),
        (checks.share, (1e-9, 1), (0, 1.1, math.nan)),
        (checks.positive, (1e-9, 5), (0, -1, math.inf, math.nan)),
        (checks.probability, (1e-9, 0.5), (0, 1, math.nan)),
    ],
)
def test_checks(check: Callable[..., Any], good: tuple[float, ...], bad: tuple[float, ...]) -> None:
    assert [check("x", value) for value in good] == list(good)
    for value in bad:
        with pytest.raises(InvalidParameter, match="x must be"):
            check("x", value)


def test_words_of_a_command_line_are_read_and_written() -> None:
    hints = {field.name: field for field in fields(ToyParameters)}
    assert parameters.read("words", tuple[str, ...], "one, two") == ("one", "two")
    assert parameters.read("counts", tuple[int, ...], "1,2") == (1, 2)
    assert parameters.read("epsilons", tuple[float | None, ...], "0.5,inf") == (0.5, None)
    assert parameters.read("central", tuple[float, ...], "5,inf") == (5.0, math.inf)
    assert parameters.read("data", str, "a,b") == "a,b"
    assert parameters.said((0.5, None)) == "0.5,inf"
    assert parameters.default_of(hints["counts"]) == "1,2; with --quick 3"
    assert parameters.default_of(hints["split"]) == "the first"
    assert parameters.default_of(hints["file"]) == ""
    assert parameters.of(hints["words"]).help == "Words: one or more of one, two."
    assert "level" not in [field.name for field in parameters.offered(ToyParameters)]


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    """To list commands takes no numpy-based study, to list studies no torch and no matplotlib."""
    code = """
import sys
import tacit.apps.cli
assert not any(name.startswith("tacit_papers.studies.") for name in sys.modules)
from tacit_papers.engine import registry
registry.study("dpsgd")
assert "tacit_papers.studies.collect" not in sys.modules
assert [study.options for study in registry.studies()]
assert not {"torch", "matplotlib"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
