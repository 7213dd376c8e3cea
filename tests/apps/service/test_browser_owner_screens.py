"""Every screen of the owner's page, and the papers: axe, phones, large text.

With TACIT_SCREENSHOTS, a folder, pictures of all screens are left there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tacit.apps.service.given import as_json
from tacit.apps.service.notice import Notice
from tacit.apps.service.store import Store
from tacit.apps.service.tables import REPORT
from tacit.local.learned.partitions import Partitions

from .browser import axe, browser_fixture  # noqa: F401
from .conftest import Server, new_server
from .test_browser_page import Visitor, owner, voters
from .test_browser_screens import ABOUT, LOOKS, TOLD, _survey, violations
from .test_rounds import SETTINGS as ROUNDS
from .test_rounds import _first, _second, rows  # noqa: F401

pytestmark = pytest.mark.heavy

WIDTHS = {"phone": (390, LOOKS), "desktop": (1280, {"light": LOOKS["light"]})}
DRAWN = {**TOLD, "labelled": True, "vote_epsilon": 2.0, "minimum": 20, "vote_by_class": True}


def send(site: Server, mechanism: Any, drawn: list[Any]) -> None:
    """Store reports of invited people, drawn from the first round."""
    store = Store.open(site.db, site.secret)
    tokens = store.invite(site.campaign_id, len(drawn))
    items = list(zip(tokens, drawn, strict=True))
    assert all(type(one) is str for one in store.submit(REPORT, site.campaign_id, items))
    store.engine.dispose()


def drawings(folder: Any, mechanism: Any, digits: Any) -> Server:
    site = new_server(f"sqlite:///{folder}/c.db", folder / "secret", mechanism, **DRAWN)
    images, labels = (column[500:900] for column in digits)
    sets = mechanism.release(images, labels).columns["symbols"].tolist()
    send(site, mechanism, [{"symbols": one} for one in sets])
    owner(site, "model")
    voters(site, 60, 10)
    return site


def survey(folder: Any) -> Server:
    made = _survey()
    site = new_server(f"sqlite:///{folder}/c.db", folder / "secret", made, **TOLD)
    rng, count = np.random.default_rng(0), 400
    people = {
        "smoker": rng.choice(["yes", "no"], count),
        "region": rng.choice(["north", "south"], count),
        "income": rng.uniform(0, 10_000, count),
        "born": np.datetime64("1950-01-01") + rng.integers(0, 20_000, count),
        "pets": list(rng.choice(["a cat", "a dog", "a cat;a dog", ""], count)),
    }
    send(site, made, as_json(made.release(people)))
    return site


def partitions(folder: Any, first: Partitions, second: Partitions) -> Server:
    site = new_server(f"sqlite:///{folder}/c.db", folder / "secret", first, **ROUNDS)
    send(site, first, as_json(first.release(*rows(80, 3))))
    store = Store.open(site.db, site.secret)
    store.open_round(site.campaign_id, 2, second)
    store.engine.dispose()
    return site


def draft(folder: Any, mechanism: Any) -> Server:
    settings = {**DRAWN, "draft": True, "about": Notice.from_plain(ABOUT)}
    return new_server(f"sqlite:///{folder}/c.db", folder / "secret", mechanism, **settings)


class Desk(Visitor):
    """The owner at a page, whose screens are checked."""

    def __init__(self, browser: Any, site: Server, kind: str) -> None:
        super().__init__(browser, site)
        self.kind, self.source = kind, axe()

    def unlock(self) -> Any:
        page = self.open(path="owner")
        self.check("locked")
        page.fill("#key", self.site.key)
        page.click("#unlock button")
        page.wait_for_selector("#owned:visible")
        return page

    def check(self, name: str) -> None:
        """Let axe look at a screen in every look and width; nothing may be wider than it."""
        page = self.page
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        if not page.evaluate("'axe' in globalThis"):
            page.evaluate(f"() => {{ {self.source} }}")
        for width, (pixels, looks) in WIDTHS.items():
            page.set_viewport_size({"width": pixels, "height": 844})
            for look, media in looks.items():
                page.emulate_media(**{"forced_colors": "none", "reduced_motion": "reduce", **media})
                assert violations(page) == [], (self.kind, name, width, look)
                self.shot(f"{name}-{width}-{look}")
            page.emulate_media(color_scheme="light", forced_colors="none")
            self.fits(name)
        self.enlarged(name)

    def enlarged(self, name: str) -> None:
        page = self.page
        page.set_viewport_size({"width": 320, "height": 640})
        page.evaluate("""() => { const sheet = new CSSStyleSheet();
            sheet.replaceSync("html { font-size: 200%; }");
            document.adoptedStyleSheets = [sheet]; }""")
        self.fits(name)
        self.shot(f"{name}-large")
        page.evaluate("document.adoptedStyleSheets = []")
        page.set_viewport_size({"width": 1280, "height": 844})

    def fits(self, name: str) -> None:
        found = self.page.evaluate("""() => [document.documentElement.scrollWidth, innerWidth,
            [...document.querySelectorAll("body *")].filter((one) => {
              const { left, right, width } = one.getBoundingClientRect();
              return width > 1 && (right > innerWidth + 1 || left < -1) && !one.closest(".scroll");
            }).map((one) => one.outerHTML.slice(0, 80)).slice(0, 3)]""")
        assert found[0] <= found[1], (self.kind, name, found)

    def shot(self, name: str) -> None:
        if folder := os.environ.get("TACIT_SCREENSHOTS"):
            path = f"{folder}/owner-{self.kind}-{name}.png"
            self.page.screenshot(path=path, full_page=True)


@pytest.fixture(name="desk")
def _desk(browser: Any) -> Iterator[Any]:
    made: list[Desk] = []

    def desk(site: Server, kind: str) -> Desk:
        made.append(Desk(browser, site, kind))
        return made[-1]

    yield desk
    for one in made:
        one.context.close()
        one.site.stop()
    # Refusals of results below the minimum are the browser's own lines.
    said = [line for one in made for line in one.complaints if "403" not in line]
    assert said == []


def test_a_draft(desk: Any, tmp_path: Any, mechanism: Any) -> None:
    one = desk(draft(tmp_path, mechanism), "draft")
    page = one.unlock()
    page.wait_for_selector("#preparing:visible")
    page.click("#add-language")
    one.check("prepared")
    page.goto(f"{one.site.url}/c/{one.site.campaign_id}/preview")
    page.wait_for_selector(".rehearsal")
    page.wait_for_selector("#start:visible")
    one.check("preview")


def test_a_campaign_of_drawings_with_votes(
    desk: Any, tmp_path: Any, mechanism: Any, digits: Any
) -> None:
    one = desk(drawings(tmp_path, mechanism, digits), "drawing")
    page = one.unlock()
    page.wait_for_selector("#results:visible")
    page.wait_for_selector("#accuracy-box:visible")
    page.click("#hold button")
    page.wait_for_selector("#robust *")
    one.check("results")
    page.click("#show-record")
    page.wait_for_selector("#record[open]")
    one.check("record")
    page.click("#hide-record")
    page.click("#close")
    page.wait_for_selector("text=The campaign is closed.")
    one.check("closed")


def test_a_survey(desk: Any, tmp_path: Any) -> None:
    one = desk(survey(tmp_path), "survey")
    page = one.unlock()
    page.wait_for_selector("#answers .bars, #answers svg")
    page.fill("#asked", "mean income by region")
    page.click("#ask button")
    page.wait_for_selector("#asked-answer *")
    one.check("answers")


def test_a_campaign_with_partitions(
    desk: Any, tmp_path: Any, first: Partitions, second: Partitions
) -> None:
    one = desk(partitions(tmp_path, first, second), "partitions")
    page = one.unlock()
    page.wait_for_selector("#results:visible")
    one.check("results")


def test_papers_and_the_front_page(desk: Any, tmp_path: Any, mechanism: Any) -> None:
    one = desk(draft(tmp_path, mechanism), "papers")
    for name, path in (
        ("notice", f"/c/{one.site.campaign_id}/notice"),
        ("certificate", f"/c/{one.site.campaign_id}/certificate"),
        ("front", "/"),
    ):
        one.page.goto(f"{one.site.url}{path}")
        one.check(name)
