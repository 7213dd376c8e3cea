"""The study of anonymized representations: its numbers, its record, its table and its figure."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import beta

from tacit.data.datasets.twice import TwiceLabelled
from tacit.data.schema import ArraySchema
from tacit.privacy import errors
from tacit_papers import figures as plots
from tacit_papers.engine.record import Record
from tacit_papers.engine.running import run as run_study
from tacit_papers.engine.running import words
from tacit_papers.parts.anonymize_judging import Judge, Representations
from tacit_papers.parts.anonymize_summary import measured, table
from tacit_papers.studies.anonymize import REFERENCES, Anonymize, AnonymizeParameters

pytest.importorskip("torch")

Run = Callable[..., Any]
ROOT = Path(__file__).parents[3]
FEW = AnonymizeParameters.quickly(trainings=("toggled", "robust"), device="cpu")


def people(rows: int = 600, count: int = 5) -> TwiceLabelled:
    """Images whose left half says the class, whose right half says the person."""
    rng = np.random.default_rng(0)
    task, person = rng.integers(3, size=rows), rng.integers(count, size=rows)
    images = rng.integers(0, 60, size=(rows, 6, 6))
    images[np.arange(rows), task, :3] += 150
    images[np.arange(rows), person, 3:] += 150
    height = rng.normal(size=(rows, 1))
    return TwiceLabelled(
        "people", images.astype(np.uint8), task, person, "shape", "person", (0, 1, 2),
        tuple(range(count)), ArraySchema(36, 0, 255, image=(6, 6)),
        others={"pen": (task[:, None] + 0.1 * height).astype(np.float32), "parts": task % 2},
    )  # fmt: skip


@pytest.fixture(scope="module", name="record")
def _record() -> Record:
    return run_study(Anonymize(people(), FEW))


@pytest.fixture(scope="module", name="found")
def _found(record: Record) -> dict[str, Any]:
    return record.to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


@pytest.fixture(scope="module", name="table_file")
def _table_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    lines = ["speed,turn,activity,subject"]
    for _ in range(400):
        what, who = rng.integers(2), rng.integers(4)
        lines.append(
            f"{what + rng.normal(0, 0.2):.3f},{who + rng.normal(0, 0.2):.3f},a{what},s{who}"
        )
    path = tmp_path_factory.mktemp("data") / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


# --- the record ----------------------------------------------------------------------------------


def test_what_others_rely_on(found: dict[str, Any]) -> None:
    assert set(found["references"]) == set(REFERENCES)
    assert isinstance(found["references"]["chance"], float)
    assert [(r["training"], r["strength"], r["epsilon"]) for r in found["results"]] == [
        ("toggled", 0.0, None), ("toggled", 1.0, None), ("robust", 0.0, None),
        ("robust", 1.0, None), ("toggled", 0.5, 4.0), ("robust", 0.5, 4.0),
    ]  # fmt: skip
    for one in found["results"]:
        for name in ("regular_accuracy", "adversary_accuracy"):
            assert 0 <= one[name]["mean"] <= 1
        best = one["strongest_probe"]
        most = max(share["mean"] for share in one["probes"].values())
        assert best["accuracy"] == pytest.approx(most, abs=1e-6)
        assert best["interval"][0] <= best["accuracy"] <= best["interval"][1]
        assert best["name"] in one["probes"]
        assert 0 <= one["bound_accuracy"] <= 1
        assert isinstance(one["bound_violated"], bool)
        assert one["second_task"]["pen_rmse"]["mean"] > 0
        assert 0 <= one["second_task"]["parts_accuracy"]["mean"] <= 1
        assert one["information"]["low"]["mean"] <= max(one["information"]["nats"]["mean"], 0)


def test_codes_have_a_ceiling_and_epsilon_has_one(found: dict[str, Any]) -> None:
    for one in found["results"]:
        assert ("code_ceiling" in one) == (one["training"] == "robust")
        assert ("ceiling" in one) == (one["epsilon"] is not None)
        if "code_ceiling" in one:
            assert one["code_ceiling"] >= one["strongest_probe"]["interval"][0]
        if "ceiling" in one:
            assert np.e**4 / (np.e**4 + 4) <= one["ceiling"] + 1e-5 < 1
            assert one["strongest_probe"]["interval"][0] < one["ceiling"]


def test_a_person_who_is_there_is_found(found: dict[str, Any]) -> None:
    """The right half of an image says who it is; of the class alone nobody can."""
    raw, trivial = found["references"]["raw"], found["references"]["trivial"]
    assert raw["strongest_probe"]["interval"][0] > 0.9
    assert trivial["strongest_probe"]["interval"][0] < found["references"]["chance"] + 0.02
    assert trivial["representation"] == 3


def test_a_run_depends_on_its_cell_alone(record: Record) -> None:
    """The last frontier first, in a study that measured nothing else."""
    study = Anonymize(people(), FEW)
    for cell in (study.cells()[7], study.cells()[-1]):
        known = record.find(cell)
        assert known is not None
        assert study.measure(cell).values == known["values"]


def test_trials_differ_and_records_load(record: Record, tmp_path: Path) -> None:
    record.save(tmp_path / "r.json")
    assert Record.load(tmp_path / "r.json").to_plain() == record.to_plain()
    study = Anonymize(people(), FEW)
    assert not np.array_equal(study._split(0).test, study._split(1).test)


def test_few_rows_are_of_known_labels() -> None:
    dataset = people(2000, count=6)
    split = Anonymize(dataset, FEW)._split(0)
    assert [len(part) for part in (split.training, split.validation, split.test)] == [300, 120, 120]
    known = np.unique(dataset.private[split.training])
    assert np.isin(dataset.private[split.test], known).all()


def test_cells_in_words() -> None:
    cells = Anonymize(people(), FEW).cells()
    assert words(cells[0]) == "dedicated, trial 1"
    assert words(cells[4]) == "toggled, λ = 0, trial 1"
    assert words(cells[-1]) == "robust, λ = 0.5, ε = 4, trial 1"


# --- judging -------------------------------------------------------------------------------------


def test_the_second_task_and_its_gain() -> None:
    dataset = people()
    judge = Judge(dataset, dataset.split(0), 0, ("neighbours",))
    telling = np.eye(3, dtype=np.float32)[dataset.regular]
    silent = np.ones((len(dataset), 2), np.float32)

    def shown(rows: Any) -> Representations:
        return Representations(rows[judge.known], rows[judge.split.test])

    _, nothing = judge.second_task(shown(silent))
    better, _ = judge.second_task(shown(telling), nothing)
    assert better["pen_gain_low"] > 0.5
    assert better["pen_rmse"] == pytest.approx(0.1, abs=0.03)
    assert better["parts_accuracy"] == 1.0
    same, _ = judge.second_task(shown(silent), nothing)
    assert same["pen_gain"] == same["pen_gain_low"] == same["pen_gain_high"] == 0.0


def test_linkage_of_several_rows() -> None:
    dataset = people()
    judge = Judge(dataset, dataset.split(0), 0)
    rng = np.random.default_rng(0)
    hint = 0.6 * np.eye(5)[dataset.private] + rng.normal(0, 0.5, (len(dataset), 5))
    person = dataset.private
    mine = (hint[judge.known], person[judge.known], hint[judge.split.test])
    found = judge._linked((*mine, person[judge.split.test]))
    assert 0.2 < found["top1"] < found["together_top1"]
    assert found["top5"] == 1.0  # of five people


# --- several trials ------------------------------------------------------------------------------


def trial(bound: float = 0.5, **right: int) -> dict[str, Any]:
    probes = {"rows": 100, "right": right}
    return {"values": {"bound_accuracy": bound, "probes": probes, "linkage": {"top1": 0.5}}}


def test_the_strongest_is_strongest_over_all_trials() -> None:
    """It was strongest in no trial, and its interval counts all rows and all attackers."""
    found = measured([trial(a=50, b=49, c=10), trial(a=10, b=49, c=50)])
    best = found["strongest_probe"]
    assert (best["name"], best["accuracy"], best["rows"]) == ("b", 0.49, 200)
    tail = 0.05 / 3 / 2
    wanted = [beta.ppf(tail, 98, 103), beta.ppf(1 - tail, 99, 102)]
    assert best["interval"] == pytest.approx(wanted)
    assert found["probes"]["a"]["trials"] == [0.5, 0.1]
    assert found["linkage"]["top1"]["mean"] == 0.5


def test_a_bound_is_violated_beyond_doubt_only() -> None:
    assert measured([trial(bound=0.2, a=40)])["bound_violated"]
    assert not measured([trial(bound=0.38, a=40)])["bound_violated"]
    assert measured([trial(bound=0.2, a=40), trial(bound=0.4, a=40)])["bound_accuracy"] == 0.3


# --- table, figure, page -------------------------------------------------------------------------


def test_a_line_for_each_result(found: dict[str, Any]) -> None:
    title, header, lines = table(found)
    assert "of 5 (person)" in title
    assert len(lines) == len(found["results"]) + 3
    assert all(len(line) == len(header) for line in lines)
    assert [line[0] for line in lines[-3:]] == ["shape\nalone", "raw rows", "dedicated\nnetwork"]


def test_the_figure(found: dict[str, Any], tmp_path: Path) -> None:
    figure = plots.draw([found])
    plots.save(figure, tmp_path / "f.svg")
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    upper = ["The trade-off", "A second task: pen", "With a local ε, λ = 0.5"]
    assert shown == [*upper, "Toggled", "Robust"]
    toggled = next(axes for axes in figure.axes if axes.get_title(loc="left") == "Toggled")
    heights = {round(float(y), 6) for line in toggled.lines for y in line.get_ydata()}
    for one in found["results"][:2]:
        for value in (one["strongest_probe"]["accuracy"], one["bound_accuracy"]):
            assert round(value, 6) in heights


def test_the_figure_without_second_task_or_epsilon(found: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(found))
    plain["results"] = [r for r in plain["results"] if r["epsilon"] is None]
    for one in (*plain["results"], plain["references"]["trivial"]):
        del one["second_task"]
    figure = plots.draw([plain])
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert shown == ["The trade-off", "Toggled", "Robust"]
    del plain["results"][0]["strongest_probe"]
    with pytest.raises(errors.InvalidData, match="study of anonymization must have"):
        plots.draw([plain])


@pytest.fixture(name="site")
def _site(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return importlib.import_module("tacit_papers.pages.site")


def test_the_page(site: ModuleType, found: dict[str, Any], tmp_path: Path) -> None:
    given = json.loads(json.dumps(found))
    given["parameters"]["data"] = "pendigits"
    for one in given["results"]:
        one["linkage"] = {"top1": one["regular_accuracy"], "top5": one["regular_accuracy"]}
        one["bound_violated"] = False

    def page() -> str:
        (tmp_path / "anonymize.json").write_text(json.dumps(given))
        return str(site.pages(tmp_path)["anonymize.md"])

    good = given["results"][3]
    good["regular_accuracy"]["mean"], good["adversary_accuracy"]["mean"] = 0.98, 0.05
    good["strongest_probe"]["accuracy"] = 0.1
    good["second_task"]["pen_gain_low"]["mean"] = 0.01
    text = page()
    assert "**Reached by robust at λ = 1.**" in text
    assert "toggled at none of 2 values of λ" in text
    assert "Not measured yet: toggled and simultaneous training" in text
    assert "No attacker is above the proved ceiling." in text
    assert "{" not in text.partition("## Pen digits")[2]
    good["second_task"]["pen_gain_low"]["mean"] = -0.01
    first = given["results"][1]
    first |= {"bound_violated": True, "bound_accuracy": 0.01}
    text = page()
    assert "No representation reaches all of them." in text
    assert "toggled at λ = 1 (most at λ = 1: " in text
    given["results"][-1]["ceiling"] = 0.0
    assert "Above the proved ceiling: robust at ε = 4." in page()


# --- the command ---------------------------------------------------------------------------------


def test_a_quick_study_of_a_table(run: Run, table_file: Path, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    asked = ("--data", table_file, "--regular", "activity", "--private", "subject", "--quick")
    asked += ("--trainings", "simultaneous,robust", "--strengths", "1", "--device", "cpu")
    outcome = run("study", "anonymize", *asked, "--json", json_file, "--plot", plot)
    assert outcome.code == 0, outcome.err
    assert "mean nothing" in outcome.out
    record = json.loads(json_file.read_text())
    assert record["study"] == "anonymize"
    assert record["parameters"]["regular"] == "activity"
    assert len(record["runs"]) == 4 + 2 + 1 == len(outcome.err.splitlines())
    assert all("second_task" not in one for one in record["results"])
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    again = run("study", "anonymize", *asked, "--json", json_file)
    assert again.code == 0
    assert again.err == ""  # all runs were there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strengths", "-1"), "strengths must be finite numbers, 0 or more, got -1"),
        (("--strengths", "inf"), "strengths must be finite numbers"),
        (("--strengths", "x"), "strengths must be numbers"),
        (("--trainings", "magic"), "trainings must be one of"),
        (("--epsilons", "0"), "epsilon must be above 0"),
        (("--trials", "0"), "trials must be an integer from 1"),
        (("--json", "no/folder.json"), "existing folder"),
        (("--data", "nothing.csv"), "data must be pendigits, a CSV"),
        (("--device", "tpu"), "device must be auto"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "anonymize", "--quick", *arguments)
