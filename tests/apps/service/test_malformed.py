"""Malformed requests: refused with a reason, never an error of ours, and nothing is stored.

`TACIT_MALFORMED` sets how many are made up by hand; as many again come from the OpenAPI document.
"""

import json
import math
import os
import random
import socket
import string
from contextlib import suppress

import httpx
import pytest
import schemathesis
import sqlalchemy as sql
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tacit.apps.service import results, tables
from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.store import REPORT, VOTE, Store

from .conftest import SETTINGS

pytestmark = pytest.mark.heavy

NUMBER = int(os.environ.get("TACIT_MALFORMED", "600"))
MARK = "raw-value-7f3a"
"""What is sent and must not come back."""

LARGEST = 1 << 16
JSON = {"Content-Type": "application/json"}

# Never a symbol, a report, a list of reports, a hash, a token or a number of people.
WRONG = [
    *(None, True, False, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, 1.0, "", "3", MARK),
    *("\x00", "\ud800", "é" * 200, [], {}, [[]], [None], {"symbols": MARK}, {MARK: [1]}),
    *([MARK], [[1, 2, 3]], float("nan"), float("inf"), -float("inf")),
]


class Target:
    """A campaign with some reports and a published model, behind the interface."""

    def __init__(self, folder, mechanism, digits):
        self.store = Store.open(f"sqlite:///{folder}/campaign.db")
        self.campaign, self.key = self.store.create(mechanism, **SETTINGS)
        self.name = self.campaign.id
        images, labels = digits
        drawn = mechanism.release(images[600:632], labels[600:632]).columns["symbols"].tolist()
        *before, self.token, self.spare = self.store.invite(self.name, 32)
        kept = [(t, {"symbols": s}) for t, s in zip(before, drawn[:30], strict=True)]
        assert not any(map(_is_problem, self.store.submit(REPORT, self.name, kept)))
        self.report = {"symbols": drawn[30]}
        (reports,) = self.store.reports(self.name)
        model = results.learn(reports)
        self.model = self.store.publish(self.name, model, len(reports))["sha256"]
        limits = Limits(rate=math.inf, token_rate=math.inf, largest_body=LARGEST)
        self.app = make_app(self.store, limits=limits)
        self.http = TestClient(self.app, follow_redirects=False, raise_server_exceptions=False)
        self.base = f"/v1/campaigns/{self.name}"

    def stored(self):
        """Everything that answers could have changed."""
        c = tables.campaigns.c
        with self.store.engine.connect() as connection:
            answers = connection.execute(sql.select(tables.answers)).all()
            counts = connection.execute(sql.select(c.reports, c.votes, c.closed)).all()
        return sorted(answers), counts

    def bodies(self):
        """A valid one for every way to send something, with the header that it needs."""
        bearer = {"Authorization": f"Bearer {self.token}"}
        item = {"token": self.token, "report": self.report}
        ballot = {"token": self.token, "vote": 1}
        return {
            "reports": (bearer, {"artifact": self.campaign.fingerprint, "report": self.report}),
            "reports/batch": ({}, {"artifact": self.campaign.fingerprint, "reports": [item]}),
            "votes": (bearer, {"model": self.model, "vote": 1}),
            "votes/batch": ({}, {"model": self.model, "votes": [ballot]}),
        }


def _is_problem(outcome):
    return not isinstance(outcome, str)


@pytest.fixture(scope="module")
def target(tmp_path_factory, mechanism, digits):
    made = Target(tmp_path_factory.mktemp("malformed"), mechanism, digits)
    with made.http:
        yield made
    made.store.engine.dispose()


def must_be_refused(answer, what):
    """With a reason, and without what was sent; a batch may refuse its items one by one."""
    kind = answer.headers.get("content-type", "")
    said = answer.json() if "json" in kind else None
    if answer.status_code == 200 and said is not None and "results" in said:
        assert said["stored"] == 0, what
        found = [one["problem"] for one in said["results"]]
    else:
        assert kind == "application/problem+json", (what, answer.status_code, kind)
        assert said["status"] == answer.status_code, what
        found = [said]
    for one in found:
        assert 400 <= one["status"] < 500, (what, one)
        assert one["type"].startswith("tacit:"), what
        assert one["title"], what
        assert one["detail"], what
    assert MARK not in answer.text, what


# --- made up by hand -----------------------------------------------------------------------------


