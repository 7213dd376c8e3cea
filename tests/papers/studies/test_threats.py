"""The study of attacks against defences: its runs, its table, its figure, its page."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tacit.data import datasets
from tacit.privacy import errors
from tacit_papers import figures as plots
from tacit_papers.engine.running import run as run_study
from tacit_papers.studies.threats import (
    ATTACKS,
    DEFENCES,
    Threats,
    ThreatsParameters,
    corner,
    table,
)

Run = Callable[..., Any]
FEW = ThreatsParameters(
    attacks=("none", "sign-flip", "model-replacement"),
    defences=("mean", "multi-krum"),
    partitions=("iid",),
    rounds=4,
    trials=1,
)


@pytest.fixture(scope="module", name="found")
def _found() -> dict[str, Any]:
    return run_study(Threats(datasets.load("digits"), FEW)).to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


def value(found: dict[str, Any], attack: str, defence: str, measure: str = "accuracy") -> float:
    (one,) = (r for r in found["results"] if (r["attack"], r["defence"]) == (attack, defence))
    return float(one[measure]["mean"])


def test_what_attacks_do_and_a_defence_undoes(found: dict[str, Any]) -> None:
    assert value(found, "none", "mean") > 0.85
    assert value(found, "sign-flip", "mean") < 0.3
    assert value(found, "sign-flip", "multi-krum") > 0.8
    assert value(found, "none", "mean", "backdoor_success") < 0.1
    assert value(found, "model-replacement", "mean", "backdoor_success") > 0.8
    assert value(found, "model-replacement", "multi-krum", "backdoor_success") < 0.1
    assert value(found, "model-replacement", "mean") > 0.8  # a backdoor hides behind the accuracy


def test_a_quick_study(run: Run, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    asked = ("study", "threats", "--quick", "--defences", "mean,bulyan", "--json", json_file)
    outcome = run(*asked, "--plot", plot)
    assert outcome.code == 0, outcome.err
    record = json.loads(json_file.read_text())
    assert [(r["attack"], r["defence"]) for r in record["results"]] == [
        (attack, defence)
        for attack in ThreatsParameters.quickly().attacks
        for defence in ("mean", "bulyan")
    ]
    assert "mean nothing" in outcome.out
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    assert run(*asked).err == ""  # all runs were there


def test_all_is_tried_in_turn() -> None:
    study = Threats(datasets.load("digits"), ThreatsParameters(trials=2))
    assert len(study.cells()) == 2 * 2 * len(ATTACKS) * len(DEFENCES)
    assert {study._attack(name).name for name in ATTACKS[1:]} == set(ATTACKS[1:])
    clients, attackers = study._attacked("sybil", study._clients("dirichlet", *_split(study)), 0)
    assert (len(clients), sorted(attackers.who)) == (16, list(range(6)))
    assert len(study._attacked("noise", clients, 0)[1].who) == 2


def _split(study: Threats) -> tuple[Any, int]:
    return study._split(0)[0], 0


def test_the_same_seed_gives_the_same_numbers() -> None:
    study = Threats(datasets.load("digits"), ThreatsParameters.quickly())
    cell = {"partition": "dirichlet", "attack": "noise", "defence": "median", "trial": 0}
    assert study.measure(cell) == study.measure(cell)
    assert study.measure(cell) != study.measure({**cell, "trial": 1})


def test_only_images() -> None:
    digits = datasets.load("digits")
    plain = replace(digits, schema=replace(digits.schema, image=None))
    with pytest.raises(errors.InvalidParameter, match="data must be images"):
        Threats(plain, FEW)


def test_the_trigger_is_a_corner() -> None:
    stamped = corner((3, 4)).stamp(datasets.load("digits").rows[:1, :3, :4] * 0)
    assert stamped.sum() == 4
    assert stamped[0, 1:, 2:].all()


def test_a_line_for_each_attack(found: dict[str, Any]) -> None:
    title, header, lines = table(found)
    assert "12 clients, 2 of them attackers" in title
    assert header == ("accuracy", "mean", "multi-\nkrum")
    assert [line[0] for line in lines] == [
        "none\n  iid",
        "sign flip\n  iid",
        "model replacement\n  iid",
        "model replacement\n  iid, backdoor",
    ]
    assert all(len(line) == len(header) for line in lines)


def test_the_figure(found: dict[str, Any], tmp_path: Path) -> None:
    figure = plots.draw([found])
    plots.save(figure, tmp_path / "f.svg")
    upper, lower = figure.axes
    assert upper.get_yticklabels()[0].get_text() == "no attack"
    assert [label.get_text() for label in lower.get_yticklabels()] == [
        "no attack",
        "model replacement",
    ]
    shown = [text.get_text() for text in upper.texts]
    assert f"{value(found, 'sign-flip', 'mean'):.2f}" == shown[2]
    assert len(shown) == 6
    broken = json.loads(json.dumps(found))
    del broken["results"][0]["attack"]
    with pytest.raises(errors.InvalidData, match="threats must have"):
        plots.draw([broken])


def test_the_page(found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = importlib.import_module("tacit_papers.pages.site")
    record = json.loads(json.dumps(found))
    for one, mean in zip(record["results"], (0.9, 0.95, 0.2, 0.8, 0.85, 0.88), strict=True):
        one["accuracy"]["mean"] = mean
    (tmp_path / "threats-digits.json").write_text(json.dumps(record))
    page = results.pages(tmp_path)["threats.md"]
    assert "| sign-flip | 0.200 | 0.800 |" in page
    assert (
        "- sign-flip: −0.700 under the mean; the highest accuracy is 0.800, with multi-krum\n"
        in page
    )
    assert "- model-replacement: −0.050 under the mean\n" in page
    assert "against the plain mean: multi-krum +0.050." in page
    assert "- model-replacement: mean (" in page
    assert "Not measured yet: runs of clients that are split by dirichlet" in page
    assert "--attacks none,sign-flip,model-replacement" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--attacks", "magic"), "attacks must be one of"),
        (("--defences", "magic"), "defences must be one of"),
        (("--partitions", "magic"), "partitions must be one of"),
        (("--rounds", "0"), "rounds must be"),
        (("--bound", "0"), "bound must be above 0"),
        (("--trials", "0"), "trials must be"),
        (("--json", "no/folder.json"), "existing folder"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "threats", "--quick", *arguments)
