"""The account of a site in a real browser: what is charged, what is refused, what people read."""

from __future__ import annotations

import pytest

from .browser import browser_fixture, call_fixture  # noqa: F401
from .test_browser_page import _site, _visitor, counts, invite  # noqa: F401 - fixtures

pytestmark = pytest.mark.heavy

EPSILON = "ε\u00a0=\u00a0"


def text(person):
    return person.page.inner_text("#budget-text")


def limit(person, value):
    person.page.click("#budget summary")
    person.page.fill("#limit", str(value))
    person.page.click("#limit-form button")
    person.page.wait_for_selector("text=Your limit is set.")


# --- the sums --------------------------------------------------------------------------------


def test_charges_are_exact_in_decimals(call):
    sums = """(m) => { let account = { limit: 1, used: 0, answers: 0 };
        for (let at = 0; at < 10; at++) account = m.charged(account, 0.1);
        try { m.charged(account, 1e-9); } catch (error) { account.said = error.message; }
        return { ...account, left: m.left(account) }; }"""
    found = call("ledger", sums)
    assert (found["used"], found["answers"], found["left"]) == (1, 10, 0)
    assert found["said"].startswith("This answer would cost")
    assert found["said"].endswith("Nothing was drawn.")


def test_what_is_left_is_rounded_down(call):
    body = "(m, [limit, used]) => m.left({ limit, used })"
    assert call("ledger", body, [8, 1 / 3]) == 7.666666
    assert call("ledger", body, [2, 5]) == 0


@pytest.mark.parametrize("price", ["undefined", "NaN", "0", "-1", "Infinity", "'2'", "null"])
def test_an_unknown_price_draws_nothing(call, price):
    body = (
        f"(m) => {{ try {{ m.charged(undefined, {price}); }} catch (e) {{ return e.message; }} }}"
    )
    assert "not known, so nothing was drawn" in call("ledger", body)


DRAWS = """async (m, [names, price]) => {
    const drawn = [], errors = [];
    await Promise.all(names.map(async (name) => {
      const kept = await m.Kept.of("abcdefghijkl", name);
      const draw = () => { drawn.push(name); return "drawn"; };
      await kept.once("report", async () => true, draw, price)
        .catch((error) => errors.push(error.message));
    }));
    return { drawn, errors };
}"""


def test_many_draws_at_once_stay_within_the_limit(call):
    """Of twelve invitations, each opened twice, two can be paid at ε = 3 with 8; each once."""
    found = call("kept", DRAWS, [[f"token{i % 12}" for i in range(24)], 3])
    assert len(found["drawn"]) == len(set(found["drawn"])) == 2
    assert len(found["errors"]) == 20
    assert all("would cost" in one for one in found["errors"])
    told = call("ledger", "async (m) => (await m.Account.of()).told(3)")
    assert told == (
        f"Used so far on this site’s surveys: {EPSILON}6, by 2 answers. Left: {EPSILON}2. The next "
        f"answer would cost {EPSILON}3, which is more than what is left."
    )


def test_a_draw_that_fails_is_not_charged_and_a_charge_that_fails_draws_nothing(call):
    body = """async (m, store) => {
        const account = await (await import("/ledger.js")).Account.of(), before = account.now.used;
        const kept = await m.Kept.of("abcdefghijkl", store), put = IDBObjectStore.prototype.put;
        if (store === "account") IDBObjectStore.prototype.put = function (...given) {
          if (this.name === store) throw new Error("full");
          return put.apply(this, given);
        };
        const draw = () => { if (store === "draw") throw new Error("broken"); return "drawn"; };
        let said = null;
        await kept.once("report", async () => true, draw, 0.5).catch((e) => { said = e.message; });
        IDBObjectStore.prototype.put = put;
        await account.read();
        const again = await m.Kept.of("abcdefghijkl", store);
        return [said, account.now.used - before, again.all.report ?? null];
    }"""
    assert call("kept", body, "draw") == ["broken", 0, None]
    said, charged, drawn = call("kept", body, "account")
    assert "does not store data" in said
    assert (charged, drawn) == (0, None)


