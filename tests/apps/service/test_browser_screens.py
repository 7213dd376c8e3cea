"""Every screen of the participants' page in every language: axe, small screens, large text, words.

With TACIT_SCREENSHOTS, a folder, pictures of all screens are left there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tacit
from tacit.apps.service.notice import Notice
from tacit.data.schema import Categorical, Continuous, TableSchema

from .browser import axe, browser_fixture  # noqa: F401
from .conftest import Server, new_server
from .test_browser_page import Visitor, invite, owner
from .test_texts import CATALOGUES, LANGUAGES

pytestmark = pytest.mark.heavy

LOCALES = {"en": "en-US", "de": "de-DE", "fr": "fr-FR", "es": "es-ES", "ar": "ar-EG"}
LOOKS: dict[str, dict[str, str]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"color_scheme": "dark", "forced_colors": "active"},
}
FOREIGN = {
    "de": {
        "title": "Leben und Verkehr",
        "purpose": "Die Stadt fragt, wie Menschen wohnen und fahren, um Busse zu planen.",
        "words": {
            "Do you smoke?": "Rauchen Sie?",
            "Tobacco in any form.": "Tabak in jeder Form.",
            "Where do you live?": "Wo wohnen Sie?",
            "north": "Norden",
            "south": "Süden",
            "What do you earn?": "Was verdienen Sie?",
            "thousand a month": "Tausend im Monat",
        },
    },
    "ar": {
        "title": "السكن والتنقل",
        "purpose": "تسأل المدينة كيف يسكن الناس ويتنقلون كي تخطط للحافلات.",
        "words": {
            "Do you smoke?": "هل تدخّن؟",
            "Tobacco in any form.": "التبغ بأي شكل.",
            "Where do you live?": "أين تسكن؟",
            "north": "الشمال",
            "south": "الجنوب",
            "What do you earn?": "كم تكسب؟",
            "thousand a month": "ألف في الشهر",
        },
    },
}
ABOUT = {
    "organiser": "City of Fairview, planning office",
    "contact": "planning@fairview.example",
    "retention": "Until 31 March 2027",
    "texts": FOREIGN,
}
TOLD = {"title": "Life and transport", "purpose": "The city asks how people live, to plan buses.",
        "labelled": False, "vote_epsilon": None, "about": Notice.from_plain(ABOUT)}  # fmt: skip
QUESTIONS = {
    "smoker": tacit.YesNo(text="Do you smoke?", help="Tobacco in any form."),
    "region": tacit.OneOf(("north", "south"), text="Where do you live?"),
    "income": tacit.Number(0, 10_000, text="What do you earn?", unit="thousand a month"),
    "born": tacit.Date("1940-01-01", "2010-12-31", text="When were you born?"),
    "pets": tacit.SeveralOf(("a cat", "a dog"), text="Which pets do you have?"),
}
OWNERS = ["thousand a month", *(one.text for one in QUESTIONS.values()), "a dog", *TOLD.values()]
OWNERS = [one for one in OWNERS if isinstance(one, str)]
SHEET = ("smoker", "region", "income:moments", "born", "pets")
TABLE = TableSchema((Continuous("education_num", 1, 16, missing="indicate"),
                     Categorical("zone", ("north", "south"), unseen="other")))  # fmt: skip


def _survey() -> Any:
    return tacit.Survey(QUESTIONS, epsilon=2, sheets=[SHEET], divided=True)


def _table() -> Any:
    return tacit.Direct(epsilon=2, classes=["no", "yes"]).fit(None, schema=TABLE)


@pytest.fixture(scope="module", name="sites")
def _sites(tmp_path_factory: pytest.TempPathFactory, mechanism: Any) -> Iterator[dict[str, Server]]:
    """A survey, a table with labels, and drawings with votes."""
    voted = {**TOLD, "labelled": True, "vote_epsilon": 2.0, "minimum": 20}
    kinds = {"survey": (_survey(), TOLD), "table": (_table(), {**TOLD, "labelled": True}),
             "drawing": (mechanism, voted)}  # fmt: skip
    made = {}
    for name, (one, settings) in kinds.items():
        folder = tmp_path_factory.mktemp(name)
        made[name] = new_server(f"sqlite:///{folder}/c.db", folder / "secret", one, **settings)
    yield made
    for site in made.values():
        site.stop()


class Walker(Visitor):
    """Somebody with a phone, who goes through all screens."""

    def __init__(self, browser: Any, site: Server, language: str, kind: str) -> None:
        super().__init__(browser, site, locale=LOCALES[language])
        self.language, self.kind = language, kind
        self.page.set_viewport_size({"width": 390, "height": 844})

    def screens(self) -> Iterator[str]:
        """Yield the name of each screen when it is shown."""
        page = self.open()
        page.wait_for_selector("#invitation:visible")
        yield "code"
        page = self.open(invite(self.site)[0])
        page.wait_for_selector("#start:visible")
        yield "welcome"
        page.click("#start")
        page.wait_for_selector("#answer:visible")
        page.click("#continue")
        page.wait_for_selector("#answer .error:visible")
        yield "errors"
        self.answer()
        yield "answer"
        page.click("#continue")
        page.wait_for_selector("#preview:visible")
        yield "preview"
        page.check("#agree")
        page.route("**/token", lambda route: page.wait_for_timeout(400) or route.continue_())
        page.click("#send")
        page.wait_for_selector("#receipt:visible")
        page.unroute("**/token")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        yield "sent"
        page.click("#withdraw")
        page.wait_for_selector("#withdraw", state="hidden")
        yield "withdrawn"

    def answer(self) -> None:
        page = self.page
        if self.kind == "drawing":
            self.stroke()
            page.check("#choice-3")
        elif self.kind == "table":
            page.fill("#field-0", "7")
            page.select_option("#field-1", "1")
            page.check("#choice-1")
        else:
            for at in (0, 1, 4):
                page.check(f"#ask-{at}-1")
            page.fill("#ask-2", "1234")
            page.fill("#ask-3", "1984-05-06")

    def shot(self, name: str) -> None:
        if folder := os.environ.get("TACIT_SCREENSHOTS"):
            path = f"{folder}/{self.kind}-{self.language}-{name}.png"
            self.page.screenshot(path=path, full_page=True)

    def fits(self) -> None:
        width = self.page.viewport_size["width"]
        found = self.page.evaluate("""() => [document.documentElement.scrollWidth,
            [...document.querySelectorAll("body *")].filter((one) => {
              const { left, right, width } = one.getBoundingClientRect();
              return width > 1 && (right > innerWidth + 1 || left < -1);
            }).map((one) => one.outerHTML.slice(0, 80)).slice(0, 3)]""")
        assert found[0] <= width, (document_step(self.page), found)


def document_step(page: Any) -> Any:
    return page.evaluate("document.body.dataset.step")


@pytest.fixture(name="walk")
def _walk(browser: Any, sites: dict[str, Server]) -> Iterator[Any]:
    made: list[Walker] = []

    def walk(language: str, kind: str = "survey") -> Walker:
        made.append(Walker(browser, sites[kind], language, kind))
        return made[-1]

    yield walk
    for one in made:
        assert one.complaints == []
        one.context.close()


def violations(page: Any) -> list[Any]:
    found = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [(one["id"], [node["html"][:150] for node in one["nodes"]][:3]) for one in found]


def check(walker: Walker, source: str, name: str) -> None:
    """Let axe look at a screen in every look."""
    page = walker.page
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(f"() => {{ {source} }}")
    for look, media in LOOKS.items():
        page.emulate_media(**{"forced_colors": "none", "reduced_motion": "reduce", **media})
        assert violations(page) == [], (walker.kind, name, look)
        if look != "forced" or walker.language == "en":
            walker.shot(f"{name}-{look}")
    page.emulate_media(color_scheme="light", forced_colors="none")


@pytest.mark.parametrize("language", LANGUAGES)
def test_axe_finds_nothing_on_any_screen_of_a_survey(walk: Any, language: str) -> None:
    source, walker = axe(), walk(language)
    for name in walker.screens():
        check(walker, source, name)
        assert walker.page.get_attribute("html", "lang") == language
        assert walker.page.get_attribute("html", "dir") == ("rtl" if language == "ar" else "ltr")


@pytest.mark.parametrize("language", ["en", "ar", pytest.param("de", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["table", "drawing"])
def test_axe_finds_nothing_on_other_forms(walk: Any, language: str, kind: str) -> None:
    source, walker = axe(), walk(language, kind)
    for name in walker.screens():
        check(walker, source, name)


@pytest.mark.parametrize("kind", ["survey", "table"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_large_text_fits_a_small_screen(walk: Any, language: str, kind: str) -> None:
    walker = walk(language, kind)
    walker.page.set_viewport_size({"width": 320, "height": 640})
    for name in walker.screens():
        walker.page.evaluate("""() => { const sheet = new CSSStyleSheet();
            sheet.replaceSync("html { font-size: 200%; }");
            document.adoptedStyleSheets = [sheet]; }""")
        walker.page.evaluate(
            "for (const one of document.querySelectorAll('details')) one.open = true"
        )
        walker.fits()
        walker.shot(f"{name}-large")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_shown_is_of_one_language(walk: Any, language: str) -> None:
    """No English on other pages, but for what is marked as such; no key, no empty place."""
    walker = walk(language)
    for _ in walker.screens():
        said = walker.page.evaluate("""() => {
            const copy = document.body.cloneNode(true), own = document.documentElement.lang;
            const apart = "[lang], [hidden], code, pre, output, noscript, select";
            for (const one of copy.querySelectorAll(apart)) {
              if (one.lang !== own) one.remove();
            }
            return copy.textContent; }""")
        for word in OWNERS:
            said = said.replace(word, "")
        assert "undefined" not in said
        assert not re.search(r"\{\w+\}|\bnull\b|NaN", said)
        english = set(re.findall(r"\b(?:the|you|your|and|of)\b", said))
        assert bool(english) == (language == "en"), said


def test_the_first_screen_fits_a_phone_in_every_language(walk: Any) -> None:
    for language in LANGUAGES:
        walker = walk(language)
        page = walker.open(invite(walker.site)[0])
        page.wait_for_selector("#start:visible")
        for one in (
            "#title",
            "#term-organiser",
            "#term-kept",
            "#term-contact",
            "#fact-limited",
            "#start",
        ):
            box = page.locator(one).bounding_box()
            assert 0 <= box["y"] <= 844 - box["height"], (language, one)
        assert (
            page.locator("#fact-limited").bounding_box()["y"]
            < page.locator("#start").bounding_box()["y"]
        )


# --- the choice of a language ------------------------------------------------------------------


def test_the_owners_texts_are_in_the_persons_language_or_marked(walk: Any) -> None:
    page = walk("de").open(invite(walk("de").site)[0])
    page.wait_for_selector("#start:visible")
    assert page.inner_text("#title") == FOREIGN["de"]["title"]
    assert page.get_attribute("#title", "lang") is None
    assert page.get_attribute("#term-organiser span", "lang") == "en"  # it is not translated
    page.click("#start")
    page.wait_for_selector("#answer:visible")
    asked = page.locator(".ask legend, .ask > label")
    assert asked.all_inner_texts()[:3] == ["Rauchen Sie?", "Wo wohnen Sie?", "Was verdienen Sie?"]
    assert page.locator(".ask").nth(1).locator("label").all_inner_texts() == ["Norden", "Süden"]
    assert asked.nth(3).get_attribute("lang") == "en"
    assert "Möglich: 0 bis 10.000\u00a0Tausend im Monat." in page.inner_text("#ask-2-help-0")


def test_another_language_keeps_what_is_filled_in_and_draws_nothing(walk: Any) -> None:
    walker = walk("en")
    page = walker.open(invite(walker.site)[0])
    page.click("#start")
    page.wait_for_selector("#answer:visible")
    walker.answer()
    page.select_option("#language", "ar")
    page.wait_for_selector("html[dir=rtl]")
    assert page.evaluate("document.activeElement.id") == "language"
    assert page.is_checked("#ask-1-1")
    assert page.input_value("#ask-2") == "1234"
    assert page.locator(".ask legend").first.inner_text() == FOREIGN["ar"]["words"]["Do you smoke?"]
    assert walker.sent == []
    page.click("#continue")
    page.wait_for_selector("#preview:visible")
    page.select_option("#language", "fr")
    page.wait_for_selector("html[lang=fr]")
    assert page.inner_text("#preview h2") == CATALOGUES["fr"]["preview-title"]
    assert "1\u202f234" in page.inner_text("#own-answers")
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#receipt:visible")
    assert page.inner_text("#sent-title") == "Merci"
    page.select_option("#language", "es")
    page.wait_for_selector("html[lang=es]")
    assert page.inner_text("#sent-title") == "Gracias"
    page.reload()
    page.wait_for_selector("#receipt:visible")
    assert page.get_attribute("html", "lang") == "es"  # remembered in this tab
    assert len(walker.sent) == 1
    assert list(json.loads(page.evaluate("JSON.stringify({...sessionStorage})"))) == [
        "tacit-language"
    ]


def test_a_code_can_be_typed_and_a_report_withdrawn_in_arabic(walk: Any) -> None:
    walker = walk("ar")
    page = walker.open()
    page.fill("#token", "no-such-token")
    page.click("#invitation button")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem") == CATALOGUES["ar"]["server-unknown-token"]
    walker.complaints.clear()  # the browser's own line on the refusal


def test_votes_are_worded_and_clean_in_arabic(
    walk: Any, sites: dict[str, Server], mechanism: Any, digits: Any
) -> None:
    from .test_browser_page import crowd

    source, walker = axe(), walk("ar", "drawing")
    crowd(walker.site, mechanism, digits, 40)
    owner(walker.site, "model")
    page = walker.open(invite(walker.site)[0])
    page.click("#start")
    walker.answer()
    page.click("#continue")
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#vote:visible")
    check(walker, source, "model")
    page.click("#vote")
    page.wait_for_selector("#answer:visible")
    walker.answer()
    page.click("#continue")
    page.wait_for_selector("#ballot:visible")
    check(walker, source, "ballot")
    page.check("#vote-agree")
    page.click("#vote-consent [type=submit]")
    page.wait_for_selector("#vote-receipt:visible")
    check(walker, source, "voted")
