"""Surveys under forgers: the alarm, and shares that hold out against them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tacit
from tacit.apps.service import alarms, holding
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.apps.service.summaries import Summaries
from tacit.local.reports import Reports
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

from .test_frozen import filled
from .test_store import released

REGIONS, FOODS = tuple("abcdefgh"), tuple("klmnopqrstuv")
PEOPLE, FORGED, RUNS = 1000, 50, 20
SURVEYS = [
    tacit.Survey(
        {
            "region": tacit.OneOf(REGIONS),
            "food": tacit.OneOf(FOODS),
            "income": tacit.Number(0, 10),
        },
        epsilon=epsilon,
        sheets=[("region", "food"), "income:bins", "food"],
    )
    for epsilon in (1, 2)
]
every_survey = pytest.mark.parametrize("survey", SURVEYS, ids=["1", "2"])


def answered(survey: Any, seed: int, kind: str = "honest") -> Reports:
    """Reports of 1,000 people; 50 of them are forged on the sheet of region and food."""
    drawn = np.random.default_rng(seed)
    weights = [0.5, 0.2, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02]
    table = {
        "region": drawn.choice(REGIONS, PEOPLE, p=weights),
        "food": drawn.choice(FOODS, PEOPLE),
        "income": 10 * drawn.beta(2, 4, PEOPLE),
    }
    reports = survey.release(table, rng=Seeded(seed))
    sheet, symbols = (reports.columns[name].copy() for name in ("sheet", "symbols"))
    if kind != "honest":
        part = reports.channel.sheets[0][0]
        sheet[:FORGED], symbols[:FORGED] = 0, -1
        for row in range(FORGED):
            symbols[row, : part.width] = forged_set(part, kind, drawn)
    columns = {"sheet": sheet, "symbols": symbols}
    return Reports(survey, columns, reports.channel, releases=("campaign",))


def forged_set(part: Any, kind: str, drawn: np.random.Generator) -> Any:
    every = np.arange(part.law.categories)
    region, food = np.unravel_index(every, part.shape)
    first: dict[str, Any] = {
        "one region": every[region == 7],
        "one food": every[food == 3],
        "one set": np.random.default_rng(5).permutation(every),
    }
    order = np.concatenate([drawn.permutation(first[kind]), drawn.permutation(every)])
    if kind == "one set":
        order = first[kind]
    return np.sort(list(dict.fromkeys(order.tolist()))[: part.width])


@every_survey
@pytest.mark.parametrize("kind", ["one region", "one food", "one set"])
def test_five_percent_of_forgers_raise_the_alarm(survey: Any, kind: str) -> None:
    told = [alarms.forged_answers(answered(survey, seed, kind)) for seed in range(RUNS)]
    assert sum(one["alarm"] for one in told) >= 0.9 * RUNS
    assert "“region” and “food”" in told[0]["words"]


@every_survey
def test_honest_answers_raise_none(survey: Any) -> None:
    """At a rate of at most 1 %, three alarms of forty have a chance below 1e-2; seeded."""
    told = [alarms.forged_answers(answered(survey, seed)) for seed in range(2 * RUNS)]
    assert sum(one["alarm"] for one in told) <= 2
    assert told[0]["false_alarm_rate"] == 0.01
    assert "No alarm" in told[0]["words"]


def test_sheets_without_reports_are_part_of_the_test() -> None:
    reports = answered(SURVEYS[0], 1)
    (rows,) = np.nonzero(reports.columns["sheet"] == 1)
    assert not alarms.forged_answers(reports[rows])["alarm"]


def test_people_who_stop_at_one_sheet_raise_no_alarm() -> None:
    """Honest people may not like the questions of a sheet: how many got it is not tested."""
    reports = answered(SURVEYS[0], 2)
    kept = reports.columns["sheet"] != 1
    assert not alarms.forged_answers(reports[np.flatnonzero(kept)])["alarm"]


def test_a_survey_whose_reports_name_one_symbol_says_that_it_sees_nothing() -> None:
    survey = tacit.Survey({"smoker": tacit.YesNo()}, epsilon=2)
    reports = survey.release({"smoker": ["yes", "no"] * 100}, rng=Seeded(1))
    told = alarms.forged_answers(reports)
    assert (told["testable"], told["alarm"]) == (False, False)


def test_shares_of_options_hold_out_against_forgers() -> None:
    survey = SURVEYS[1]
    clean, forged = answered(survey, 3), answered(survey, 3, "one region")
    usual = survey.answer(forged, "share of region").to_plain()
    found = holding.shares([forged], FORGED, 0.95)
    last = next(one for one in found["shares"] if (one["what"], one["of"]) == ("region", "h"))
    assert last["interval"][0] <= 0.02 <= last["interval"][1]
    assert usual["groups"]["h"] > 0.2
    assert last["share"] < usual["groups"]["h"]
    assert found["shift"] < found["usual_shift"]
    calm = holding.shares([clean], 1, 0.95)["shares"]
    shares = [one["share"] for one in calm if one["what"] == "food"]
    assert len(shares) == 2 * len(FOODS)  # on two sheets


def test_labels_and_groups_hold_out_and_a_closed_campaign_says_it_once(
    store: Store, mechanism: Any, digits: Any
) -> None:
    name, receipts = filled(store, mechanism, released(mechanism, digits, 200))
    summaries = Summaries(store)
    found = summaries.robust(name, 10, 0.95)
    labels = [one["of"] for one in found["shares"] if one["what"] == "label"]
    assert labels == list(mechanism.classes)
    for forged in (0, 200, 1000):
        with pytest.raises(InvalidParameter):
            summaries.robust(name, forged, 0.95)
    store.end(name)
    closed = summaries.robust(name, 10, 0.95)
    store.withdraw(name, receipts[0])
    assert summaries.robust(name, 10, 0.95) == closed


def test_numbers_have_no_shares_that_could_hold_out(store: Store) -> None:
    direct = tacit.Direct(epsilon=4, classes=2).fit(np.random.default_rng(0).normal(size=(50, 2)))
    reports = direct.release(np.zeros((30, 2)), [0, 1] * 15, rng=Seeded(1))
    with pytest.raises(Problem, match="no symbols"):
        holding.shares([reports], 2, 0.95)
