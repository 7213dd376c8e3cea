"""The page without a connection: a report is drawn once, waits, and is stored once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .browser import browser_fixture  # noqa: F401
from .conftest import Server
from .test_attacks_page import report_elsewhere
from .test_browser_page import Visitor, _site, counts, invite  # noqa: F401 - fixtures

pytestmark = pytest.mark.heavy


class Traveller(Visitor):
    """Somebody whose browser keeps the page, and whose connection comes and goes."""

    def __init__(self, browser: Any, site: Server) -> None:
        super().__init__(browser, site, workers="allow")

    def copied(self) -> None:
        """Wait until the page can be opened without a connection."""
        self.page.evaluate("navigator.serviceWorker.ready.then(() => true)")

    def leave(self) -> None:
        """Cut the connection. On a busy machine a new process of the browser hears of it late."""
        self.context.set_offline(True)
        self.context.route("**/v1/**", lambda route: route.abort("internetdisconnected"))

    def arrive(self) -> None:
        self.context.unroute("**/v1/**")
        self.context.set_offline(False)

    def agree(self) -> None:
        self.page.check("#agree")
        self.page.click("#send")

    def link(self, token: str) -> str:
        return f"{self.site.url}/c/{self.site.campaign_id}#token={token}"

    def stored(self) -> dict[str, Any]:
        ((_, text),) = self.kept()
        return dict(json.loads(text))

    @property
    def reports(self) -> list[str]:
        return [body for path, body in self.sent if path == "reports"]


@pytest.fixture(name="traveller")
def _traveller(browser: Any, site: Server) -> Iterator[Traveller]:
    made = Traveller(browser, site)
    yield made
    made.context.close()


def test_an_answer_without_a_connection_waits_and_is_stored_once(
    traveller: Traveller, site: Server
) -> None:
    (token,), before = invite(site), counts(site)[0]
    page = traveller.open(token)
    page.wait_for_selector("#start:visible")
    traveller.leave()
    traveller.draw()
    traveller.agree()
    page.wait_for_selector("text=Your report waits")
    assert "is sent when the connection returns" in page.inner_text("#sent-text")
    drawn = traveller.stored()["report"]
    assert page.inner_text("#bytes") == drawn or page.text_content("#bytes") == drawn
    assert page.inner_text("#exactly summary") == "Exactly what will be sent"
    assert counts(site)[0] == before
    for _ in range(3):  # neither trying again nor looking again draws anything
        page.click("#resend")
        page.wait_for_selector("#resend:visible")
        page.evaluate("dispatchEvent(new Event('focus'))")
    assert traveller.stored()["report"] == drawn
    traveller.arrive()
    page.wait_for_selector("#receipt:visible")
    assert counts(site)[0] == before + 1
    assert set(traveller.reports) == {drawn}
    page.evaluate(
        "for (const one of ['online', 'focus', 'pageshow']) dispatchEvent(new Event(one))"
    )
    page.wait_for_timeout(300)
    assert counts(site)[0] == before + 1
    assert page.inner_text("#sent-title") == "Thank you"


def test_the_page_is_opened_answered_and_opened_again_without_a_connection(
    traveller: Traveller, site: Server
) -> None:
    (token,), before = invite(site), counts(site)[0]
    page = traveller.open(token)
    page.wait_for_selector("#start:visible")
    traveller.copied()
    page.goto("about:blank")
    traveller.leave()
    page.goto(traveller.link(token))
    page.wait_for_selector("#start:visible")
    assert "There is no connection" in page.inner_text("#status")
    traveller.draw()
    traveller.agree()
    page.wait_for_selector("text=Your report waits")
    drawn = traveller.stored()["report"]
    page.goto("about:blank")
    page.goto(traveller.link(token))
    page.wait_for_selector("text=Your report waits")
    assert traveller.stored()["report"] == drawn
    page.goto("about:blank")
    assert counts(site)[0] == before
    traveller.arrive()
    page.goto(traveller.link(token))
    page.wait_for_selector("#receipt:visible")
    assert set(traveller.reports) == {drawn}
    assert counts(site)[0] == before + 1


def test_a_server_that_is_gone_is_as_good_as_no_connection(browser: Any, server: Server) -> None:
    person = Traveller(browser, server)
    (token,) = invite(server)
    page = person.open(token)
    page.wait_for_selector("#start:visible")
    person.copied()
    server.stop()
    page.goto("about:blank")
    page.goto(person.link(token))
    page.wait_for_selector("#start:visible", timeout=30_000)
    person.draw("4")
    person.agree()
    page.wait_for_selector("text=Your report waits", timeout=60_000)
    drawn = person.stored()["report"]
    server.start()
    page.evaluate("dispatchEvent(new Event('focus'))")
    page.wait_for_selector("#receipt:visible", timeout=30_000)
    assert set(person.reports) == {drawn}
    assert counts(server)[0] == 1
    person.context.close()


def test_what_was_drawn_offline_never_leaves_if_another_browser_was_faster(
    traveller: Traveller, site: Server, mechanism: Any, digits: Any
) -> None:
    """Otherwise the server would see two draws of one answer."""
    (token,), before = invite(site), counts(site)[0]
    page = traveller.open(token)
    page.wait_for_selector("#start:visible")
    traveller.leave()
    traveller.draw()
    traveller.agree()
    page.wait_for_selector("text=Your report waits")
    report_elsewhere(site, mechanism, digits, token)
    traveller.arrive()
    page.wait_for_selector("text=Your report was not sent, and never will be")
    assert traveller.reports == []
    assert counts(site)[0] == before + 1
    page = traveller.open(token)
    page.wait_for_selector("#sent:visible")
    assert page.inner_text("#sent-title") == "Already used"
    page.wait_for_timeout(300)
    assert traveller.reports == []


def test_two_tabs_draw_one_report_without_a_connection(traveller: Traveller, site: Server) -> None:
    (token,), before = invite(site), counts(site)[0]
    pages = []
    for _ in range(2):
        traveller.open(token)
        traveller.draw()
        pages.append(traveller.page)
        traveller.page = traveller.context.new_page()
    traveller.page.close()
    traveller.page = pages[0]
    traveller.leave()
    for page in pages:
        page.check("#agree")
        page.click("#send")
    for page in pages:
        page.wait_for_selector("text=Your report waits")
    drawn = traveller.stored()["report"]
    traveller.arrive()
    for page in pages:
        page.wait_for_selector("#receipt:visible")
    assert {page.inner_text("#receipt") for page in pages} == {traveller.stored()["receipt"]}
    assert set(traveller.reports) == {drawn}
    assert counts(site)[0] == before + 1


def test_the_worker_keeps_the_page_and_nothing_of_the_person(
    traveller: Traveller, site: Server
) -> None:
    (token,) = invite(site)
    traveller.report(token)
    traveller.copied()
    kept = traveller.page.evaluate("""async () => { const found = [];
        for (const name of await caches.keys()) {
          const cache = await caches.open(name);
          for (const one of await cache.keys()) {
            const content = await (await cache.match(one)).text();
            found.push([one.url, [...one.headers.keys()].join(), content]);
          }
        }
        return found; }""")
    paths = [url.removeprefix(site.url) for url, _, _ in kept]
    base = f"/v1/campaigns/{site.campaign_id}"
    expected = {base, f"{base}/device?round=1", f"{base}/encoder?round=1"}
    assert {path for path in paths if not path.startswith("/static/")} == expected
    receipt = traveller.page.inner_text("#receipt")
    for url, headers, content in kept:
        assert "authorization" not in headers
        assert token not in url + content
        assert receipt not in content
    scope = traveller.page.evaluate(
        "navigator.serviceWorker.getRegistration().then((one) => one.scope)"
    )
    assert scope == f"{site.url}/c/"


def test_previews_are_not_kept_and_not_served_from_a_copy(
    traveller: Traveller, site: Server
) -> None:
    page = traveller.page
    page.goto(f"{site.url}/c/{site.campaign_id}/preview")
    page.wait_for_selector("#start:visible")
    page.wait_for_timeout(300)
    assert page.evaluate("caches.keys()") == []
    assert (
        page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
    )
    traveller.open(invite(site)[0])
    page.wait_for_selector("#start:visible")
    traveller.copied()
    page.goto(f"{site.url}/c/{site.campaign_id}/preview")  # now a worker watches this address, too
    traveller.draw()
    traveller.agree()
    page.wait_for_selector("#receipt:visible")
    assert "PREVIEW" in page.inner_text("#receipt")
    assert traveller.sent == []


def test_a_changed_file_makes_another_copy(site: Server) -> None:
    answer = httpx.get(f"{site.url}/c/worker.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "tacit-page VERSION" not in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
