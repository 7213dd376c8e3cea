"""Faults: servers that are killed, databases that go away, requests that come twice or too late.

`TACIT_KILLS` sets how often each server is killed under load.
"""

import os
import random
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import Empty, SimpleQueue

import httpx
import pytest
import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.store import Store
from tacit.apps.service.wire import ReportForm

from .conftest import new_server

pytestmark = pytest.mark.heavy

KILLS = int(os.environ.get("TACIT_KILLS", "2"))
BATCH, CONNECTIONS = 20, 8


def connect():
    """Without reading certificates, which takes longer than all that is sent."""
    return httpx.Client(timeout=60, verify=False)


class Asked:
    """A server, its database seen from outside, and valid reports without end."""

    def __init__(self, server, mechanism, reports):
        self.server, self.mechanism = server, mechanism
        self.store = Store.open(server.db, server.secret)
        self.name, self.artifact = server.campaign_id, self.store.campaign(server.campaign_id)
        self.artifact = self.artifact.fingerprint
        self._reports = ({"symbols": reports[i % len(reports)]} for i in count())

    def people(self, number):
        """So many tokens, each with the one report that was drawn for it."""
        invited = self.store.invite(self.name, number)
        return list(zip(invited, self._reports, strict=False))

    def post(self, client, items):
        """One item as a single report, more as a batch."""
        where, headers = f"{self.server.campaign_url}/reports", {}
        body = {"artifact": self.artifact}
        if len(items) == 1:
            ((token, body["report"]),) = items
            headers = {"Authorization": f"Bearer {token}"}
        else:
            where += "/batch"
            body["reports"] = [{"token": token, "report": report} for token, report in items]
        return client.post(where, json=body, headers=headers)

    def form(self, items):
        """Rows and contents as the database should hold them."""
        pack = ReportForm(self.mechanism, self.mechanism.channel(True)).pack
        return {
            self.store.secret.rows(self.name, [token])[0][1]: pack([report])[0]
            for token, report in items
        }

    def stored(self):
        """Rows and contents as it holds them; its own count must agree."""
        a, c = tables.answers.c, tables.campaigns.c
        with self.store.engine.connect() as connection:
            # A row without content was withdrawn.
            mine = (
                a.campaign == tables.number_of(self.name),
                a.kind == tables.CODES["report"],
                a.content.is_not(None),
            )
            found = connection.execute(sql.select(a.row, a.content).where(*mine)).all()
            query = sql.select(c.reports).where(c.id == self.name)
            counted = connection.execute(query).scalar()
        kept = {bytes(row): bytes(content) for row, content in found}
        assert counted == len(found) == len(kept)
        return kept


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def asked(request, tmp_path_factory, mechanism, digits):
    """On either database."""
    folder = tmp_path_factory.mktemp("faults")
    db = f"sqlite:///{folder}/campaign.db"
    if request.param == "postgresql":
        db = request.getfixturevalue("postgres").create()
    server = new_server(db, folder / "secret", mechanism)
    made = Asked(server, mechanism, mechanism.release(*digits).columns["symbols"].tolist())
    yield made
    made.store.engine.dispose()
    if server.process.poll() is None:
        server.stop()


