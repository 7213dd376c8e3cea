"""Both pages in a real browser, on a real server: what is seen, what leaves, what stays."""

from __future__ import annotations

import csv
import json
import re
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.inference.votes import Ballot
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy import artifact

from .browser import browser_fixture  # noqa: F401
from .conftest import new_server

pytestmark = pytest.mark.heavy

THREE = [(0.3, 0.2), (0.5, 0.12), (0.68, 0.22), (0.66, 0.38), (0.48, 0.48), (0.7, 0.6), (0.7, 0.75),
         (0.52, 0.88), (0.3, 0.8)]  # fmt: skip
TABLE = TableSchema(
    (
        Continuous("age", 18, 90),
        Continuous("income", 0, 100, missing="indicate"),
        Categorical("zone", ("north", "south"), unseen="other"),
    )
)


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory, mechanism):
    folder = tmp_path_factory.mktemp("site")
    made = new_server(f"sqlite:///{folder}/campaign.db", folder / "secret", mechanism)
    yield made
    made.stop()


class Visitor:
    """A person with a browser profile of their own, and a record of all that it sent."""

    def __init__(self, browser, site, width=1280, workers="block", **more):
        self.site = site
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, service_workers=workers, **more
        )
        self.requests, self.complaints = [], []
        self.context.on("request", lambda request: self.requests.append(request))
        self.page = self.context.new_page()
        self.page.on("console", self._complain)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.set_default_timeout(10_000)

    def _complain(self, message):
        if message.text != "Service Worker registration blocked by Playwright":
            self.complaints.append(message.text)

    def open(self, token=None, path="c"):
        end = "" if token is None else f"#token={token}"
        self.page.goto("about:blank")
        self.page.goto(f"{self.site.url}/{path}/{self.site.campaign_id}{end}")
        return self.page

    @property
    def sent(self):
        """Addresses and bodies of everything that was posted."""
        posts = [one for one in self.requests if one.method == "POST"]
        return [(urlsplit(one.url).path.rsplit("/", 1)[-1], one.post_data) for one in posts]

    def stroke(self, points=THREE):
        self.page.wait_for_selector("#pad:visible")
        box = self.page.locator("#pad").bounding_box()
        spots = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
        self.page.mouse.move(*spots[0])
        self.page.mouse.down()
        for spot in spots[1:]:
            self.page.mouse.move(*spot, steps=5)
        self.page.mouse.up()

    def draw(self, label="3"):
        self.page.click("#start")
        self.stroke()
        self.page.get_by_label(label, exact=True).check()
        self.page.click("#continue")
        self.page.wait_for_selector("#preview:visible")

    def report(self, token):
        self.open(token)
        self.draw()
        self.page.check("#agree")
        self.page.click("#send")
        self.page.wait_for_selector("#receipt:visible")

    def kept(self):
        """Names and contents of all that the page has stored."""
        pairs = self._stored("getAllKeys"), self._stored("getAll")
        return [(name, json.dumps(content)) for name, content in zip(*pairs, strict=True)]

    def forget(self):
        """As browsers do that clear a site's data."""
        self._stored("clear")

    def _stored(self, work):
        code = """(work) => new Promise((resolve, reject) => {
            const asked = indexedDB.open("tacit");
            asked.onerror = reject;
            asked.onsuccess = () => {
              const change = asked.result.transaction("invitations", "readwrite");
              const found = change.objectStore("invitations")[work]();
              change.oncomplete = () => { asked.result.close(); resolve(found.result); };
            }; })"""
        return self.page.evaluate(code, work)


@pytest.fixture(name="visitor")
def _visitor(browser, site):
    made = []

    def visit(**given):
        made.append(Visitor(browser, site, **given))
        return made[-1]

    yield visit
    for one in made:
        one.context.close()


def owner(site, path, **body):
    headers = {"Authorization": f"Bearer {site.key}"}
    found = httpx.post(f"{site.campaign_url}/{path}", json=body, headers=headers, timeout=60)
    assert found.status_code in (200, 201), found.text
    return found.json()


