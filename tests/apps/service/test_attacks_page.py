"""Attacks on the page: a second draw of one invitation, and noise weaker than is stated."""

from __future__ import annotations

import copy

import httpx
import pytest

from tacit.apps.service import device
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.inference.votes import Ballot
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy import artifact
from tacit.privacy.mechanisms import SubsetSelection

from .browser import browser_fixture, call_fixture  # noqa: F401
from .conftest import new_server
from .test_browser_page import Visitor, _site, _visitor, counts, crowd, invite, owner, vote  # noqa: F401

pytestmark = pytest.mark.heavy

USED = (
    "This invitation has already been used, from another browser or before this browser's data "
    "were cleared. No new report was made."
)
TOTAL = 2**64


def reports_of(person):
    return {body for path, body in person.sent if path == "reports"}


def try_again(person, address):
    """Every report that left, after somebody does all that the page lets them do."""
    person.page.goto("about:blank")
    person.page.goto(address)
    person.page.wait_for_selector("#start:visible, #sent:visible, #problem:visible")
    if person.page.is_visible("#start"):
        person.draw()
        send(person)
        person.page.wait_for_selector("#receipt:visible, #problem:visible")
    return reports_of(person)


def send(person):
    person.page.check("#agree")
    person.page.click("#send")


def report_elsewhere(site, mechanism, digits, token):
    """Another device of the same person; its receipt."""
    images, labels = (column[900:901] for column in digits)
    symbols = mechanism.release(images, labels).columns["symbols"].tolist()[0]
    body = {"artifact": artifact.fingerprint(mechanism), "report": {"symbols": symbols}}
    headers = {"Authorization": f"Bearer {token}"}
    found = httpx.post(f"{site.campaign_url}/reports", json=body, headers=headers)
    assert found.status_code == 201, found.text
    return found.json()["receipt"]


# --- a second draw of one invitation ---------------------------------------------------------


def test_who_lost_the_browsers_data_does_not_draw_again(visitor, site):
    """Some browsers clear them after a week without a visit, private windows when they close."""
    (token,), person = invite(site), visitor()
    person.report(token)
    person.forget()
    seen = try_again(person, f"{site.url}/c/{site.campaign_id}#token={token}")
    assert len(seen) == 1, "the server has seen two draws"
    assert person.page.inner_text("#sent-text") == USED
    assert not person.page.is_visible("#receipt-box")
    assert not person.page.is_visible("#withdraw-box")
    assert not person.page.is_visible("#exactly")
    assert person.kept() == []


def test_who_took_part_elsewhere_in_the_meantime_does_not_draw(visitor, site, mechanism, digits):
    (token,), person = invite(site), visitor()
    person.open(token)
    person.draw()
    report_elsewhere(site, mechanism, digits, token)
    send(person)
    person.page.wait_for_selector("#sent:visible")
    assert person.page.inner_text("#sent-text") == USED
    assert reports_of(person) == set()
    assert person.kept() == []


SLOW = pytest.mark.slow


@pytest.mark.parametrize("broken", ["failing", pytest.param("garbled", marks=SLOW)])
def test_while_the_server_has_no_answer_nothing_is_drawn(visitor, site, broken):
    """Without a connection a report is drawn and waits: test_browser_offline.py."""
    (token,), person = invite(site), visitor()
    page = person.open(token)
    person.draw()
    answers = {
        "failing": lambda route: route.fulfill(status=503, json={"detail": "Busy."}),
        "garbled": lambda route: route.fulfill(body="none"),
    }
    page.route("**/token", answers[broken])
    page.clock.install()
    send(person)
    for _ in range(4):
        page.wait_for_timeout(100)
        page.clock.run_for(5000)
    page.wait_for_selector("#problem:visible")
    assert person.kept() == []
    assert reports_of(person) == set()
    page.unroute("**/token")
    page.click("#send")  # the answer is still there
    page.wait_for_selector("#receipt:visible")
    assert len(reports_of(person)) == 1


def test_what_was_agreed_to_is_drawn_and_there_is_no_way_back(visitor, site):
    """The server may take a while to say that the invitation is unused."""
    (token,), person = invite(site), visitor()
    page = person.open(token)
    person.draw()
    waiting = []
    page.route("**/token", lambda route: waiting.append(route))
    send(person)
    page.wait_for_selector("#asking:visible")
    assert page.locator("main button:visible, main input:visible").count() == 0
    page.wait_for_timeout(100)
    assert person.kept() == []
    (route,) = waiting
    route.continue_()
    page.wait_for_selector("#receipt:visible")
    assert len(reports_of(person)) == 1


