"""A survey of six questions, from the schema to published answers, in a real browser.

Intervals are taken at a confidence of 0.99999: a sound system fails the assertions about the ten
numbers in at most one run of 10,000.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.apps.service import crowd
from tacit.apps.service.client import Client
from tacit.apps.service.given import as_json
from tacit.apps.service.store import Store
from tacit.privacy.certificate import Certificate

from .browser import browser_fixture  # noqa: F401
from .conftest import Server, new_server
from .test_browser_page import Visitor

pytestmark = pytest.mark.heavy

CONFIDENCE, PEOPLE = 0.99999, 600
SURVEY = tacit.Survey(
    {
        "smoker": tacit.YesNo(text="Do you smoke?", help="Tobacco in any form."),
        "region": tacit.OneOf(("north", "south"), text="Where do you live?"),
        "pets": tacit.SeveralOf(("a cat", "a dog", "a fish"), text="Which pets do you have?"),
        "income": tacit.Number(0, 10, text="What do you earn?", unit="thousand a month"),
        "hours": tacit.Number(0, 80, text="How long do you work in a week?", unit="hours"),
        "born": tacit.Date("1940-01-01", "2010-12-31", text="When were you born?"),
    },
    epsilon=4,
    sheets=["smoker", ("region", "income"), "pets", "hours:bins", "born"],
)
SETTINGS = {"title": "Life", "purpose": "To plan.", "labelled": False, "vote_epsilon": None}
TRUTH = {
    "share of smoker": {"": 0.3},
    "share of region": {"north": 0.6, "south": 0.4},
    "share of pets": {"a cat": 0.5, "a dog": 0.3, "a fish": 0.0},
    "mean income": {"": 0.6 * 3 + 0.4 * 5},
    "mean income by region": {"north": 3.0, "south": 5.0},
    "median hours": {"": 40.0},
    "mean born": {"": 3653 + 10_000.0},
}
WIDEST = {"of": 0.7, "income": 9, "hours": 50, "born": 20_000}


def people(count: int) -> dict[str, Any]:
    """A sample of the population whose numbers are in `TRUTH`."""
    drawn = np.random.default_rng(5)
    south, pets = drawn.random(count) < 0.4, drawn.random((count, 2)) < (0.5, 0.3)
    return {
        "smoker": np.where(drawn.random(count) < 0.3, "yes", "no"),
        "region": np.where(south, "south", "north"),
        "pets": [";".join(np.array(["a cat", "a dog"])[one]) for one in pets],
        "income": np.clip(3 + 2 * south + drawn.uniform(-2, 2, count), 0, 10),
        "hours": drawn.uniform(20, 60, count),
        "born": np.datetime64("1950-01-01") + drawn.integers(0, 20_001, count),
    }


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("survey")
    made = new_server(f"sqlite:///{folder}/campaign.db", folder / "secret", SURVEY, **SETTINGS)
    yield made
    if made.process.poll() is None:
        made.stop()


class Person(Visitor):
    """Somebody who answers whatever they are asked."""

    def begin(self, token: str) -> list[str]:
        """Open the questions of the sheet, and return them."""
        self.open(token)
        self.page.click("#start")
        self.page.wait_for_selector("#answer:visible")
        return self.asked()

    def asked(self) -> list[str]:
        texts = self.page.locator(".ask legend, .ask > label").all_inner_texts()
        return [str(one) for one in texts]

    def fill(self, yes: bool = True) -> None:
        for field in self.page.locator(".ask").all():
            radios = field.locator("input[type=radio]")
            if radios.count():
                (radios.last if yes else radios.first).check()
            elif field.locator("input[type=date]").count():
                field.locator("input").fill("1984-05-06" if yes else "1950-01-02")
            else:
                field.locator("input").fill("3.5" if yes else "7")

    def agree(self) -> None:
        self.page.click("#continue")
        self.page.wait_for_selector("#preview:visible")
        self.page.check("#agree")
        self.page.click("#send")


def state_of(person: Person) -> dict[str, Any]:
    ((_, text),) = person.kept()
    return dict(json.loads(text))


@pytest.fixture(name="token")
def _token(site: Server) -> str:
    with Client(f"{site.url}/c/{site.campaign_id}", key=site.key) as owner:
        return owner.invite(1)[0]


def test_what_is_asked_is_drawn_once_before_anything_is_answered(
    browser: Any, site: Server, token: str
) -> None:
    person = Person(browser, site, width=390)
    first = person.begin(token)
    assert list(state_of(person)) == ["sheet"]  # no answer, and nothing that was sent
    assert person.sent == []
    for _ in range(2):
        assert person.begin(token) == first
    sheet = state_of(person)["sheet"]
    channel = SURVEY.channel()
    names = [one.variable for part in channel.sheets[sheet] for one in part.measures]
    assert len(first) == len(names)
    person.context.close()


def test_an_error_is_beside_its_field_focused_and_goes_when_it_is_mended(
    browser: Any, site: Server, token: str
) -> None:
    person = Person(browser, site, width=390)
    asked = person.begin(token)
    page = person.page
    page.click("#continue")
    assert page.locator("#preview").is_hidden()
    assert page.locator(".error:visible").count() == len(asked)
    error = page.locator(".ask .error").first
    assert page.evaluate(
        "document.activeElement.closest('.ask') === document.querySelector('.ask')"
    )
    box = error.bounding_box()
    assert 0 <= box["y"] <= 800 - box["height"]
    marked = page.locator("[aria-invalid=true]").first
    assert error.get_attribute("id") in marked.get_attribute("aria-describedby").split()
    assert error.get_attribute("aria-live") == "polite"
    person.fill()
    assert page.locator(".error:visible").count() == 0
    assert page.locator("[aria-invalid=true]").count() == 0
    page.click("#back-welcome")
    page.click("#start")
    page.click("#continue")  # what was filled in is still there
    page.wait_for_selector("#preview:visible")
    person.context.close()


def test_the_preview_shows_every_answer_and_what_is_sent_is_drawn_once(
    browser: Any, site: Server, token: str
) -> None:
    person = Person(browser, site)
    asked = person.begin(token)
    page = person.page
    for yes in (True, False):  # somebody who goes back and changes their answers
        person.fill(yes)
        page.click("#continue")
        page.wait_for_selector("#preview:visible")
        assert page.locator("#own-answers dt").all_inner_texts() == asked
        said = page.inner_text("#own-answers")
        assert re.search("Yes|south|3.5|1984", said) if yes else re.search("No|north|7|1950", said)
        page.click("#again")
        assert list(state_of(person)) == ["sheet"]  # examples are not kept, and not sent
        assert person.sent == []
        page.click("#back-answer")
    person.agree()
    page.wait_for_selector("#receipt:visible")
    ((path, body),) = person.sent
    report = json.loads(body)["report"]
    assert (path, report["sheet"]) == ("reports", state_of(person)["sheet"])
    columns = {name: np.array([one]) for name, one in report.items()}
    SURVEY.channel().check(columns)
    page.click("#exactly summary")
    assert asked[0] in page.inner_text("#in-words")
    assert page.inner_text("#bytes") == body
    assert sorted(state_of(person)) == ["receipt", "report", "sheet"]
    assert person.complaints == []
    person.context.close()


def test_six_questions_600_people_a_kill_and_published_answers(
    browser: Any, site: Server, tmp_path: Path
) -> None:
    url = f"{site.url}/c/{site.campaign_id}"
    table = people(PEOPLE)
    store = Store.open(site.db, site.secret)
    before = store.status(site.campaign_id).reports
    with Client(url, key=site.key, state=tmp_path) as owner:
        half = {name: one[: PEOPLE // 2] for name, one in table.items()}
        items = list(zip(owner.invite(PEOPLE // 2), as_json(owner.draw(half)), strict=True))
        receipts = owner.send_batch(items)
        by_page(browser, site, owner.invite(1)[0])  # the server is killed and restarted here
        assert owner.send_batch(items) == receipts  # the same reports again: nothing was lost
        rest = {name: one[PEOPLE // 2 :] for name, one in table.items()}
        assert crowd.answer(owner, rest, PEOPLE // 2, batch=100).stored == PEOPLE // 2
        assert store.status(site.campaign_id).reports == before + PEOPLE + 1
        store.engine.dispose()
        on_the_owners_page(browser, site)
        for question, truth in TRUTH.items():
            told = owner.answer(question, confidence=CONFIDENCE)
            must_cover(told, truth, WIDEST[question.split()[1]])
        path = owner.download_reports(tmp_path / "reports.parquet")
        reports = tacit.Reports.read(path)
        own = SURVEY.answer(reports, "mean income by region").to_plain()
        assert own["groups"] == owner.answer("mean income by region")["groups"]


def by_page(browser: Any, site: Server, token: str) -> None:
    """Somebody's report is drawn, and the server dies before it arrives."""
    person = Person(browser, site, width=390)
    person.begin(token)
    person.fill()

    def lost(route: Any) -> None:
        site.kill()
        route.abort()

    person.page.route("**/reports", lost, times=1)
    person.agree()
    person.page.wait_for_selector("#sent:visible")
    while site.process.poll() is None:
        person.page.wait_for_timeout(20)
    site.start()
    person.page.wait_for_selector("#receipt:visible, #resend:visible", timeout=20_000)
    if person.page.is_visible("#resend"):
        person.page.click("#resend")
        person.page.wait_for_selector("#receipt:visible")
    assert len({body for path, body in person.sent if path == "reports"}) == 1
    person.context.close()


