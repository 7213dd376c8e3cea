"""What the interface says, over real HTTP semantics, without a process of its own."""

import json
import math

import pytest
from fastapi.testclient import TestClient

from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.limits import Buckets
from tacit.apps.service.problems import KNOWN, Problem
from tacit.privacy import artifact
from tacit.privacy.certificate import Certificate

from .conftest import SETTINGS

UNLIMITED = Limits(rate=math.inf, token_rate=math.inf)


class Asked:
    """A campaign behind the interface."""

    def __init__(self, store, mechanism, limits=UNLIMITED, cors=None, **settings):
        self.store, self.mechanism = store, mechanism
        self.campaign, self.key = store.create(mechanism, **{**SETTINGS, **settings})
        self.http = TestClient(make_app(store, limits=limits, cors=cors))
        self.base = f"/v1/campaigns/{self.campaign.id}"
        self.owner = {"Authorization": f"Bearer {self.key}"}

    def tokens(self, count):
        made = self.http.post(f"{self.base}/invitations", json={"count": count}, headers=self.owner)
        assert made.status_code == 201
        return made.json()["tokens"]

    def body(self, report):
        return {"artifact": self.campaign.fingerprint, "report": report}

    def send(self, token, report):
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.post(f"{self.base}/reports", json=self.body(report), headers=headers)


@pytest.fixture
def asked(store, mechanism):
    found = Asked(store, mechanism)
    with found.http:
        yield found


@pytest.fixture(scope="module")
def reports(mechanism, digits):
    images, labels = digits
    sets = mechanism.release(images[600:700], labels[600:700]).columns["symbols"].tolist()
    return [{"symbols": symbols} for symbols in sets]


def said(response, code):
    """The response is the problem document of this code."""
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert (found["type"], found["status"]) == (f"tacit:{code}", response.status_code)
    assert response.status_code == KNOWN[code][0]
    assert found["detail"]
    return found


def test_description_says_what_people_must_know(asked):
    found = asked.http.get(asked.base).json()
    assert found["artifact"] == {"sha256": asked.campaign.fingerprint, "kind": "codebook"}
    assert (found["epsilon"], found["vote_epsilon"], found["total_epsilon"]) == (4, 2, 6)
    assert (found["state"], found["reports"], found["model"]) == ("open", 0, None)
    stated = Certificate.from_json(asked.http.get(f"{asked.base}/certificate").content)
    stated.verify()
    assert stated.guarantee == asked.campaign.certificate.guarantee
    assert "epsilon = 6" in found["explanation"]
    packed = asked.http.get(f"{asked.base}/artifact").content
    assert artifact.fingerprint(artifact.unpack(packed)) == found["artifact"]["sha256"]
    assert asked.http.get(f"{asked.base}/encoder").content[:1] == b"\x08"


def test_report_is_kept_once_and_repeated_word_for_word(asked, reports):
    (token,) = asked.tokens(1)
    first = asked.send(token, reports[0])
    assert first.status_code == 201
    again = asked.send(token, reports[0])
    assert (again.status_code, again.content) == (first.status_code, first.content)
    # The same report, written otherwise.
    spaced = json.dumps(asked.body(reports[0]), indent=3).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    again = asked.http.post(f"{asked.base}/reports", content=spaced, headers=headers)
    assert again.content == first.content
    said(asked.send(token, reports[1]), "already-reported")
    assert asked.http.get(asked.base).json()["reports"] == 1


def test_batch_reports_each_outcome(asked, reports):
    tokens = asked.tokens(3)
    items = [{"token": t, "report": r} for t, r in zip(tokens, reports, strict=False)]
    items.insert(1, {"token": "nobody", "report": reports[0]})
    items.append({"token": tokens[2], "report": {"symbols": [1]}})
    body = {"artifact": asked.campaign.fingerprint, "reports": items}
    found = asked.http.post(f"{asked.base}/reports/batch", json=body).json()
    assert found["stored"] == 3
    kinds = [one.get("problem", {}).get("type", "kept") for one in found["results"]]
    assert kinds == ["kept", "tacit:unknown-token", "kept", "kept", "tacit:not-a-report"]
    extra = {**items[0], "raw": [0] * 64}
    for wrong in ([], [{}], [{"token": "t"}], [extra], {}, None, [items] * 2):
        body["reports"] = wrong
        said(asked.http.post(f"{asked.base}/reports/batch", json=body), "not-json")
    body["reports"] = items[:1] * 1001
    said(asked.http.post(f"{asked.base}/reports/batch", json=body), "not-json")


