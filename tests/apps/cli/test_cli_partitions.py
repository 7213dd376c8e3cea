"""A collection with partitions and rounds on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.apps.cli import main

FIT = ("--epsilon", 4, "--people", 600, "--classes", "no,yes", "--label", "late")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partitions")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(1500, 6)).round(3), columns=list("abcdef"))
    rows["mode"] = rng.choice(["bus", "bike"], 1500)
    rows["late"] = np.where(rows.a + rows.b + (rows["mode"] == "bus") > 0.5, "yes", "no")
    for name, part in (("inhouse", slice(0, 300)), ("first", slice(300, 600)),
                       ("second", slice(600, 900)), ("test", slice(900, None))):  # fmt: skip
        rows[part].to_csv(folder / f"{name}.csv", index=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_two_rounds_from_files(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def done(*arguments: Any) -> dict[str, Any]:
        code, out, err = run(capsys, "collect", *arguments, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    inhouse = ("--inhouse", work / "inhouse.csv", "--label", "late")
    fitted = done(
        "fit", work / "inhouse.csv", "--kind", "partitions", *FIT, "--out", tmp_path / "one"
    )
    assert fitted["guarantee"] == "4-DP (local, any-two-inputs, unit: record)"
    assert fitted["in_house_rows"] == "not protected: keep it inside"
    label = ("--label", "late")
    done(
        "privatize", tmp_path / "one", work / "first.csv", *label, "--out", tmp_path / "r1.parquet"
    )
    done("learn", tmp_path / "r1.parquet", *inhouse, "--out", tmp_path / "m1")
    adapted = done("adapt", tmp_path / "m1", *inhouse, "--out", tmp_path / "two")
    assert adapted["guarantee"] == fitted["guarantee"]
    assert fitted["bytes_per_report"] == 3
    done(
        "privatize", tmp_path / "two", work / "second.csv", *label, "--out", tmp_path / "r2.parquet"
    )
    both = (tmp_path / "r1.parquet", tmp_path / "r2.parquet")
    learned = done("learn", *both, *inhouse, "--out", tmp_path / "m2")
    assert learned["reports"] == 600
    scored = done("evaluate", tmp_path / "m2", work / "test.csv", *label)
    assert scored["accuracy"] > 0.6
    code, _, err = run(
        capsys, "collect", "learn", both[0], both[0], *inhouse, "--out", tmp_path / "m3"
    )
    assert code == 2
    assert "count twice" in err


@pytest.mark.parametrize("option", [("--features", "raw")])
def test_options_of_codebooks_are_refused(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[Any, ...]
) -> None:
    arguments = ("fit", work / "inhouse.csv", "--kind", "partitions", *FIT, *option)
    code, _, err = run(capsys, "collect", *arguments, "--out", tmp_path / "one")
    assert code == 2
    assert f"{option[0]} must be absent with --kind partitions" in err


def test_models_of_partitions_need_inhouse_rows(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("fit", work / "inhouse.csv", "--kind", "partitions", *FIT, "--out", tmp_path / "one")
    assert run(capsys, "collect", *fit)[0] == 0
    reports = tmp_path / "r.parquet"
    released = ("privatize", tmp_path / "one", work / "first.csv", "--label", "late")
    assert run(capsys, "collect", *released, "--out", reports)[0] == 0
    code, _, err = run(capsys, "collect", "learn", reports, "--out", tmp_path / "m")
    assert code == 2
    assert "learn: --inhouse must be given: reports of partitions" in err
    central = ("--inhouse", work / "inhouse.csv", "--central-epsilon", 1, "--central-delta", 1e-5)
    code, _, err = run(capsys, "collect", "learn", reports, *central, "--out", tmp_path / "m")
    assert code == 2
    assert "learn: --central-epsilon must be absent for reports of partitions, got 1" in err
    code, _, err = run(capsys, "collect", "export", tmp_path / "one", "--out", tmp_path / "m")
    assert code == 2
    assert "export: this would reveal the in-house rows to everyone who gets it; encoder" in err
    code, _, err = run(
        capsys, "collect", "adapt", tmp_path / "one", "--inhouse", work / "inhouse.csv",
        "--out", tmp_path / "two",
    )  # fmt: skip
    assert code == 2
    assert "MODEL must be learned from partitions" in err


def test_signals_are_for_partitions(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = np.random.default_rng(0).normal(size=(200, 12))
    table = pd.DataFrame(numbers, columns=[f"x{index}" for index in range(12)])
    table.to_csv(tmp_path / "windows.csv", index=False)
    shared = (*FIT[:-2], "--signal", "6x2", "--out", tmp_path / "made")
    arguments = ("fit", tmp_path / "windows.csv", "--kind", "codebook", *shared)
    code, _, err = run(capsys, "collect", *arguments)
    assert code == 2
    assert "--signal must be absent with --kind codebook" in err
    arguments = ("fit", tmp_path / "windows.csv", "--kind", "partitions", *shared)
    code, _, err = run(capsys, "collect", *arguments)
    assert code == 0, err
    assert tacit.load(tmp_path / "made").features_.kind == "signals"


def test_costs_count_for_protected_partitions_too(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = (tacit.Continuous(name, -5, 5, outside="clip") for name in "abcdef")
    schema = tacit.TableSchema((*numbers, tacit.Categorical("mode", ("bus", "bike"))))
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_plain()))
    central = ("--central-epsilon", 5, "--central-delta", 1e-5)
    fit = ("fit", work / "inhouse.csv", "--kind", "partitions", *FIT, *central)
    fit = (*fit, "--schema", tmp_path / "schema.json", "--out", tmp_path / "one")
    released = ("privatize", tmp_path / "one", work / "first.csv", "--label", "late")
    costs = ("--costs", "yes:no=1000000", "--out", tmp_path / "m")
    for command in (
        fit,
        (*released, "--out", tmp_path / "r.parquet"),
        ("learn", tmp_path / "r.parquet", *costs),
    ):
        code, _, err = run(capsys, "collect", *command)
        assert code == 0, err
    measured = ("evaluate", tmp_path / "m", work / "test.csv", "--label", "late", "--json")
    found = json.loads(run(capsys, "collect", *measured)[1])
    assert found["by_class"][1]["recall"] > 0.95


def test_a_label_that_inhouse_rows_lack_is_left_out(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.read_csv(work / "inhouse.csv").drop(columns="late").to_csv(tmp_path / "own.csv", index=False)
    fit = ("fit", tmp_path / "own.csv", "--kind", "partitions", *FIT, "--out", tmp_path / "one")
    code, _, err = run(capsys, "collect", *fit)
    assert code == 2
    assert "If these rows have no label, leave it out" in err


def test_a_plan_says_in_a_line_which_columns_it_ignores(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.local.plan.worlds.WARM_UP", 50)
    monkeypatch.setattr("tacit.local.plan.planning.TRIALS", 2)
    pilot = pd.read_csv(work / "first.csv")[:60].assign(more=1)
    pilot.to_csv(tmp_path / "pilot.csv", index=False)
    given = ("--inhouse", work / "inhouse.csv", "--pilot", tmp_path / "pilot.csv")
    plan = ("collect", "plan", "--epsilon", 4, "--people", 300, "--label", "late", *given)
    code, told, warned = run(capsys, *plan, "--json")
    assert code == 0
    assert set(json.loads(told)["accuracy"]) == {"low", "high"}
    assert warned.splitlines() == [
        "tacit: Partitions: columns that are not in the schema are ignored: more."
    ]


# --- drafts of schemas ---------------------------------------------------------------------------


def test_a_draft_holds_what_is_declared_and_nothing_of_the_rows(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "schema.json"
    declared = ("a=-3:3", "b=0,1", "mode=bus, bike,foot")
    given = ("--label", "late", *(word for one in declared for word in ("--declare", one)))
    code, told, _ = run(capsys, "collect", "draft", work / "inhouse.csv", *given, "--out", out)
    assert code == 0
    assert "Fill in what is null for: c, d, e, f" in told
    columns = {one["name"]: one for one in json.loads(out.read_text())["columns"]}
    assert (columns["a"]["lower"], columns["a"]["upper"]) == (-3, 3)
    assert columns["mode"]["categories"] == ["bus", "bike", "foot"]
    assert columns["b"]["categories"] == ["0", "1"]
    assert columns["c"]["lower"] is columns["c"]["upper"] is None
    fit = ("collect", "fit", work / "inhouse.csv", *FIT, "--out", tmp_path / "made", "--schema")
    code, _, refusal = run(capsys, *fit, out)
    assert code != 0
    assert "bounds and categories must not be null, got 'c, d, e, f'" in refusal
    assert not (tmp_path / "made").exists()


def test_a_draft_of_public_rows_fits_a_protected_mechanism(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, made = tmp_path / "schema.json", tmp_path / "made"
    draft = ("collect", "draft", work / "inhouse.csv", "--label", "late", "--public", "--json")
    code, told, _ = run(capsys, *draft, "--declare", "a=-3:3", "--out", out)
    assert code == 0
    assert json.loads(told)["read_off_rows"] == [*"bcdef", "mode"]
    central = ("--central-epsilon", 5, "--central-delta", 1e-5)
    fit = ("collect", "fit", work / "inhouse.csv", *FIT, *central, "--out", made)
    assert "a file that tacit collect draft begins" in run(capsys, *fit)[2]
    assert run(capsys, *fit, "--schema", out)[0] == 0
    (first, *_) = tacit.load(made).schema.columns
    assert first == tacit.Continuous("a", -3, 3, "indicate", "clip")


@pytest.mark.parametrize("wrong", ["a=3", "a=low:high", "a=", "z=0:1"])
def test_declarations_that_do_not_fit(
    wrong: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--declare", wrong, "--out", tmp_path / "schema.json")
    code, _, refusal = run(capsys, "collect", "draft", work / "inhouse.csv", *given)
    assert code != 0
    assert "--declare must be" in refusal
    assert not (tmp_path / "schema.json").exists()