def on_the_owners_page(browser: Any, site: Server) -> None:
    """Answers are drafts until the campaign is closed; then readers' guarantee is stated."""
    owner = Visitor(browser, site)
    page = owner.open(path="owner")
    page.fill("#key", site.key)
    page.click("#unlock button")
    page.wait_for_selector("#survey:visible")
    assert page.locator("#answers section").count() == 6
    assert page.locator("#answers h3").first.inner_text() == "Do you smoke?"
    assert "for you alone" in page.inner_text("#draft")
    assert "none yet" in page.inner_text("#who")
    page.click("#closing summary")
    page.click("#close")
    page.wait_for_selector("#draft", state="hidden")
    who = page.inner_text("#who")
    assert "4-DP (local, any-two-inputs, unit: person)" in who
    assert "central, replace-one" in who
    assert "one closed batch" in who
    page.get_by_role("button", name="mean income by region").click()
    page.click("#ask button")
    page.wait_for_selector("#asked-answer .bars")
    shown = page.inner_text("#asked-answer")
    assert "north" in shown
    assert "thousand a month" in shown
    assert "sampling of people" in shown
    page.fill("#asked", "mean of nonsense")
    page.click("#ask button")
    page.wait_for_selector("#ask-problem:visible")
    assert page.evaluate("document.activeElement.id") == "asked"
    with page.expect_download() as saved:
        page.click("[data-file=certificate]")
    certificate = Certificate.from_json(Path(saved.value.path()).read_bytes())
    certificate.verify()
    assert str(certificate.guarantee) == "4-DP (local, any-two-inputs, unit: person)"
    assert "invitation" in " ".join(certificate.not_protected)
    assert [one for one in owner.complaints if "422" not in one] == []
    owner.context.close()


def must_cover(told: dict[str, Any], truth: dict[str, float], widest: float) -> None:
    """The truth is inside every interval, and none is so wide that it would say nothing."""
    one = "value" in told
    intervals = {"": told["interval"]} if one else told["interval"]
    assert set(intervals) == set(truth)
    for name, (low, high) in intervals.items():
        assert low <= truth[name] <= high, (name, told)
        assert high - low < widest, (name, told)
