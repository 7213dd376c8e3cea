"""A campaign with partitions in a real browser, while rounds change and servers are killed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tacit.apps.service.client import Client, ServiceError
from tacit.apps.service.given import as_json
from tacit.apps.service.store import Store
from tacit.apps.service.tables import REPORT
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.learned.partitions import Partitions
from tacit.privacy import artifact

from .browser import browser_fixture  # noqa: F401
from .conftest import Server, new_server
from .test_browser_page import Visitor
from .test_rounds import INHOUSE, SETTINGS, _first, _second, rows  # noqa: F401

pytestmark = pytest.mark.heavy


@pytest.fixture(name="site")
def _site(request: Any, tmp_path: Any, first: Partitions) -> Iterator[Server]:
    db = f"sqlite:///{tmp_path}/campaign.db"
    if getattr(request, "param", "sqlite") == "postgresql":
        db = request.getfixturevalue("postgres").create()
    made = new_server(db, tmp_path / "secret", first, **SETTINGS)
    yield made
    if made.process.poll() is None:
        made.stop()


class Person(Visitor):
    """Somebody with a form to fill in."""

    def fill(self, token: str) -> None:
        self.open(token)
        self.page.click("#start")
        self.answer()
        self.page.click("#continue")
        self.page.wait_for_selector("#preview:visible")

    def answer(self) -> None:
        self.page.get_by_label("age", exact=True).fill("41")
        self.page.get_by_label("sleep").fill("")  # not known
        self.page.get_by_label("travel").select_option("car")
        self.page.get_by_label("yes", exact=True).check()

    def send(self) -> dict[str, Any]:
        self.page.check("#agree")
        self.page.click("#send")
        self.page.wait_for_selector("#receipt:visible")
        ((_, body),) = [one for one in self.sent if one[0] == "reports"]
        return dict(json.loads(body))


def test_pages_of_two_rounds(
    browser: Any, site: Server, first: Partitions, second: Partitions
) -> None:
    marks = [artifact.fingerprint(mechanism) for mechanism in (first, second)]
    store = Store.open(site.db, site.secret)
    tokens = store.invite(site.campaign_id, 3)
    early, late, again = (Person(browser, site) for _ in range(3))
    early.open(tokens[0])
    early.page.wait_for_selector("#start:visible")
    said = early.page.text_content("#fact-sent")
    assert "4 different ways to sort answers into 4 groups" in said
    assert "without looking at your answers" in said
    early.fill(tokens[0])
    assert "Way " in early.page.text_content("#trials")
    drawn = as_json(first.release(*rows(60, 3)))
    crowd = list(zip(store.invite(site.campaign_id, 60), drawn, strict=True))
    store.submit(REPORT, site.campaign_id, crowd)
    store.open_round(site.campaign_id, 2, second)  # while the first page is open
    late.fill(tokens[1])
    sent = [early.send(), late.send()]
    assert [one["artifact"] for one in sent] == marks
    assert all(sorted(one["report"]) == ["partition", "symbols"] for one in sent)
    assert [len(part) for part in store.reports(site.campaign_id)] == [61, 1]
    # Another browser with a used invitation draws nothing, whatever round it is.
    again.open(tokens[0])
    again.page.wait_for_selector("#sent:visible")
    assert again.page.text_content("#sent-title") == "Already used"
    assert [one for one in again.sent if one[0] == "reports"] == []
    for person in (early, late, again):
        assert person.complaints == []
        person.context.close()
    store.engine.dispose()


def test_the_owners_page_names_the_round_and_the_commands(
    browser: Any, site: Server, first: Partitions, second: Partitions
) -> None:
    store = Store.open(site.db, site.secret)
    drawn = as_json(first.release(*rows(60, 3)))
    crowd = list(zip(store.invite(site.campaign_id, 60), drawn, strict=True))
    store.submit(REPORT, site.campaign_id, crowd)
    store.open_round(site.campaign_id, 2, second)
    store.engine.dispose()
    owner = Visitor(browser, site)
    page = owner.open(path="owner")
    page.fill("#key", site.key)
    page.click("#unlock button")
    page.wait_for_selector("#results:visible")
    assert page.text_content("#state") == "Open, round 2"
    assert page.locator("#learn").is_hidden()
    commands = page.text_content("#command-lines")
    for name in ("learn", "next"):
        assert f"tacit campaign {name} {site.url}/c/{site.campaign_id} --inhouse" in commands
    with page.expect_download() as saved:
        page.click("[data-file='reports.parquet']")
    assert saved.value.suggested_filename == "reports-1.parquet"
    owner.context.close()


def published(site: Server, first: Partitions) -> ProportionsClassifier:
    """Let 60 people report, and publish what their reports have taught."""
    store = Store.open(site.db, site.secret)
    drawn = as_json(first.release(*rows(60, 3)))
    store.submit(
        REPORT, site.campaign_id, list(zip(store.invite(site.campaign_id, 60), drawn, strict=True))
    )
    store.engine.dispose()
    with Client(f"{site.url}/c/{site.campaign_id}", key=site.key) as owner:
        owner.learn(INHOUSE, inhouse_public=True)
        model: ProportionsClassifier = owner.model()
    return model


def test_a_vote_on_a_model_of_partitions(browser: Any, site: Server, first: Partitions) -> None:
    """The page answers as the model does, keeps the vote before it is sent, and sends it once."""
    model = published(site, first)
    store = Store.open(site.db, site.secret)
    (token,) = store.invite(site.campaign_id, 1)
    person = Person(browser, site)
    person.fill(token)
    person.send()
    person.page.click("#vote")
    person.answer()
    person.page.click("#continue")
    person.page.wait_for_selector("#ballot:visible")
    row = {"age": [41.0], "sleep": [float("nan")], "travel": ["car"]}
    said = model.predict(row)[0]
    right = "right" if said == "yes" else "wrong"
    shown = person.page.inner_text("#said")
    assert shown == f"The model says {said}. You said yes. It was {right}."
    if folder := os.environ.get("TACIT_SCREENSHOTS"):
        person.page.screenshot(path=f"{folder}/vote.png", full_page=True)
    person.page.route("**/votes", lambda route: route.abort())  # the server is away
    person.page.check("#vote-agree")
    person.page.click("#vote-consent [type=submit]")
    person.page.wait_for_selector("#problem:visible", timeout=30_000)
    ((_, text),) = person.kept()
    kept = json.loads(text)["vote"]
    assert json.loads(kept)["model"] == artifact.fingerprint(model)
    person.page.unroute("**/votes")
    person.page.click("#vote")  # the same bytes again
    person.page.wait_for_selector("#vote-receipt:visible")
    assert {body for path, body in person.sent if path == "votes"} == {kept}
    assert store.status(site.campaign_id).votes == 1
    store.engine.dispose()
    person.context.close()


def test_another_graph_than_the_described_one_gets_no_vote(
    browser: Any, site: Server, first: Partitions
) -> None:
    published(site, first)
    store = Store.open(site.db, site.secret)
    (token,) = store.invite(site.campaign_id, 1)
    store.engine.dispose()
    person = Person(browser, site)
    person.fill(token)
    person.send()
    person.page.route("**/model.onnx", lambda route: route.fulfill(body=first.onnx()))
    person.page.click("#vote")
    person.page.wait_for_selector("#problem:visible")
    assert "not the one that this vote names" in person.page.inner_text("#problem")
    assert [path for path, _ in person.sent] == ["reports"]
    person.context.close()


@pytest.mark.parametrize("site", ["sqlite", "postgresql"], indirect=True)
def test_a_kill_while_the_round_changes_loses_and_doubles_nothing(
    site: Server, first: Partitions, second: Partitions
) -> None:
    """Reports of both rounds are in flight when the server dies, and are sent again after it."""
    name, marks = site.campaign_id, [artifact.fingerprint(one) for one in (first, second)]
    store = Store.open(site.db, site.secret)
    before = list(zip(store.invite(name, 60), as_json(first.release(*rows(60, 3))), strict=True))
    store.submit(REPORT, name, before)
    tokens = store.invite(name, 100)
    halves = [as_json(one.release(*rows(50, seed))) for one, seed in ((first, 4), (second, 5))]
    items = [
        (token, marks[at], report)
        for at, half in enumerate(halves)
        for token, report in zip(tokens[at::2], half, strict=True)
    ]

    def send(client: httpx.Client, item: tuple[str, str, Any]) -> int:
        token, mark, report = item
        headers = {"Authorization": f"Bearer {token}"}
        body = {"artifact": mark, "report": report}
        try:
            return client.post(
                f"{site.campaign_url}/reports", json=body, headers=headers
            ).status_code
        except httpx.TransportError:
            return 0

    def run(mine: list[Any], found: list[int]) -> None:
        with httpx.Client(timeout=60, verify=False) as client:
            for item in mine:
                found.append(send(client, item))

    found: list[list[int]] = [[], []]
    threads = [
        threading.Thread(target=run, args=(items[50 * at :][:50], found[at])) for at in (0, 1)
    ]
    threads[0].start()
    with Client(f"{site.url}/c/{name}", key=site.key, retries=0) as owner:
        owner._connection.put("/rounds/2", artifact.pack(second), bearer=site.key)
        threads[1].start()
        while sum(map(len, found)) < 20:
            time.sleep(0.005)
        site.kill()
        with pytest.raises(ServiceError):
            owner._connection.put("/rounds/2", artifact.pack(second), bearer=site.key)
    for thread in threads:
        thread.join()
    site.start()
    with Client(f"{site.url}/c/{name}", key=site.key) as owner:
        assert (
            owner._connection.put("/rounds/2", artifact.pack(second), bearer=site.key)["round"] == 2
        )
    with httpx.Client(timeout=60, verify=False) as client:
        assert {send(client, item) for item in items} == {201}
        # The same token in the other round is refused, and stores nothing.
        crossed = [(token, marks[mark == marks[0]], report) for token, mark, report in items[::20]]
        assert {send(client, item) for item in crossed} == {409}
    assert 0 in found[0] + found[1]
    assert [len(part) for part in store.reports(name)] == [60 + 50, 50]
    assert store.status(name).reports == 160
    store.engine.dispose()
