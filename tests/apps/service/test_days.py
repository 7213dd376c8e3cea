"""Days: what is written down is about at least ten people together, whoever did what when."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.days import ANSWERED, INVITED, LEAST, OPENED, WHAT, WITHDRAWN, Days
from tacit.apps.service.store import Store
from tacit.apps.service.tables import REPORT, VOTE

from .conftest import SETTINGS
from .test_app import Asked
from .test_store import opened, released  # noqa: F401

FIRST = date(2026, 11, 1)


class Calendar:
    """A day that tests turn."""

    def __init__(self) -> None:
        self.day = FIRST

    def __call__(self) -> date:
        return self.day


@pytest.fixture(scope="module", name="reports")
def _reports(mechanism: Any, digits: Any) -> list[Any]:
    return released(mechanism, digits, 300)


def on(store: Store, calendar: Calendar) -> Store:
    store.days = Days(store.engine, calendar)
    return store


def people(timeline: dict[str, Any], what: str) -> list[int]:
    return [one["people"] for one in timeline[what]["days"]]


@pytest.mark.parametrize("seed", range(3))
def test_no_day_is_kept_that_fewer_than_ten_people_share(
    store: Store, mechanism: Any, reports: list[Any], seed: int
) -> None:
    """Against the plain list of who did what when, which the database must not have."""
    drawn, calendar = np.random.default_rng(seed), Calendar()
    on(store, calendar)
    campaign, _ = store.create(mechanism, **SETTINGS)
    waiting = list(reports)
    truth: dict[str, list[date]] = {what: [] for what in WHAT}
    receipts: list[str] = []
    for _ in range(25):
        calendar.day += timedelta(days=int(drawn.integers(0, 3)))
        new, back = int(drawn.integers(0, 9)), int(drawn.integers(0, 3))
        tokens = store.invite(campaign.id, new) if new else []
        for token in tokens:
            store.days.opened(campaign.id, token)
            store.days.opened(campaign.id, token)
        if tokens:
            items = [(token, waiting.pop()) for token in tokens]
            receipts += map(str, store.submit(REPORT, campaign.id, items))
        for receipt in receipts[:back]:
            assert store.withdraw(campaign.id, receipt)
        truth[WITHDRAWN] += [calendar.day] * len(receipts[:back])
        del receipts[:back]
        for what in (INVITED, OPENED, ANSWERED):
            truth[what] += [calendar.day] * new
    timeline = store.days.timeline(campaign.id)
    for what, when in truth.items():
        assert timeline[what]["people"] == len(when)
        steps = np.diff([0, *people(timeline, what)])
        assert (steps >= LEAST).all()
        for one in timeline[what]["days"]:
            assert one["people"] == sum(day.isoformat() <= one["day"] for day in when)
    assert people(timeline, ANSWERED)  # else nothing was tried


def test_the_database_has_no_other_day(store: Store, mechanism: Any, reports: list[Any]) -> None:
    calendar = Calendar()
    on(store, calendar)
    campaign, _ = store.create(mechanism, **SETTINGS)
    for _ in range(LEAST - 1):  # one person on each of nine days
        calendar.day += timedelta(days=1)
        (token,) = store.invite(campaign.id, 1)
        store.submit(REPORT, campaign.id, [(token, reports[0])])
    calendar.day += timedelta(days=1)
    store.days.turn()
    with store.engine.connect() as connection:
        stored = connection.execute(sql.select(tables.days)).all()
    of_campaign = {(row.day, row.what) for row in stored if row.campaign}
    assert of_campaign == {("", INVITED)}


def test_two_processes_write_a_day_down_once(
    opened: Store,  # noqa: F811
    mechanism: Any,
    reports: list[Any],
) -> None:
    calendar = Calendar()
    one, other = on(opened, calendar), on(Store(opened.engine, opened.secret), calendar)
    campaign, _ = one.create(mechanism, **SETTINGS)
    other.days.turn()
    tokens = one.invite(campaign.id, 25)
    one.submit(REPORT, campaign.id, list(zip(tokens[:12], reports, strict=False)))
    calendar.day += timedelta(days=1)
    other.submit(REPORT, campaign.id, list(zip(tokens[12:], reports, strict=False)))
    first = one.days.timeline(campaign.id)
    assert first[ANSWERED] == {"people": 25, "days": [{"day": "2026-11-01", "people": 12}]}
    calendar.day += timedelta(days=1)
    assert people(other.days.timeline(campaign.id), ANSWERED) == [12, 25]
    assert people(one.days.timeline(campaign.id), ANSWERED) == [12, 25]


def test_withdrawn_reports_and_votes_are_counted_once(
    opened: Store,  # noqa: F811
    mechanism: Any,
    reports: list[Any],
) -> None:
    campaign, _ = opened.create(mechanism, **SETTINGS)
    tokens = opened.invite(campaign.id, 30)
    kept = opened.submit(REPORT, campaign.id, list(zip(tokens, reports, strict=False)))
    from tacit.apps.service.summaries import Summaries

    summaries = Summaries(opened)
    model = summaries.learn(campaign.id)["sha256"]
    (vote,) = opened.submit(VOTE, campaign.id, [(tokens[0], 1)], model)
    for receipt in (kept[0], kept[0], kept[1], vote, vote):
        opened.withdraw(campaign.id, str(receipt))
    timeline = opened.days.timeline(campaign.id)
    assert timeline[WITHDRAWN]["people"] == 2
    assert timeline[ANSWERED]["people"] == 30
    assert opened.status(campaign.id).reports == 28


def test_the_page_is_counted_when_somebody_opens_it(store: Store, mechanism: Any) -> None:
    asked = Asked(store, mechanism)
    with asked.http as http:
        tokens = asked.tokens(3)
        for token in (*tokens, tokens[0], "unknown"):
            http.get(f"{asked.base}/token", headers={"Authorization": f"Bearer {token}"})
        assert http.get(f"{asked.base}/timeline").status_code == 401
        found = http.get(f"{asked.base}/timeline", headers=asked.owner).json()
    assert found[OPENED] == {"people": 3, "days": []}
    assert found[INVITED]["people"] == 3