class Forger:
    """Requests that are nearly right."""

    def __init__(self, target, seed):
        self.target, self.random = target, random.Random(seed)
        self.kinds = [
            *(self.wrong_value, self.wrong_set, self.wrong_hash, self.missing_name),
            *(self.further_name, self.truncated, self.changed_byte, self.not_utf8, self.deep),
            *(self.too_large, self.wrong_type, self.wrong_token, self.unknown_token),
            *(self.not_an_object, self.wrong_path, self.wrong_method, self.wrong_count),
            *(self.wrong_receipt, self.wrong_confidence, self.too_many, self.numbers),
        ]

    def made(self, number):
        for i in range(number):
            kind = self.kinds[i % len(self.kinds)]
            yield kind.__name__, kind()

    def _valid(self, *among):
        bodies = self.target.bodies()
        path = self.random.choice(among or list(bodies))
        headers, body = bodies[path]
        return f"{self.target.base}/{path}", headers, json.loads(json.dumps(body))

    def _post(self, path, headers, content, kind="application/json"):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        return "POST", path, {**headers, "Content-Type": kind}, content

    def _word(self, length, letters=string.ascii_letters + string.digits + "-_"):
        return "".join(self.random.choices(letters, k=length))

    def wrong_value(self):
        """Something of another type or range at any place of the body."""
        path, headers, body = self._valid()
        places = list(_places(body))
        *way, last = self.random.choice(places)
        inner = body
        for step in way:
            inner = inner[step]
        value = self.random.choice(WRONG)
        if _same(inner[last], value) or value == 1.0:
            value = None
        inner[last] = value
        return self._post(path, headers, body)

    def wrong_set(self):
        """Symbols that the channel cannot have named: too many, too few, unsorted, beyond."""
        path, headers, body = self._valid("reports")
        symbols = body["report"]["symbols"]
        most = self.target.campaign.mechanism.channel(True).symbols.categories
        body["report"]["symbols"] = self.random.choice(
            [
                *(symbols[:-1], [*symbols, most - 1, most], symbols[::-1], symbols[:1] * 2),
                *([most + i for i in range(len(symbols))], [], list(range(most))),
                *([-i for i in range(len(symbols), 0, -1)], [symbols], symbols[0], {"0": symbols}),
            ]
        )
        return self._post(path, headers, body)

    def wrong_hash(self):
        path, headers, body = self._valid()
        name = next(iter(body))
        digits = list(body[name])
        place = self.random.randrange(64)
        digits[place] = "0" if digits[place] != "0" else "1"
        right = "".join(digits)
        short = body[name][: self.random.randrange(64)]
        body[name] = self.random.choice([right, short, body[name].upper() + "0", body[name] + "\n"])
        return self._post(path, headers, body)

    def missing_name(self):
        path, headers, body = self._valid()
        del body[self.random.choice(list(body))]
        return self._post(path, headers, body)

    def further_name(self):
        """Nothing but a report has a place here: least of all what it was drawn from."""
        path, headers, body = self._valid()
        body[self.random.choice(["raw", "image", "label", "pixels", "", self._word(8)])] = MARK
        return self._post(path, headers, body)

    def truncated(self):
        path, headers, body = self._valid()
        content = json.dumps(body).encode()
        return self._post(path, headers, content[: self.random.randrange(len(content))])

    def changed_byte(self):
        """A quote, brace or colon lost: no longer JSON."""
        path, headers, body = self._valid()
        content = bytearray(json.dumps(body).encode())
        places = [i for i, byte in enumerate(content) if byte in b'{}[]":']
        content[self.random.choice(places)] = self.random.choice(b";(\x00\x7f'")
        return self._post(path, headers, bytes(content))

    def not_utf8(self):
        path, headers, body = self._valid()
        content = json.dumps(body).encode()
        place = self.random.randrange(1, len(content))
        broken = self.random.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88"])
        return self._post(path, headers, content[:place] + broken + content[place:])

    def deep(self):
        """Nested further than anybody reads."""
        path, headers, body = self._valid()
        opening, closing = self.random.choice([("[", "]"), ('{"a":', "}")])
        times = self.random.choice([50, 500, 5000, 10_000])
        nested = opening * times + "1" + closing * self.random.choice([0, times])
        name = self.random.choice(list(body))
        rest = json.dumps({key: value for key, value in body.items() if key != name})
        return self._post(path, headers, f'{rest[:-1]},"{name}":{nested}}}'.encode())

    def too_large(self):
        path, headers, body = self._valid()
        padding = b" " * self.random.choice([LARGEST, LARGEST * 4])
        return self._post(path, headers, json.dumps(body).encode() + padding)

    def wrong_type(self):
        path, headers, body = self._valid()
        kinds = ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"]
        kinds += ["application/xml", "application/jsonp", "json", MARK, "application/octet-stream"]
        return self._post(path, headers, body, self.random.choice(kinds))

    def wrong_token(self):
        path, _, body = self._valid("reports", "votes")
        token = self.target.token
        value = self.random.choice(
            [
                *("", "Bearer", "Bearer ", f"Basic {token}", token, f"Bearer {token[:-1]}"),
                *(f"Bearer {token} {token}", f"Bearer {token}x", f"Bearer {'x' * 10_000}"),
                *(f"Bearer {MARK}", f"Bearer\t{token}", f"Token {token}", "Bearer \x7f\xff"),
                f"Bearer {token.swapcase()}",
            ]
        )
        return self._post(path, {"Authorization": value.encode("latin-1")}, body)

    def unknown_token(self):
        """Of the right form; alone, in a batch, of the other campaign's owner."""
        path, headers, body = self._valid()
        token = self.random.choice([self._word(32), self.target.key, self._word(128)])
        if "batch" in path:
            next(iter(list(body.values())[1]))["token"] = token
        else:
            headers = {"Authorization": f"Bearer {token}"}
        return self._post(path, headers, body)

    def not_an_object(self):
        path, headers, body = self._valid()
        whole = [[body], None, 3, MARK, True, [], [[]], json.dumps(body), list(body.items())]
        content = self.random.choice([json.dumps(one).encode() for one in whole] + [b"", b" "])
        return self._post(path, headers, content)

    def wrong_path(self):
        """Campaigns that do not exist, and ways around the one that does."""
        name, (_, headers, body) = self.target.name, self._valid("reports")
        other = self.random.choice(
            [
                *(self._word(12), name[:-1], name + "x", name.swapcase() + "0", "..", "%2e%2e"),
                *(name + "%00", "%00", "*", "'; DROP TABLE answers; --", "é" * 6, "a" * 5000),
                *(f"../campaigns/{name}x", f"{name}%2freports", f"{name};x=1", "%ff", " "),
            ]
        )
        path = self.random.choice(
            [
                f"/v1/campaigns/{other}/reports",
                f"/v1/campaigns/{other}/reports/batch",
                f"/v2/campaigns/{name}/reports",
                f"//v1/campaigns/{name}/reports",
                f"/v1/campaigns/{name}/reports/",
                f"/v1/campaigns/{name}/reports/{self._word(5)}",
                f"/V1/campaigns/{name}/reports",
            ]
        )
        return self._post(path, headers, body)

    def wrong_method(self):
        path, headers, body = self._valid()
        method = self.random.choice(["GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "FOO"])
        return method, path, {**headers, **JSON}, json.dumps(body).encode()

    def wrong_count(self):
        owner = {"Authorization": f"Bearer {self.target.key}"}
        values = [value for value in WRONG if value != 2**31] + [0, 100_001, -5, "10", [10]]
        body = {"count": self.random.choice(values)}
        return self._post(f"{self.target.base}/invitations", owner, body)

    def wrong_receipt(self):
        made = self.random.choice([self._word(43), self._word(42) + "=", MARK, self._word(5000)])
        body = {"receipt": self.random.choice([made, *WRONG])}
        return self._post(f"{self.target.base}/withdrawals", {}, body)

    def wrong_confidence(self):
        owner = {"Authorization": f"Bearer {self.target.key}"}
        values = ["nan", "inf", "0", "1", "-1", "2", MARK, "", "1e999", "0x1", "%00", "0.95.1"]
        query = f"confidence={self.random.choice(values)}"
        return "GET", f"{self.target.base}/results?{query}", owner, b""

    def too_many(self):
        """Batches with no items, and with more than there may be."""
        path, headers, body = self._valid("reports/batch", "votes/batch")
        name = list(body)[1]
        body[name] = self.random.choice([[], [{}] * 1001, [None] * 1001, body[name] * 1001])
        return self._post(path, headers, body)

    def numbers(self):
        """Numbers as no JSON has them, or as no machine does."""
        path, headers, body = self._valid()
        text = json.dumps(body)
        whole = ["NaN", "Infinity", "-Infinity", "1e400", "-0.0", "9" * 5000, "0x10", "01", "+1"]
        whole += ["1e3", "1.", ".5", "--1", "1_000", "1" + "0" * 400, "1E+2"]
        name = list(body)[1]
        start = text.index(f'"{name}": ') + len(name) + 4
        return self._post(path, headers, f"{text[:start]}{self.random.choice(whole)}}}".encode())


def _places(body, way=()):
    """The way to every value in it."""
    inside = body.items() if isinstance(body, dict) else enumerate(body)
    for key, value in inside:
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*way, key))


