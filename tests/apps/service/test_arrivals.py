"""Answers that arrive in large numbers: a log and its merge, COPY, and invitations in memory."""

import secrets
import time

import numpy as np
import pytest
import sqlalchemy as sql

from tacit.apps.service import keeping, tables
from tacit.apps.service.arrivals import NotAllNew
from tacit.apps.service.inbox import Inbox
from tacit.apps.service.invited import Invited
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import REPORT, Store

from .conftest import SETTINGS, always_many


@pytest.fixture(params=["sqlite", "postgresql"])
def many(request, tmp_path, monkeypatch):
    """How to open the same database again and again, as several processes do."""
    always_many(monkeypatch)
    url = f"sqlite:///{tmp_path}/campaign.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create()
    stores = []

    def open_again():
        # Without the merge that opening does: as a process that was open all the time.
        with monkeypatch.context() as patched:
            patched.setattr(keeping.Answers, "merge", lambda self: None)
            stores.append(Store.open(url, tmp_path / "secret"))
        return stores[-1]

    yield open_again
    for store in stores:
        store.engine.dispose()


def items_for(store, mechanism, digits, count):
    campaign, _ = store.create(mechanism, **SETTINGS)
    images, labels = digits
    sets = mechanism.release(images[:count], labels[:count]).columns["symbols"].tolist()
    tokens = store.invite(campaign.id, count)
    return campaign, [(t, {"symbols": s}) for t, s in zip(tokens, sets, strict=True)]


def counts(store):
    """How many answers are in the table and in the log, and how many the campaign counts."""
    with store.engine.connect() as connection:
        table = connection.execute(sql.select(sql.func.count()).select_from(tables.answers))
        log = connection.execute(sql.select(tables.arrivals.c.rows)).scalars().all()
        counted = connection.execute(sql.select(sql.func.sum(tables.campaigns.c.reports)))
        return table.scalar(), sum(map(len, log)) // 16, counted.scalar()


def test_what_one_process_appended_every_other_one_knows(many, mechanism, digits):
    first, second = many(), many()
    campaign, items = items_for(first, mechanism, digits, 60)
    receipts = first.submit(REPORT, campaign.id, items[:40])
    # In the log of another process: the same again, another report, and new ones among them.
    (token, _), (_, other) = items[0], next(one for one in items if one[1] != items[0][1])
    assert second.submit(REPORT, campaign.id, items[:40]) == receipts
    (refused,) = second.submit(REPORT, campaign.id, [(token, other)])
    assert isinstance(refused, Problem)
    assert refused.code == "already-reported"
    more = second.submit(REPORT, campaign.id, items[30:])
    assert more[:10] == receipts[30:]
    assert first.submit(REPORT, campaign.id, items) == receipts + more[10:]
    assert first.status(campaign.id).reports == 60
    assert first.used(campaign.id, token)["report"] == "stored"
    for store in (first, second):
        store.answers.merge()
    assert counts(first) == (60, 0, 60)


def test_a_row_in_another_process_s_log_is_withdrawn_for_good(many, mechanism, digits):
    first, second = many(), many()
    campaign, items = items_for(first, mechanism, digits, 30)
    receipts = first.submit(REPORT, campaign.id, items)
    assert second.withdraw(campaign.id, receipts[3])
    again = first.submit(REPORT, campaign.id, items)
    assert [i for i, one in enumerate(again) if isinstance(one, Problem)] == [3]
    assert again[3].code == "withdrawn"
    first.answers.merge()
    assert first.status(campaign.id).reports == 29
    (back,) = second.reports(campaign.id)
    assert len(back) == 29


def test_a_killed_server_s_log_is_merged_by_the_next(many, mechanism, digits, tmp_path):
    first = many()
    campaign, items = items_for(first, mechanism, digits, 50)
    for start in range(0, 50, 10):
        first.submit(REPORT, campaign.id, items[start : start + 10])
    in_log = counts(first)
    assert in_log == ((0, 50, 50) if first.engine.dialect.name == "sqlite" else (50, 0, 50))
    next_one = Store.open(
        first.engine.url.render_as_string(hide_password=False), tmp_path / "secret"
    )
    assert counts(next_one) == (50, 0, 50)
    (back,) = next_one.reports(campaign.id)
    assert sorted(map(tuple, back.columns["symbols"].tolist())) == sorted(
        tuple(one["symbols"]) for _, one in items
    )
    next_one.engine.dispose()