class Sender:
    """Threads that send singles and batches, and note what became of each."""

    def __init__(self, asked, items):
        self.asked, self.receipts, self.problems = asked, {}, []
        self.acknowledged, self.doubtful = [], []
        self._work, self._stopped = SimpleQueue(), threading.Event()
        while items:
            size = random.choice((1, 1, 1, BATCH))
            self._work.put(items[:size])
            items = items[size:]
        self._threads = [threading.Thread(target=self._run) for _ in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """No further request."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self):
        with connect() as client:
            while not self._stopped.is_set():
                try:
                    reached = self.send(client, self._work.get_nowait())
                except Empty:
                    return
                if not reached:
                    return

    def send(self, client, items):
        """Whether the server answered at all."""
        try:
            answer = self.asked.post(client, items)
        except httpx.TransportError:
            self.doubtful.append(items)
            return False
        if answer.status_code not in (200, 201):
            self.problems.append((answer.status_code, answer.json()["type"]))
            self.doubtful.append(items)
            return True
        said = answer.json()
        results = said.get("results", [said])
        self.receipts |= {
            token: one["receipt"] for (token, _), one in zip(items, results, strict=True)
        }
        self.acknowledged += items
        return True

    def resend(self):
        """What got no answer, byte for byte, as a client does."""
        doubtful, self.doubtful = self.doubtful, []
        with connect() as client:
            for items in doubtful:
                self.send(client, items)
        assert not self.doubtful


# --- kills ---------------------------------------------------------------------------------------


def test_what_was_acknowledged_survives_kills_exactly_once(asked):
    acknowledged = unanswered = 0
    for _ in range(KILLS):
        before = asked.stored()
        sender = Sender(asked, asked.people(5000))
        while len(sender.acknowledged) < 50:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.3))
        asked.server.kill()
        sender.stop()
        acknowledged += len(sender.acknowledged)
        unanswered += len(sender.doubtful)
        asked.server.restart()
        found, told = asked.stored(), asked.form(sender.acknowledged)
        maybe = asked.form([item for items in sender.doubtful for item in items])
        assert (before | told).items() <= found.items()
        assert found.items() <= (before | told | maybe).items()
        first = dict(sender.receipts)
        sender.doubtful += [[item] for item in sender.acknowledged[:10]]
        sender.resend()
        assert asked.stored() == before | told | maybe
        assert first.items() <= sender.receipts.items()
    print(f"{KILLS} kills, {acknowledged} acknowledged, {unanswered} requests without an answer")
    assert unanswered > 0


@pytest.mark.slow
def test_a_kill_while_people_withdraw_leaves_all_of_it_or_nothing(asked):
    """Row, count and spent token change together."""
    sender = Sender(asked, people := asked.people(200))
    while len(sender.acknowledged) < len(people):
        time.sleep(0.005)
    sender.stop()
    before, gone = asked.stored(), []

    def withdraw(token):
        body = {"receipt": sender.receipts[token]}
        try:
            answer = client.post(f"{asked.server.campaign_url}/withdrawals", json=body)
        except httpx.TransportError:
            return
        assert answer.json() == {"withdrawn": True}
        gone.append(token)

    with connect() as client, ThreadPoolExecutor(CONNECTIONS) as pool:
        done = pool.map(withdraw, [token for token, _ in people])
        while len(gone) < 20:
            time.sleep(0.002)
        asked.server.kill()
        list(done)
    asked.server.restart()
    left = asked.stored()
    missing = before.keys() - left.keys()
    told = asked.form([item for item in people if item[0] in gone]).keys()
    assert told <= missing <= asked.form(people).keys()
    with connect() as client:
        answer = asked.post(client, [item for item in people if item[0] == gone[0]])
    assert (answer.status_code, answer.json()["type"]) == (410, "tacit:withdrawn")
    assert asked.stored() == left


# --- a database that goes away -------------------------------------------------------------------


def health(asked):
    with connect() as client:
        answer = client.get(f"{asked.server.url}/v1/health")
    return answer.status_code, answer.json()


@pytest.mark.parametrize("asked", ["postgresql"], indirect=True)
@pytest.mark.parametrize("mode", ["immediate", pytest.param("fast", marks=pytest.mark.slow)])
def test_postgresql_gone_and_back(asked, postgres, mode):
    """503 meanwhile, service again without a restart, nothing lost, nothing twice."""
    before = asked.stored()
    sender = Sender(asked, people := asked.people(3000))
    while len(sender.acknowledged) < 50:
        time.sleep(0.005)
    asked.store.engine.dispose()
    postgres.stop(mode)
    status, said = health(asked)
    assert (status, said["type"]) == (503, "tacit:database-away")
    while len(sender.problems) < 20:
        time.sleep(0.005)
    postgres.start()
    deadline = time.monotonic() + 20  # until answers are stored again, or were not sent for a while
    while health(asked)[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    sender.stop()
    assert set(sender.problems) == {(503, "tacit:database-away")}
    found, told = asked.stored(), asked.form(sender.acknowledged)
    assert (before | told).items() <= found.items()
    maybe = asked.form([item for items in sender.doubtful for item in items])
    sender.resend()
    assert asked.stored() == before | told | maybe
    assert len(told | maybe) <= len(people)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["sqlite"], indirect=True)
def test_an_sqlite_database_that_somebody_else_holds(asked):
    """Longer than the server waits for it."""
    before, ((token, report),) = asked.stored(), asked.people(1)
    with connect() as client:
        other = sqlite3.connect(asked.server.db.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        answer = asked.post(client, [(token, report)])
        assert (answer.status_code, answer.json()["type"]) == (503, "tacit:database-away")
        other.execute("ROLLBACK")
        other.close()
        assert asked.stored() == before
        assert asked.post(client, [(token, report)]).status_code == 201
    assert asked.stored() == before | asked.form([(token, report)])


# --- twice, and out of order ---------------------------------------------------------------------


def at_once(asked, requests):
    """All of them at the same time, each over a connection of its own."""
    ready = threading.Barrier(len(requests))

    def one(items):
        with connect() as client:
            client.get(f"{asked.server.url}/v1/health")
            ready.wait()
            return asked.post(client, items)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def receipts(answer):
    said = answer.json()
    return [one.get("receipt") for one in said.get("results", [said])]


def test_one_report_many_times_at_once_is_one_report(asked):
    before, people = asked.stored(), asked.people(BATCH)
    requests = [[people[0]]] * 10 + [people] * 5 + [people[::-1]] * 5
    answers = at_once(asked, requests)
    assert {answer.status_code for answer in answers} == {200, 201}
    said = [
        {token: receipt for (token, _), receipt in zip(items, receipts(answer), strict=True)}
        for items, answer in zip(requests, answers, strict=True)
    ]
    assert all(one.items() <= said[10].items() for one in said)
    assert None not in said[10].values()
    assert asked.stored() == before | asked.form(people)


def test_of_several_reports_under_one_token_one_is_kept(asked):
    """Whichever comes first: a second draw would cost the person ε again."""
    before, token = asked.stored(), asked.people(1)[0][0]
    different = [
        {"symbols": s} for s in asked.mechanism.channel(True).symbols.release([0] * 12).tolist()
    ]
    answers = at_once(asked, [[(token, report)] for report in different])
    kept = asked.form([(token, r) for r, a in zip(different, answers, strict=True) if a.is_success])
    assert len({receipts(answer)[0] for answer in answers if answer.is_success}) == 1
    refused = {answer.json()["type"] for answer in answers if not answer.is_success}
    assert refused <= {"tacit:already-reported"}
    assert asked.stored() == before | kept


def test_the_same_token_twice_in_one_batch(asked):
    before, ((token, report), (other, another)) = asked.stored(), asked.people(2)
    assert report != another
    with connect() as client:
        items = [(token, report), (token, report), (token, another), (other, another)]
        said = asked.post(client, items).json()
    assert said["stored"] == 3
    first, second, third, fourth = said["results"]
    assert first == second
    assert third["problem"]["type"] == "tacit:already-reported"
    assert "receipt" in fourth
    assert asked.stored() == before | asked.form([(token, report), (other, another)])


def test_late_and_early_requests(asked, mechanism):
    """Votes before there is a model, retries after the end, a report after its withdrawal."""
    with connect() as client:
        _late_and_early(client, asked, mechanism)


def _late_and_early(client, asked, mechanism):
    campaign, key = asked.store.create(
        mechanism, title="Order", purpose="Late", labelled=True, vote_epsilon=2.0, minimum=1
    )
    tokens = asked.store.invite(campaign.id, 4)
    where, owner = (
        f"{asked.server.url}/v1/campaigns/{campaign.id}",
        {"Authorization": f"Bearer {key}"},
    )
    report = {"symbols": mechanism.channel(True).symbols.release([3])[0].tolist()}

    def send(token, kind="reports", **body):
        body = body or {"artifact": campaign.fingerprint, "report": report}
        headers = {"Authorization": f"Bearer {token}"}
        answer = client.post(f"{where}/{kind}", json=body, headers=headers)
        return answer.status_code, answer.json()

    status, said = send(tokens[0], "votes", model="0" * 64, vote=1)
    assert said["type"] == "tacit:no-model"
    assert send(tokens[0])[0] == 201
    model = client.post(f"{where}/model", headers=owner).json()["sha256"]
    voted = send(tokens[1], "votes", model=model, vote=1)  # before this token's report
    assert voted[0] == 201
    status, said = send(tokens[1])
    assert status == 201
    withdrawal = {"receipt": said["receipt"]}
    for _ in range(2):
        answer = client.post(f"{where}/withdrawals", json=withdrawal)
        assert answer.json() == {"withdrawn": True}
    assert send(tokens[1])[1]["type"] == "tacit:withdrawn"
    assert send(tokens[1], "votes", model=model, vote=1) == voted
    kept = send(tokens[2])
    assert client.post(f"{where}/close", headers=owner).json()["state"] == "closed"
    assert send(tokens[2]) == kept  # its first answer may have been lost
    assert send(tokens[3])[1]["type"] == "tacit:not-open"
    assert send(tokens[3], "votes", model=model, vote=1)[1]["type"] == "tacit:not-open"
    now = asked.store.status(campaign.id)
    assert (now.reports, now.votes) == (2, 1)
