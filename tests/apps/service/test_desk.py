"""The owner's desk: what people are told, drafts, days, withdrawals, papers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit.apps.service import drafts
from tacit.apps.service.campaign import Campaign
from tacit.apps.service.notice import Notice
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import REPORT, Store
from tacit.privacy import errors

from .conftest import SETTINGS
from .test_app import Asked
from .test_store import codes, released


@pytest.fixture(name="asked")
def _asked(store: Store, mechanism: Any) -> Any:
    made = Asked(store, mechanism)
    with made.http:
        yield made


ABOUT = {
    "organiser": "City library, 1 Main Street",
    "contact": "privacy@library.example",
    "retention": "until 31 March 2027",
    "legal_basis": "consent (GDPR art. 6(1)(a))",
    "language": "en",
    "texts": {
        "de": {
            "title": "Ziffern",
            "purpose": "Wie Menschen Ziffern schreiben.",
            "words": {"0": "null"},
        }
    },
}


def test_a_notice_is_kept_as_it_was_stated(store: Store, mechanism: Any) -> None:
    made, _ = store.create(mechanism, **SETTINGS, about=Notice.from_plain(ABOUT))
    assert store.describe(made.id)["about"] == ABOUT
    again = Store(store.engine, store.secret).campaign(made.id)
    assert again.about == Notice.from_plain(ABOUT)
    assert again.about.missing == ()


def test_what_is_not_stated_is_missing_and_never_invented(store: Store, mechanism: Any) -> None:
    made, _ = store.create(mechanism, **SETTINGS)
    about = store.describe(made.id)["about"]
    assert [about[name] for name in made.about.missing] == [None] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"organiser": ""},
        {"organiser": "two\nlines"},
        {"contact": "x" * 301},
        {"contact": 5},
        {"language": "English"},
        {"texts": {"de": {"words": ["Norden"]}}},
        {"texts": {"de": {"words": {"north": "two\nlines"}}}},
        {"texts": {"de": {"words": {str(at): "x" for at in range(5_001)}}}},
        {"nobody": "knows"},
        {"texts": ["de"]},
        {"texts": {"de": {}}},
        {"texts": {"de": {"titel": "Ziffern"}}},
        {"texts": {"de": {"title": "\u202eneffiZ"}}},
        {"texts": {"../de": {"title": "Ziffern"}}},
        ["organiser"],
    ],
)
def test_a_notice_refuses_what_a_page_could_not_show(wrong: Any) -> None:
    with pytest.raises(errors.InvalidParameter):
        Notice.from_plain(wrong)


def test_a_notice_takes_the_marks_that_other_scripts_need() -> None:
    Notice(organiser="می\u200cخواهم\u200f")


def test_a_draft_takes_no_report_until_it_is_open(
    store: Store, mechanism: Any, digits: Any
) -> None:
    campaign, _ = store.create(mechanism, **SETTINGS, draft=True)
    (token,) = store.invite(campaign.id, 1)
    report = released(mechanism, digits)[0]
    assert store.describe(campaign.id)["state"] == "draft"
    assert codes(store.submit(REPORT, campaign.id, [(token, report)])) == ["not-open"]
    assert store.used(campaign.id, token)["report"] == "none"
    drafts.begin(store, campaign.id)
    drafts.begin(store, campaign.id)
    assert store.describe(campaign.id)["state"] == "open"
    assert codes(store.submit(REPORT, campaign.id, [(token, report)])) == ["kept"]


def test_what_people_are_told_changes_only_while_it_is_a_draft(
    store: Store, mechanism: Any
) -> None:
    campaign, _ = store.create(mechanism, **SETTINGS, draft=True)
    other = Store(store.engine, store.secret)  # another process
    assert other.campaign(campaign.id).title == SETTINGS["title"]
    changes = {"title": "Numerals", "minimum": 30, "about": {"contact": "a@b.example"}}
    drafts.edit(store, campaign.id, changes | {"closes": "2030-01-01T00:00Z"})
    drafts.edit(store, campaign.id, {"about": {"organiser": "Library"}})
    seen = other.describe(campaign.id)
    assert (seen["title"], seen["minimum"]) == ("Numerals", 30)
    assert (seen["about"]["contact"], seen["about"]["organiser"]) == ("a@b.example", "Library")
    assert seen["closes"] == "2030-01-01T00:00:00+00:00"
    drafts.begin(other, campaign.id)
    with pytest.raises(Problem) as refused:
        drafts.edit(store, campaign.id, {"title": "Something else"})
    assert refused.value.code == "not-draft"
    assert store.describe(campaign.id) == other.describe(campaign.id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"vote_epsilon": 9.0},
        {"labelled": False},
        {"closes": "tomorrow"},
        {"closes": "2030-01-01T00:00"},
        {"closes": "9999-12-31T23:59:59-23:59"},
        {"opens": "0001-01-01T00:00:00+23:59"},
        {"minimum": 0},
        {"quota": 1},
        {"title": None},
        {"about": "me"},
    ],
)
def test_a_draft_refuses_changes_that_a_campaign_could_not_have(
    store: Store, mechanism: Any, wrong: Any
) -> None:
    campaign, _ = store.create(mechanism, **SETTINGS, draft=True)
    before = told(store, campaign.id)
    with pytest.raises(errors.TacitError):
        drafts.edit(store, campaign.id, wrong)
    assert told(store, campaign.id) == before


def told(store: Store, name: str) -> dict[str, Any]:
    """Return the description, without the time at which its certificate was issued."""
    described = store.describe(name)
    return {key: one for key, one in described.items() if key not in ("certificate", "explanation")}


def test_a_file_of_statements_is_read_or_refused(tmp_path: Any, mechanism: Any) -> None:
    path = tmp_path / "about.json"
    path.write_text(json.dumps(ABOUT), encoding="utf-8")
    assert Notice.read(path).to_plain() == ABOUT
    assert Campaign(id="x" * 12, mechanism=mechanism, **SETTINGS).about == Notice()
    path.write_text("{", encoding="utf-8")
    with pytest.raises(errors.InvalidData):
        Notice.read(path)


def test_the_desk_over_http_needs_the_key(asked: Any, mechanism: Any) -> None:
    made, key = asked.store.create(mechanism, **SETTINGS, draft=True)
    path, about = f"/v1/campaigns/{made.id}", {"about": {"contact": "a@b.example"}}
    for where in ("/draft", "/open"):
        assert asked.http.post(path + where, json={"changes": about}).status_code == 401
    own = {"Authorization": f"Bearer {key}"}
    edited = asked.http.post(f"{path}/draft", json={"changes": about}, headers=own)
    assert edited.json()["about"]["contact"] == "a@b.example"
    assert asked.http.post(f"{path}/draft", json={"changes": 5}, headers=own).status_code == 400
    bad = asked.http.post(f"{path}/draft", json={"changes": {"labelled": 1}}, headers=own)
    assert (bad.status_code, bad.json()["type"]) == (422, "tacit:bad-request")
    assert asked.http.post(f"{path}/open", headers=own).json()["state"] == "open"
    late = asked.http.post(f"{path}/draft", json={"changes": about}, headers=own)
    assert (late.status_code, late.json()["type"]) == (409, "tacit:not-draft")