def _same(valid, wrong):
    return type(valid) is type(wrong) and valid == wrong


def send(target, request):
    method, path, headers, content = request
    return target.http.request(method, path, headers=headers, content=content)


def test_made_up_requests_are_refused_and_leave_nothing(target):
    """Also the token that they came with: its one report is still to be had afterwards."""
    before = target.stored()
    for kind, request in Forger(target, seed=NUMBER).made(NUMBER):
        must_be_refused(send(target, request), (kind, request[:2], request[3][:200]))
    assert target.stored() == before
    metrics = target.http.get("/v1/metrics").text
    assert 'status="5' not in metrics


def test_what_the_forger_starts_from_is_valid(target):
    """Otherwise everything would be refused for another reason than the one that was made up."""
    answers, _ = target.stored()
    for path, (headers, body) in target.bodies().items():
        content = json.dumps(body).encode()
        answer = target.http.post(
            f"{target.base}/{path}", headers={**headers, **JSON}, content=content
        )
        assert answer.is_success, (path, answer.text)
    now, ((reports, votes, _),) = target.stored()
    assert (len(now), reports, votes) == (len(answers) + 2, 31, 1)
    # And the store itself agrees that they were the valid ones.
    outcome = target.store.submit(REPORT, target.name, [(target.token, target.report)])
    assert not _is_problem(outcome[0])
    assert not _is_problem(
        target.store.submit(VOTE, target.name, [(target.token, 1)], target.model)[0]
    )


