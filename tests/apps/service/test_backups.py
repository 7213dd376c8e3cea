"""Backups of either kind of database, restored into either kind: everything is there, once."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from tacit.apps.service import backups, tables
from tacit.apps.service.store import REPORT, VOTE, Store
from tacit.privacy import errors

from .conftest import SETTINGS, always_many
from .test_migrations import OldDatabase, write_sqlite

KINDS = ["sqlite", "postgresql"]
New = Callable[[str], str]


@pytest.fixture
def new(request: Any, tmp_path: Path) -> New:
    """Return how to make the address of a new database of a kind."""

    def address(kind: str) -> str:
        if kind == "postgresql":
            return str(request.getfixturevalue("postgres").create())
        address.count += 1  # type: ignore[attr-defined]
        return f"sqlite:///{tmp_path}/{address.count}.db"  # type: ignore[attr-defined]

    address.count = 0  # type: ignore[attr-defined]
    return address


class Held:
    """A campaign with 30 invitations, 20 reports of which one was withdrawn, and two votes."""

    def __init__(self, url: str, secret: Path, mechanism: Any, digits: Any) -> None:
        self.url, self.secret = url, secret
        images, labels = digits
        with_store = Store.open(url, secret)
        self.campaign, self.key = with_store.create(mechanism, **{**SETTINGS, "minimum": 5})
        self.tokens = with_store.invite(self.campaign.id, 30)
        drawn = mechanism.release(images[:30], labels[:30]).columns["symbols"].tolist()
        self.items = [
            (token, {"symbols": one}) for token, one in zip(self.tokens, drawn, strict=True)
        ]
        self.receipts = with_store.submit(REPORT, self.campaign.id, self.items[:20])
        with_store.withdraw(self.campaign.id, str(self.receipts[3]))
        (reports,) = with_store.reports(self.campaign.id)
        from tacit.apps.service import results

        told = with_store.publish(self.campaign.id, results.learn(reports), 19)
        votes = [(token, 1) for token in self.tokens[:2]]
        self.votes = with_store.submit(VOTE, self.campaign.id, votes, told["sha256"])
        with_store.engine.dispose()


def content(url: str) -> dict[str, list[Any]]:
    """Return every row of every table."""
    engine = sql.create_engine(url)
    with engine.connect() as connection:
        found = {
            name: sorted(
                repr([bytes(one) if isinstance(one, memoryview) else one for one in row])
                for row in connection.execute(sql.select(table))
            )
            for name, table in tables.metadata.tables.items()
        }
    engine.dispose()
    return found


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_what_was_acknowledged_is_there_once_and_the_campaign_goes_on(
    before: str, after: str, new: New, tmp_path: Path, mechanism: Any, digits: Any
) -> None:
    held = Held(new(before), tmp_path / "secret", mechanism, digits)
    file, restored = tmp_path / "backup", new(after)
    counted = backups.back_up(held.url, file)
    assert counted == {"campaigns": 1, "invitations": 30, "answers": 21, "withdrawn": 1}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert backups.restore(file, restored) == counted
    assert content(restored) == content(held.url)
    store, name = Store.open(restored, held.secret), held.campaign.id
    store.must_own(name, held.key)
    again = store.submit(REPORT, name, held.items)  # as devices that kept their draws would
    assert again[:3] == held.receipts[:3]
    assert getattr(again[3], "code", None) == "withdrawn"
    assert again[4:20] == held.receipts[4:20]
    assert store.status(name).reports == 29
    assert store.withdraw(name, str(held.votes[0]))
    other, _ = store.create(mechanism, **{**SETTINGS, "title": "Another"})  # numbers go on
    assert store.invite(other.id, 2)
    store.engine.dispose()
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_while_answers_arrive_is_of_one_moment(
    kind: str, new: New, tmp_path: Path, mechanism: Any, digits: Any, monkeypatch: Any
) -> None:
    """What was acknowledged before it began is in it, and its count is that of its rows."""
    always_many(monkeypatch)  # into SQLite's log, too
    held = Held(new(kind), tmp_path / "secret", mechanism, digits)
    store, name, report = Store.open(held.url, held.secret), held.campaign.id, held.items[0][1]
    tokens = store.invite(name, 2000)
    acknowledged: list[str] = []

    def send() -> None:
        for start in range(0, 2000, 20):
            some = [(token, report) for token in tokens[start : start + 20]]
            acknowledged.extend(map(str, store.submit(REPORT, name, some)))

    sender = threading.Thread(target=send)
    sender.start()
    while len(acknowledged) < 200:
        pass
    least = len(acknowledged)
    counted = backups.back_up(held.url, tmp_path / "backup")
    sender.join()
    backups.restore(tmp_path / "backup", f"sqlite:///{tmp_path}/restored.db")
    after = Store.open(f"sqlite:///{tmp_path}/restored.db", held.secret)
    assert content(f"sqlite:///{tmp_path}/backup")["arrivals"] == []
    stored = after.status(name).reports
    assert 19 + least <= stored <= 19 + len(acknowledged)
    assert len(after.reports(name)[0]) == stored
    assert counted["answers"] == stored + 2  # two votes
    assert all(after.withdraw(name, one) for one in acknowledged[:least:50])
    for one in (after, store):
        one.engine.dispose()


def test_a_backup_is_in_the_order_of_the_hashes(
    new: New, tmp_path: Path, mechanism: Any, digits: Any
) -> None:
    """In the file itself, not only when it is asked."""
    held = Held(new("postgresql"), tmp_path / "secret", mechanism, digits)
    backups.back_up(held.url, tmp_path / "backup")
    raw = (tmp_path / "backup").read_bytes()
    with sqlite3.connect(tmp_path / "backup") as connection:
        rows = [row for (row,) in connection.execute('SELECT "row" FROM answers ORDER BY "row"')]
    places = [raw.find(row) for row in rows]
    assert places in (sorted(places), sorted(places, reverse=True))


def test_what_is_no_backup_and_what_is_not_new_is_refused(
    new: New, tmp_path: Path, mechanism: Any, digits: Any
) -> None:
    held = Held(new("sqlite"), tmp_path / "secret", mechanism, digits)
    file = tmp_path / "backup"
    backups.back_up(held.url, file)
    for call, reason in (
        (lambda: backups.back_up(held.url, file), "new"),
        (lambda: backups.restore(file, held.url), "new"),
        (lambda: backups.back_up(f"sqlite:///{tmp_path}/none.db", tmp_path / "a"), "existing"),
    ):
        with pytest.raises(errors.InvalidParameter, match=reason):
            call()
    (tmp_path / "empty").touch()
    with pytest.raises(errors.InvalidParameter, match="one with campaigns"):
        backups.restore(tmp_path / "empty", new("sqlite"))
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2 :] = bytes(len(damaged) - len(damaged) // 2)
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(errors.InvalidData, match="undamaged"):
        backups.restore(tmp_path / "damaged", new("sqlite"))
    assert not (tmp_path / "a").exists()


def test_an_earlier_version_is_backed_up_before_it_is_migrated(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "3.db", "3")
    old = OldDatabase("3", f"sqlite:///{tmp_path}/3.db", tmp_path)
    before = old.content()
    counted = backups.back_up(old.url, tmp_path / "backup")
    assert counted == {"campaigns": 1, "invitations": 12, "answers": 11, "withdrawn": 1}
    assert OldDatabase("3", f"sqlite:///{tmp_path}/backup", tmp_path).content() == before
    with pytest.raises(errors.InvalidParameter, match="Migrate it first"):
        backups.restore(tmp_path / "backup", f"sqlite:///{tmp_path}/new.db")


def test_the_commands(run: Any, tmp_path: Path, mechanism: Any, digits: Any) -> None:
    """An old database is backed up and migrated; the new one is backed up and restored."""
    write_sqlite(tmp_path / "4.db", "4")
    old, new = f"sqlite:///{tmp_path}/4.db", f"sqlite:///{tmp_path}/new.db"
    first = run("campaign", "backup", "--db", old, "--out", tmp_path / "first", "--json").json
    assert (first["answers"], first["written"]) == (11, str(tmp_path / "first"))
    done = run("campaign", "migrate", "--db", old, "--json").json
    assert (done["before"], done["after"], done["answers"]) == (4, tables.SCHEMA, 11)
    shown = run("campaign", "migrate", "--db", old)
    assert shown.code == 0
    second = run("campaign", "backup", "--db", old, "--out", tmp_path / "second")
    assert "The secret is not in the backup" in second.out
    assert run("campaign", "restore", tmp_path / "second", "--db", new, "--json").json == {
        "campaigns": 1,
        "invitations": 12,
        "answers": 11,
        "withdrawn": 1,
    }
    assert content(new) == content(old)
    again = run("campaign", "restore", tmp_path / "second", "--db", new)
    assert (again.code, again.out) == (2, "")
    assert "must be new" in again.err