def invite(site, count=1):
    return owner(site, "invitations", count=count)["tokens"]


def counts(site):
    found = httpx.get(site.campaign_url).json()
    return found["reports"], found["votes"]


# --- one report ------------------------------------------------------------------------------


def test_draw_consent_send_and_the_count_rises_by_one(visitor, site, mechanism):
    (token,), before = invite(site), counts(site)[0]
    person = visitor()
    page = person.open(token)
    # The token has left the address before anything can be copied from there.
    page.wait_for_selector("#start:visible")
    assert page.url == f"{site.url}/c/{site.campaign_id}"
    assert "Digits" in page.inner_text("h1")
    assert "To learn how people write digits." in page.inner_text("#purpose")
    assert "ε\u00a0=\u00a04" in page.inner_text("#risk")
    page.click("text=How it works")
    assert "ε\u00a0=\u00a04" in page.inner_text("#fact-odds")
    assert "ε\u00a0=\u00a06" in page.inner_text("#fact-total")
    assert page.locator("#limits li").count() >= 4
    person.draw()
    assert page.locator("#trials > li").count() == 4
    assert counts(site)[0] == before  # trials are not sent
    page.click("#send")  # without consent
    assert person.sent == []
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#receipt:visible")
    assert counts(site)[0] == before + 1
    assert person.complaints == []

    (path, body), size = person.sent[0], mechanism.channel(True).event.size
    assert len(person.sent) == 1
    assert path == "reports"
    content = json.loads(body)
    assert sorted(content) == ["artifact", "report"]
    assert content["artifact"] == artifact.fingerprint(mechanism)
    assert sorted(content["report"]) == ["symbols"]
    columns = {"symbols": np.array([content["report"]["symbols"]])}
    assert columns["symbols"].shape == (1, size)
    mechanism.channel(True).check(columns)
    for one in person.requests:
        assert urlsplit(one.url).hostname in ("127.0.0.1", None)
        assert token not in one.url
        assert one.post_data is None or len(re.findall(r"\d+(?=[,\]])", one.post_data)) <= size


def test_nothing_but_report_and_receipt_is_kept(visitor, site):
    (token,) = invite(site)
    person = visitor()
    person.report(token)
    ((name, text),) = person.kept()
    assert token not in name + text
    assert sorted(json.loads(text)) == ["receipt", "report"]
    assert json.loads(text)["report"] == person.sent[0][1]
    other = "localStorage.length + sessionStorage.length + document.cookie.length"
    assert person.page.evaluate(other) == 0


def test_coming_back_shows_the_receipt_and_sends_nothing(visitor, site):
    (token,) = invite(site)
    person = visitor()
    person.report(token)
    receipt, before = person.page.inner_text("#receipt"), counts(site)
    page = person.open(token)
    page.wait_for_selector("#receipt:visible")
    assert page.inner_text("#receipt") == receipt
    page.reload()  # the address holds no token any more
    page.wait_for_selector("#receipt:visible")
    assert len(person.sent) == 1
    assert counts(site) == before


def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(visitor, site):
    (token,), before = invite(site), counts(site)[0]
    person = visitor()
    page = person.open(token)
    # The server stores the report, and the answer is lost on its way; then the line is dead.
    calls = []

    def lose(route):
        calls.append(route.request.post_data)
        if len(calls) == 1:
            route.fetch()
        route.abort()

    page.route("**/reports", lose)
    person.draw()
    page.check("#agree")
    page.clock.install()
    page.click("#send")
    for _ in range(3):
        page.wait_for_timeout(200)
        page.clock.run_for(5000)
    page.wait_for_selector("#resend:visible")
    assert "cannot be reached" in page.inner_text("#problem")
    assert len(calls) == 4
    page.unroute("**/reports")
    page.click("#resend")
    page.wait_for_selector("#receipt:visible")
    assert counts(site)[0] == before + 1
    assert len({body for _, body in person.sent}) == 1
    assert len(person.sent) == 5