# --- from the OpenAPI document -------------------------------------------------------------------


def operations(target):
    loaded = schemathesis.openapi.from_dict(target.http.get("/v1/openapi.json").json())
    return [found.ok() for found in loaded.get_all_operations()]


def ask_as(target, case):
    """In-process, in the event loop of all other requests: the service lives in one."""
    made = case.as_transport_kwargs(base_url="http://testserver")
    if "data" in made:
        made["content"] = made.pop("data")
    sent = ("method", "url", "headers", "params", "json", "content")
    return target.http.request(**{name: made[name] for name in sent if name in made})


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_what_the_document_allows_and_forbids(target, mode):
    """With a token, with a key, or with neither; of this campaign, or of none."""
    found = operations(target)
    assert {"/v1/campaigns/{name}/reports", "/v1/campaigns/{name}/votes/batch"} <= {
        one.path for one in found
    }
    before, chance = target.stored(), random.Random(0)
    each = max(NUMBER // (2 * len(found)), 1)
    for operation in found:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=each,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case):
            if "name" in (case.path_parameters or {}) and chance.random() < 0.7:
                case.path_parameters["name"] = target.name
            # Closing, learning and inviting are what an owner may do: not with the key.
            words = [target.token, "nobody"]
            case.headers = {"Authorization": f"Bearer {chance.choice(words)}"}
            answer = ask_as(target, case)
            if answer.status_code >= 400:
                must_be_refused(answer, (case.method, case.path, case.body))

        with suppress(Unsatisfiable):  # what takes no parameter cannot be asked wrongly
            ask()
    assert target.stored() == before


# --- below HTTP's grammar ------------------------------------------------------------------------


def raw(server, content, wait=True):
    """Bytes to the socket, and what comes back before it is closed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(content)
        if not wait:
            return b""
        link.shutdown(socket.SHUT_WR)
        found = b""
        while part := link.recv(65536):
            found += part
        return found


def test_bodies_that_break_off_and_heads_that_make_no_sense(server):
    """On a real server: whoever breaks off gets nothing stored, and no error is counted."""
    where = f"POST /v1/campaigns/{server.campaign_id}/reports HTTP/1.1\r\nHost: x\r\n"
    typed = where + "Content-Type: application/json\r\nAuthorization: Bearer x\r\n"
    body = json.dumps({"artifact": "0" * 64, "report": {"symbols": [1, 2]}})
    for length in (len(body) + 1, len(body) * 10, 10**9):
        for wait in (True, False):
            raw(server, f"{typed}Content-Length: {length}\r\n\r\n{body}".encode(), wait)
    chunk = f"{len(body):x}\r\n{body}\r\n"
    for rest in (chunk, chunk[:-5], "zz\r\n", "-1\r\n", "ffffffffffffffff\r\n", ""):
        raw(server, f"{typed}Transfer-Encoding: chunked\r\n\r\n{rest}".encode())
    heads = [b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"\x00" * 50, b"GET\r\n\r\n", b"\xff" * 99]
    heads += [f"{typed}Content-Length: {value}\r\n\r\n".encode() for value in ("x", "-1", "1e3")]
    heads += [f"{typed}Content-Length: 1\r\nContent-Length: 2\r\n\r\n".encode()]
    for head in heads:
        answer = raw(server, head)
        assert not answer or answer.split()[1].startswith(b"4"), answer[:100]
    endless = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    answer = raw(server, f"{typed}Transfer-Encoding: chunked\r\n\r\n".encode() + endless * 3)
    assert answer.split()[1] == b"411"
    assert httpx.get(server.campaign_url).json()["reports"] == 0
    assert 'status="5' not in httpx.get(f"{server.url}/v1/metrics").text
