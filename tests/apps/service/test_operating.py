"""What an operator sees, and what made-up tokens cost: limits, readiness, logs and counters."""

import json
import logging
import math
import time

import pytest
import sqlalchemy as sql
from fastapi.testclient import TestClient

from tacit.apps.service import tokens
from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.database import named_errors
from tacit.apps.service.limits import AtOnce
from tacit.apps.service.logs import JsonLines, Rarely
from tacit.apps.service.metrics import BOUNDS, Metrics
from tacit.apps.service.problems import Problem
from tacit.apps.service.readiness import OLDEST
from tacit.apps.service.store import Store

from .conftest import SETTINGS

FEW = Limits(rate=math.inf, token_rate=math.inf, unknown_rate=0.01, unknown_burst=5)


class Asked:
    """A campaign with unused tokens and reports."""

    def __init__(self, store, mechanism, digits):
        images, labels = digits
        self.store = store
        self.campaign, _ = store.create(mechanism, **SETTINGS)
        self.http = TestClient(make_app(store, limits=FEW))
        self.base = f"/v1/campaigns/{self.campaign.id}"
        self.tokens = store.invite(self.campaign.id, 60)
        drawn = mechanism.release(images[:60], labels[:60]).columns["symbols"].tolist()
        self.reports = [{"symbols": symbols} for symbols in drawn]

    def send(self, token, at=0):
        body = {"artifact": self.campaign.fingerprint, "report": self.reports[at]}
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.post(f"{self.base}/reports", json=body, headers=headers)

    def batch(self, words):
        items = [
            {"token": word, "report": report}
            for word, report in zip(words, self.reports, strict=False)
        ]
        body = {"artifact": self.campaign.fingerprint, "reports": items}
        return self.http.post(f"{self.base}/reports/batch", json=body)

    def used(self, token):
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.get(f"{self.base}/token", headers=headers)

    def counted(self, line):
        return f"\n{line}" in self.http.get("/v1/metrics").text


@pytest.fixture(autouse=True)
def _log_afresh(monkeypatch):
    monkeypatch.setattr("tacit.apps.service.database._log", Rarely())


@pytest.fixture
def asked(store, mechanism, digits):
    found = Asked(store, mechanism, digits)
    with found.http:
        yield found


# --- tokens that nobody made --------------------------------------------------------------------


def made_up():
    return tokens.new() + tokens.new()[:12]


def test_marks_are_of_this_secret_and_this_campaign(store):
    (token,) = store.secret.invite("campaign", 1)
    other = tokens.Secret(bytes(32))
    assert store.secret.may_be_ours("campaign", token) is True
    assert store.secret.may_be_ours("another", token) is False
    assert other.may_be_ours("campaign", token) is False
    assert store.secret.may_be_ours("campaign", token[:-1] + "é") is False
    assert store.secret.may_be_ours("campaign", token[:-1]) is False
    assert store.secret.may_be_ours("campaign", made_up()) is False
    assert store.secret.may_be_ours("campaign", tokens.new()) is None


def test_made_up_tokens_never_reach_the_database(asked, monkeypatch):
    def refuse(*_):
        raise AssertionError("the database was asked")

    monkeypatch.setattr(Store, "submit", refuse)
    monkeypatch.setattr(Store, "used", refuse)
    assert asked.send(made_up()).json()["type"] == "tacit:unknown-token"
    assert asked.used(made_up()).status_code == 401
    answer = asked.batch([made_up(), made_up()])
    assert [one["problem"]["status"] for one in answer.json()["results"]] == [401, 401]


def test_whoever_makes_tokens_up_waits_and_the_invited_do_not(asked):
    assert asked.batch([made_up() for _ in range(50)]).status_code == 200
    for refused in (asked.batch([made_up()]), asked.batch(asked.tokens[:2]), asked.send("x" * 32)):
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 100
    assert asked.send(made_up()).status_code == 429
    assert asked.send(asked.tokens[0]).status_code == 201
    assert asked.used(asked.tokens[0]).json()["report"] == "stored"
    assert asked.counted('tacit_refused_total{reason="too-fast"} 4')


