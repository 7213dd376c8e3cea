"""Collections on tables: the study runs on tables by name and on a user's, in parts and at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from tacit.privacy import errors
from tacit_papers import figures
from tacit_papers.data import labelled, tables
from tacit_papers.engine import registry
from tacit_papers.engine.merging import merged
from tacit_papers.engine.record import Record
from tacit_papers.engine.running import run as run_study
from tacit_papers.figures.apart import apart
from tacit_papers.pages import tables as page
from tacit_papers.pages.evidence import Missing, StudyEvidence
from tacit_papers.parts import column_reports, privunit, table_methods
from tacit_papers.parts.table_case import Case, split
from tacit_papers.parts.table_gains import differences
from tacit_papers.studies.tables import STUDY, TablesParameters

Run = Callable[..., Any]
QUICK = ("column", "privunit", "none")


def measured(*names: str, methods: tuple[str, ...] = QUICK, **more: Any) -> Record:
    settings = {"epsilons": (8.0,), "trials": 1, **more}
    parameters = TablesParameters(data=names, methods=methods, **settings)
    return run_study(STUDY.prepare(parameters, None))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return measured("wine", methods=table_methods.METHODS).to_plain()


def timeless(record: Record) -> list[dict[str, Any]]:
    return [{k: v for k, v in one.items() if k != "seconds"} for one in record.runs]


# --- the study -----------------------------------------------------------------------------------


def test_every_method_learns(record: dict[str, Any]) -> None:
    reached = {one["mechanism"]: one["accuracy"]["mean"] for one in record["results"]}
    assert set(reached) == set(table_methods.METHODS)
    assert reached.pop("direct") > 0.2  # 13 columns share ε
    assert min(reached.values()) > 0.6
    assert reached["none"] > 0.9
    assert record["parameters"]["data"] == "tables"
    assert record["data"]["tables"]["wine"]["people"] == 89
    assert all(not one["tuned"] and one["measure"] == "accuracy" for one in record["results"])


def test_the_command_on_a_table_of_a_user(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    loyal = rng.choice(["no", "yes"], 400)
    age = rng.normal(np.where(loyal == "yes", 50.0, 30.0), 5.0)
    town = rng.choice(["north", "south"], 400)
    file = tmp_path / "people.csv"
    pa.csv.write_csv(pa.table({"age": age, "town": town, "loyal": loyal}), file)
    options = ("--data", file, "--epsilons", 4, "--trials", 1, "--methods", "codebook,column,none")
    out, plot = tmp_path / "people.json", tmp_path / "people.svg"
    found = run("study", "tables", *options, "--label", "loyal", "--json", out, "--plot", plot)
    assert found.code == 0, found.err
    record = json.loads(out.read_text())
    assert record["parameters"]["data"] == "people"
    assert {one["auc"]["mean"] > 0.9 for one in record["results"]} == {True}
    assert plot.exists()
    refused = run("study", "tables", *options, "--label", "gone")
    assert "label must be a column of people.csv, got 'gone'" in refused.err
    assert "--label" in run("study", "tables", *options).err


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"data": ("nothing",)}, "data must be names of tables"),
        ({"data": ("gone.csv",)}, "data must be existing files"),
        ({"data": ("wine",), "label": "x"}, "label must be left out"),
        ({"methods": ("magic",)}, "methods must be one of"),
    ],
)
def test_what_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=line):
        TablesParameters(**given)


def test_parts_merge_to_what_one_run_gives() -> None:
    whole = measured("wine", "breast_cancer", epsilons=(2.0, 8.0))
    first = measured("wine", epsilons=(2.0, 8.0))
    second = measured("breast_cancer", epsilons=(2.0,))
    third = measured("breast_cancer", epsilons=(8.0,))
    joined = merged([first, second, third])
    by_cell = {json.dumps(one, sort_keys=True) for one in timeless(joined)}
    assert by_cell == {json.dumps(one, sort_keys=True) for one in timeless(whole)}
    assert len(joined.runs) == len(whole.runs)  # `none`, which two parts measured, is there once
    assert (joined.parameters, joined.data) == (whole.parameters, whole.data)
    with pytest.raises(errors.InvalidParameter, match="seed must be 0 in every record, got 5"):
        merged([first, measured("wine", seed=5)])


def test_the_merge_command(run: Run, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, name in zip(files, ("wine", "breast_cancer"), strict=True):
        measured(name, methods=("privunit",)).save(file)
    out = tmp_path / "c.json"
    assert run("study", "merge", *files, "--json", out).code == 0
    assert json.loads(out.read_text())["parameters"]["tables"] == ["wine", "breast_cancer"]


# --- figure and page -----------------------------------------------------------------------------


def test_the_figure_says_what_it_shows(record: dict[str, Any]) -> None:
    pieces = apart(figures.draw([record]))
    assert len(pieces.panels) == 5
    gain = differences(record["results"], "rounds")["wine", 8.0].mean
    assert "Partitions, two rounds: gain over one codebook" in pieces.panels[1].alt
    assert "mean of reported tables" in pieces.panels[1].alt
    assert f"{gain:.3g}".replace("-", "−") in pieces.panels[1].alt
    assert "Line “codebook” at 0." in pieces.panels[1].alt


def evidence(*scores: tuple[str, str, list[float]]) -> StudyEvidence:
    results = [
        {
            "mechanism": method,
            "task": task,
            "epsilon": None if method == "none" else 2.0,
            "measure": "accuracy",
            "accuracy": {"trials": trials},
            "tuned": task == "pens",
            "pictures": False,
            "columns": 64,
        }
        for method, task, trials in scores
    ]
    return StudyEvidence([{"file": "a.json", "results": results, "data": {}}])


def test_the_sentences_of_the_page() -> None:
    found = evidence(
        ("codebook", "wine", [0.6, 0.7]),
        ("partitions", "wine", [0.5, 0.61]),
        ("rounds", "wine", [0.7, 0.79]),
        ("codebook", "pens", [0.5, 0.6]),
        ("partitions", "pens", [0.6, 0.7]),
        ("none", "pens", [0.7, 0.8]),
    )
    assert "- one round: worse than the codebook by more than one" in page.worse(found)
    assert "in 1 of 2 cases" in page.worse(found)
    assert "`wine` at ε = 2 (−0.095\u00a0±\u00a00.005)" in page.worse(found)
    assert "two rounds are better than one by more than one" in page.rounds_pay(found)
    assert "in 1, and worse in 0" in page.rounds_pay(found)
    assert "| `pens` | 2 | 0.550 | 0.750 | 0.650 (50%) |" in page.closed(found)
    assert "| reported | one round | 2 | 1 | −0.095 | 0 | 1 |" in page.gained(found)
    assert "| `pens` † | 0.550\u00a0±\u00a00.050 |" in page.scored(found)
    assert page.tuned(found) == "`pens`"


def test_one_trial_says_nothing_about_differences() -> None:
    found = evidence(("codebook", "wine", [0.6]), ("partitions", "wine", [0.5]))
    with pytest.raises(Missing, match="two trials"):
        page.worse(found)
    assert "| reported | one round | 2 | 1 | −0.100 | 0 | 0 |" in page.gained(found)


# --- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pictures", [False, True])
def test_packed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: bool) -> None:
    made = tables.load("wine")
    if pictures:
        images = np.arange(178 * 4, dtype=np.uint8).reshape(178, 2, 2)
        made = labelled.LabelledTable("wine", images, made.labels, made.classes, 44, 89)
    (tmp_path / "tables").mkdir()
    path = labelled.pack(made, tmp_path / "tables")
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    read = tables.load("wine")
    assert set(read.sha256) == {path.name}
    for name in ("name", "classes", "inhouse", "people", "columns", "is_picture"):
        assert getattr(read, name) == getattr(made, name)
    assert np.array_equal(read.labels, made.labels)
    same = np.array_equal(read.rows, made.rows) if pictures else read.rows.equals(made.rows)
    assert same


def test_a_split_is_disjoint_and_limited() -> None:
    count = 20_000
    rows = pa.table({"x": np.arange(count)})
    made = labelled.LabelledTable("x", rows, np.zeros(count, np.int64), ("a", "b"), 500, 1000)
    case = split(made, 3)
    parts = [set(part["x"].to_pylist()) for part in (case.inhouse, case.people, case.test)]
    assert [len(part) for part in parts] == [500, 1000, 8000]
    assert len(set.union(*parts)) == 9500


def test_tuned_tables_are_frozen() -> None:
    """Whoever adds one chose settings on it: say so on the page, and report it no more."""
    assert set(tables.TUNED) <= set(tables.NAMES)
    assert len(tables.TUNED) == 8


# --- baselines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("dimension", "epsilon"), [(3, 1.0), (40, 4.0), (330, 8.0)])
def test_privunit_is_unbiased_and_has_the_stated_law(dimension: int, epsilon: float) -> None:
    mechanism = privunit.PrivUnit.best(dimension, epsilon)
    assert mechanism.epsilon == pytest.approx(epsilon)
    rng = np.random.default_rng(0)
    unit = np.eye(dimension)[0]
    reports = mechanism.release(np.tile(unit, (20_000, 1)), rng)
    norm = 1 / mechanism.scale
    assert np.allclose(np.linalg.norm(reports, axis=1), norm)
    assert np.abs(reports.mean(axis=0) - unit).max() < 5 * norm / np.sqrt(20_000)
    # The share of reports in the cap is p; of uniform directions it would be q.
    cap = 2 * float(mechanism._height.isf(mechanism.cap)) - 1
    inside = (reports[:, 0] / norm >= cap).mean()
    assert inside == pytest.approx(mechanism.inside, abs=0.02)


def test_ridge_ignores_what_is_noise() -> None:
    rng = np.random.default_rng(0)
    moments = np.eye(5)
    noise = rng.normal(scale=0.1, size=(5, 2))
    assert np.abs(privunit.ridge(moments, noise, 0.01)).max() < 0.1
    signal = rng.normal(size=(5, 2))
    assert np.allclose(privunit.ridge(moments, signal, 1e-8), signal, atol=1e-3)


def test_counts_of_columns_are_debiased() -> None:
    truth = np.array([[700.0, 200.0, 100.0]])
    other = 1 / (np.e + 2)
    expected = truth * (np.e - 1) * other + 1000 * other
    counts, deviation = column_reports.debiased(expected, 1.0)
    assert np.allclose(counts, truth)
    assert deviation[0, 0] == pytest.approx(
        np.sqrt(1000 * other * (1 - other)) / ((np.e - 1) * other)
    )


def test_without_privacy_no_inhouse_row_is_read() -> None:
    case = split(tables.load("wine"), 0)
    other = Case(None, case.people, case.test, case.labels, case.truth, case.classes)
    assert np.array_equal(table_methods.none(case, 0), table_methods.none(other, 0))


def test_the_study_is_registered() -> None:
    assert registry.study("tables") is STUDY
