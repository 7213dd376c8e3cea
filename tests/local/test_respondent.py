"""A device that answers in several rounds: nothing is drawn twice, or after the last round."""

from __future__ import annotations

import json

import pytest

import tacit
from tacit.privacy.errors import BudgetExceeded, InvalidData, InvalidParameter


def monthly(**changed):
    given = {"categories": 6, "epsilon": 4.0, "permanent_epsilon": 0.1, "reports": 12}
    return tacit.MemoizedResponse(**{**given, **changed})


def test_permanent_answers_are_drawn_once(tmp_path):
    """With hardly any noise on top, all reports of an answer are its permanent one."""
    mechanism = monthly(epsilon=600.0)
    for person in range(5):
        reports = {
            Respondent.report(person, number=number)
            for number in range(12)
            for Respondent in [tacit.Respondent(mechanism, tmp_path / str(person))]
        }
        kept = json.loads((tmp_path / str(person) / "permanent.json").read_text())
        assert reports == {kept["permanent"][person]}


def test_a_round_is_reported_once_and_the_thirteenth_is_refused(tmp_path):
    mechanism = monthly(cells=2)
    first = [tacit.Respondent(mechanism, tmp_path / "a").report(1, number=n) for n in range(12)]
    person = tacit.Respondent(mechanism, tmp_path / "a")
    assert [person.report(5, number=number) for number in range(12)] == first
    assert person.sent == list(range(12))
    assert len({seed for seed, _ in first}) == 1
    with pytest.raises(BudgetExceeded, match="number must be below 12, got 12"):
        person.report(1, number=12)


def test_a_folder_of_another_mechanism_is_refused(tmp_path):
    tacit.Respondent(monthly(), tmp_path / "a")
    with pytest.raises(InvalidParameter, match="one of this mechanism"):
        tacit.Respondent(monthly(reports=24), tmp_path / "a")
    with pytest.raises(InvalidParameter, match="mechanism must be a MemoizedResponse"):
        tacit.Respondent(tacit.RandomizedResponse(categories=2, epsilon=1), tmp_path / "b")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"report": 9}', '{"report": true}'])
def test_a_changed_file_is_refused(tmp_path, text):
    person = tacit.Respondent(monthly(), tmp_path / "a")
    (tmp_path / "a" / "round-0.json").write_text(text)
    with pytest.raises(InvalidData, match="Respondent"):
        person.report(1, number=0)


def test_a_category_that_was_not_declared_leaves_nothing(tmp_path):
    person = tacit.Respondent(monthly(), tmp_path / "a")
    with pytest.raises(InvalidData):
        person.report(6, number=0)
    assert person.sent == []


def test_a_ledger_pays_once_for_the_whole_series_and_refuses_the_next(tmp_path):
    """Twelve reports for one price; the thirteenth, and a new series for it, are refused."""
    mechanism = monthly(cells=2, epsilon=7.0)
    ledger = tacit.DeviceLedger(tmp_path / "ledger.sqlite", budget=8)
    for number in range(12):
        person = tacit.Respondent(mechanism, tmp_path / "a", ledger=ledger)
        person.report(number % 6, number=number)
        assert ledger.balance().spent == 7
    with pytest.raises(BudgetExceeded, match="number must be below 12, got 12"):
        person.report(1, number=12)
    with pytest.raises(BudgetExceeded, match="at most 1, what is left of this person's budget"):
        tacit.Respondent(mechanism, tmp_path / "b", ledger=ledger)
    assert ledger.balance().charges == 1


def test_answers_that_were_redrawn_are_charged_again(tmp_path):
    ledger = tacit.DeviceLedger(tmp_path / "ledger.sqlite", budget=8)
    tacit.Respondent(monthly(), tmp_path / "a", ledger=ledger)
    (tmp_path / "a" / "permanent.json").unlink()
    tacit.Respondent(monthly(), tmp_path / "a", ledger=ledger)
    assert ledger.balance().spent == 8