def test_tokens_of_earlier_versions_are_taken_and_their_inventors_counted(asked, monkeypatch):
    old = [tokens.new() for _ in range(3)]
    monkeypatch.setattr(tokens.Secret, "invite", lambda *_: list(old))
    asked.store.invite(asked.campaign.id, 3)
    assert asked.send(old[0]).status_code == 201
    mixed = [old[1], asked.tokens[1], made_up(), tokens.new()]
    found = asked.batch(mixed).json()
    assert found["stored"] == 2
    assert [one.get("problem", {}).get("status") for one in found["results"]] == [
        *(None, None),
        *(401, 401),
    ]
    for _ in range(3):
        assert asked.send(tokens.new()).status_code == 401
    assert asked.send(tokens.new()).status_code == 429
    assert asked.send(old[2]).status_code == 429  # for want of a mark
    assert asked.send(asked.tokens[2]).status_code == 201


def test_so_many_requests_of_one_address_at_once():
    now = AtOnce(2)
    now.enter("a")
    now.enter("a")
    now.enter("b")
    with pytest.raises(Problem, match="at once"):
        now.enter("a")
    now.leave("a")
    now.enter("a")


# --- failures that must be seen -----------------------------------------------------------------


@pytest.fixture
def full(store, mechanism, digits):
    """An SQLite database that may not grow."""
    asked = Asked(store, mechanism, digits)

    def limit(connection, _):
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages}")

    store.engine.dispose()
    sql.event.listen(store.engine, "connect", limit)
    with asked.http:
        yield asked


def test_a_full_disk_is_said_logged_and_counted(full, caplog):
    refused = None
    for start in range(0, 60, 10):
        answer = full.batch(full.tokens[start : start + 10])
        refused = answer if answer.status_code == 503 else refused
    while refused is None:
        full.tokens = full.store.invite(full.campaign.id, 60)
        refused = answer if (answer := full.batch(full.tokens)).status_code == 503 else None
    assert refused.json()["type"] == "tacit:database-away"
    assert full.http.get("/v1/ready").status_code == 503
    assert full.http.get("/v1/health").status_code == 503
    assert full.http.get("/v1/live").status_code == 200
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert any(line.get("code") == "SQLITE_FULL" for line in lines)
    text = json.dumps(lines)
    assert not any(token in text for token in full.tokens)
    assert 'status="503"' in full.http.get("/v1/metrics").text
    assert 'tacit_refused_total{reason="database-away"}' in full.http.get("/v1/metrics").text


def test_readiness_leaves_nothing_and_follows_the_last_answers(asked, monkeypatch):
    def rows():
        with asked.store.engine.connect() as connection:
            return connection.execute(sql.text("SELECT count(*) FROM invitations")).scalar()

    before = rows()
    assert asked.http.get("/v1/ready").status_code == 200
    assert rows() == before

    def away(*_):
        with named_errors():
            raise sql.exc.OperationalError("INSERT secret", {}, Exception("10.0.0.1"))

    with monkeypatch.context() as broken:
        broken.setattr(Store, "submit", away)
        assert asked.send(asked.tokens[0]).status_code == 503
        assert asked.http.get("/v1/ready").status_code == 503
    assert asked.send(asked.tokens[0]).status_code == 201
    assert asked.http.get("/v1/ready").status_code == 200


