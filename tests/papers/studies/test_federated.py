"""The federated study: its clients, its numbers, its table, its figure, its page."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tacit.data import datasets
from tacit.federated.model import Data
from tacit.privacy import errors
from tacit_papers import figures as plots
from tacit_papers.engine.running import run as run_study
from tacit_papers.parts import federated_clients
from tacit_papers.studies.federated import (
    ALGORITHMS,
    PARTITIONS,
    Federated,
    FederatedParameters,
    table,
)

Run = Callable[..., Any]
FEW = FederatedParameters(
    algorithms=("fedsgd", "subfedavg"),
    partitions=("iid", "concept-shift"),
    rounds=4,
    trials=2,
    quick=True,
)


@pytest.fixture(scope="module", name="found")
def _found() -> dict[str, Any]:
    return run_study(Federated(datasets.load("digits"), FEW)).to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


def shared(kind: str) -> tuple[federated_clients.ClientSplit, Data, Data]:
    study = Federated(datasets.load("digits"), FederatedParameters())
    training, test = (Data(study._rows[i], study.dataset.labels[i]) for i in study._split(0))
    return federated_clients.federation(kind, training, test, 10, 0), training, test


def test_fedsgd_on_shards_is_what_the_page_on_federated_learning_says() -> None:
    asked = FederatedParameters(algorithms=("fedsgd",), partitions=("shards",), rounds=30)
    study = Federated(datasets.load("digits"), asked)
    (one,) = run_study(study).results()
    assert one["rounds_to"] == {"0.8": 7, "0.9": 15}
    both_ways = 2 * 10 * 2410 * 4
    assert one["bytes_to"] == {"0.8": 7 * both_ways, "0.9": 15 * both_ways}
    assert one["best_accuracy"] >= 0.9
    assert len(one["accuracy_by_round"]) == 30


def test_a_quick_study(run: Run, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    asked = ("study", "federated", "--quick", "--json", json_file)
    outcome = run(*asked, "--plot", plot)
    assert outcome.code == 0, outcome.err
    results = json.loads(json_file.read_text())["results"]
    assert [(r["partition"], r["algorithm"]) for r in results] == [
        (split, name)
        for split in FederatedParameters.quickly().partitions
        for name in FederatedParameters.quickly().algorithms
    ]
    for one in results:
        assert set(one["rounds_to"]) == set(one["bytes_to"]) == {"0.8", "0.9"}
        assert isinstance(one["best_accuracy"], float)
    assert "mean nothing" in outcome.out
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    assert run(*asked).err == ""  # all runs were there
    more = run(*asked, "--trials", 2)  # medians are over trials: they are not added one by one
    assert (more.code, "runs must be those of this study" in more.err) == (2, True)


def test_what_is_not_reached_is_null(found: dict[str, Any]) -> None:
    shifted = found["results"][2]
    assert (shifted["algorithm"], shifted["partition"]) == ("fedsgd", "concept-shift")
    assert shifted["rounds_to"] == shifted["bytes_to"] == {"0.8": None, "0.9": None}
    assert shifted["by_trial"]["rounds_to"]["0.9"] == [None, None]
    _, header, lines = table(found)
    assert header == ("", "iid", "concept\nshift")
    assert lines[0][2] == f"–\n\n{shifted['best_accuracy']:.3f}"


def test_the_same_seed_gives_the_same_numbers() -> None:
    study = Federated(datasets.load("digits"), replace(FEW, trials=1))
    cell = {"algorithm": "subfedavg", "partition": "dirichlet"}
    first = study.measure(cell)
    assert first == study.measure(cell)
    later = Federated(study.dataset, replace(study.parameters, seed=1))
    assert first != later.measure(cell)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_everybody_has_rows_and_the_kind_shows(kind: str) -> None:
    held, training, _ = shared(kind)
    assert sorted(np.concatenate(held.parts).tolist()) == list(range(len(training)))
    found = held.divergence(0)
    expected = {
        "iid": None,
        "unbalanced": "sizes",
        "covariate-shift": "rows",
        "dirichlet": "labels",
        "shards": "labels",
        "concept-drift": "rows_given_label",
        "concept-shift": "labels_given_row",
    }[kind]
    if expected is None:
        assert max(found.values()) < 0.03
    else:
        assert found[expected] > 0.08


def test_test_rows_stay_and_own_ones_change_as_the_client_does() -> None:
    held, training, test = shared("concept-shift")
    for part, own in zip(held.parts, held.own_tests, strict=True):
        names = dict(zip(training.labels[part], held.held.labels[part], strict=True))
        assert sum(old != new for old, new in names.items()) == 3
        matches = [np.flatnonzero((test.rows == row).all(axis=1)) for row in own.rows]
        assert all(
            any(names[test.labels[i]] == label for i in rows)
            for rows, label in zip(matches, own.labels, strict=True)
        )
    study = Federated(datasets.load("digits"), FederatedParameters())
    assert np.array_equal(study._federation("concept-shift", 0)[1].labels, test.labels)


def test_own_test_rows_move_where_the_clients_rows_move() -> None:
    held, training, test = shared("concept-drift")
    part = held.parts[3]

    def alike(own: Data, label: int) -> float:
        row = part[training.labels[part] == label][0]
        move = held.held.rows[row] - training.rows[row]
        centre = test.rows[test.labels == label].mean(axis=0)
        away = own.rows[own.labels == label].mean(axis=0) - centre
        return float(np.corrcoef(move, away)[0, 1])

    assert np.mean([alike(held.own_tests[3], label) for label in range(10)]) > 0.9
    assert np.mean([alike(held.own_tests[4], label) for label in range(10)]) < 0.3


def test_own_test_rows_of_shards_have_labels_that_the_client_holds() -> None:
    held, training, _ = shared("shards")
    for part, own in zip(held.parts, held.own_tests, strict=True):
        assert set(own.labels) == set(training.labels[part])


def test_only_images() -> None:
    digits = datasets.load("digits")
    plain = replace(digits, schema=replace(digits.schema, image=None))
    with pytest.raises(errors.InvalidParameter, match="data must be images"):
        Federated(plain, FEW)


def test_the_figure(found: dict[str, Any], tmp_path: Path) -> None:
    figure = plots.draw([found])
    plots.save(figure, tmp_path / "f.svg")
    rounds, sent, best, own = figure.axes
    assert rounds.get_title(loc="left") == "Rounds to 90 %"
    assert rounds.get_xticklabels()[-1].get_text() == "not\nreached"
    assert best.get_yticklabels()[0].get_text() == "clients are alike"
    points = [line for line in best.lines if len(line.get_xdata()) == 1]
    assert [line.get_xdata()[0] for line in points] == [
        one["best_accuracy"] for one in found["results"]
    ]
    hollow = [line.get_markerfacecolor() for line in rounds.lines if len(line.get_xdata()) == 1]
    assert hollow == ["white"] * 4
    assert len(sent.lines) == len(own.lines) + 1  # and the line before what was not reached
    broken = json.loads(json.dumps(found))
    del broken["results"][0]["by_trial"]
    with pytest.raises(errors.InvalidData, match="federated study must have"):
        plots.draw([broken])


def test_the_page(found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = importlib.import_module("tacit_papers.pages.site")
    record = json.loads(json.dumps(found))
    reached = ((6, 1e6), (4, 2e6), (18, 3e6), (None, None))
    for one, (at, size) in zip(record["results"], reached, strict=True):
        one["rounds_to"]["0.9"], one["bytes_to"]["0.9"] = at, size
        one["by_trial"]["rounds_to"]["0.9"] = [at, at]
        one["by_trial"]["bytes_to"]["0.9"] = [size, None]
        one["own_accuracy"] = 0.9 if one["algorithm"] == "subfedavg" else 0.6
    (tmp_path / "federated-digits.json").write_text(json.dumps(record))
    page = results.pages(tmp_path)["federated.md"].replace("\u00a0", " ")
    assert "| FedSGD | 6 | 18 |\n| Sub-FedAvg | 4 | – |" in page
    assert "| FedSGD | 1 (1 to …) | 3 (3 to …) |" in page
    assert "- iid: fewest rounds Sub-FedAvg (4); fewest bytes FedSGD (1 MB)\n" in page
    assert "- FedSGD, 6 rounds where clients are alike: concept-shift × 3.0\n" in page
    assert "- Sub-FedAvg, 4 rounds where clients are alike: concept-shift –\n" in page
    assert "ahead of every global model on iid (0.900, FedSGD 0.600) and concept-shift" in page
    assert "no record of this study on `mnist`" in page
    assert "--algorithms fedsgd,subfedavg --partitions" in page


def test_all_is_tried_in_turn() -> None:
    cells = Federated(datasets.load("digits"), FederatedParameters()).cells()
    assert len(cells) == len(ALGORITHMS) * len(PARTITIONS) == 42


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algorithms", "magic"), "algorithms must be one of"),
        (("--partitions", "magic"), "partitions must be one of"),
        (("--clients", "1"), "clients must be"),
        (("--participation", "0"), "participation must be in (0, 1]"),
        (("--rounds", "0"), "rounds must be"),
        (("--trials", "0"), "trials must be"),
        (("--json", "no/folder.json"), "existing folder"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "federated", "--quick", *arguments)