def test_after_a_withdrawal_elsewhere_nothing_is_drawn(visitor, site, mechanism, digits):
    (token,), person = invite(site), visitor()
    receipt = report_elsewhere(site, mechanism, digits, token)
    httpx.post(f"{site.campaign_url}/withdrawals", json={"receipt": receipt}).raise_for_status()
    assert try_again(person, f"{site.url}/c/{site.campaign_id}#token={token}") == set()
    assert person.page.inner_text("#sent-text") == USED
    assert not person.page.is_visible("#vote-box")


def test_the_browser_is_asked_to_keep_its_data(visitor, site):
    person = visitor()
    person.page.add_init_script(
        "StorageManager.prototype.persist = async () => { globalThis.persisted = true; };"
    )
    person.report(invite(site)[0])
    assert person.page.evaluate("globalThis.persisted")
    assert "as long as this browser keeps its data" in person.page.inner_text("#sent-text")


@pytest.mark.parametrize(
    "end", ["%20", *(pytest.param(one, marks=SLOW) for one in ("%0A", "+", "%09"))]
)
def test_a_link_with_a_blank_at_its_end_is_the_same_link(visitor, site, end):
    (token,), person = invite(site), visitor()
    person.report(token)
    seen = try_again(person, f"{site.url}/c/{site.campaign_id}#token={token}{end}")
    assert len(seen) == 1, "the server has seen two draws of one token"
    person.page.wait_for_selector("#receipt:visible")  # found under the same name


def test_what_is_no_code_is_refused_here(visitor, site):
    person = visitor()
    page = person.open("two%20words")
    for code in (None, "t\u00f6ken", "x" * 129, "a/b", " "):
        if code:
            page.evaluate("document.getElementById('problem').textContent = ''")
            page.fill("#token", code)
            page.click("#invitation button")
        page.wait_for_selector("#problem:has-text('not an invitation code')")
        assert page.is_visible("#invitation")
    assert not any("authorization" in one.headers for one in person.requests)


def test_a_link_that_was_escaped_on_its_way_is_the_same_link(visitor, site):
    (token,), person, name = invite(site), visitor(), site.campaign_id
    person.report(token)
    escaped = f"%{ord(name[0]):02X}{name[1:]}"
    seen = try_again(person, f"{site.url}/c/{escaped}#token={token}")
    assert len(seen) == 1, "the server has seen two draws of one token"
    person.page.wait_for_selector("#receipt:visible")


def test_a_description_of_another_campaign_is_refused(visitor, site):
    person = visitor()

    def rename(route):
        route.fulfill(json={**route.fetch().json(), "id": "abcdefghijkl"})

    person.page.route(f"**/campaigns/{site.campaign_id}", rename)
    page = person.open(invite(site)[0])
    page.wait_for_selector("#problem:visible")
    assert not page.is_visible("#start")


# --- votes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="taught")
def _taught(tmp_path_factory, mechanism, digits):
    """A site with a model to vote on."""
    folder = tmp_path_factory.mktemp("taught")
    made = new_server(f"sqlite:///{folder}/c.db", folder / "secret", mechanism, vote_by_class=True)
    crowd(made, mechanism, digits, 60)
    owner(made, "model")
    yield made
    made.stop()


@pytest.fixture(name="reporter")
def _reporter(browser, taught, mechanism, digits):
    """Somebody who has reported from elsewhere, and their token."""
    (token,) = invite(taught)
    report_elsewhere(taught, mechanism, digits, token)
    person = Visitor(browser, taught)
    yield person, token
    person.context.close()


def test_who_reported_elsewhere_can_vote_once(reporter):
    person, token = reporter
    vote(person, token)
    assert reports_of(person) == set()
    page = person.open(token)  # their own vote is still known here
    page.wait_for_selector("#vote-receipt:visible")
    assert not page.is_visible("#vote")
    person.forget()
    page = person.open(token)
    page.wait_for_selector("#vote-box:visible")
    assert not page.is_visible("#vote")
    assert "already" in page.inner_text("#vote-text")
    assert len([path for path, _ in person.sent if path == "votes"]) == 1


