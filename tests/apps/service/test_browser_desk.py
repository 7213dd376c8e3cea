"""The owner's desk in a real browser: a preview that leaves nothing, the owner's page, papers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tacit.apps.service.notice import Notice

from .browser import browser_fixture  # noqa: F401
from .conftest import TITLE, new_server
from .test_browser_page import Visitor, counts
from .test_desk import ABOUT

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory, mechanism: Any) -> Any:
    folder = tmp_path_factory.mktemp("site")
    settings = {"draft": True, "about": Notice.from_plain(ABOUT)}
    db = f"sqlite:///{folder}/campaign.db"
    made = new_server(db, folder / "secret", mechanism, **settings)
    yield made
    made.stop()


def test_a_preview_is_the_page_itself_and_leaves_nothing(browser: Any, site: Any) -> None:
    visitor = Visitor(browser, site, width=390)
    page = visitor.page
    for _ in range(2):
        page.goto("about:blank")
        page.goto(f"{site.url}/c/{site.campaign_id}/preview")
        assert "Preview" in page.locator(".rehearsal").inner_text()
        visitor.draw()
        page.check("#agree")
        page.click("#send")
        page.wait_for_selector("#receipt:visible")
        assert "PREVIEW" in page.locator("#receipt").inner_text()
    assert visitor.sent == []
    assert visitor.complaints == []
    assert counts(site) == (0, 0)
    page.goto(f"{site.url}/static/style.css")
    page.wait_for_timeout(300)
    names = page.evaluate("async () => (await indexedDB.databases()).map((one) => one.name)")
    assert names == []
    visitor.context.close()


def test_a_draft_with_another_language_is_saved_and_opened(
    browser: Any, tmp_path: Any, mechanism: Any
) -> None:
    db = f"sqlite:///{tmp_path}/campaign.db"
    made = new_server(db, tmp_path / "secret", mechanism, draft=True)
    visitor = Visitor(browser, made, width=320)
    page = visitor.open(path="owner")
    page.fill("#key", made.key)
    page.click("#unlock button")
    page.wait_for_selector("#owned:visible")
    assert not page.is_visible("[data-file='reports.parquet']")  # there are none
    page.fill("#draft-form [name=organiser]", "City Library")
    page.fill("#draft-form [name=purpose]", "To read\ndigits.")
    page.click("#add-language")
    for name, text in (("tag", "de"), ("title", "Ziffern"), ("purpose", "Zum Lesen.")):
        page.fill(f".language [data-text={name}]", text)
    page.click("#draft-form [type=submit]")
    page.wait_for_selector("text=The draft is saved.")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    told = httpx.get(made.campaign_url).json()
    assert (told["title"], told["purpose"]) == (TITLE, "To read digits.")
    assert told["about"]["organiser"] == "City Library"
    assert told["about"]["texts"] == {"de": {"title": "Ziffern", "purpose": "Zum Lesen."}}
    page.click("#opening summary")
    page.click("#open")
    page.wait_for_selector("text=The campaign is open.")
    assert httpx.get(made.campaign_url).json()["state"] == "open"
    assert [line for line in visitor.complaints if "403" not in line] == []
    visitor.context.close()
    made.stop()
