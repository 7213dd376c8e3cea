"""Owners' keys that are replaced, and front pages that name listed campaigns only."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tacit.apps.service import tokens
from tacit.apps.service.app import make_app
from tacit.apps.service.client import Client
from tacit.apps.service.connection import ServiceError
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.privacy import errors

from .conftest import SETTINGS

Run = Callable[..., Any]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.heavy)])
def place(request: Any, tmp_path: Path) -> tuple[str, Path]:
    """Address and secret of a new database, of both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/campaign.db", tmp_path / "secret"
    return request.getfixturevalue("postgres").create(), tmp_path / "secret"


@pytest.fixture(name="asked")
def _asked(place: Any, mechanism: Any) -> Iterator[Any]:
    """A store, a campaign, its key, and a second store of another process."""
    store, other = Store.open(*place), Store.open(*place)
    campaign, key = store.create(mechanism, **SETTINGS)
    yield store, other, campaign, key
    store.engine.dispose()
    other.engine.dispose()


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(Problem) as problem:
        call()
    return problem.value.code


def test_the_old_key_ends_at_once_in_every_process(asked: Any) -> None:
    store, other, campaign, key = asked
    other.must_own(campaign.id, key)
    made = tokens.new()
    store.replace_key(campaign.id, made, key)
    other.must_own(campaign.id, made)
    for one in (store, other):
        assert refused(lambda one=one: one.must_own(campaign.id, key)) == "unknown-key"
    assert refused(lambda: store.replace_key(campaign.id, tokens.new(), key)) == "unknown-key"
    store.replace_key(campaign.id, made, made)  # the same request again
    other.must_own(campaign.id, made)


def test_whoever_has_the_database_needs_no_key(asked: Any, mechanism: Any) -> None:
    store, other, campaign, key = asked
    untouched, its_key = store.create(mechanism, **SETTINGS)
    made = tokens.new()
    store.replace_key(campaign.id, made)
    other.must_own(campaign.id, made)
    assert refused(lambda: other.must_own(campaign.id, key)) == "unknown-key"
    other.must_own(untouched.id, its_key)
    assert refused(lambda: store.replace_key("abcdefghijkl", made)) == "no-campaign"


def test_of_two_owners_at_once_one_wins(asked: Any) -> None:
    store, other, campaign, key = asked
    made = [tokens.new() for _ in range(8)]

    def replace(number: int) -> bool:
        try:
            (store, other)[number % 2].replace_key(campaign.id, made[number], key)
        except Problem:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(replace, range(8)))
    assert sum(won) == 1
    store.must_own(campaign.id, made[won.index(True)])


def test_keys_that_could_be_guessed_are_refused(store: Store, mechanism: Any) -> None:
    campaign, key = store.create(mechanism, **SETTINGS)
    for weak in ("", "short", "x" * 33, tokens.new()[:-1] + "!"):
        with pytest.raises(errors.InvalidParameter) as problem:
            store.replace_key(campaign.id, weak)
        assert weak == "" or weak not in str(problem.value)
    with TestClient(make_app(store)) as http:
        where, headers = f"/v1/campaigns/{campaign.id}/key", {"Authorization": f"Bearer {key}"}
        for body in ({"key": "short"}, {"key": 5}, {"key": None}, {}, {"key": key, "more": 1}):
            assert http.post(where, json=body, headers=headers).status_code == 400
        assert http.post(where, json={"key": tokens.new()}).status_code == 401
    store.must_own(campaign.id, key)


# --- the client and the command ------------------------------------------------------------------


class _Losing(httpx.BaseTransport):
    """Passes requests on, and loses the first answers."""

    def __init__(self, inner: Any, lost: int) -> None:
        self.inner, self.lost = inner, lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self.inner.handle_request(request)
        if self.lost:
            self.lost -= 1
            raise httpx.ReadError("lost")
        return answer


def test_a_lost_answer_does_not_lock_the_owner_out(
    store: Store, mechanism: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    campaign, key = store.create(mechanism, **SETTINGS)
    made = tokens.new()
    with TestClient(make_app(store)) as http:
        url = f"http://testserver/c/{campaign.id}"
        with Client(url, key=key, transport=_Losing(http._transport, 2)) as owner:
            owner.rotate_key(made)
            assert len(owner.invite(1)) == 1
        with (
            Client(url, key="wrong", transport=http._transport) as stranger,
            pytest.raises(ServiceError, match="unknown-key"),
        ):
            stranger.rotate_key(tokens.new())
    store.must_own(campaign.id, made)


def test_the_command(run: Run, server: Any, tmp_path: Path) -> None:
    out, url = tmp_path / "key.txt", f"{server.url}/c/{server.campaign_id}"
    given = ("campaign", "rotate-key", url, "--out", out)
    assert run(*given, "--key", "wrong").code == 2
    assert not out.exists()
    assert run(*given, "--key", server.key, "--json").json == {
        "replaced": True,
        "written": str(out),
    }
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    made = out.read_text().strip()
    store = Store.open(server.db, server.secret)
    store.must_own(server.campaign_id, made)
    assert run(*given, "--key", made).code == 2  # the file exists
    database = ("--db", server.db, "--secret", server.secret)
    lost = ("campaign", "rotate-key", "--out", tmp_path / "third", *database, "--", url)
    assert run(*lost).code == 0
    store.must_own(server.campaign_id, (tmp_path / "third").read_text().strip())
    assert refused(lambda: store.must_own(server.campaign_id, made)) == "unknown-key"
    unknown = run("campaign", "rotate-key", "abcdefghijkl", "--out", tmp_path / "no", *database)
    assert unknown.code == 2
    assert "no such campaign" in unknown.err
    assert not (tmp_path / "no").exists()


def test_the_new_key_is_kept_if_no_answer_came(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    out = tmp_path / "key.txt"
    url = "http://127.0.0.1:9/c/abcdefghijkl"
    said = run("campaign", "rotate-key", url, "--out", out, "--key", "k")
    assert said.code == 2
    assert f"may be valid already. It is in {out}" in said.err
    assert out.read_text().strip() not in said.err


# --- the front page ------------------------------------------------------------------------------


def test_the_front_page_names_listed_campaigns_only(store: Store, mechanism: Any) -> None:
    made = {}
    for title, listed in (("Open <1>", True), ("Secret", False), ("Second", True)):
        made[title], _ = store.create(mechanism, **{**SETTINGS, "title": title, "listed": listed})
    with TestClient(make_app(store), follow_redirects=False) as http:
        page = http.get("/").text
        assert "Open &lt;1&gt;" in page
        assert made["Second"].id in page
        assert "Secret" not in page
        assert made["Secret"].id not in page
        assert http.get(f"/c/{made['Secret'].id}").status_code == 200
        store.show(made["Second"].id, False)
        only = http.get("/")
        assert (only.status_code, only.headers["location"]) == (307, f"/c/{made['Open <1>'].id}")
        store.show(made["Open <1>"].id, False)
        none = http.get("/")
        assert (none.status_code, "lists no campaign" in none.text) == (200, True)
        assert not any(one.id in none.text for one in made.values())


def test_campaigns_are_unlisted_unless_the_command_says_otherwise(
    run: Run, mechanism: Any, tmp_path: Path
) -> None:
    mechanism.save(tmp_path / "people")
    db = ("--db", f"sqlite:///{tmp_path}/a.db", "--json")
    create = ("campaign", "create", tmp_path / "people", "--title")
    run(*create, "Hidden", *db)
    shown = run(*create, "Shown", "--listed", *db).json["campaign"]
    assert Store.open(db[1]).listed() == [(shown, "Shown")]
