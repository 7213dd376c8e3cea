"""Surveys: guarantee, files, the same numbers as pandas, and the coverage of intervals."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import tacit
from tacit.apps.cli import main
from tacit.local.surveys import moments
from tacit.local.surveys.grammar import targets
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

QUESTIONS = {
    "smoker": tacit.YesNo(text="Do you smoke?"),
    "region": tacit.OneOf(("north", "south")),
    "pets": tacit.SeveralOf(("cat", "dog", "fish")),
    "income": tacit.Number(0, 10, unit="k"),
    "age": tacit.Number(0, 100),
    "born": tacit.Date("1950-01-01", "2010-01-01"),
}


def people(count, seed):
    drawn = np.random.default_rng(seed)
    region = drawn.random(count) < 0.45
    age = 100 * drawn.beta(2, 3, count)
    income = np.clip(1 + 0.05 * age + 2 * region + drawn.normal(0, 1, count), 0, 10)
    pets = drawn.random((count, 3)) < [0.3, 0.4, 0.1]
    return pd.DataFrame(
        {
            "smoker": np.where(drawn.random(count) < 0.15 + 0.2 * region, "yes", "no"),
            "region": np.where(region, "south", "north"),
            "pets": [";".join(np.array(["cat", "dog", "fish"])[one]) for one in pets],
            "income": income,
            "age": age,
            "born": np.datetime64("1950-01-01") + drawn.integers(0, 20000, count),
        }
    )


def survey(epsilon=1.0, sheets=None, divided=False):
    return tacit.Survey(QUESTIONS, epsilon=epsilon, sheets=sheets, divided=divided)


ASKED = {
    "share of smoker": ["smoker"],
    "share of region": ["region"],
    "mean income": ["income"],
    "mean income by region": [("region", "income")],
    "share of smoker by region": [("region", "smoker")],
    "difference of income between north and south": [("region", "income")],
    "table of region and smoker": [("region", "smoker")],
    "median income": ["income:bins"],
    "quantile .9 of age by region": [("region", "age:bins")],
    "logistic regression of smoker on region": [("region", "smoker")],
    "variance of income": ["income:moments"],
    "correlation of income and age": [("income:moments", "age:moments")],
    "regression of income on age": [("income:moments", "age:moments")],
}


def small(divided):
    asked = {"a": tacit.YesNo(), "x": tacit.Number(0, 1)}
    return tacit.Survey(asked, epsilon=1.3, sheets=[("a", "x"), "x:moments"], divided=divided)


@pytest.mark.parametrize("divided", [False, True])
def test_the_exact_law_sums_to_one_and_keeps_epsilon(divided):
    channel = small(divided).channel()
    outputs = []
    for number, parts in enumerate(channel.sheets):
        for sets in itertools.product(*(part.sent.outputs().tolist() for part in parts)):
            row = [symbol for one in sets for symbol in one]
            outputs.append((number, row + [-1] * (channel.width - len(row))))
    columns = {
        "sheet": np.array([one for one, _ in outputs]),
        "symbols": np.array([row for _, row in outputs]),
    }
    steps = 2**20
    raws = [(a, x) for a in (0, 1) for x in (0, 1, steps // 3, steps // 2, steps)]
    logs = [channel.log_prob(columns, np.tile(raw, (len(outputs), 1))) for raw in raws]
    assert np.allclose([np.exp(one).sum() for one in logs], 1)
    worst = max(np.max(p - q) for p in logs for q in logs)
    assert 1.2 < worst <= 1.3 + 1e-12


def test_draws_follow_the_law():
    channel = small(False).channel()
    raw = np.tile([1, 2**20 // 3], (60_000, 1))
    drawn = channel.release(raw, Seeded(5))
    kinds, where, counts = np.unique(
        np.column_stack([drawn["sheet"], drawn["symbols"]]),
        axis=0,
        return_index=True,
        return_counts=True,
    )
    chance = np.exp(channel.log_prob({k: v[where] for k, v in drawn.items()}, raw[where]))
    off = (counts - 60_000 * chance) / np.sqrt(60_000 * chance * (1 - chance))
    assert len(kinds) > 5
    assert np.abs(off).max() < 4.5


def test_the_assignment_does_not_depend_on_answers():
    first, second = people(50, 1), people(50, 2)
    made = survey(sheets=["smoker", ("region", "income"), "pets"])
    seen = [made.release(one, rng=Seeded(3)).columns["sheet"] for one in (first, second)]
    assert np.array_equal(*seen)


def test_a_file_holds_survey_certificate_and_reports(tmp_path):
    made = survey(sheets=["smoker", ("region", "income")])
    reports = made.release(people(100, 0))
    read = tacit.Reports.read(reports.write(tmp_path / "r.parquet"))
    assert read.mechanism.to_plain() == made.to_plain()
    assert read.certificate.event == made.event
    assert str(read.guarantee).startswith("1-DP (local, any-two-inputs, unit: person)")
    answered = read.mechanism.answer(read, "share of smoker").to_plain()
    assert {"value", "standard_error", "interval", "covers", "guarantee"} <= set(answered)


def test_noise_free_rows_give_the_numbers_of_pandas():
    rows, made = people(400, 4), survey()
    groups = rows.groupby("region")["income"].mean()
    by = made.answer(rows, "mean income by region")
    assert {one.label: one.value for one in by.estimates} == pytest.approx(groups.to_dict())
    assert made.answer(rows, "variance of income").value == pytest.approx(rows["income"].var())
    assert made.answer(rows, "correlation of income and age").value == pytest.approx(
        rows["income"].corr(rows["age"])
    )
    slope, start = np.polyfit(rows["age"], rows["income"], 1)
    line = [one.value for one in made.answer(rows, "regression of income on age").estimates]
    assert line == pytest.approx([start, slope])
    assert made.answer(rows, "difference of income between north and south").value == (
        pytest.approx(groups["north"] - groups["south"])
    )
    assert made.answer(rows, "median income").value == pytest.approx(rows["income"].median())
    upper = made.answer(rows, "quantile .9 of age by region").estimates
    wanted = rows.groupby("region")["age"].quantile(0.9)
    assert [one.value for one in upper] == pytest.approx(wanted.tolist())
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(
        rows[["region"]] == "south", rows["smoker"]
    )
    found = made.answer(rows, "logistic regression of smoker on region").estimates
    assert [one.value for one in found] == pytest.approx(
        [model.intercept_[0], model.coef_[0, 0]], abs=1e-3
    )
    mean = made.answer(rows, "mean income").estimates[0]
    assert mean.standard_error == pytest.approx(rows["income"].sem())


@pytest.mark.parametrize("question", ASKED)
def test_intervals_cover_the_population(question):
    truth = survey().answer(people(400_000, 99), question)
    made = survey(4.0, ASKED[question])
    held, runs = np.zeros(len(truth.estimates)), 120
    for run in range(runs):
        found = made.answer(made.release(people(800, run), rng=Seeded(run)), question)
        held += [
            one.interval[0] <= known.value <= one.interval[1]
            for one, known in zip(found.estimates, truth.estimates, strict=True)
        ]
    assert held.min() >= 0.87 * runs  # 4 standard errors below .95


def test_an_interval_of_the_noise_alone_is_rejected():
    made, question = survey(4.0, ["smoker"]), "share of smoker"
    truth = survey().answer(people(400_000, 99), question).value
    target, held = targets(made, question)[0], 0
    for run in range(120):
        rows = people(800, run)
        found = moments.from_reports(made.release(rows, rng=Seeded(run)), target.moments)
        sampling = moments.from_rows(made, rows, target.moments).covariance
        noise = found._replace(covariance=found.covariance - sampling, ends=None)
        low, high = target.estimate(noise, 1.96).interval
        held += low <= truth <= high
    assert held < 0.7 * 120


def test_divided_epsilon_answers_questions_about_pairs():
    made = survey(8.0, [("region", "income")], divided=True)
    found = made.answer(made.release(people(4000, 3), rng=Seeded(1)), "mean income by region")
    known = survey().answer(people(400_000, 99), "mean income by region")
    for one, true in zip(found.estimates, known.estimates, strict=True):
        assert abs(one.value - true.value) < 4 * one.standard_error < 2


def test_errors_name_the_grammar_and_the_missing_sheet():
    made = survey()
    reports = made.release(people(60, 0), rng=Seeded(0))
    with pytest.raises(errors.InvalidParameter, match=r"share of Q .* regression"):
        made.answer(reports, "who smokes")
    with pytest.raises(errors.InvalidParameter, match="one sheet must have income and region"):
        made.answer(reports, "mean income by region")


def test_means_of_binned_numbers_are_refused_with_the_way_to_measure_them():
    made = survey(sheets=["income:bins"])
    reports = made.release(people(60, 0), rng=Seeded(0))
    with pytest.raises(errors.InvalidParameter, match="by its name alone, not as :bins"):
        made.answer(reports, "mean income")


def test_simultaneous_intervals_are_wider_and_say_so():
    made = survey(sheets=[("region", "income")])
    reports = made.release(people(2000, 0), rng=Seeded(0))
    one, all_ = (
        made.answer(reports, "mean income by region", simultaneous=simultaneous)
        for simultaneous in (False, True)
    )
    assert all_.estimates[0].interval[1] >= one.estimates[0].interval[1]
    assert "Bonferroni" in all_.covers
    assert len(all_.table()) == 2


def test_ask_prints_the_answer_as_json(tmp_path, capsys):
    made = survey(sheets=["smoker", ("region", "income")])
    path = made.release(people(2000, 0)).write(tmp_path / "r.parquet")
    assert main(["ask", str(path), "mean income by region", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["groups"]) == set(told["interval"]) == {"north", "south"}
    assert told["guarantee"].startswith("1-DP (local")
    assert "sampling" in told["covers"]
    assert main(["ask", str(path), "who smokes"]) == 2
    assert "share of Q" in capsys.readouterr().err


def test_a_change_between_rounds_has_the_interval_of_both():
    made = survey(4.0, ["income"])
    rounds = [made.release(people(3000, run), rng=Seeded(run)) for run in (1, 2)]
    changed = made.change(*rounds, "mean income")
    each = [made.answer(one, "mean income") for one in rounds]
    assert changed.value == pytest.approx(each[1].value - each[0].value)
    assert changed.standard_error == pytest.approx(np.hypot(*(one.standard_error for one in each)))
    assert changed.interval[0] < 0 < changed.interval[1]


def test_a_share_of_nobody_has_an_interval():
    made = survey(8.0, ["smoker"])
    rows = people(300, 1).assign(smoker="no")
    found = made.answer(rows, "share of smoker")
    assert found.value == 0
    assert 0.005 < found.interval[1] < 0.03


def test_readers_are_protected_by_the_weakest_sheet():
    made = survey(1.0, ["smoker", ("region", "income")])
    rows, assigned = people(3000, 1), np.r_[np.zeros(2900, int), np.ones(100, int)]
    reports = made.release(rows, rng=Seeded(1), assigned=assigned)
    readers = reports.readers()
    guarantee, fewest = readers.guarantee, readers.people
    laws = [
        tacit.SubsetSelection(categories=2, epsilon=1),
        tacit.GroupedMean(groups=2, epsilon=1),
    ]
    assert fewest == 100
    # What is said is "at least 100 people": it must hold for the other sheet with as few.
    assert guarantee.epsilon == max(tacit.shuffled(law, people=100).epsilon for law in laws)
    told = made.answer(reports, "share of smoker").readers
    assert told.startswith(str(guarantee))
    assert "at least 100 people" in told


def test_divided_sheets_are_shuffled_as_any_channel():
    made = survey(1.0, [("region", "smoker")], divided=True)
    reports = made.release(people(4000, 1), rng=Seeded(1))
    guarantee = reports.readers().guarantee
    assert 0.04 < guarantee.epsilon < 0.2


def test_answers_are_functions_of_the_multiset():
    made = survey(2.0, ["smoker", ("region", "income"), "age:bins"])
    reports = made.release(people(900, 4), rng=Seeded(4))
    order = np.random.default_rng(0).permutation(900)
    for question in ("mean income by region", "median age", "share of smoker"):
        told = [made.answer(one, question).to_plain() for one in (reports, reports[order])]
        assert told[0] == told[1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_answers_are_written_as_tidy_tables(tmp_path, suffix):
    made = survey(2.0, [("region", "income")])
    found = made.answer(people(900, 4), "mean income by region")
    found.write(tmp_path / f"answer{suffix}")
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    assert read(tmp_path / f"answer{suffix}")["value"].tolist() == [
        one.value for one in found.estimates
    ]


@pytest.mark.parametrize("missing", [None, float("nan"), "", []])
def test_a_missing_answer_of_several_is_one_without_options(missing):
    asked = tacit.SeveralOf(("cat", "dog"))
    assert asked.encode("pets", [missing, "dog;cat", ["dog"]]).tolist() == [[0, 0], [1, 1], [0, 1]]
    with pytest.raises(errors.InvalidData, match="lists of declared options"):
        asked.encode("pets", [5])


def test_dates_are_answered_as_dates_and_changes_as_days():
    asked = tacit.Survey({"born": tacit.Date("2000-01-01", "2000-12-31")}, epsilon=8)
    first = asked.release({"born": ["2000-02-01"] * 400}, rng=Seeded(0))
    answer = asked.answer(first, "mean born")
    assert answer.said(31.2) == "2000-02-01"
    assert answer.said(float("-inf")) == "-inf"
    assert "born: 2000-0" in str(answer)
    assert answer.to_plain()["days_after"] == "2000-01-01"
    second = asked.release({"born": ["2000-03-01"] * 400}, rng=Seeded(1))
    assert asked.change(first, second, "mean born").said(31.2) == "31.2"
    with pytest.raises(errors.InvalidData, match="count twice"):
        asked.change(first, first, "mean born")


def test_a_survey_refuses_what_is_no_question_and_bins_of_options():
    with pytest.raises(errors.InvalidParameter, match="question 'a' must be tacit"):
        tacit.Survey({"a": "yes"}, epsilon=1)
    with pytest.raises(errors.InvalidParameter, match="it is no number"):
        tacit.Survey({"a": tacit.YesNo()}, epsilon=1, sheets=["a:bins"])


def test_a_plan_is_written_with_its_sheets_and_errors():
    plan = tacit.Survey({"a": tacit.YesNo()}, epsilon=1).plan(1000, ["share of a"])
    assert str(plan).splitlines()[1].startswith("  share of a: standard error 0.03")


def test_an_error_names_the_measures_that_a_sheet_needs():
    asked = tacit.Survey({"a": tacit.Number(0, 1), "b": tacit.Number(0, 1)}, epsilon=2)
    reports = asked.release({"a": [0.5] * 50, "b": [0.5] * 50}, rng=Seeded(0))
    for question, needed in (
        ("median a", "a:bins"),
        ("variance of a", "a:moments"),
        ("correlation of a and b", "a:moments and b:moments"),
    ):
        with pytest.raises(errors.InvalidParameter, match=f"'{question}'.* must have {needed},"):
            asked.answer(reports, question)