def test_only_what_the_mechanism_can_have_released_is_kept(asked, reports):
    (token,) = asked.tokens(1)
    good = reports[0]["symbols"]
    size, most = len(good), asked.mechanism.channel(True).symbols.categories
    for wrong in (
        {"symbols": good[:-1]},
        {"symbols": [*good, most - 1]},
        {"symbols": good[::-1]},
        {"symbols": [good[0]] * size},
        {"symbols": [*good[:-1], most]},
        {"symbols": [-1, *good[1:]]},
        {"symbols": [float(v) for v in good]},
        {"symbols": [True, *good[1:]]},
        {"symbols": [str(v) for v in good]},
        {"symbols": [10**30, *good[1:]]},
        {"symbols": [[v] for v in good]},
        {"symbols": None},
        {"symbols": good, "raw": [0] * 64},
        {"pixels": good},
        {},
        [],
        "symbols",
        None,
        7,
    ):
        said(asked.send(token, wrong), "not-a-report")
    assert asked.http.get(asked.base).json()["reports"] == 0
    assert asked.send(token, reports[0]).status_code == 201


def test_bodies_that_are_not_as_documented(asked, reports):
    (token,) = asked.tokens(1)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    where, good = f"{asked.base}/reports", asked.body(reports[0])
    for wrong in (
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"artifact": NaN}',
        json.dumps({**good, "drawing": [0] * 64}).encode(),
        json.dumps({"report": reports[0]}).encode(),
        b'{"artifact": ' + b"9" * 5000 + b', "report": 1}',
        json.dumps([good]).encode(),
    ):
        said(asked.http.post(where, content=wrong, headers=headers), "not-json")
    other = {**good, "artifact": "0" * 64}
    said(asked.http.post(where, json=other, headers=headers), "other-artifact")
    kind = {**headers, "Content-Type": "text/plain"}
    said(asked.http.post(where, content=json.dumps(good), headers=kind), "not-json-type")
    said(asked.http.post(where, content=b" " * (1 << 21), headers=headers), "too-large")
    said(asked.http.post(where, content=iter([b" " * (1 << 20)] * 2), headers=headers), "too-large")
    said(asked.http.get(where), "not-allowed")
    said(asked.http.get("/v1/nothing"), "not-found")
    for name in ("nobody", "AAAAAAAAAAAA", "%00%00%00%00%00%00%00%00%00%00%00%00", "é" * 12):
        said(asked.http.get(f"/v1/campaigns/{name}"), "no-campaign")
    assert asked.http.get(asked.base).json()["reports"] == 0


def test_owner_routes_need_the_key(asked):
    (token,) = asked.tokens(1)
    for method, where in (
        ("post", "invitations"),
        ("post", "close"),
        ("get", "results"),
        ("post", "model"),
        ("get", "reports.parquet"),
    ):
        for headers in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": asked.key}):
            body = {"json": {"count": 1}} if where == "invitations" else {}
            answer = getattr(asked.http, method)(f"{asked.base}/{where}", headers=headers, **body)
            said(answer, "unknown-key")
    said(asked.http.get(f"{asked.base}/results", headers=asked.owner), "too-few")
    said(asked.http.post(f"{asked.base}/model", headers=asked.owner), "too-few")
    said(asked.http.get(f"{asked.base}/reports.parquet", headers=asked.owner), "too-few")
    for count in (0, -1, 1.0, True, "1", 100_001, None):
        answer = asked.http.post(
            f"{asked.base}/invitations", json={"count": count}, headers=asked.owner
        )
        said(answer, "not-json")
    assert asked.http.post(f"{asked.base}/close", headers=asked.owner).json()["state"] == "closed"


def test_one_campaigns_key_and_tokens_are_nothing_to_another(asked, store, mechanism, reports):
    (token,) = asked.tokens(1)
    other, _ = store.create(mechanism, **SETTINGS)
    base = f"/v1/campaigns/{other.id}"
    said(asked.http.get(f"{base}/results", headers=asked.owner), "unknown-key")
    headers = {"Authorization": f"Bearer {token}"}
    answer = asked.http.post(f"{base}/reports", json=asked.body(reports[0]), headers=headers)
    said(answer, "unknown-token")
    receipt = asked.send(token, reports[0]).json()["receipt"]
    said(asked.http.post(f"{base}/withdrawals", json={"receipt": receipt}), "unknown-receipt")
    assert asked.http.get(asked.base).json()["reports"] == 1


