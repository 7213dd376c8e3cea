"""The client: what it believes, what it keeps, and what it sends again."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from tacit.apps.service import connection, crowd
from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.client import Client
from tacit.apps.service.connection import Address, ServiceError
from tacit.apps.service.given import as_json
from tacit.apps.service.kept import Kept, StoredDraw, state_folder
from tacit.apps.service.store import Store
from tacit.data import datasets
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.validation import estimate
from tacit.local.inference.votes import Votes
from tacit.local.learned.codebook import Codebook
from tacit.privacy import artifact, errors

ROOT = "http://testserver"
SETTINGS = {
    "title": "Digits",
    "purpose": "To learn how people write digits.",
    "labelled": True,
    "vote_epsilon": 2.0,
    "minimum": 5,
}
Answer = httpx.Response | Exception
Change = Callable[[httpx.Request, httpx.Response], Answer]
Make = Callable[..., "Campaign"]


class House:
    """A store and its application, without a socket."""

    def __init__(self, store: Store, call: Callable[..., Any]) -> None:
        limits = Limits(rate=float("inf"), token_rate=float("inf"))
        self.store, self.app, self._call = store, make_app(store, limits=limits), call

    def answer(self, request: httpx.Request) -> httpx.Response:
        found: httpx.Response = self._call(self._answer, request)
        return found

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        got = await httpx.ASGITransport(self.app).handle_async_request(request)
        return httpx.Response(got.status_code, content=await got.aread())


class Wire(httpx.BaseTransport):
    """The way to a house, and whatever a test does on it."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.seen: list[httpx.Request] = []
        self.change: Change = lambda request, answer: answer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        request.read()
        answer = self.change(request, self.house.answer(request))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bodies(self, path: str) -> list[bytes]:
        return [request.content for request in self.seen if request.url.path.endswith(path)]


class Campaign:
    """A campaign in a house, and clients of it."""

    def __init__(self, house: House, mechanism: Any, folder: Path, **settings: Any) -> None:
        self.store, self.folder = house.store, folder
        made, self.key = house.store.create(mechanism, **{**SETTINGS, **settings})
        self.id, self.wire = made.id, Wire(house)
        self.url = f"{ROOT}/c/{made.id}"

    def client(self, **settings: Any) -> Client:
        return Client(self.url, state=self.folder, transport=self.wire, **settings)

    def token(self) -> str:
        return self.store.invite(self.id, 1)[0]

    def kept(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))

    def reports(self) -> int:
        return self.store.status(self.id).reports


