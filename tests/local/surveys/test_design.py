"""Plans of surveys: predicted standard errors against simulated ones, designs, the curator."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.local.surveys import design, forecast
from tacit.local.surveys.grammar import targets
from tacit.privacy import errors
from tacit.privacy.mechanisms import DiscreteLaplace
from tacit.privacy.randomness import Seeded

QUESTIONS = {
    "smoker": tacit.YesNo(),
    "region": tacit.OneOf(("north", "east", "south")),
    "pets": tacit.SeveralOf(("cat", "dog")),
    "income": tacit.Number(0, 10),
    "age": tacit.Number(18, 90),
}
EXPECTED = {"smoker": 0.2, "region": [0.5, 0.3, 0.2], "income": (3.0, 1.5)}


def people(count: int, seed: int) -> pd.DataFrame:
    """Draw people as they are expected: answers to different questions are independent."""
    drawn = np.random.default_rng(seed)
    size = 0.3 * 0.7 / 0.15**2 - 1
    pets = drawn.random((count, 2)) < 0.5
    return pd.DataFrame(
        {
            "smoker": np.where(drawn.random(count) < 0.2, "yes", "no"),
            "region": np.array(["north", "east", "south"])[
                drawn.choice(3, count, p=EXPECTED["region"])
            ],
            "pets": [";".join(np.array(["cat", "dog"])[one]) for one in pets],
            "income": 10 * drawn.beta(0.3 * size, 0.7 * size, count),
            "age": drawn.uniform(18, 90, count),
        }
    )


def declared(sheets, divided=False, epsilon=2.0):
    return tacit.Survey(QUESTIONS, epsilon=epsilon, sheets=sheets, divided=divided)


def predicted(survey, question, count):
    made = survey.plan(count, [question], expected=EXPECTED)
    design = next(one for one in made.designs if one.name == "as declared")
    return np.array([one.standard_error for one in design.goals[0].numbers])


CASES = {
    "share of smoker": (["smoker"], False),
    "share of region": (["region", "smoker"], False),
    "share of pets": (["pets"], False),
    "mean income": (["income:moments"], False),
    "mean income by region": ([("region", "income")], False),
    "mean age": ([("age", "smoker")], True),
    "share of smoker by region": ([("region", "smoker")], True),
    "difference of income between north and south": ([("region", "income")], False),
    "table of region and smoker": ([("region", "smoker"), ("region", "smoker", "income")], False),
    "median income": (["income:bins"], False),
    "quantile .8 of age": (["age:bins"], False),
    "variance of income": (["income:moments"], False),
    "correlation of income and age": ([("income:moments", "age:moments")], False),
    "regression of income on smoker": ([("income:moments", "smoker")], False),
    "logistic regression of smoker on region": ([("region", "smoker")], False),
}


@pytest.mark.parametrize("question", CASES)
def test_predicted_errors_are_those_of_simulated_reports(question: str) -> None:
    sheets, divided = CASES[question]
    survey = declared(sheets, divided, epsilon=4.0)
    reports = survey.release(people(60_000, 7), rng=Seeded(7))
    found = [one.standard_error for one in survey.answer(reports, question).estimates]
    assert found == pytest.approx(predicted(survey, question, 60_000), rel=0.1)


@pytest.mark.parametrize(
    "question", ["share of smoker", "mean income by region", "variance of income", "mean age"]
)
def test_predicted_errors_are_the_spread_of_simulated_answers(question: str) -> None:
    """Against the answers themselves, and not their own statement; one standard error is 4 %."""
    sheets, divided = CASES[question]
    survey = declared(sheets, divided, epsilon=4.0)
    encoded, channel = survey.encode(people(20_000, 1)), survey.channel()
    drawn, found = np.random.default_rng(2), []
    for run in range(300):
        columns = channel.release(encoded[drawn.integers(0, 20_000, 3000)], Seeded(run))
        reports = tacit.Reports(survey, columns, channel, True)
        found.append([one.value for one in survey.answer(reports, question).estimates])
    assert np.std(found, axis=0) == pytest.approx(predicted(survey, question, 3000), rel=0.1)


def test_noise_alone_is_not_the_error() -> None:
    """The mutant of the tests above: without the sampling of people the share is off."""
    law = tacit.SubsetSelection(categories=2, epsilon=4.0)
    p, q = law.inclusion
    noise = math.sqrt(p * (1 - p)) / (p - q) / math.sqrt(60_000)
    assert noise != pytest.approx(predicted(declared(["smoker"]), "share of smoker", 60_000), 0.1)


def test_the_best_sheets_depend_on_the_goals() -> None:
    survey = tacit.Survey(QUESTIONS, epsilon=1)
    goals = ["share of smoker", "share of region"]
    shares = survey.plan(10_000, goals, expected=EXPECTED).best
    assert set(shares.survey.sheets) == {("smoker",), ("region",)}
    assert not shares.survey.divided
    by_group = survey.plan(10_000, "mean income by region", expected=EXPECTED).best
    assert by_group.survey.sheets == (("income", "region"),)
    goals = ["regression of income on age", "mean income"]
    line = tacit.Survey.best(QUESTIONS, goals, epsilon=1, people=10_000)
    assert line.sheets == (("age:moments", "income:moments"),)
    many = survey.plan(10_000, ["share of smoker", "mean income", "share of pets"])
    assert [one.score for one in many.designs] == sorted(one.score for one in many.designs)


def test_what_is_planned_can_be_asked() -> None:
    goals = ["mean income by region", "share of pets", "median age", "variance of income"]
    made = tacit.Survey(QUESTIONS, epsilon=4).plan(4000, goals, expected=EXPECTED)
    assert len(made.designs) >= 3
    for one in made.designs:
        reports = one.survey.release(people(4000, 3), rng=Seeded(3))
        for goal in one.goals:
            answer = one.survey.answer(reports, goal.question)
            assert [x.label for x in answer.estimates] == [x.label for x in goal.numbers]
        assert one.readers.guarantee.epsilon <= 4
    assert json.loads(json.dumps(made.to_plain(), allow_nan=False))["best"] == made.best.name


def test_the_curator_is_simulated_too() -> None:
    """A mean by discrete Laplace noise on the sum, in steps of a thousandth."""
    survey, count, epsilon = declared(["income"], epsilon=0.1), 400, 0.1
    plan = survey.plan(count, "mean income", expected=EXPECTED)
    noise = DiscreteLaplace(
        sensitivity=10_000, epsilon=epsilon, adjacency=tacit.guarantees.Adjacency.REPLACE_ONE
    )
    stream = Seeded(1)
    drawn = [
        int(noise.release(int(1000 * rows.sum()), stream)) / 1000 / count
        for rows in np.random.default_rng(1).choice(people(20_000, 1)["income"], (1500, count))
    ]
    assert np.std(drawn) == pytest.approx(plan.curator[0].standard_error, rel=0.1)
    assert plan.curator[0].standard_error < plan.best.goals[0].standard_error / 3
    towards = plan.best.readers.guarantee.epsilon
    assert towards < 0.1
    assert plan.curator_of_readers[0].standard_error > plan.curator[0].standard_error


def test_a_curator_pays_for_every_number_of_a_table() -> None:
    """One person who is replaced moves two cells of a histogram, and one of a single share."""
    survey = tacit.Survey(QUESTIONS, epsilon=1)
    for question, moved in (("share of smoker", 1), ("share of region", 2), ("share of pets", 2)):
        used = tuple(m for one in targets(survey, question) for m in one.moments)
        assumed = forecast.laws(survey, None)
        noise = forecast.central(survey, used, assumed, 10, 1.0).covariance
        sampled = forecast.central(survey, used, assumed, 10, 1e12).covariance
        assert np.diag(noise - sampled) == pytest.approx(2 * (moved / 10) ** 2)


def test_more_people_and_more_epsilon_help() -> None:
    few, many = (
        tacit.Survey(QUESTIONS, epsilon=e).plan(n, "mean income").best.goals[0].standard_error
        for e, n in ((1, 1000), (1, 4000))
    )
    assert few == pytest.approx(2 * many)
    more = tacit.Survey(QUESTIONS, epsilon=4).plan(4000, "mean income").best.goals[0]
    assert more.standard_error < many / 2
    assert more.width == pytest.approx(2 * 1.96 * more.standard_error, rel=1e-3)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"goals": []}, "goals"),
        ({"people": 1}, "people"),
        ({"expected": {"shoe": 0.5}}, "expected"),
        ({"expected": {"smoker": 1.5}}, "smoker"),
        ({"expected": {"region": [0.5, 0.5]}}, "3 shares"),
        ({"expected": {"income": 3}}, "standard deviation"),
        ({"expected": {"income": (3, 9)}}, "standard deviation"),
        ({"goals": ["who smokes"]}, "share of Q"),
        ({"confidence": 1}, "confidence"),
    ],
)
def test_wrong_plans_are_refused(given, told) -> None:
    given = {"people": 100, "goals": ["share of smoker"], **given}
    with pytest.raises(errors.InvalidParameter, match=told):
        tacit.Survey(QUESTIONS, epsilon=1).plan(**given)


def test_readers_are_promised_what_the_smallest_sheet_gives() -> None:
    """The number of people is a quantile: one more would be missed too often."""
    from scipy.stats import binom

    for people, sheets in ((1000, 2), (1000, 5), (300, 12), (40, 3)):
        least = design.fewest(people, sheets)
        assert sheets * binom.cdf(least - 1, people, 1 / sheets) <= 1e-3
        assert sheets * binom.cdf(least, people, 1 / sheets) > 1e-3
        assert 0 < least < people / sheets
    assert design.fewest(1000, 1) == 1000
    drawn = np.random.default_rng(1).multinomial(1000, [0.2] * 5, size=20_000).min(axis=1)
    assert np.mean(drawn < design.fewest(1000, 5)) <= 1e-3
    survey = tacit.Survey(QUESTIONS, epsilon=1)
    made = survey.plan(10_000, ["share of smoker", "share of region"], expected=EXPECTED)
    readers = made.best.readers
    assert readers.people == design.fewest(10_000, 2) < 5000
    assert "99.9 %" in made.to_plain()["assumes"]
