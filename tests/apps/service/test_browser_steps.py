"""What a participant meets on the way: the first screen, steps in the history, fields, words."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.data.schema import Categorical, Continuous, TableSchema

from .browser import browser_fixture, call_fixture  # noqa: F401
from .conftest import Server, new_server
from .test_browser_page import Visitor, counts, invite

pytestmark = pytest.mark.heavy

PHONE, HIGH = 390, 844
COLUMNS = (
    Continuous("age", 18, 90),
    Continuous("education_num", 1, 16),
    *(Continuous(f"amount_{at}", 0, 100) for at in range(7)),
    *(Categorical(f"kind-{at}", ("small", "large")) for at in range(4)),
)
NAMES = ["age", "education num", *(f"amount {at}" for at in range(7)),
         *(f"kind {at}" for at in range(4))]  # fmt: skip
PURPOSE = (
    "The city asks how people earn and learn, to plan evening classes in every part of it. " * 2
)
SETTINGS = {
    "title": "Work and evening classes",
    "purpose": PURPOSE.strip(),
    "question": "Do you earn more than 50,000 a year?",
    "labelled": True,
    "vote_epsilon": None,
}


def table(count: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    numbers = {one.name: rng.uniform(one.lower, one.upper, count) for one in COLUMNS[:9]}
    return numbers | {one.name: rng.choice(one.categories, count) for one in COLUMNS[9:]}


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("steps")
    mechanism = tacit.Codebook(epsilon=2, classes=["no", "yes"], codewords=6)
    mechanism.fit(table(), schema=TableSchema(COLUMNS), inhouse_public=True)
    db = f"sqlite:///{folder}/c.db"
    made = new_server(db, folder / "secret", mechanism, **SETTINGS)
    yield made
    made.stop()


class Person(Visitor):
    """Somebody with a phone and a form of thirteen fields."""

    def begin(self, site: Server) -> Any:
        self.page.set_viewport_size({"width": PHONE, "height": HIGH})
        self.open(invite(site)[0])
        self.page.wait_for_selector("#start:visible")
        return self.page

    def fill(self) -> dict[str, str]:
        self.page.click("#start")
        self.page.wait_for_selector("#answer:visible")
        for at, column in enumerate(COLUMNS):
            if at < 9:
                self.page.fill(f"#field-{at}", str(column.lower + 1))
            else:
                self.page.select_option(f"#field-{at}", "1")
        self.page.get_by_label("yes", exact=True).check()
        return self.values()

    def values(self) -> Any:
        return self.page.evaluate("""() => Object.fromEntries([...document.querySelectorAll(
            "#answer input, #answer select")].map((one) =>
            [one.id, one.type === "radio" ? one.checked : one.value]))""")

    def onward(self) -> None:
        self.page.click("#continue")
        self.page.wait_for_selector("#preview:visible")

    @property
    def step(self) -> Any:
        return self.page.evaluate("document.body.dataset.step")

    def travel(self, way: str, expected: str) -> None:
        self.page.evaluate(f"history.{way}()")
        self.page.wait_for_function(f"document.body.dataset.step === '{expected}'")

    def shot(self, name: str) -> None:
        if folder := os.environ.get("TACIT_SCREENSHOTS"):
            self.page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@pytest.fixture(name="person")
def _person(browser: Any, site: Server) -> Iterator[Person]:
    made = Person(browser, site)
    yield made
    made.context.close()


# --- the first screen ------------------------------------------------------------------------


def test_the_first_screen_of_a_phone_holds_what_is_needed_to_decide(
    person: Person, site: Server
) -> None:
    page = person.begin(site)
    needed = ["#title", "#purpose", "#term-until", "#term-host", "#term-kept", "#term-contact",
              "#fact-stays", "#fact-chosen", "#fact-limited", "#start"]  # fmt: skip
    for one in needed:
        box = page.locator(one).bounding_box()
        assert box["y"] >= 0, one
        assert box["y"] + box["height"] <= HIGH, one
        assert page.inner_text(one).strip()
    top = page.locator("#start").bounding_box()["y"]
    for one in needed[:-1]:  # the button hides none of it
        box = page.locator(one).bounding_box()
        assert box["y"] + box["height"] <= top, one
    assert "evening classes" in page.inner_text("#purpose")
    assert page.locator("#limits").is_hidden()
    page.click("text=What is not protected")
    assert page.locator("#limits").is_visible()
    person.shot("first")


def test_the_picture_says_what_a_report_can_reveal(person: Person, site: Server) -> None:
    page = person.begin(site)
    said = "about 10 are suspected anyway; after your report, at most 46."
    assert said in page.inner_text("#risk figcaption")
    assert "Protection: medium (ε\u00a0=\u00a02" in page.inner_text("#risk .level")
    picture = page.get_by_role("img", name="100 dots: 10 are full, 36 have a thick ring")
    assert picture.is_visible()
    kinds = {one: page.locator(f"#risk .{one}").count() for one in ("before", "after", "rest")}
    assert kinds == {"before": 10, "after": 36, "rest": 54}


def test_the_number_of_suspects_is_never_too_small(call: Any) -> None:
    epsilons = [0.1, 0.3, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 10]
    found = call("words", "(m, given) => given.map((e) => m.suspected(e, 100, 10))", epsilons)
    for epsilon, most in zip(epsilons, found, strict=True):
        exact = 100 / (1 + 9 * math.exp(-epsilon))
        assert exact <= most < exact + 1
    assert found[5] == 46
    words = call("words", "(m, given) => given.map(m.level)", [0.1, 1, 2, 4, 4.1, 10])
    assert words == ["very strong", "strong", "medium", "weak", "very weak", "very weak"]


# --- steps -----------------------------------------------------------------------------------


def test_back_and_forward_keep_the_form_and_stay_on_the_page(person: Person, site: Server) -> None:
    page = person.begin(site)
    given = person.fill()
    assert len(given) == 15
    person.onward()
    person.travel("back", "answer")
    assert person.values() == given
    person.travel("back", "welcome")
    person.travel("forward", "answer")
    assert person.values() == given
    person.travel("forward", "preview")
    page.click("#back-answer")
    page.wait_for_selector("#answer:visible")
    page.click("#back-welcome")
    page.wait_for_selector("#welcome:visible")
    page.click("#start")
    assert person.values() == given
    assert person.sent == []
    assert person.complaints == []


def test_forward_does_not_show_what_was_not_checked(person: Person, site: Server) -> None:
    page = person.begin(site)
    person.fill()
    person.onward()
    person.travel("back", "answer")
    page.fill("#field-0", "33")
    person.travel("forward", "preview")
    assert "33" in page.inner_text("#own-answers")  # what would be sent follows the form
    person.travel("back", "answer")
    page.fill("#field-0", "")
    page.evaluate("history.forward()")
    page.wait_for_selector("#field-0-error:visible")
    assert person.step == "answer"


def test_discarding_empties_the_form(person: Person, site: Server) -> None:
    person.begin(site)
    person.fill()
    person.page.click("#discard")
    assert not any(person.values().values())
    assert person.step == "answer"


def test_a_draw_is_not_repeated_by_back_and_forward_and_the_answers_are_gone(
    person: Person, site: Server
) -> None:
    page, before = person.begin(site), counts(site)[0]
    person.fill()
    person.onward()
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#receipt:visible")
    receipt = page.inner_text("#receipt")
    assert not any(person.values().values())
    for way in ("back", "back", "forward", "forward", "back"):
        page.evaluate(f"history.{way}()")
        page.wait_for_timeout(80)
        assert person.step == "sent"
        assert page.inner_text("#receipt") == receipt
    assert page.locator("#own-answers dd, #trials li, #own canvas").count() == 0
    assert len(person.sent) == 1
    assert counts(site)[0] == before + 1


def test_back_while_a_report_is_drawn_changes_nothing(person: Person, site: Server) -> None:
    page = person.begin(site)
    person.fill()
    person.onward()
    page.check("#agree")
    waiting: list[Any] = []
    page.route("**/token", lambda route: waiting.append(route))
    page.click("#send")
    page.wait_for_selector("#asking:visible")
    page.evaluate("history.back()")
    page.wait_for_timeout(100)
    assert person.step == "asking"
    waiting[0].continue_()
    page.wait_for_selector("#receipt:visible")
    assert len(person.sent) == 1


# --- fields ----------------------------------------------------------------------------------


def test_every_error_is_beside_its_field_in_view_and_goes_when_mended(
    person: Person, site: Server
) -> None:
    page = person.begin(site)
    page.click("#start")
    page.click("#continue")
    assert page.locator("#answer .error:visible").count() == 14
    assert page.evaluate("document.activeElement.id") == "field-0"
    for name in ("field-0", "field-0-error"):
        box = page.locator(f"#{name}").bounding_box()
        assert 0 <= box["y"] <= HIGH - box["height"]
    field = page.locator("#field-9")
    assert field.get_attribute("aria-invalid") == "true"
    assert "field-9-error" in str(field.get_attribute("aria-describedby")).split()
    assert page.locator("#field-9-error").get_attribute("aria-live") == "polite"
    page.select_option("#field-9", "0")
    assert page.locator("#field-9-error").is_hidden()
    assert field.get_attribute("aria-invalid") is None
    person.shot("errors")


# --- words -----------------------------------------------------------------------------------


def names(page: Any, place: str) -> Any:
    return page.locator(f"{place} dt").all_inner_texts()


def test_every_column_is_shown_before_and_after_sending(person: Person, site: Server) -> None:
    page = person.begin(site)
    person.fill()
    assert page.locator("#fill label").all_inner_texts() == NAMES
    person.onward()
    assert names(page, "#own-answers") == [*NAMES, SETTINGS["question"]]
    assert page.locator("#own-answers dd").last.inner_text() == "yes"
    assert names(page, "#trials figure:first-child .columns")[:13] == NAMES
    assert "education_num" not in page.inner_text("main")
    assert "no mistake" in page.inner_text("#mismatch")
    assert page.locator("#risk-again svg").is_visible()
    person.shot("preview")
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#receipt:visible")
    page.click("#exactly summary")
    symbols = json.loads(person.sent[0][1])["report"]["symbols"]
    groups = [f"Group {one // 2 + 1} with “{('no', 'yes')[one % 2]}”" for one in symbols]
    assert page.locator("#in-words figcaption").all_inner_texts() == groups
    assert names(page, "#in-words") == NAMES * len(symbols)
    person.shot("sent")


@pytest.mark.parametrize(("width", "scheme", "forced"),
                         [(320, "light", "none"), (320, "dark", "active")])  # fmt: skip
def test_large_text_on_a_small_screen_does_not_overflow(
    person: Person, site: Server, width: int, scheme: str, forced: str
) -> None:
    page = person.begin(site)
    page.emulate_media(color_scheme=scheme, forced_colors=forced, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 640})
    page.evaluate("""() => { const sheet = new CSSStyleSheet();
        sheet.replaceSync("html { font-size: 200%; }");
        document.adoptedStyleSheets = [sheet]; }""")

    def fits() -> None:
        assert page.evaluate("document.documentElement.scrollWidth") <= width, person.step

    for one in page.locator("#welcome summary").all():
        one.click()
    fits()
    person.shot(f"large-{scheme}-welcome")
    page.click("#start")
    page.click("#continue")
    fits()
    page.click("#back-welcome")
    page.wait_for_selector("#welcome:visible")
    person.fill()
    person.onward()
    fits()
    person.shot(f"large-{scheme}-preview")
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#receipt:visible")
    page.click("#exactly summary")
    fits()


# --- the owner -------------------------------------------------------------------------------


def test_groups_are_told_apart_by_what_is_far_from_the_others(call: Any) -> None:
    """Bytes of two groups: age 90 and 18, "large" and "small"; money is alike."""
    schema = TableSchema((Continuous("age", 18, 90), Continuous("money_left", 0, 1),
                          Categorical("size", ("small", "large"))))  # fmt: skip
    prototypes = base64.b64encode(bytes([255, 128, 0, 255, 0, 128, 255, 0])).decode()
    given = {"schema": schema.to_plain(), "prototypes": prototypes, "codewords": 2}
    found = call("results", "(m, given) => m.groupsOf(given)", given)
    assert found == ["high age (90), size large", "low age (18), size small"]
    same = {**given, "prototypes": base64.b64encode(bytes([9] * 8)).decode()}
    assert call("results", "(m, given) => m.groupsOf(given)", same) == ["like the others"] * 2