@pytest.fixture(name="waits")
def _waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have slept."""
    found: list[float] = []
    monkeypatch.setattr(connection.time, "sleep", found.append)
    return found


@pytest.fixture(name="house", scope="module")
def _house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('house')}/campaign.db")
    with start_blocking_portal() as portal:
        made = House(store, portal.call)
        yield made
        made.app.state.service.inbox.stop()
    store.engine.dispose()


@pytest.fixture(name="make")
def _make(house: House, mechanism: Codebook, tmp_path: Path, waits: list[float]) -> Make:
    """Campaigns with other settings, or of another mechanism."""

    def make(of: Any = mechanism, **settings: Any) -> Campaign:
        return Campaign(house, of, tmp_path / "state", **settings)

    return make


@pytest.fixture(name="campaign")
def _campaign(make: Make) -> Campaign:
    return make()


@pytest.fixture(name="row")
def _row(digits: Any) -> tuple[Any, int]:
    images, labels = digits
    return images[1000], int(labels[1000])


def failing(times: int, how: Callable[[httpx.Request], Answer], path: str = "/reports") -> Change:
    """The first so many answers to a path get lost, after the server has done its work."""
    left = [times]

    def change(request: httpx.Request, answer: httpx.Response) -> Answer:
        if request.url.path.endswith(path) and left[0]:
            left[0] -= 1
            return how(request)
        return answer

    return change


LOST: dict[str, Callable[[httpx.Request], Answer]] = {
    "connection": lambda request: httpx.ReadError("gone"),
    "timeout": lambda request: httpx.ReadTimeout("slow"),
    "503": lambda request: httpx.Response(503, content=b""),
    "502 page": lambda request: httpx.Response(502, content=b"<html>proxy</html>"),
}


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://host:8443/v1/campaigns/abcdefghijkl",
        "https://host:8443/c/abcdefghijkl",
        "https://host:8443/c/abcdefghijkl/",
        "https://host:8443/owner/abcdefghijkl",
        "https://host:8443/c/abcdefghijkl#token=secret-_1",
    ],
)
def test_addresses(url: str) -> None:
    address = Address.of(url)
    assert address.api == "https://host:8443/v1/campaigns/abcdefghijkl"
    assert address.page == "https://host:8443/c/abcdefghijkl"
    assert address.token == ("secret-_1" if "#" in url else None)
    assert "secret" not in repr(address)


def test_a_server_may_be_below_a_path() -> None:
    assert Address.of("https://host/tacit/c/abcdefghijkl").api == (
        "https://host/tacit/v1/campaigns/abcdefghijkl"
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host/c/abcdefghijkl",
        "ftp://host/c/abcdefghijkl",
        "https://host/",
        "https://host/c/short",
        "https://host/c/abcdefghijkl?token=hidden99",
        "https://anna:hidden99@host/c/abcdefghijkl",
        "https://host/d/abcdefghijkl#token=hidden99",
        "http://[bad",
    ],
)
def test_other_addresses_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(errors.InvalidParameter, match="Client: url must be like") as caught:
        Client(url)
    assert "hidden99" not in str(caught.value)


@pytest.mark.parametrize(
    ("root", "open_to_all"),
    [("http://localhost:1", False), ("http://host", True), ("https://host", False)],
)
def test_in_the_clear(root: str, open_to_all: bool) -> None:
    assert Address.of(f"{root}/c/abcdefghijkl").in_the_clear is open_to_all


# --- one report ----------------------------------------------------------------------------------


def test_a_report_arrives(campaign: Campaign, row: Any) -> None:
    token = campaign.token()
    receipt = campaign.client().report(token, *row)
    assert campaign.reports() == 1
    (sent,) = campaign.wire.bodies("/reports")
    assert set(json.loads(sent)) == {"artifact", "report"}
    assert set(json.loads(sent)["report"]) == {"symbols"}
    assert receipt
    assert all(token not in str(request.url) for request in campaign.wire.seen)


@pytest.mark.parametrize("how", LOST)
def test_what_gets_lost_is_sent_again_byte_for_byte(
    campaign: Campaign, row: Any, waits: list[float], how: str
) -> None:
    campaign.wire.change = failing(3, LOST[how])
    campaign.client().report(campaign.token(), *row)
    sent = campaign.wire.bodies("/reports")
    assert len(sent) == 4
    assert len(set(sent)) == 1
    assert campaign.reports() == 1
    assert len(waits) == 3
    assert all(0.1 * 2**i <= wait <= 0.2 * 2**i for i, wait in enumerate(waits))


def test_retry_after_is_honoured(campaign: Campaign, row: Any, waits: list[float]) -> None:
    slow = httpx.Response(429, headers={"Retry-After": "7"}, content=b"")
    campaign.wire.change = failing(1, lambda request: slow)
    campaign.client().report(campaign.token(), *row)
    assert len(waits) == 1
    assert 7 <= waits[0] < 8


def test_it_gives_up_and_goes_on_later_with_the_same_draw(
    campaign: Campaign, row: Any, digits: Any
) -> None:
    campaign.wire.change = failing(100, LOST["connection"])
    token = campaign.token()
    with pytest.raises(ServiceError, match="could not be reached"):
        campaign.client(retries=2).report(token, *row)
    assert len(campaign.wire.bodies("/reports")) == 3
    campaign.wire.change = lambda request, answer: answer
    other = digits[0][3], int(digits[1][3])
    # Another process, another row: what was drawn is what is sent.
    first = campaign.client().report(token, *other)
    assert first == campaign.client().report(token, *row)
    assert len(set(campaign.wire.bodies("/reports"))) == 1
    assert campaign.reports() == 1


def test_draws_differ_between_tokens(campaign: Campaign, row: Any) -> None:
    """Else the test above could not fail: the chance that ten draws agree is below 1e-9."""
    client = campaign.client()
    for _ in range(10):
        client.report(campaign.token(), *row)
    assert len(set(campaign.wire.bodies("/reports"))) > 1


def test_refusals_are_not_repeated(campaign: Campaign, row: Any) -> None:
    with pytest.raises(ServiceError, match="does not know this invitation code") as caught:
        campaign.client().report("nobody", *row)
    assert (caught.value.code, caught.value.status) == ("unknown-token", 401)
    assert len(campaign.wire.bodies("/token")) == 1
    assert campaign.wire.bodies("/reports") == campaign.kept() == []


def test_nothing_is_drawn_for_a_closed_campaign(campaign: Campaign, row: Any) -> None:
    token = campaign.token()
    campaign.client(key=campaign.key).close_campaign()
    with pytest.raises(ServiceError, match=r"closed\. Nothing was drawn") as caught:
        campaign.client().report(token, *row)
    assert caught.value.code == "not-open"
    assert campaign.kept() == []


def test_a_retry_after_the_end_gets_its_receipt(campaign: Campaign, row: Any) -> None:
    token, client = campaign.token(), campaign.client(key=campaign.key)
    receipt = client.report(token, *row)
    client.close_campaign()
    assert client.report(token, *row) == receipt


def test_not_yet_open(make: Make, row: Any) -> None:
    campaign = make(opens=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(ServiceError, match="early"):
        campaign.client().report(campaign.token(), *row)


def test_withdrawal(campaign: Campaign, row: Any) -> None:
    token, client = campaign.token(), campaign.client()
    receipt = client.report(token, *row)
    client.withdraw(receipt)
    client.withdraw(receipt)
    assert campaign.reports() == 0
    with pytest.raises(ServiceError) as caught:
        client.report(token, *row)
    assert caught.value.code == "withdrawn"
    with pytest.raises(ServiceError) as caught:
        client.withdraw("nothing")
    assert caught.value.code == "unknown-receipt"


# --- one draw ------------------------------------------------------------------------------------


def elsewhere(campaign: Campaign) -> Client:
    """A second device, or the first one after what it kept was lost."""
    return Client(campaign.url, state=campaign.folder / "other", transport=campaign.wire)


def test_a_used_token_draws_nothing_elsewhere(campaign: Campaign, row: Any) -> None:
    token = campaign.token()
    receipt = campaign.client().report(token, *row)
    with pytest.raises(
        ServiceError, match=r"report of this token is already stored.* ε again\.$"
    ) as (caught):
        elsewhere(campaign).report(token, *row)
    assert caught.value.code == "already-reported"
    assert token not in str(caught.value)
    campaign.client().withdraw(receipt)
    with pytest.raises(ServiceError, match="report of this token is already withdrawn") as caught:
        elsewhere(campaign).report(token, *row)
    assert caught.value.code == "withdrawn"
    assert len(campaign.wire.bodies("/reports")) == 1
    assert not (campaign.folder / "other").exists()


def test_report_and_vote_are_used_one_by_one(
    campaign: Campaign, mechanism: Codebook, digits: Any, row: Any
) -> None:
    _published(campaign, mechanism, digits)
    token = campaign.token()
    campaign.client().report(token, *row)
    elsewhere(campaign).vote(token, *row)
    with pytest.raises(ServiceError, match="vote of this token is already stored") as caught:
        campaign.client().vote(token, *row)
    assert caught.value.code == "already-voted"
    assert len(campaign.wire.bodies("/votes")) == 1


def test_the_server_is_asked_last_and_only_before_a_draw(campaign: Campaign, row: Any) -> None:
    token, client = campaign.token(), campaign.client()
    client.report(token, *row)
    paths = [request.url.path.rsplit("/", 1)[-1] for request in campaign.wire.seen]
    assert paths[-2:] == ["token", "reports"]
    client.report(token, *row)
    assert len(campaign.wire.bodies("/token")) == 1


def test_what_is_kept_is_sent_although_the_token_was_used(campaign: Campaign, row: Any) -> None:
    """A server that claims to have it already cannot keep a report from being sent again."""
    campaign.wire.change = failing(1, LOST["connection"])
    token = campaign.token()
    with pytest.raises(ServiceError, match="could not be reached"):
        campaign.client(retries=0).report(token, *row)
    assert campaign.reports() == 1
    assert campaign.client().report(token, *row)


@pytest.mark.parametrize("said", [{}, {"report": None}, {"report": 0}, {"report": "\x1b[2Jgone"}])
def test_whatever_is_not_none_draws_nothing(campaign: Campaign, row: Any, said: Any) -> None:
    campaign.wire.change = failing(9, lambda request: httpx.Response(200, json=said), "/token")
    with pytest.raises(ServiceError) as caught:
        campaign.client().report(campaign.token(), *row)
    assert str(caught.value).isprintable()
    assert campaign.kept() == campaign.wire.bodies("/reports") == []


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ä"])
def test_a_token_that_no_header_holds_draws_nothing(
    campaign: Campaign, row: Any, token: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match="one printable word"):
        campaign.client().report(token, *row)
    assert campaign.kept() == []


def test_labels_are_as_the_campaign_says(campaign: Campaign, row: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match="label must be given"):
        campaign.client().report(campaign.token(), row[0])
    with pytest.raises(errors.InvalidData, match="declared classes"):
        campaign.client().report(campaign.token(), row[0], 11)
    with pytest.raises(errors.InvalidParameter, match="a single row per token"):
        campaign.client().report(campaign.token(), np.stack([row[0]] * 2), [1, 2])
    assert campaign.kept() == []


def test_tables(make: Make) -> None:
    schema = TableSchema((Continuous("age", 0, 100), Categorical("job", ("baker", "smith"))))
    rng = np.random.default_rng(0)
    rows = {"age": rng.uniform(0, 100, 60), "job": rng.choice(["baker", "smith"], 60)}
    made = Codebook(epsilon=3, codewords=4).fit(rows, schema=schema, inhouse_public=True)
    campaign = make(made, labelled=False, vote_epsilon=None)
    client = campaign.client()
    client.report(campaign.token(), {"age": 30.0, "job": "smith"})
    client.report(campaign.token(), {"age": [30.0], "job": ["smith"]})
    with pytest.raises(errors.InvalidData, match="'job'"):
        client.report(campaign.token(), {"age": 30.0, "job": "king"})
    with pytest.raises(ServiceError, match="no votes"):
        client.vote(campaign.token(), {"age": 30.0, "job": "smith"}, 1)
    assert campaign.reports() == 2


# --- what is kept --------------------------------------------------------------------------------


def test_what_is_kept(campaign: Campaign, row: Any) -> None:
    token = campaign.token()
    receipt = campaign.client().report(token, *row)
    (path,) = campaign.kept()
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(campaign.folder.stat().st_mode) == 0o700
    assert token not in text
    assert token not in path.name
    assert json.loads(text) == {
        "format": "tacit-kept/1",
        "about": campaign.client().terms().fingerprint,
        "body": campaign.wire.bodies("/reports")[0].decode(),
        "receipt": receipt,
    }
    assert list(campaign.folder.iterdir()) == [path]


def test_it_is_kept_before_it_is_sent(campaign: Campaign, row: Any) -> None:
    found: list[str] = []

    def change(request: httpx.Request, answer: httpx.Response) -> Answer:
        if request.url.path.endswith("/reports"):
            found.extend(json.loads(path.read_text())["body"] for path in campaign.kept())
            assert request.content.decode() in found
        return answer

    campaign.wire.change = change
    campaign.client().report(campaign.token(), *row)
    assert len(found) == 1


def test_the_first_draw_counts(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    first = kept.keep("abc", "token", "report", StoredDraw("m", "1"))
    assert (
        kept.keep("abc", "token", "report", StoredDraw("m", "2")) == first == StoredDraw("m", "1")
    )
    assert kept.find("abc", "token", "vote") is None
    assert kept.find("abc", "other", "report") is None
    kept.answered("abc", "token", "report", "receipt")
    assert kept.find("abc", "token", "report") == StoredDraw("m", "1", "receipt")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"format": "tacit-kept/1"}', b"\xff"])
def test_a_damaged_draw_is_not_drawn_again(campaign: Campaign, row: Any, content: bytes) -> None:
    token = campaign.token()
    campaign.client().report(token, *row)
    campaign.kept()[0].write_bytes(content)
    with pytest.raises(errors.InvalidData, match="unchanged"):
        campaign.client().report(token, *row)
    assert len(campaign.wire.bodies("/reports")) == 1


def test_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "tacit"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder().name == "tacit"


# --- what is believed ----------------------------------------------------------------------------


def described(change: Callable[[dict[str, Any]], None]) -> Change:
    """A server that says something else than is true."""

    def changed(request: httpx.Request, answer: httpx.Response) -> Answer:
        if "/v1/campaigns/" in request.url.path and request.url.path.count("/") == 3:
            body = answer.json()
            change(body)
            return httpx.Response(200, json=body)
        return answer

    return changed


def test_another_mechanism_is_refused(campaign: Campaign, mechanism: Codebook, row: Any) -> None:
    other = artifact.pack(mechanism.at(40))

    def change(request: httpx.Request, answer: httpx.Response) -> Answer:
        swapped = request.url.path.endswith("/artifact")
        return httpx.Response(200, content=other) if swapped else answer

    campaign.wire.change = change
    with pytest.raises(errors.CertificateError, match="the described one"):
        campaign.client().report(campaign.token(), *row)
    assert campaign.kept() == []


def test_a_mechanism_that_costs_more_than_is_said(
    campaign: Campaign, mechanism: Codebook, row: Any
) -> None:
    """Even with the right hash: the certificate is of the cheaper one."""
    other = mechanism.at(40)

    def change(request: httpx.Request, answer: httpx.Response) -> Answer:
        if request.url.path.endswith("/artifact"):
            return httpx.Response(200, content=artifact.pack(other))
        mark = {"sha256": artifact.fingerprint(other), "kind": "codebook"}
        return described(lambda body: body.update(artifact=mark))(request, answer)

    campaign.wire.change = change
    with pytest.raises(errors.CertificateError, match="about its mechanism and its votes"):
        campaign.client().report(campaign.token(), *row)
    assert campaign.kept() == []


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("vote_epsilon", None, errors.CertificateError),
        ("vote_epsilon", 3.0, errors.CertificateError),
        ("vote_epsilon", "much", errors.InvalidParameter),
        ("labelled", False, errors.TacitError),
        ("certificate", {}, errors.CertificateError),
        ("artifact", None, errors.InvalidData),
        ("title", None, errors.TacitError),
        ("title", "\x1b[2J gone", errors.InvalidParameter),
        ("opens", "soon", errors.InvalidData),
        ("minimum", [], errors.TacitError),
    ],
)
def test_a_description_that_is_not_true(
    campaign: Campaign, row: Any, name: str, value: Any, kind: type[Exception]
) -> None:
    campaign.wire.change = described(lambda body: body.update({name: value}))
    with pytest.raises(kind) as caught:
        campaign.client().report(campaign.token(), *row)
    assert "\x1b" not in str(caught.value)
    assert campaign.kept() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total_epsilon", 4.5),  # the parts cost 4 and 2
        ("total_epsilon", "6"),
        ("total_epsilon", None),
        ("epsilon", 2.0),
        ("delta", 1e-6),
        ("classes", [0, 1]),
        ("classes", None),
    ],
)
def test_costs_that_do_not_follow_from_the_mechanism(
    campaign: Campaign, row: Any, name: str, value: Any
) -> None:
    campaign.wire.change = described(lambda body: body.update({name: value}))
    with pytest.raises(errors.CertificateError, match=f"{name} must be what follows"):
        campaign.client().report(campaign.token(), *row)
    assert campaign.kept() == []


def test_the_terms_are_derived_here(campaign: Campaign) -> None:
    """Sentences of a server's certificate do not reach a person."""

    def soothe(body: dict[str, Any]) -> None:
        body["explanation"] = "Nothing can happen to you."

    campaign.wire.change = described(soothe)
    terms = campaign.client().terms()
    assert "Nothing can happen" not in terms.certificate.explain()
    assert str(terms.certificate.guarantee).startswith("6-DP")
    assert terms.ballot is not None
    assert terms.ballot.classes is None