def test_what_an_older_page_stored_is_still_there(browser):
    """The page before had one store; a second one is added to it."""
    from .browser import modules

    with modules() as address:
        page = browser.new_context().new_page()
        page.goto(address)
        page.evaluate("""() => new Promise((resolve) => { const asked = indexedDB.open("tacit", 1);
            asked.onupgradeneeded = () => asked.result.createObjectStore("invitations")
              .put({ receipt: "r" }, "old");
            asked.onsuccess = () => { asked.result.close(); resolve(); }; })""")
        found = page.evaluate("""async () => { const m = await import("/stores.js");
            const both = { invitations: "old", account: "everything" };
            return m.transact(await m.opened(), both, () => null); }""")
        assert found == {"invitations": {"receipt": "r"}, "account": None}
        page.context.close()


# --- the page --------------------------------------------------------------------------------


def test_two_reports_are_paid_and_the_third_is_refused_before_it_is_asked(visitor, site):
    tokens, before = invite(site, 3), counts(site)[0]
    person = visitor(width=390)
    page = person.open(tokens[0])
    page.wait_for_selector("#start:visible")
    assert text(person) == (
        f"Used so far on this site’s surveys: nothing. Left: {EPSILON}8. "
        f"The next answer costs {EPSILON}4."
    )
    shown = page.inner_text("#budget")
    assert "of this site only, in this browser" in shown
    assert "Clearing this site's data forgets it." in shown
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    person.report(tokens[0])
    assert text(person).startswith(f"Used so far on this site’s surveys: {EPSILON}4, by 1 answer.")
    person.report(tokens[1])
    page = person.open(tokens[2])
    page.wait_for_selector("#start:visible")
    assert "which is more than what is left" in text(person)
    page.click("#start")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem") == (
        f"This answer would cost {EPSILON}4, and {EPSILON}0 is left of your limit on this site, "
        f"{EPSILON}8. Nothing was drawn."
    )
    assert not page.is_visible("#answer")
    assert counts(site)[0] == before + 2
    limit(person, 12)
    assert page.inner_text("#budget-text").endswith(f"The next answer costs {EPSILON}4.")
    person.report(tokens[2])
    assert counts(site)[0] == before + 3
    assert person.complaints == []


def test_the_same_report_again_costs_nothing(visitor, site):
    (token,) = invite(site)
    person = visitor()
    person.report(token)
    before = text(person)
    page = person.open(token)
    page.wait_for_selector("#receipt:visible")
    assert text(person) == before


def test_another_tab_that_has_used_up_the_limit(visitor, site):
    """Both answered while there was enough for one of them: the second draws and sends nothing."""
    one, tokens, before = visitor(), invite(site, 2), counts(site)[0]
    pages = []
    for token in tokens:
        one.open(token)
        if not pages:
            one.page.wait_for_selector("#start:visible")
            limit(one, 5)
        one.draw()
        one.page.check("#agree")
        pages.append(one.page)
        one.page = one.context.new_page()
    pages[0].click("#send")
    pages[0].wait_for_selector("#receipt:visible")
    pages[1].click("#send")
    pages[1].wait_for_selector("#problem:visible")
    assert f"{EPSILON}1 is left of your limit" in pages[1].inner_text("#problem")
    assert pages[1].is_visible("#preview")
    assert not pages[1].is_visible("#limit")  # it is not raised once an answer is given
    assert counts(site)[0] == before + 1


@pytest.mark.parametrize("wrong", ["0", "701"])
def test_a_limit_that_means_nothing_is_refused(visitor, site, wrong):
    person = visitor()
    page = person.open(invite(site)[0])
    page.wait_for_selector("#start:visible")
    page.click("#budget summary")
    page.evaluate("document.getElementById('limit-form').noValidate = true")
    page.fill("#limit", wrong)
    page.click("#limit-form button")
    page.wait_for_selector("#problem:visible")
    assert "above 0 and at most 700" in page.inner_text("#problem")
