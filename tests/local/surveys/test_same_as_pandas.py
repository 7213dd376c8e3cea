"""Answers from rows without noise: the numbers of pandas, and the standard errors of textbooks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import tacit


def people(count: int, seed: int) -> pd.DataFrame:
    drawn = np.random.default_rng(seed)
    region = drawn.random(count) < 0.45
    age = 100 * drawn.beta(2, 3, count)
    pets = drawn.random((count, 2)) < [0.3, 0.4]
    return pd.DataFrame(
        {
            "smoker": np.where(drawn.random(count) < 0.15 + 0.2 * region, "yes", "no"),
            "region": np.where(region, "south", "north"),
            "pets": [";".join(np.array(["cat", "dog"])[one]) for one in pets],
            "income": np.clip(1 + 0.05 * age + 2 * region + drawn.normal(0, 1, count), 0, 10),
            "age": age,
            "born": np.datetime64("1950-01-01") + drawn.integers(0, 20000, count),
        }
    )


SURVEY = tacit.Survey(
    {
        "smoker": tacit.YesNo(),
        "region": tacit.OneOf(("north", "south")),
        "pets": tacit.SeveralOf(("cat", "dog")),
        "income": tacit.Number(0, 10),
        "age": tacit.Number(0, 100),
        "born": tacit.Date("1950-01-01", "2010-01-01"),
    },
    epsilon=1,
)
ROWS = people(500, 4)
SMOKES = (ROWS["smoker"] == "yes").astype(float)
BY_REGION = ROWS["region"]


def found(question: str) -> dict[str, float]:
    return {one.label: one.value for one in SURVEY.answer(ROWS, question).estimates}


def errors_of(question: str) -> list[float]:
    return [one.standard_error for one in SURVEY.answer(ROWS, question).estimates]


WANTED = {
    "share of smoker": {"smoker": SMOKES.mean()},
    "share of region": BY_REGION.value_counts(normalize=True).to_dict(),
    "share of pets": {one: ROWS["pets"].str.contains(one).mean() for one in ("cat", "dog")},
    "share of smoker by region": SMOKES.groupby(BY_REGION).mean().to_dict(),
    "mean income": {"income": ROWS["income"].mean()},
    "mean smoker by region": SMOKES.groupby(BY_REGION).mean().to_dict(),
    "mean income by region": ROWS.groupby("region")["income"].mean().to_dict(),
    "mean born": {"born": (ROWS["born"] - pd.Timestamp("1950-01-01")).dt.days.mean()},
    "median income by region": ROWS.groupby("region")["income"].median().to_dict(),
    "quantile .1 of age": {"age": ROWS["age"].quantile(0.1)},
    "variance of age": {"age": ROWS["age"].var()},
    "correlation of smoker and age": {"smoker, age": SMOKES.corr(ROWS["age"])},
}


@pytest.mark.parametrize("question", WANTED)
def test_the_numbers_are_those_of_pandas(question: str) -> None:
    assert found(question) == pytest.approx(WANTED[question])


def test_tables_are_those_of_crosstab() -> None:
    shares = pd.crosstab(BY_REGION, ROWS["smoker"], normalize="all")
    wanted = {f"{a}, {b}": shares.loc[a, b] for a in shares.index for b in shares.columns}
    assert found("table of region and smoker") == pytest.approx(wanted)


def design(names: list[str]) -> np.ndarray:
    columns = [SMOKES if name == "smoker" else ROWS[name] for name in names]
    return np.column_stack([np.ones(len(ROWS)), *columns])


@pytest.mark.parametrize("names", [["age"], ["age", "smoker"]])
def test_coefficients_and_their_errors_are_those_of_least_squares(names: list[str]) -> None:
    """The errors are the sandwich: no assumption about the spread around the line."""
    inputs, outcome = design(names), ROWS["income"].to_numpy()
    solved, *_ = np.linalg.lstsq(inputs, outcome, rcond=None)
    question = f"regression of income on {', '.join(names)}"
    assert list(found(question).values()) == pytest.approx(solved.tolist())
    scores = inputs * (outcome - inputs @ solved)[:, None]
    bread = np.linalg.inv(inputs.T @ inputs)
    sandwich = np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))
    assert errors_of(question) == pytest.approx(sandwich.tolist(), rel=0.02)


def test_errors_of_means_and_shares_are_those_of_textbooks() -> None:
    groups = ROWS.groupby("region")["income"]
    assert errors_of("mean income") == pytest.approx([ROWS["income"].sem()])
    assert errors_of("mean income by region") == pytest.approx(groups.sem().tolist(), rel=0.01)
    both = float(np.hypot(*groups.sem()))
    wanted = "difference of income between north and south"
    assert errors_of(wanted) == pytest.approx([both], rel=0.01)
    share = SMOKES.mean()
    wanted_error = np.sqrt(share * (1 - share) / (len(ROWS) - 1))
    assert errors_of("share of smoker") == pytest.approx([wanted_error])


def test_changes_are_differences_of_means() -> None:
    later = people(300, 5)
    changed = SURVEY.change(ROWS, later, "mean income")
    assert changed.value == pytest.approx(later["income"].mean() - ROWS["income"].mean())
    wanted = np.hypot(later["income"].sem(), ROWS["income"].sem())
    assert changed.standard_error == pytest.approx(wanted)


def test_an_overview_answers_every_question_once() -> None:
    answers = SURVEY.answers(ROWS)
    assert [one.question for one in answers] == [
        *("share of smoker", "share of region", "share of pets"),
        *("mean income", "median income", "mean age", "median age", "mean born", "median born"),
    ]
    assert answers[3].value == pytest.approx(ROWS["income"].mean())


def test_rows_that_tell_nothing_have_the_whole_range_as_interval() -> None:
    rows = ROWS.assign(region="north")
    nobody = SURVEY.answer(rows, "median income by region").estimates[1]
    assert np.isnan(nobody.value)
    assert nobody.interval == (0, 10)
    with pytest.raises(tacit.errors.InvalidData, match="two rows or more"):
        SURVEY.answer(rows[:1], "mean income")