def test_a_ballot_by_class_is_found(make: Make) -> None:
    campaign = make(vote_by_class=True)
    terms = campaign.client().terms()
    assert terms.ballot is not None
    assert terms.ballot.classes == tuple(range(10))
    assert terms.event == campaign.store.campaign(campaign.id).event


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b"{", b"[" * 100_000, b"\xff"])
def test_answers_that_are_no_answers(campaign: Campaign, row: Any, content: bytes) -> None:
    campaign.wire.change = lambda request, answer: httpx.Response(200, content=content)
    with pytest.raises(ServiceError, match=r"JSON object\. Is this a Tacit server"):
        campaign.client().report(campaign.token(), *row)


def test_a_receipt_must_be_there(campaign: Campaign, row: Any) -> None:
    campaign.wire.change = failing(1, lambda request: httpx.Response(201, content=b"{}"))
    with pytest.raises(ServiceError, match="must hold 'receipt'"):
        campaign.client().report(campaign.token(), *row)


def test_redirects_are_not_followed(campaign: Campaign, row: Any) -> None:
    elsewhere = httpx.Response(307, headers={"Location": "http://elsewhere/"}, content=b"")
    campaign.wire.change = failing(1, lambda request: elsewhere)
    with pytest.raises(ServiceError, match="answered 307 without a reason"):
        campaign.client().report(campaign.token(), *row)
    assert {request.url.host for request in campaign.wire.seen} == {"testserver"}