def test_confidence_is_checked(asked, reports):
    body = [{"token": t, "report": r} for t, r in zip(asked.tokens(30), reports, strict=False)]
    given = {"artifact": asked.campaign.fingerprint, "reports": body}
    assert asked.http.post(f"{asked.base}/reports/batch", json=given).json()["stored"] == 30
    where = f"{asked.base}/results"
    for wrong in ("nan", "0", "1.5", "x"):
        answer = asked.http.get(where, params={"confidence": wrong}, headers=asked.owner)
        said(answer, "bad-request")
    assert asked.http.get(where, headers=asked.owner).json()["reports"] == 30


def test_every_answer_has_the_security_headers(asked):
    for where in ("/v1/health", asked.base, "/v1/nothing", f"/c/{asked.campaign.id}", "/"):
        found = asked.http.get(where, follow_redirects=False).headers
        assert "default-src 'none'" in found["content-security-policy"]
        assert "unsafe" not in found["content-security-policy"]
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in found
    secure = asked.http.get("https://testserver/v1/health").headers
    assert "max-age" in secure["strict-transport-security"]


def test_foreign_pages_only_where_configured(store, mechanism):
    asked = Asked(store, mechanism, cors="https://survey.example")
    with asked.http:
        asking = {"Origin": "https://survey.example", "Access-Control-Request-Method": "POST"}
        found = asked.http.options(f"{asked.base}/reports", headers=asking)
        assert found.status_code == 204
        assert found.headers["access-control-allow-origin"] == "https://survey.example"


def test_too_many_requests_wait(store, mechanism, reports):
    asked = Asked(store, mechanism, limits=Limits(rate=1, burst=50, token_rate=0.1, token_burst=3))
    with asked.http:
        (token,) = asked.tokens(1)
        statuses = [asked.send(token, reports[0]).status_code for _ in range(4)]
        assert statuses == [201, 201, 201, 429]
        answers = [asked.http.get("/v1/health") for _ in range(60)]
        found = said(answers[-1], "too-fast")
        assert int(answers[-1].headers["retry-after"]) == found["retry_after"] >= 1


def test_buckets_fill_again_and_forget(monkeypatch):
    now = 0.0
    monkeypatch.setattr("tacit.apps.service.limits.time.monotonic", lambda: now)
    monkeypatch.setattr("tacit.apps.service.limits._MOST_BUCKETS", 3)
    buckets = Buckets(rate=2, burst=2)
    for _ in range(2):
        buckets.take("a")
    with pytest.raises(Problem, match="1 s"):
        buckets.take("a")
    now = 0.5
    buckets.take("a")
    for name in "bcd":
        buckets.take(name)
    assert "a" not in buckets._levels


def test_metrics_count_requests_and_answers(asked, reports):
    (token,) = asked.tokens(1)
    asked.send(token, reports[0])
    asked.send("nobody", reports[0])
    found = asked.http.get("/v1/metrics").text
    assert 'tacit_stored_total{kind="report"} 1' in found
    assert 'tacit_refused_total{reason="unknown-token"} 1' in found
    assert token not in found
    assert asked.campaign.id not in found


def test_interface_is_documented(asked):
    found = asked.http.get("/v1/openapi.json").json()
    paths = found["paths"]
    assert "/v1/campaigns/{name}/reports" in paths
    body = paths["/v1/campaigns/{name}/reports"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema["required"] == ["artifact", "report"]
    assert not schema["additionalProperties"]
    described = [one for path in paths.values() for one in path.values()]
    assert all(one.get("description") for one in described)


def test_database_that_is_away_is_said_and_nothing_of_it_quoted(asked, reports, monkeypatch):
    import sqlalchemy as sql

    (token,) = asked.tokens(1)

    def away(*_, **__):
        raise sql.exc.OperationalError("SELECT secret", {}, Exception("password"))

    monkeypatch.setattr(type(asked.store.engine), "connect", away)
    monkeypatch.setattr(type(asked.store.engine), "begin", away)
    for answer in (asked.http.get("/v1/health"), asked.send(token, reports[0])):
        said(answer, "database-away")
        assert "secret" not in answer.text
        assert "password" not in answer.text