def test_an_entry_of_the_log_is_sorted_and_its_merge_erases_it(
    store, monkeypatch, mechanism, digits
):
    """A thief of the file learns which answers arrived together, but not their order."""
    always_many(monkeypatch)
    campaign, items = items_for(store, mechanism, digits, 40)
    store.submit(REPORT, campaign.id, items)
    with store.engine.connect() as connection:
        (joined,) = connection.execute(sql.select(tables.arrivals.c.rows)).scalars().all()
    rows = [joined[at : at + 16] for at in range(0, len(joined), 16)]
    assert rows == sorted(rows)
    assert len(set(rows)) == 40
    path = store.engine.url.database
    store.answers.merge()
    keeping.truncate_log(store.engine)
    with open(path, "rb") as file:
        assert joined[:64] not in file.read()


def test_a_merge_that_is_rolled_back_leaves_all_in_the_log(store, monkeypatch, mechanism, digits):
    always_many(monkeypatch)
    campaign, items = items_for(store, mechanism, digits, 20)
    store.submit(REPORT, campaign.id, items)
    with store.engine.connect() as connection:
        assert store.answers._log.merge(connection) == 20
        connection.rollback()  # as if the process had been killed
    assert counts(store) == (0, 20, 20)
    (place,) = store._places(campaign.id, REPORT, [items[0][0]])
    with pytest.raises(NotAllNew):
        store.answers._keep_all(campaign, REPORT, {place.row: (place.invited, b"abc")}, None)
    store.answers.merge()
    assert counts(store) == (20, 0, 20)


def test_a_full_campaign_takes_none_of_a_large_batch_but_what_fits(many, mechanism, digits):
    store = many()
    campaign, _ = store.create(mechanism, **{**SETTINGS, "minimum": 1, "quota": 7})
    tokens = store.invite(campaign.id, 10)
    images, labels = digits
    sets = mechanism.release(images[:10], labels[:10]).columns["symbols"].tolist()
    items = [(t, {"symbols": s}) for t, s in zip(tokens, sets, strict=True)]
    found = store.submit(REPORT, campaign.id, items)
    assert [isinstance(one, Problem) for one in found] == [False] * 7 + [True] * 3
    store.answers.merge()
    assert counts(store) == (7, 0, 7)


def test_the_inbox_merges_once_nothing_arrives(store, monkeypatch, mechanism, digits):
    import asyncio

    always_many(monkeypatch)
    campaign, items = items_for(store, mechanism, digits, 10)
    inbox = Inbox(store)

    async def send():
        return await inbox.submit((REPORT, campaign.id, None), items)

    assert all(isinstance(one, str) for one in asyncio.run(send()))
    deadline = time.monotonic() + 30
    while counts(store) != (10, 0, 10):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    inbox.stop()


def test_invitations_in_memory_are_exact(store, mechanism):
    campaign, _ = store.create(mechanism, **SETTINGS)
    other, _ = store.create(mechanism, **SETTINGS)
    rows = [
        place.invited
        for place in store._places(campaign.id, REPORT, store.invite(campaign.id, 500))
    ]
    invited = Invited(store.engine)
    invited.read(campaign.id)
    invited.read(other.id)
    assert invited.covers(campaign.id, rows)
    assert not invited.covers(other.id, rows[:1])
    assert not invited.covers(campaign.id, [*rows, secrets.token_bytes(16)])
    half = rows[0][:8] + bytes(8)  # agrees in the half that is searched
    assert not invited.covers(campaign.id, [half])
    more = [secrets.token_bytes(16) for _ in range(10)]
    invited.add(campaign.id, more)
    assert invited.covers(campaign.id, rows + more)
    assert np.array_equal(np.sort(invited._known[campaign.id]), invited._known[campaign.id])