def test_endless_answers_end(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LARGEST_ANSWER", 100)
    with pytest.raises(ServiceError, match="smaller than"):
        campaign.client().describe()


def test_what_a_server_says_is_one_printable_line() -> None:
    body = {"type": "tacit:odd\x1b]0;", "detail": "a\nb\x1b[31m\x07" + 1000 * "c", "more": 1}
    error = connection.problem(418, json.dumps(body).encode())
    assert str(error).startswith("service: a b [31m cccc")
    assert str(error).isprintable()
    assert len(str(error)) < 500
    assert error.extra == {"more": 1}


# --- many, votes, owners -------------------------------------------------------------------------


def test_batches(campaign: Campaign, digits: Any) -> None:
    client = campaign.client()
    drawn = as_json(client.draw(digits[0][:3], digits[1][:3]))
    tokens = campaign.store.invite(campaign.id, 2)
    outcomes = client.send_batch(list(zip([*tokens, "nobody"], drawn, strict=True)))
    assert isinstance(outcomes[0], str)
    assert isinstance(outcomes[1], str)
    assert isinstance(outcomes[2], ServiceError)
    assert (outcomes[2].code, outcomes[2].status) == ("unknown-token", 401)
    assert client.send(tokens[0], drawn[0]) == outcomes[0]
    assert campaign.reports() == 2


def test_a_lost_batch_is_stored_once(campaign: Campaign, digits: Any) -> None:
    client = campaign.client(key=campaign.key)
    campaign.wire.change = failing(2, LOST["connection"], "/batch")
    drawn = as_json(client.draw(digits[0][:30], digits[1][:30]))
    outcomes = client.send_batch(list(zip(client.invite(30), drawn, strict=True)))
    assert all(isinstance(outcome, str) for outcome in outcomes)
    assert len(set(campaign.wire.bodies("/batch"))) == 1
    assert campaign.reports() == 30


def test_large_batches_are_split(
    campaign: Campaign, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.apps.service.sending.LARGEST_BATCH", 4)
    monkeypatch.setattr("tacit.apps.service.client.MOST_TOKENS", 3)
    client = campaign.client(key=campaign.key)
    tokens = client.invite(10)
    assert len(set(tokens)) == 10
    drawn = as_json(client.draw(digits[0][:10], digits[1][:10]))
    assert len(client.send_batch(list(zip(tokens, drawn, strict=True)))) == 10
    assert len(campaign.wire.bodies("/batch")) == 3


def _published(campaign: Campaign, mechanism: Codebook, digits: Any) -> NoiseAwareClassifier:
    images, labels = digits
    model = NoiseAwareClassifier(prior="inhouse").fit(mechanism.release(images[500:], labels[500:]))
    campaign.store.publish(campaign.id, model, 1297)
    return model


def test_votes(campaign: Campaign, mechanism: Codebook, digits: Any, row: Any) -> None:
    client, token = campaign.client(), campaign.token()
    with pytest.raises(ServiceError, match="no model") as caught:
        client.vote(token, *row)
    assert caught.value.code == "no-model"
    model = _published(campaign, mechanism, digits)
    campaign.wire.change = failing(1, LOST["connection"], "/votes")
    receipt = client.vote(token, *row)
    assert client.vote(token, *row) == receipt
    assert campaign.store.status(campaign.id).votes == 1
    sent = {bytes(body) for body in campaign.wire.bodies("/votes")}
    assert len(sent) == 1
    body = json.loads(sent.pop())
    assert body["model"] == artifact.fingerprint(model)
    assert body["vote"] in (0, 1)
    assert receipt != client.report(token, *row)


def test_people_vote_where_no_more_reports_are_taken(
    make: Make, mechanism: Codebook, digits: Any, row: Any
) -> None:
    campaign = make(minimum=1, quota=1)
    first, second = campaign.token(), campaign.token()
    client = campaign.client()
    client.report(first, *row)
    with pytest.raises(ServiceError, match="it is full") as caught:
        client.report(second, *row)
    assert caught.value.code == "full"
    _published(campaign, mechanism, digits)
    client.vote(second, *row)
    assert campaign.store.status(campaign.id).votes == 1


def test_another_model_is_refused(
    campaign: Campaign, mechanism: Codebook, digits: Any, row: Any
) -> None:
    model = _published(campaign, mechanism, digits)
    other = NoiseAwareClassifier(prior="none").fit(
        mechanism.release(digits[0][500:], digits[1][500:])
    )
    assert artifact.fingerprint(model) != artifact.fingerprint(other)

    def change(request: httpx.Request, answer: httpx.Response) -> Answer:
        swapped = request.url.path.endswith("/model")
        return httpx.Response(200, content=artifact.pack(other)) if swapped else answer

    campaign.wire.change = change
    with pytest.raises(errors.CertificateError, match="the described one"):
        campaign.client().vote(campaign.token(), *row)
    assert campaign.kept() == []


def test_owners(campaign: Campaign, digits: Any) -> None:
    owner = campaign.client(key=campaign.key)
    (token,) = owner.invite(1)
    assert Address.of(owner.link(token)).token == token
    with pytest.raises(ServiceError) as caught:
        owner.results()
    assert caught.value.code == "too-few"
    assert caught.value.extra == {"reports": 0, "minimum": 5}
    with pytest.raises(errors.InvalidParameter, match="key must be the owner's"):
        campaign.client().invite(1)
    with pytest.raises(ServiceError) as caught:
        campaign.client(key="wrong").invite(1)
    assert caught.value.code == "unknown-key"
    with pytest.raises(errors.InvalidParameter, match="count"):
        owner.invite(0)


def test_votes_count_as_they_were_cast(campaign: Campaign, digits: Any) -> None:
    """The service's interval is that of the library, from the very votes that were sent."""
    owner = campaign.client(key=campaign.key)
    images, labels = digits[0][:50], digits[1][:50]
    drawn = as_json(owner.draw(images, labels))
    owner.send_batch(list(zip(owner.invite(50), drawn, strict=True)))
    owner.learn()
    model, cast = owner.cast(images, labels)
    owner.send_votes(model, list(zip(owner.invite(50), cast, strict=True)))
    ballot = owner.terms().ballot
    assert ballot is not None
    expected = estimate(Votes(ballot, np.array(cast)), 0.9).to_dict()
    found = owner.results(0.9)["accuracy"]
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("single", [False, True])
def test_a_crowd(campaign: Campaign, single: bool) -> None:
    seen: list[int] = []
    owner, dataset = campaign.client(key=campaign.key), datasets.load("digits")
    outcome = crowd.run(owner, dataset, 25, batch=10, single=single, advance=seen.append)
    assert outcome.to_dict() == {"people": 25, "rows": 25, "stored": 25, "refused": {}}
    assert seen == ([1] * 25 if single else [10, 10, 5])
    assert len(campaign.wire.bodies("/batch")) == (0 if single else 3)
    assert campaign.reports() == 25


def test_a_crowd_larger_than_the_data(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "_DRAWN_AT_ONCE", 500)
    owner = campaign.client(key=campaign.key)
    outcome = crowd.run(owner, datasets.load("digits"), 1200, batch=1000)
    assert (outcome.stored, outcome.rows) == (1200, 1080)


def test_a_crowd_beyond_the_quota(make: Make) -> None:
    campaign = make(quota=8)
    owner, dataset = campaign.client(key=campaign.key), datasets.load("digits")
    outcome = crowd.run(owner, dataset, 10)
    assert (outcome.stored, outcome.refused) == (8, {"full": 2})
    outcome = crowd.run(owner, dataset, 3, single=True)
    assert (outcome.stored, outcome.refused) == (0, {"full": 3})


def test_a_crowd_uses_the_rows_of_people(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that nobody fitted on; voters are others again."""
    client, dataset = campaign.client(key=campaign.key), datasets.load("digits")
    taken: list[Any] = []
    monkeypatch.setattr(
        type(dataset), "take", lambda self, chosen: taken.append(chosen) or self.rows[chosen]
    )
    crowd.run(client, dataset, 40)
    split = dataset.collection(crowd.SPLIT_SEED)
    assert set(taken[0].tolist()) <= set(split.people.tolist())
    with pytest.raises(ServiceError, match="no model"):
        crowd.run(client, dataset, 40, vote=True)
    assert set(taken[1].tolist()) <= set(split.voters.tolist())
