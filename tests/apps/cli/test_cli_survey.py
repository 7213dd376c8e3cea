"""Surveys on the command line: a draft, what it asks, what it will give, reports, answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.apps.cli import main

DECLARE = ("--declare", "income=0:10", "--declare", "region=north,south")
EACH = ("--one-row-each",)
DECLARE += ("--declare", "born=1950-01-01:2010-12-31")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, drawn = tmp_path_factory.mktemp("survey"), np.random.default_rng(0)
    south = drawn.random(900) < 0.45
    born = pd.Timestamp("1950-01-01") + pd.to_timedelta(drawn.integers(0, 20000, 900), "D")
    rows = pd.DataFrame(
        {
            "smoker": np.where(drawn.random(900) < 0.2, "yes", "no"),
            "region": np.where(south, "south", "north"),
            "income": np.clip(drawn.normal(3 + 2 * south, 1), 0, 10).round(2),
            "born": born.strftime("%Y-%m-%d"),
        }
    )
    rows.to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def made(capsys: Any, *arguments: Any) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return dict(json.loads(out))


@pytest.fixture
def survey(people: Path, tmp_path: Path, capsys: Any) -> Path:
    path = tmp_path / "survey.json"
    made(capsys, "survey", "draft", people, "--epsilon", 2, *DECLARE, "--out", path)
    return path


def test_a_draft_reads_nothing_off_the_rows(people: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "survey.json"
    code, out, _ = run(capsys, "survey", "draft", people, "--epsilon", 2, "--out", path)
    assert code == 0
    assert "Fill in what is null for: region, income, born." in out
    drafted = json.loads(path.read_text())["questions"]
    assert {name: one["kind"] for name, one in drafted.items()} == {
        "smoker": "yes-no",
        "region": "one-of",
        "income": "number",
        "born": "date",
    }
    assert drafted["region"]["options"] is None
    assert drafted["income"]["lower"] is drafted["born"]["last"] is None
    text = path.read_text()
    assert not [one for one in ("north", "south", "1950", "9.") if one in text]
    for words in (("show", path), ("plan", path, "--people", 10, "--goal", "mean income")):
        code, _, err = run(capsys, "survey", *words)
        assert code == 2
        assert "region, income, born" in err
        assert "null" in err


def test_bounds_of_public_rows_are_said_to_be_read(
    people: Path, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "survey.json"
    asked = ("survey", "draft", people, "--epsilon", 2, "--public", "--out", path)
    code, out, _ = run(capsys, *asked, "--declare", "income=0:10")
    assert code == 0
    assert "which you state to be public: smoker, region, born." in " ".join(out.split())
    read = tacit.Survey.read(path)
    assert read.questions["region"].options == ("north", "south")
    assert (read.questions["income"].lower, read.questions["income"].upper) == (0, 10)
    assert read.questions["born"].first >= "1950-01-01"


def test_show_says_what_is_asked_and_what_protects_it(survey: Path, capsys: Any) -> None:
    code, out, _ = run(capsys, "survey", "show", survey)
    assert code == 0
    for text in ("income, rounded at random to 65 values", "one of these 4 sheets", "epsilon = 2"):
        assert text in out
    told = made(capsys, "survey", "show", survey)
    assert told["guarantee"].startswith("2-DP (local")
    assert len(told["sheets_in_words"]) == 4
    assert told["certificate"]["guarantee"]["epsilon"] == 2


def test_a_plan_is_followed_by_reports_and_answers(
    survey: Path, people: Path, tmp_path: Path, capsys: Any
) -> None:
    best, reports = tmp_path / "best.json", tmp_path / "r.parquet"
    goals = ("--goal", "mean income by region", "--goal", "share of smoker")
    expect = ("--expect", "smoker=.2", "--expect", "income=4,1.5", "--expect", "region=.55,.45")
    asked = ("survey", "plan", survey, "--people", 900, *goals, *expect)
    planned = made(capsys, *asked, "--out", best)
    assert planned["best"] == planned["designs"][0]["name"] == "one sheet per goal"
    assert [one["goal"] for one in planned["curator"]] == [
        "mean income by region",
        "share of smoker",
    ]
    # Of 900 people drawn between two sheets, each gets 401 but for a chance of 1 in 1,000.
    assert planned["designs"][0]["readers"]["people"] == 401
    _, out, _ = run(capsys, *asked)
    for text in ("Best for 900 people", "Other designs", "trusted curator", "independent"):
        assert text in out
    told = made(capsys, "survey", "release", best, people, *EACH, "--out", reports)
    assert told["reports"] == 900
    for goal in planned["designs"][0]["goals"]:
        found = made(capsys, "ask", reports, goal["goal"])
        errors = found["standard_error"]
        errors = errors if isinstance(errors, dict) else {"smoker": errors}
        for label, error in errors.items():
            assert error == pytest.approx(goal["numbers"][label]["standard_error"], rel=0.3)


def test_answers_of_an_overview_are_drawn_and_written(
    survey: Path, people: Path, tmp_path: Path, capsys: Any
) -> None:
    reports = tmp_path / "r.parquet"
    made(capsys, "survey", "release", survey, people, *EACH, "--out", reports)
    plot, table = tmp_path / "answers.png", tmp_path / "answers.csv"
    told = made(capsys, "ask", reports, "--plot", plot, "--out", table)
    questions = [one["question"] for one in told["answers"]]
    assert questions == ["share of smoker", "share of region", "mean income", "mean born"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(table)["question"].unique().tolist() == questions
    code, out, _ = run(capsys, "ask", reports, "mean income", "share of smoker")
    assert code == 0
    assert out.count("simple") == 1
    assert "Towards readers" in out
    code, _, err = run(capsys, "ask", reports, "mean income", "--plot", tmp_path / "answers.bmp")
    assert code == 2
    assert ".png" in err


def test_intervals_without_an_end_are_drawn(tmp_path: Path) -> None:
    from tacit.apps import plots

    survey = tacit.Survey(
        {"a": tacit.Number(0, 1), "b": tacit.Number(0, 1)},
        epsilon=0.1,
        sheets=[["a:moments", "b:moments"]],
    )
    rows = {"a": np.linspace(0, 1, 60), "b": np.linspace(1, 0, 60)}
    found = [survey.answer(survey.release(rows, tacit.Seeded(1)), "regression of a on b")]
    assert not np.isfinite(found[0].estimates[0].interval).all()
    plots.save(plots.answers(found, "Nothing is known."), tmp_path / "a.svg")
    with pytest.raises(tacit.errors.InvalidParameter, match="numbers"):
        plots.answers([], "")


@pytest.mark.parametrize(
    ("column", "value"),
    [("smoker", "maybe"), ("region", "west"), ("income", "much"), ("born", "soon")],
)
def test_answers_that_do_not_fit_are_refused_without_a_word_about_them(
    survey: Path, people: Path, tmp_path: Path, capsys: Any, column: str, value: str
) -> None:
    rows = pd.read_csv(people).astype(object)
    rows.loc[3, column] = value
    rows.to_csv(tmp_path / "wrong.csv", index=False)
    out = tmp_path / "r.parquet"
    code, _, err = run(
        capsys, "survey", "release", survey, tmp_path / "wrong.csv", *EACH, "--out", out
    )
    assert code == 2
    assert value not in err.replace("2026-01-31", "")
    assert not out.exists()


def test_missing_columns_and_old_files_are_refused(
    survey: Path, people: Path, tmp_path: Path, capsys: Any
) -> None:
    pd.read_csv(people)[["smoker"]].to_csv(tmp_path / "few.csv", index=False)
    out = tmp_path / "r.parquet"
    code, _, err = run(
        capsys, "survey", "release", survey, tmp_path / "few.csv", *EACH, "--out", out
    )
    assert code == 2
    assert "region" in err
    out.write_text("")
    assert run(capsys, "survey", "release", survey, people, *EACH, "--out", out)[0] == 2
    for words in (("--declare", "shoe=1:2"), ("--declare", "income=1"), ("--declare", "income")):
        made_up = ("survey", "draft", people, "--epsilon", 1, "--out", tmp_path / "s.json", *words)
        assert run(capsys, *made_up)[0] == 2
    plan = ("survey", "plan", survey, "--people", 9, "--goal", "mean income")
    assert run(capsys, *plan, "--expect", "smoker")[0] == 2


VISITS = "symptoms,admitted\nfever;cough,2026-01-11\n,2026-01-11\ncough,2026-01-11\n"


def test_several_answers_are_drafted_released_and_answered(tmp_path: Path, capsys: Any) -> None:
    rows, drafted, released = (tmp_path / one for one in ("visits.csv", "s.json", "r.parquet"))
    rows.write_text(VISITS + VISITS.partition("\n")[2] * 30)
    declared = ("--declare", "symptoms=fever,cough", "--declare", "admitted=2026-01-01:2026-01-21")
    made(capsys, "survey", "draft", rows, "--epsilon", 8, *declared, "--out", drafted)
    assert json.loads(drafted.read_text())["questions"]["symptoms"]["kind"] == "several-of"
    made(capsys, "survey", "release", drafted, rows, *EACH, "--out", released)
    code, out, _ = run(capsys, "ask", released, "share of symptoms", "mean admitted")
    assert code == 0
    assert "fever" in out
    assert "2026-01-" in out
    assert " days" in out
    code, out, _ = run(capsys, "account", "explain", released)
    assert code == 0
    assert "epsilon = 8" in out


def test_several_answers_of_public_rows_are_taken_apart(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "visits.csv").write_text(VISITS)
    asked = ("survey", "draft", tmp_path / "visits.csv", "--epsilon", 8, "--public")
    made(capsys, *asked, "--out", tmp_path / "s.json")
    drafted = json.loads((tmp_path / "s.json").read_text())["questions"]["symptoms"]
    assert drafted["options"] == ["cough", "fever"]


def test_questions_on_no_sheet_are_named(tmp_path: Path, capsys: Any) -> None:
    questions = {"ill": tacit.YesNo(), "pets": tacit.SeveralOf(("cat", "dog"))}
    path = tmp_path / "survey.json"
    for sheets, unasked in ((["ill"], True), (["ill", "pets"], False)):
        plain = tacit.Survey(questions, epsilon=1, sheets=sheets).to_plain()
        path.write_text(json.dumps(plain))
        assert ("nobody is asked: pets." in run(capsys, "survey", "show", path)[1]) is unasked


FORM = "Would you come again?,Ward,Hours (a week)\nYes,Surgery,8.5\nNo,Children,40\nYes,Surgery,0\n"


def test_questions_of_a_form_are_drafted_released_and_asked_about(
    tmp_path: Path, capsys: Any
) -> None:
    """The columns of a form have the questions as names, with spaces and question marks."""
    rows, path, out = (tmp_path / one for one in ("form.csv", "form.json", "r.parquet"))
    head, *lines = FORM.splitlines()
    rows.write_text("\n".join([head, *lines * 40]) + "\n")
    declared = ("--declare", "Ward=Surgery,Children", "--declare", "Hours (a week)=0:80")
    assert run(capsys, "survey", "draft", rows, "--epsilon", 4, "--out", path, *declared)[0] == 0
    drafted = json.loads(path.read_text())["questions"]
    texts = [one["text"] for one in drafted.values()]
    assert texts == ["Would you come again?", "Ward?", "Hours (a week)?"]
    assert run(capsys, "survey", "release", path, rows, *EACH, "--out", out)[0] == 0
    for question in ("share of Would you come again?", "mean Hours (a week)"):
        code, told, _ = run(capsys, "ask", out, question, "--json")
        assert code == 0
        assert {"value", "standard_error", "interval", "covers", "guarantee"} <= set(
            json.loads(told)
        )
    rows.write_text("a: b,c\n1,2\n")
    code, _, err = run(capsys, "survey", "draft", rows, "--epsilon", 4, "--out", tmp_path / "no")
    assert code == 2
    assert "without : and =" in " ".join(err.split())


def test_a_missing_answer_is_refused_with_what_to_do(
    survey: Path, people: Path, tmp_path: Path, capsys: Any
) -> None:
    for column in ("smoker", "region", "income", "born"):
        rows = pd.read_csv(people).astype(object)
        rows.loc[3, column] = None
        rows.to_csv(tmp_path / "gap.csv", index=False)
        words = ("survey", "release", survey, tmp_path / "gap.csv", *EACH)
        code, _, err = run(capsys, *words, "--out", tmp_path / "r.parquet")
        assert code == 2
        assert "eave out people without one." in " ".join(err.split())