@pytest.mark.heavy
def test_a_stopped_postgresql_is_said_logged_and_counted(
    postgres, tmp_path, mechanism, digits, caplog
):
    store = Store.open(postgres.create(), tmp_path / "secret")
    asked = Asked(store, mechanism, digits)
    with asked.http:
        assert asked.http.get("/v1/ready").status_code == 200
        postgres.stop("immediate")
        try:
            assert asked.send(asked.tokens[0]).status_code == 503
            becomes(asked, 503)
            assert asked.http.get("/v1/live").status_code == 200
            assert (
                'tacit_refused_total{reason="database-away"}' in asked.http.get("/v1/metrics").text
            )
            events = [record.msg for record in caplog.records]
            assert "the database does not respond" in events
        finally:
            postgres.start()
        assert asked.send(asked.tokens[0]).status_code == 201
        becomes(asked, 200)


def becomes(asked, status):
    """Readiness is repeated for a moment before it is tried again."""
    for _ in range(200):
        if asked.http.get("/v1/ready").status_code == status:
            return
        time.sleep(OLDEST / 2)
    raise AssertionError(f"readiness did not become {status}")


# --- the log ------------------------------------------------------------------------------------


def lines_of(caplog):
    return [json.loads(JsonLines().format(record)) for record in caplog.records]


def test_the_log_names_errors_and_places_and_quotes_nothing(caplog):
    secret = "token-192.0.2.7"
    try:
        int(secret)
    except ValueError:
        logging.getLogger("tacit.apps.service").exception("a request failed")
        logging.getLogger("other").error("for %s\n%s", secret, secret, exc_info=True)
    logging.getLogger("other").error(f"first line\nclient: {secret}")
    ours, others, more = lines_of(caplog)
    assert (ours["event"], ours["error"], ours["level"]) == (
        *("a request failed", "ValueError"),
        "error",
    )
    assert ours["trace"][0].startswith("test_operating.py:")
    assert (others["event"], more["event"]) == ("for", "first line")
    assert secret not in json.dumps([ours, others, more])


def test_a_failed_request_has_the_id_of_its_answer(asked, caplog, monkeypatch):
    def fail(*_):
        raise RuntimeError(asked.tokens[0])

    monkeypatch.setattr(Store, "describe", fail)
    caplog.handler.setFormatter(JsonLines())
    answer = asked.http.get(asked.base, headers={"X-Request-Id": "mine"})
    assert answer.status_code == 500
    (line,) = map(json.loads, caplog.text.splitlines())
    assert line["event"] == "a request failed"
    assert line["request_id"] == answer.headers["x-request-id"] != "mine"
    assert len(line["request_id"]) == 16
    assert asked.tokens[0] not in json.dumps(line)
    again = asked.http.get("/v1/live").headers["x-request-id"]
    assert again != answer.headers["x-request-id"]


def test_what_senders_cause_is_logged_rarely(caplog, monkeypatch):
    now = 0.0
    monkeypatch.setattr("tacit.apps.service.logs.time.monotonic", lambda: now)
    log = Rarely(60)
    for _ in range(1000):
        log.warning("refused", reason="slow-head")
    log.warning("refused", reason="slow-body")
    now = 61.0
    log.warning("refused", reason="slow-head")
    counts = [(line["reason"], line["count"]) for line in lines_of(caplog)]
    assert counts == [("slow-head", 1), ("slow-body", 1), ("slow-head", 1000)]


# --- counters -----------------------------------------------------------------------------------


def test_times_are_a_histogram():
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.004, 99):
        metrics.took("/v1/live", seconds)
    text = metrics.text()
    assert "# TYPE tacit_request_seconds histogram" in text
    buckets = [line for line in text.splitlines() if line.startswith("tacit_request_seconds_b")]
    assert len(buckets) == len(BOUNDS) + 1
    assert buckets[0] == 'tacit_request_seconds_bucket{route="/v1/live",le="0.001"} 2'
    assert buckets[2].endswith('le="0.005"} 3')
    assert buckets[-1] == 'tacit_request_seconds_bucket{route="/v1/live",le="+Inf"} 4'
    assert 'tacit_request_seconds_count{route="/v1/live"} 4' in text
    assert 'tacit_request_seconds_sum{route="/v1/live"} 99.0055' in text