def test_who_voted_elsewhere_in_the_meantime_does_not_draw(reporter):
    person, token = reporter
    page = person.open(token)
    to_ballot(person)
    other = Visitor(person.context.browser, person.site)
    vote(other, token)
    other.context.close()
    page.check("#vote-agree")
    page.click("#vote-consent [type=submit]")
    page.wait_for_selector("#sent:visible")
    assert "already" in page.inner_text("#vote-text")
    assert person.sent == []
    assert person.kept() == []


def to_ballot(person):
    person.page.click("#vote")
    person.stroke()
    person.page.check("#choice-3")
    person.page.click("#continue")
    person.page.wait_for_selector("#ballot:visible, #problem:visible")


def test_a_vote_on_a_label_that_the_ballot_lacks_is_refused(reporter):
    """Its place would be −1, and what is outside of a channel's categories goes out as it is."""
    person, token = reporter

    def rename(route):
        told = route.fetch().json()
        told["classes"][3] = "three"
        route.fulfill(json=told)

    person.page.route("**/ballot", rename)
    person.open(token)
    to_ballot(person)
    assert "label" in person.page.inner_text("#problem")
    assert not person.page.is_visible("#ballot")


# --- noise that is weaker than is stated -----------------------------------------------------

SETS = {"kind": "subset-selection", "categories": 200, "size": 3, "inclusion": str(TOTAL // 10)}
COINS = {"kind": "randomized-response", "categories": 2, "keep": str(5 * TOTAL // 8),
         "other": str(3 * TOTAL // 8)}  # fmt: skip
LAPLACE = {"kind": "discrete-laplace", "scale": ["4", "1"]}
NO_LAWS = {
    "own symbol never named": {**SETS, "inclusion": "0"},
    "own symbol always named": {**SETS, "inclusion": str(TOTAL)},
    "weight below nothing": {**SETS, "inclusion": "-1"},
    "no symbol named": {**SETS, "size": 0},
    "all symbols named": {**SETS, "size": 200},
    "half a symbol": {**SETS, "size": 1.5},
    "words for numbers": {**SETS, "categories": "200"},
    "own answer never given": {**COINS, "keep": "0", "other": str(TOTAL)},
    "own answer rarely given": {**COINS, "keep": COINS["other"], "other": COINS["keep"]},
    "others never given": {**COINS, "keep": str(TOTAL), "other": "0"},
    "weights that do not add up": {**COINS, "keep": "1", "other": str(2**62)},
    "weights that add up to more": {**COINS, "keep": str(TOTAL - 1), "other": str(TOTAL - 1)},
    "one answer": {**COINS, "categories": 1, "keep": str(TOTAL), "other": "1"},
    "no noise": {**LAPLACE, "scale": ["0", "1"]},
    "noise below nothing": {**LAPLACE, "scale": ["-4", "1"]},
    "noise without bound": {**LAPLACE, "scale": ["4", "0"]},
    "noise that numbers cannot hold": {**LAPLACE, "scale": [str(2**47), "1"]},
    "half a scale": {**LAPLACE, "scale": ["4"]},
    "unknown": {"kind": "identity"},
    "a name that every object has": {"kind": "constructor", "epsilon": 0},
}


def tried(code):
    """What the code returns, or that it was refused."""
    return f"async (m, given) => {{ try {{ {code} }} catch {{ return 'refused'; }} }}"


@pytest.mark.parametrize("name", NO_LAWS)
def test_what_is_no_law_is_refused(call, name):
    body = tried("m.channelOf(given); return 'taken';")
    assert call("channels", body, NO_LAWS[name]) == "refused"
    kind = NO_LAWS[name]["kind"]
    for law in (SETS, COINS, LAPLACE):
        assert kind != law["kind"] or call("channels", body, law) == "taken"


def test_a_reversed_inclusion_is_refused(call):
    """What its own report rarely names would be told by its absence: half of all guesses right."""
    body = tried("m.channelOf(given); return 'taken';")
    chance = {**SETS, "categories": 4, "size": 3, "inclusion": str(3 * TOTAL // 4)}
    assert call("channels", body, chance) == "taken"
    for inclusion in (3 * TOTAL // 4 - 1, TOTAL // 2, 2**20):
        assert call("channels", body, {**chance, "inclusion": str(inclusion)}) == "refused"


COST = tried("""const { channelOf } = await import("/channels.js");
    m.mustCost(channelOf(given.law).cost, given.epsilon); return "taken";""")


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.7, 1 / 3, 2.5, 30.0])
def test_odds_are_compared_with_e_to_the_epsilon_in_whole_numbers(call, epsilon):
    """One unit of 2⁻⁶⁴ more is too much: floats saw no difference below one in 10⁹."""
    drawn = SubsetSelection(epsilon=epsilon, categories=200, size=3)
    law = device._law(drawn)
    assert call("device", COST, {"law": law, "epsilon": epsilon}) == "taken"
    more = {**law, "inclusion": str(drawn.event.inclusion + 1)}
    assert call("device", COST, {"law": more, "epsilon": epsilon}) == "refused"
    assert call("device", COST, {"law": law, "epsilon": epsilon * (1 - 1e-10)}) == "refused"


@pytest.mark.parametrize("stated", [None, "1", -1, 701, 1e300])
def test_what_is_no_epsilon_is_refused(call, stated):
    assert call("device", COST, {"law": COINS, "epsilon": stated}) == "refused"


def test_costs_shown_are_those_of_the_channel(call):
    law = device._law(SubsetSelection(epsilon=0.7, categories=200, size=3))
    body = """async (m, given) => {
        const { channelOf } = await import("/channels.js");
        return m.cost(channelOf(given).cost.epsilon); }"""
    assert call("words", body, law) == "ε\u00a0=\u00a00.7"
    assert call("words", "(m, given) => m.cost(given)", 1.2345671) == "ε\u00a0=\u00a01.23457"


def lying(person, **told):
    """A server that says other things of its campaign, and of its certificate."""

    def lie(route):
        said = route.fetch().json()
        certificate = {**said["certificate"], **told.pop("certificate", {})}
        route.fulfill(json={**said, **told, "certificate": certificate})

    person.page.route(f"**/campaigns/{person.site.campaign_id}", lie)


COSTS = {
    "a total that is no sum": {"total_epsilon": 4.5},
    "a total below the report": {"total_epsilon": 1},
    "a report that costs less": {"epsilon": 2, "total_epsilon": 4},
    "a vote that costs less": {"vote_epsilon": 0.5},
    "a certificate of another total": {"certificate": {"guarantee": {"epsilon": 5}}},
    "a delta": {"delta": 1e-6},
    "other labels": {"classes": ["a", "b"]},
}


@pytest.mark.parametrize("name", COSTS)
def test_stated_costs_that_are_not_those_of_the_channels_are_refused(visitor, site, name):
    person = visitor()
    lying(person, **copy.deepcopy(COSTS[name]))
    page = person.open(invite(site)[0])
    page.wait_for_selector("#problem:visible")
    assert "Nothing was sent" in page.inner_text("#problem").replace("so nothing", "Nothing")
    assert not page.is_visible("#start")
    assert person.sent == []


def test_a_report_with_a_reversed_inclusion_is_refused(visitor, site):
    """The page said that guesses are right at most 35 times in 100; they were more than half."""
    person = visitor()

    def reverse(route):
        told = route.fetch().json()
        channel = told["channel"]
        channel["inclusion"] = str(TOTAL - int(channel["inclusion"]))
        route.fulfill(json=told)

    person.page.route("**/device?*", reverse)
    page = person.open(invite(site)[0])
    page.wait_for_selector("#problem:visible")
    assert "inclusion" in page.inner_text("#problem") or "weaker" in page.inner_text("#problem")
    assert not page.is_visible("#start")


@pytest.mark.parametrize("category", [-2, -1, 2, 0.5, None, "1"])
@pytest.mark.parametrize(
    "law", [{**SETS, "categories": 2, "size": 1, "inclusion": str(6 * TOTAL // 10)}, COINS]
)
def test_what_is_no_category_is_not_released(call, law, category):
    body = tried("""const { SystemEntropy } = await import("/randomness.js");
        return m.channelOf(given.law).release(given.category, new SystemEntropy());""")
    assert call("channels", body, {"law": law, "category": category}) == "refused"
    assert call("channels", body, {"law": law, "category": 1}) != "refused"


TABLE = TableSchema(
    (
        Continuous("age", 18, 90),
        Continuous("income", 0, 100, missing="indicate"),
        Categorical("zone", ("a", "b", "c"), unseen="other"),
        Categorical("only", ("x",)),
    )
)
DRAW = tried("""const { rowOf } = await import("/rows.js");
    const { SystemEntropy } = await import("/randomness.js");
    const device = await m.deviceOf(given.told, null);
    const row = rowOf(given.told.schema, given.values);
    return device.release(device.encode(row), given.told.labelled ? 1 : null,
      new SystemEntropy());""")


def changed(told, *path, to):
    """A description with one thing in it changed."""
    made = copy.deepcopy(told)
    place = made
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return made


LIES = {
    "a column said to have one category": [(("places", 1), 1), (("flips", 1), None)],
    "a column without its flip": [(("flips", 1), None)],
    "a column with another's flip": [(("flips", 1), COINS)],
    "a column too few": [(("places",), [2, 4]), (("flips",), [COINS, None])],
    "more numbers that may be missing": [(("indicated",), [0, 1])],
    "another number that may be missing": [(("indicated",), [0])],
    "no steps": [(("steps",), 0)],
    "steps below nothing": [(("steps",), -1000)],
    "numbers without noise": [(("noise",), None)],
    "numbers with another kind of noise": [(("noise",), COINS)],
    "a label with noise for numbers": [(("label",), LAPLACE)],
    "a label of other classes": [(("label",), {**COINS, "categories": 3})],
}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_features_are_noised_as_the_schema_wants(call, lie):
    mechanism = Direct(epsilon=8, classes=2).fit(None, schema=TABLE)
    told = device.describe(mechanism, mechanism.channel(True), None)
    for path, to in LIES[lie] if lie else ():
        told = changed(told, "channel", *path, to=to)
    found = call("device", DRAW, {"told": told, "values": [40, None, 2, 0]})
    assert (found == "refused") == (lie is not None), found


def test_no_category_goes_out_in_the_clear(call):
    schema = TableSchema((Categorical("zone", ("a", "b", "c")),))
    told = {
        "kind": "direct", "epsilon": 1, "labelled": False, "classes": None, "encoder": None,
        "schema": schema.to_plain(),
        "channel": {"kind": "features", "steps": 256, "indicated": [], "places": [1],
                    "noise": None, "flips": [None], "label": None},
    }  # fmt: skip
    assert call("device", DRAW, {"told": told, "values": [2]}) == "refused"


LATENT = {"kind": "latent", "grid": [0.5, 4], "noise": LAPLACE, "label": COINS}


@pytest.mark.parametrize(("path", "to"), [
    (("grid", 1), -4),
    (("grid", 1), 0.5),
    (("grid", 0), 0),
    (("grid", 0), -0.5),
    (("noise",), None),
    (("noise",), COINS),
    (("noise", "scale"), ["1", "1"]),
    (("label",), LAPLACE),
    (("label", "categories"), 3),
    (("kind",), "constructor"),
])  # fmt: skip
def test_latents_are_noised_within_their_ball(call, path, to):
    told = {"kind": "vlm", "epsilon": 4, "labelled": True, "classes": ["a", "b"], "encoder": None,
            "channel": LATENT}  # fmt: skip
    body = tried("await m.deviceOf(given, null); return 'taken';")
    assert call("device", body, told) == "taken"
    assert call("device", body, changed(told, "channel", *path, to=to)) == "refused"


@pytest.mark.parametrize(("path", "to"), [
    (("channel", "categories"), 17),
    (("codewords",), 7),
    (("labelled",), False),
    (("classes",), [0, 1]),
    (("channel",), LAPLACE),
])  # fmt: skip
def test_symbols_are_codewords_and_labels(call, digits, path, to):
    mechanism = Codebook(epsilon=2, classes=3, codewords=6)
    mechanism.fit(digits[0][:60], image=(8, 8), inhouse_public=True)
    told = {**device.describe(mechanism, mechanism.channel(True), b""), "encoder": None}
    body = tried("await m.deviceOf(given, null); return 'taken';")
    assert call("device", body, told) == "taken"
    assert call("device", body, changed(told, *path, to=to)) == "refused"


@pytest.mark.parametrize("classes", [None, 3])
def test_a_ballot_has_two_symbols_a_class(call, classes):
    ballot = Ballot(epsilon=1, classes=classes)
    told = {"epsilon": 1, "classes": None if classes is None else list(range(classes)),
            "channel": device._law(ballot.channel)}  # fmt: skip
    body = tried("m.votesOf(given); return 'taken';")
    assert call("device", body, told) == "taken"
    assert call("device", body, {**told, "classes": [0, 1]}) == "refused"
    assert call("device", body, {**told, "channel": LAPLACE}) == "refused"
    assert call("device", body, {**told, "epsilon": 0.9}) == "refused"