def test_two_tabs_of_one_browser_draw_one_report(visitor, site):
    one, (token,) = visitor(), invite(site)
    pages = []
    for _ in range(2):
        one.open(token)
        one.draw()
        one.page.check("#agree")
        pages.append(one.page)
        one.page = one.context.new_page()
    one.page.close()
    hash_of_token = """async ([id, token]) => {
        const text = new TextEncoder().encode(`tacit ${id} ${token}`);
        const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
        const hex = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
        const name = `tacit:${id}:${hex.slice(0, 32)}`;
        navigator.locks.request(name, () => new Promise((free) => { globalThis.free = free; }));
    }"""
    pages[0].evaluate(hash_of_token, [site.campaign_id, token])
    for page in pages:
        page.click("#send", no_wait_after=True)
    pages[1].wait_for_timeout(300)
    assert one.sent == []  # both wait: neither can draw while the other might
    pages[0].evaluate("globalThis.free()")
    for page in pages:
        page.wait_for_selector("#receipt:visible")
    assert len(one.sent) == 1


def test_a_report_that_never_arrived_is_sent_on_the_next_visit(visitor, site):
    (token,), before = invite(site), counts(site)[0]
    person = visitor()
    page = person.open(token)
    page.route("**/reports", lambda route: route.abort())
    person.draw()
    page.check("#agree")
    with page.expect_request("**/reports"):
        page.click("#send")
    page.goto("about:blank")
    page.unroute("**/reports")
    assert counts(site)[0] == before
    page = person.open(token)
    page.wait_for_selector("#receipt:visible")
    assert counts(site)[0] == before + 1
    assert len({body for _, body in person.sent}) == 1


def test_another_browser_is_told_that_the_invitation_is_used(visitor, site):
    (token,) = invite(site)
    visitor().report(token)
    other, before = visitor(), counts(site)
    page = other.open(token)
    page.wait_for_selector("#sent:visible")
    assert "already been used" in page.inner_text("#sent-text")
    assert not page.is_visible("#start")
    assert other.sent == []
    assert counts(site) == before


def test_a_report_can_be_withdrawn(visitor, site):
    (token,), before = invite(site), counts(site)[0]
    person = visitor()
    person.report(token)
    assert counts(site)[0] == before + 1
    person.page.click("#withdraw-box summary")
    person.page.click("#withdraw")
    person.page.wait_for_selector("text=Your report has been deleted")
    assert counts(site)[0] == before
    assert [path for path, _ in person.sent] == ["reports", "withdrawals"]
    page = person.open(token)
    page.wait_for_selector("text=Your report has been deleted")
    assert not page.is_visible("#start")


def test_by_keyboard_alone(visitor, site):
    (token,), before = invite(site), counts(site)[0]
    page = visitor(width=360).open(token)
    page.wait_for_selector("#start:visible")

    def tab_to(name):
        for _ in range(30):
            if page.evaluate("document.activeElement.id") == name:
                return
            page.keyboard.press("Tab")
        raise AssertionError(name)

    tab_to("start")
    page.keyboard.press("Enter")
    tab_to("pad")
    page.keyboard.press("Space")
    for _ in range(6):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.keyboard.press("Space")  # and empty again
    assert "empty" in page.inner_text("#status")
    tab_to("choice-0")
    page.keyboard.press("ArrowRight")  # to 1
    assert page.is_checked("#choice-1")
    tab_to("continue")
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview:visible")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    tab_to("agree")
    page.keyboard.press("Space")
    tab_to("send")
    page.keyboard.press("Enter")
    page.wait_for_selector("#receipt:visible")
    assert counts(site)[0] == before + 1


def test_what_is_missing_is_said_in_one_sentence(visitor, site):
    person = visitor()
    page = person.open(invite(site)[0])
    page.click("#start")
    page.click("#continue")
    label = "Choose an answer to “Which one did you draw?”"
    assert page.inner_text("#pad-error") == "Draw something first."
    assert page.inner_text("#label-error") == label
    person.stroke()
    assert page.locator("#pad-error").is_hidden()
    page.click("#continue")
    assert page.inner_text("#label-error") == label
    page.click("#clear")
    page.check("#choice-4")
    assert page.locator("#label-error").is_hidden()
    page.click("#continue")
    assert page.inner_text("#pad-error") == "Draw something first."
    assert page.is_visible("#answer")


