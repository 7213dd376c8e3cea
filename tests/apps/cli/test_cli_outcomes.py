"""Numeric outcomes on the command line: fit, privatize, learn, adapt, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.apps.cli import main
from tacit.apps.service.campaign import Campaign
from tacit.local.evaluation import NumericTally
from tacit.privacy.errors import InvalidParameter

FIT = ("--people", 2400, "--outcome", "0:100", "--label", "hours")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outcomes")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(20, 70, 4000), "other": rng.normal(size=4000)})
    rows["hours"] = rows.age + rng.normal(0, 5, 4000)
    for name, part in (("inhouse", slice(0, 800)), ("first", slice(800, 2000)),
                       ("second", slice(2000, 3200)), ("test", slice(3200, None))):  # fmt: skip
        rows[part].to_csv(folder / f"{name}.csv", index=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("kind", ["partitions", "codebook"])
def test_a_regression_from_files(
    kind: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def done(*arguments: Any) -> dict[str, Any]:
        code, out, err = run(capsys, "collect", *arguments, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    label, inhouse = ("--label", "hours"), work / "inhouse.csv"
    one = tmp_path / "one"
    fitted = done("fit", inhouse, "--kind", kind, "--epsilon", 4, *FIT, "--out", one)
    assert fitted["outcome"] == [0.0, 100.0]
    first = tmp_path / "r1.parquet"
    done("privatize", one, work / "first.csv", *label, "--out", first)
    taught = ("--inhouse", inhouse, *label)
    learned = done("learn", first, *taught, "--out", tmp_path / "m1")
    assert learned["model"] == "moments"
    scored = done("evaluate", tmp_path / "m1", work / "test.csv", *label)
    low, high = scored["r2"]["interval"]
    assert 0.4 < low < scored["r2"]["value"] < high < 1
    assert scored["mean_absolute_error"]["value"] < scored["mean_absolute_error_of_mean"]
    if kind == "codebook":
        alone = done("learn", first, "--out", tmp_path / "m2")
        assert alone["model"] == "noise-aware-regressor"
        assert "R²" in run(capsys, "collect", "evaluate", tmp_path / "m2", work / "test.csv")[1]
        return
    done("adapt", tmp_path / "m1", *taught, "--out", tmp_path / "two")
    second = tmp_path / "r2.parquet"
    done("privatize", tmp_path / "two", work / "second.csv", *label, "--out", second)
    assert done("learn", first, second, *taught, "--out", tmp_path / "m2")["reports"] == 2400


def test_private_votes_on_a_regressor(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def done(*arguments: Any) -> dict[str, Any]:
        code, out, err = run(capsys, "collect", *arguments, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    label, model = ("--label", "hours"), tmp_path / "model"
    inhouse = work / "inhouse.csv"
    done("fit", inhouse, "--kind", "partitions", "--epsilon", 4, *FIT, "--out", tmp_path / "one")
    done("privatize", tmp_path / "one", work / "first.csv", *label, "--out", tmp_path / "r.parquet")
    done("learn", tmp_path / "r.parquet", "--inhouse", inhouse, *label, "--out", model)
    voters = pd.read_csv(work / "second.csv").astype({"hours": object})
    voters.loc[3, "hours"] = None  # counts as the limit, and is not refused
    voters.to_csv(tmp_path / "voters.csv", index=False)
    asked = (model, tmp_path / "voters.csv", *label, "--epsilon", 3, "--limit", 20)
    found = done("validate", *asked)
    real = done("evaluate", model, work / "second.csv", *label)["mean_absolute_error"]["value"]
    low, high = found["interval"]
    assert low - 1 < real < high + 1
    assert (found["voters"], found["limit"]) == (1200, 20)
    done("vote", *asked, "--out", tmp_path / "votes.json")
    counted = done("tally", tmp_path / "votes.json")
    assert abs(counted["mean_absolute_error"] - found["mean_absolute_error"]) < 4
    shown = run(capsys, "collect", "tally", tmp_path / "votes.json")[1]
    assert "mean absolute error" in shown
    assert "Errors beyond 20 count as 20." in shown
    code, _, err = run(capsys, "collect", "validate", *asked, "--by-class")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "--by-class must be absent for numeric outcomes" in err


def test_wrong_options_are_one_line(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("collect", "fit", work / "inhouse.csv", "--epsilon", 4, "--people", 100)
    for given, told in (
        (("--outcome", "0-100"), "--outcome must be like 0:80"),
        (("--outcome", "5:5"), "upper must be clearly above lower"),
        (("--outcome", "0:1", "--kind", "direct"), "absent with --kind direct"),
        (("--outcome", "0:1", "--classes", "2"), "absent with an outcome"),
    ):
        code, _, err = run(capsys, *fit, *given, "--out", tmp_path / "no")
        assert (code, len(err.strip().splitlines())) == (2, 1)
        assert told in err


def test_a_service_refuses_outcomes(work: Path) -> None:
    inhouse = pd.read_csv(work / "inhouse.csv").drop(columns="hours")
    collection = tacit.Collection(epsilon=4, people=100, outcome=tacit.Numeric(0, 100))
    mechanism = collection.fit(inhouse, inhouse_public=True).mechanism_
    with pytest.raises(InvalidParameter, match="mechanism must be one of labels"):
        Campaign(id="a" * 8, title="Hours", purpose="Learn.", mechanism=mechanism, labelled=True)


def test_intervals_of_r2_and_absolute_errors_cover() -> None:
    rng = np.random.default_rng(0)
    covered = np.zeros(2)
    for _ in range(400):
        truth = rng.normal(size=300)
        predicted = 0.5 * truth + rng.normal(0, 0.5, 300)
        tally = NumericTally()
        tally.add(truth[:100], predicted[:100])
        tally.add(truth[100:], predicted[100:])
        found = tally.to_dict()
        for place, (name, true) in enumerate(
            (("r2", 0.5), ("mean_absolute_error", np.sqrt(0.5) * np.sqrt(2 / np.pi)))
        ):
            low, high = found[name]["interval"]
            covered[place] += low <= true <= high
    assert (covered / 400 > 0.92).all()
    assert (covered / 400 < 0.985).all()


def test_measures_that_cannot_be_computed_are_none() -> None:
    tally = NumericTally()
    tally.add([1.0, 1.0], [0.0, 1.0])
    assert tally.to_dict()["r2"] == {"value": None, "interval": [None, None]}
