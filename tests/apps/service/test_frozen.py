"""A closed campaign: its results stay, what is withdrawn is gone, and what `readers` rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql

import tacit
from tacit.apps.service import tables
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.apps.service.summaries import Summaries
from tacit.apps.service.tables import REPORT, VOTE
from tacit.apps.service.withdrawals import told
from tacit.local.inference import poisoning
from tacit.local.learned.partitions import Partitions
from tacit.privacy import artifact
from tacit.privacy.randomness import Seeded

from .conftest import SETTINGS
from .test_store import released
from .test_surveys import people, survey


@pytest.fixture(scope="module", name="reports")
def _reports(mechanism: Any, digits: Any) -> list[Any]:
    return released(mechanism, digits, 200)


def filled(store: Store, mechanism: Any, reports: list[Any], **more: Any) -> tuple[str, list[str]]:
    campaign, _ = store.create(mechanism, **{**SETTINGS, **more})
    tokens = store.invite(campaign.id, len(reports))
    items = list(zip(tokens, reports, strict=True))
    return campaign.id, [str(one) for one in store.submit(REPORT, campaign.id, items)]


def readers_of(store: Store, name: str) -> Any:
    return artifact.unpack(store.model(name)).certificate.readers


def test_readers_hide_only_in_a_batch_that_was_closed_first(
    store: Store, mechanism: Any, reports: list[Any]
) -> None:
    summaries = Summaries(store)
    early, _ = filled(store, mechanism, reports)
    summaries.learn(early)
    assert readers_of(store, early) is None
    store.end(early)
    with pytest.raises(Problem) as refused:
        summaries.learn(early)  # a second result of almost the same reports
    assert refused.value.code == "published"
    late, _ = filled(store, mechanism, reports)
    store.end(late)
    summaries.learn(late)
    assert readers_of(store, late).people == len(reports)
    with pytest.raises(Problem) as refused:
        summaries.learn(late)
    assert refused.value.code == "published"


def test_two_models_of_an_open_campaign_tell_them_apart(
    store: Store, mechanism: Any, reports: list[Any]
) -> None:
    """Why nothing is stated: the models with a report and without it differ by this report."""
    summaries = Summaries(store)
    name, receipts = filled(store, mechanism, reports)
    with_all = summaries.learn(name)["sha256"]
    store.withdraw(name, receipts[0])
    assert summaries.learn(name)["sha256"] != with_all


def test_a_model_from_elsewhere_states_readers_only_of_a_closed_batch(
    store: Store, digits: Any
) -> None:
    images, labels = digits
    rows = images.reshape(len(images), -1)
    made = Partitions(epsilon=4, classes=10, people=300, unit="person")
    made.fit(rows[:300], inhouse_public=True, seed=0)
    symbols = made.release(rows[300:600], labels[300:600])
    columns = {name: column.tolist() for name, column in symbols.columns.items()}
    given = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    name, _ = filled(store, made, given, vote_epsilon=None)
    (kept,) = store.reports(name)
    learner = tacit.ProportionsClassifier(inhouse=rows[:300], inhouse_public=True)
    packed = artifact.pack(learner.fit([kept]))
    summaries = Summaries(store)
    with pytest.raises(Problem, match="readers"):
        summaries.publish(name, packed)
    store.end(name)
    summaries.publish(name, packed)
    assert readers_of(store, name) is not None
    with pytest.raises(Problem) as refused:
        summaries.publish(name, packed)
    assert refused.value.code == "published"


def test_results_of_a_closed_campaign_stay_while_answers_are_deleted(
    store: Store, mechanism: Any, reports: list[Any]
) -> None:
    name, receipts = filled(store, mechanism, reports)
    store.withdraw(name, receipts[0])
    store.end(name)
    summaries = Summaries(store)
    summaries.close(name)
    before = summaries.of(name, 0.95)
    assert before["withdrawn"]["reports"] == 1
    for receipt in receipts[1:150]:
        assert store.withdraw(name, receipt)
    again = Summaries(Store(store.engine, store.secret)).of(name, 0.95)
    assert "149 reports" in again["withdrawn"]["words"]
    del before["withdrawn"], again["withdrawn"]
    assert again == before
    with store.engine.connect() as connection:
        kept = sql.select(sql.func.count(tables.answers.c.content))
        assert connection.execute(kept).scalar() == 50
    summaries.learn(name)  # from the fifty that are left
    assert artifact.unpack(store.model(name)).reports_ == 50
    assert summaries.of(name, 0.95)["reports"] == before["reports"]


def test_an_open_campaign_is_computed_anew_after_a_withdrawal(
    store: Store, mechanism: Any, reports: list[Any]
) -> None:
    name, receipts = filled(store, mechanism, reports)
    summaries = Summaries(store)
    before = summaries.of(name, 0.95)
    store.withdraw(name, receipts[0])
    summaries.forget()
    after = summaries.of(name, 0.95)
    assert (before["reports"], after["reports"]) == (200, 199)
    assert after["withdrawn"]["reports"] == 1


def test_answers_of_a_closed_survey_stay(store: Store) -> None:
    asked = survey()
    released = asked.release(people(400), rng=Seeded(4))
    columns = {name: column.tolist() for name, column in released.columns.items()}
    given = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    name, receipts = filled(store, asked, given, labelled=False, vote_epsilon=None)
    summaries, question = Summaries(store), "share of smoker"
    opened = summaries.answer(name, question)
    for receipt in receipts[:40]:
        store.withdraw(name, receipt)
    assert summaries.answer(name, question)["value"] != opened["value"]
    store.end(name)
    summaries.close(name)
    whole, one = summaries.of(name, 0.95), summaries.answer(name, question)
    for receipt in receipts[40:80]:
        store.withdraw(name, receipt)
    assert summaries.of(name, 0.95)["answers"] == whole["answers"]
    assert summaries.answer(name, question) == one
    other = summaries.answer(name, question, confidence=0.9)  # asked for the first time
    assert other["value"] != one["value"]


@pytest.mark.parametrize("fraction", [0.02, 0.2])
def test_withdrawals_bend_a_share_by_no_more_than_is_said(
    mechanism: Any, digits: Any, fraction: float
) -> None:
    """Of honest reports those that speak most for a label, or against it; and the worst ones."""
    images, labels = digits
    given = mechanism.release(images[500:1100], labels[500:1100], rng=Seeded(7))
    channel, classes = given.channel.symbols, 10
    law = poisoning.law_of(channel)
    group = channel.categories // classes
    named = (given.columns["symbols"] % classes == 3).sum(axis=1)
    share = np.sort((named - group * law.other) / (law.own - law.other))
    gone = int(fraction * len(share))
    bound = poisoning.share_shift(law, group, len(share), gone).worst
    for left in (share[gone:], share[:-gone]):
        assert abs(np.clip(left.mean(), 0, 1) - np.clip(share.mean(), 0, 1)) <= bound
    left, worst = share[gone:], poisoning.reach(law, group)[1]
    moved = (left.sum() + gone * worst) / len(share) - left.mean()
    assert 0.9 * bound < moved <= bound
    words = told(gone, 0, len(left), bound, None)["words"]
    assert f"{gone} reports of 600 were withdrawn" in words


def test_votes_that_were_withdrawn_are_said(
    store: Store, mechanism: Any, reports: list[Any]
) -> None:
    campaign, _ = store.create(mechanism, **SETTINGS)
    tokens = store.invite(campaign.id, 200)
    store.submit(REPORT, campaign.id, list(zip(tokens, reports, strict=True)))
    summaries = Summaries(store)
    model = summaries.learn(campaign.id)["sha256"]
    votes = store.submit(VOTE, campaign.id, [(token, 1) for token in tokens[:40]], model)
    for receipt in votes[:4]:
        store.withdraw(campaign.id, str(receipt))
    withdrawn = summaries.of(campaign.id, 0.95)["withdrawn"]
    assert (withdrawn["reports"], withdrawn["votes"]) == (0, 4)
    assert 0.1 <= withdrawn["accuracy"] <= 0.2
    assert "4 votes were withdrawn" in withdrawn["words"]