def test_without_a_link_the_code_is_pasted_and_a_wrong_one_is_refused(visitor, site):
    person = visitor()
    page = person.open()
    page.fill("#token", "no-such-token")
    page.click("#invitation button")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem") == "The server does not know this invitation code."
    page.fill("#token", f" {invite(site)[0]}\t")
    page.click("#invitation button")
    page.wait_for_selector("#start:visible")
    assert page.inner_text("#problem") == ""


def test_a_changed_encoder_or_weaker_noise_is_refused(visitor, site):
    (token,) = invite(site)
    person = visitor()
    person.page.route("**/encoder?*", lambda route: route.fulfill(body=b"other bytes"))
    person.open(token)
    person.page.wait_for_selector("#problem:visible")
    assert "encoder is not the one" in person.page.inner_text("#problem")
    assert not person.page.is_visible("#start")
    person.page.unroute("**/encoder?*")

    def weaken(route):
        told = route.fetch().json()
        told["channel"]["inclusion"] = str(int(told["channel"]["inclusion"]) * 5 // 4)
        route.fulfill(json=told)

    person.page.route("**/device?*", weaken)
    person.open(token)
    person.page.wait_for_selector("#problem:visible")
    assert "weaker than this survey states" in person.page.inner_text("#problem")
    assert person.sent == []


def test_an_insecure_connection_is_refused(visitor, site):
    person = visitor()
    person.page.add_init_script("Object.defineProperty(crypto, 'subtle', { value: undefined });")
    page = person.open(invite(site)[0])
    page.wait_for_selector("#problem:visible")
    assert "https" in page.inner_text("#problem")
    assert not page.is_visible("#start")


def test_a_browser_that_keeps_nothing_is_refused_before_anything_is_sent(visitor, site):
    person = visitor()
    person.page.add_init_script("IDBObjectStore.prototype.put = () => { throw Error('full'); };")
    page = person.open(invite(site)[0])
    person.draw()
    page.check("#agree")
    page.click("#send")
    page.wait_for_selector("#problem:visible")
    assert "does not store data" in page.inner_text("#problem")
    assert person.sent == []


def test_a_drawing_is_centred_and_scaled(visitor, site):
    """A small stroke in a corner fills the frame from top to bottom, as digits do."""
    person = visitor()
    page = person.open(invite(site)[0])
    page.click("#start")
    person.stroke([(0.1, 0.1), (0.1, 0.4)])
    page.check("#choice-1")
    page.click("#continue")
    ink = page.evaluate("""() => { const canvas = document.querySelector('#own canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, 8, 8);
        return Array.from({ length: 64 }, (_, at) => data[4 * at + 3]); }""")
    picture = np.array(ink).reshape(8, 8)
    assert (picture.max(axis=1) > 100).all()
    assert picture[:, [0, 1, 6, 7]].max() == 0
    assert abs(picture.sum(axis=0) @ np.arange(8) / picture.sum() - 3.5) < 0.3


# --- other campaigns -------------------------------------------------------------------------


def people(count, seed=1):
    rng = np.random.default_rng(seed)
    income = rng.uniform(0, 100, count)
    income[rng.random(count) < 0.3] = np.nan
    zones = rng.choice(["north", "south", "elsewhere"], count)
    return {"age": rng.uniform(18, 90, count), "income": income, "zone": zones}


@pytest.mark.parametrize("kind", ["codebook", pytest.param("direct", marks=pytest.mark.slow)])
def test_a_table_is_a_form(browser, tmp_path, kind):
    if kind == "codebook":
        mechanism = Codebook(epsilon=2, classes=["no", "yes"], codewords=6)
        mechanism.fit(people(300), schema=TABLE, inhouse_public=True)
    else:
        mechanism = Direct(epsilon=2, classes=["no", "yes"]).fit(None, schema=TABLE)
    asked = {"question": "Do you smoke?"}
    site = new_server(f"sqlite:///{tmp_path}/c.db", tmp_path / "secret", mechanism, **asked)
    person = Visitor(browser, site, width=390)
    try:
        page = person.open(invite(site)[0])
        page.click("#start")
        assert page.get_by_role("group", name="Do you smoke?").is_visible()
        page.click("#continue")
        error = {
            name: page.locator(f"#field-{at}-error")
            for at, name in enumerate(("age", "income", "zone"))
        }
        assert error["age"].inner_text() == "Fill in “age”."
        assert error["income"].is_hidden()  # it may be left empty
        assert error["zone"].inner_text() == "Choose an answer for “zone”."
        page.get_by_label("age", exact=True).fill("17")
        page.click("#continue")
        assert error["age"].inner_text() == "“age” must be from 18 to 90."
        page.get_by_label("age", exact=True).fill("41.5")
        assert error["age"].is_hidden()
        page.click("#continue")
        assert error["zone"].inner_text() == "Choose an answer for “zone”."
        page.get_by_label("zone").select_option("Other, or I do not know")
        assert error["zone"].is_hidden()
        page.get_by_label("yes").check()
        page.click("#continue")
        page.wait_for_selector("#preview:visible")
        assert page.locator("#trials > li").count() == 4
        page.check("#agree")
        page.click("#send")
        page.wait_for_selector("#receipt:visible")
        assert counts(site) == (1, 0)
        assert "41.5" not in person.sent[0][1]
        assert person.complaints == []
    finally:
        person.context.close()
        site.stop()


# --- the owner, and votes --------------------------------------------------------------------


@pytest.mark.parametrize("by_class", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_owner_and_voter(browser, tmp_path, mechanism, digits, by_class):
    db = f"sqlite:///{tmp_path}/c.db"
    site = new_server(db, tmp_path / "secret", mechanism, vote_by_class=by_class)
    boss, voter = Visitor(browser, site, width=390), Visitor(browser, site)
    try:
        (token,) = invite(site)
        voter.report(token)
        assert "When a model has been learned" in voter.page.inner_text("#vote-text")
        page = boss.open(path="owner")
        page.wait_for_selector("#reports:text-is('1')")
        page.fill("#key", "wrong")
        page.click("#unlock button")
        page.wait_for_selector("#problem:visible")
        assert page.inner_text("#problem") == "This key does not open this campaign."
        boss.complaints.clear()  # the browser's own line on the refusal
        page.fill("#key", site.key)
        page.click("#unlock button")
        page.wait_for_selector("#few:visible")
        assert "19 more are needed" in page.inner_text("#few")

        crowd(site, mechanism, digits, 400)
        look_again(page)
        page.wait_for_selector("#results:visible")
        assert page.inner_text("#reports") == "401"
        assert page.locator("#classes svg").count() == 10
        shares = [float(text[:-2]) for text in page.locator("#classes strong").all_inner_texts()]
        headers = {"Authorization": f"Bearer {site.key}"}
        found = httpx.get(f"{site.campaign_url}/results", headers=headers).json()["classes"]
        assert shares == pytest.approx([100 * one["share"] for one in found], abs=0.051)
        assert page.locator("#poison tr").count() == 3
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.click("#learn")
        page.wait_for_selector("text=Learned from 401 reports and published")

        vote(voter, token)
        look_again(page)
        page.wait_for_selector("#votes:text-is('1')")
        assert "accuracy is shown from 20 votes on" in page.inner_text("#model-text")
        assert not page.is_visible("#accuracy-box")  # one voter's accuracy is their vote
        voters(site, 19, 10 if by_class else None)
        look_again(page)
        page.wait_for_selector("#accuracy-box:visible")
        assert page.locator("#by-class svg").count() == (10 if by_class else 0)
        assert page.is_visible("#by-class-box") == by_class
        pattern = r"always answering “(\d)”.* right for ([\d.]+)\s% of people"
        largest = re.search(pattern, page.inner_text("#baseline"))
        assert float(largest[2]) == max(shares) == shares[int(largest[1])]
        bars = page.locator("#accuracy .name").all_inner_texts()
        assert bars == ["20 voters", "Balanced"][: 1 + by_class]
        files(page, site)
        page.click("#closing summary")
        page.click("#close")
        page.wait_for_selector("text=The campaign is closed.")
        assert httpx.get(site.campaign_url).json()["state"] == "closed"
        assert all(site.key not in (one.url + (one.post_data or "")) for one in boss.requests)
        assert boss.page.evaluate("localStorage.length + sessionStorage.length") == 0
        # Refusals of results below the minimum are the browser's own lines.
        assert [line for line in boss.complaints + voter.complaints if "403" not in line] == []
    finally:
        boss.context.close()
        voter.context.close()
        site.stop()


def look_again(page):
    """Now, and not only after the few seconds that the page waits."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def crowd(site, mechanism, digits, count):
    images, labels = (column[500 : 500 + count] for column in digits)
    sets = mechanism.release(images, labels).columns["symbols"].tolist()
    given = zip(invite(site, count), sets, strict=True)
    items = [{"token": token, "report": {"symbols": symbols}} for token, symbols in given]
    body = {"artifact": artifact.fingerprint(mechanism), "reports": items}
    found = httpx.post(f"{site.campaign_url}/reports/batch", json=body, timeout=60).json()
    assert found["stored"] == count


def voters(site, count, classes):
    """Cast votes, all of people whom the model got right."""
    channel = Ballot(epsilon=2, classes=classes).channel
    drawn = channel.release(np.ones(count, int)).tolist()
    pairs = zip(invite(site, count), drawn, strict=True)
    items = [{"token": token, "vote": one} for token, one in pairs]
    body = {"model": httpx.get(site.campaign_url).json()["model"]["sha256"], "votes": items}
    found = httpx.post(f"{site.campaign_url}/votes/batch", json=body, timeout=60).json()
    assert found["stored"] == count


def vote(voter, token):
    page, before = voter.open(token), counts(voter.site)[1]
    page.click("#vote")
    voter.stroke()
    page.check("#choice-3")
    page.click("#continue")
    page.wait_for_selector("#ballot:visible")
    said = re.fullmatch(
        r"The model says (\d)\. You said 3\. It was (right|wrong)\.", page.inner_text("#said")
    )
    assert (said[1] == "3") == (said[2] == "right")
    for way, step in (
        ("back", "answer"),
        ("back", "sent"),
        ("forward", "answer"),
        ("forward", "ballot"),
    ):
        page.evaluate(f"history.{way}()")
        page.wait_for_function(f"document.body.dataset.step === '{step}'")
    page.check("#vote-agree")
    page.click("#vote-consent [type=submit]")
    page.wait_for_selector("#vote-receipt:visible")
    for _ in range(2):  # neither the answer nor the draw comes back
        page.evaluate("history.back()")
        page.wait_for_timeout(80)
        assert page.evaluate("document.body.dataset.step") == "sent"
    assert [path for path, _ in voter.sent].count("votes") == 1
    path, body = voter.sent[-1]
    assert path == "votes"
    assert sorted(json.loads(body)) == ["model", "vote"]
    assert counts(voter.site)[1] == before + 1


def files(page, site):
    for name, start in (("reports.parquet", b"PAR1"), ("certificate", b"{"), ("model", b"")):
        with page.expect_download() as waiting:
            page.click(f"[data-file='{name}']")
        assert waiting.value.path().read_bytes().startswith(start)
    with page.expect_download() as waiting:
        page.click("#table")
    rows = list(csv.reader(waiting.value.path().read_text().splitlines()))
    assert rows[0] == ["estimate", "of", "value", "low", "high"]
    assert [row[1] for row in rows if row[0] == "share of label"] == [str(at) for at in range(10)]
    assert ["accuracy"] in [row[:1] for row in rows]
    page.fill("#count", "3")
    with page.expect_download() as waiting:
        page.click("#invite button")
    links = waiting.value.path().read_text().split()
    assert len(links) == 3
    start = f"{site.url}/c/{site.campaign_id}#token="
    assert all(link.startswith(start) for link in links)
