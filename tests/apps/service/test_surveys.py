"""Surveys as campaigns: what is stored and refused, and what owners read and may publish."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from fastapi.testclient import TestClient

import tacit
from tacit.apps.cli import main
from tacit.apps.service import crowd, surveys
from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.client import Client
from tacit.apps.service.given import as_json
from tacit.apps.service.store import Store
from tacit.privacy import artifact, errors

from .conftest import new_server

QUESTIONS = {
    "smoker": tacit.YesNo(text="Do you smoke?", help="Tobacco in any form."),
    "region": tacit.OneOf(("north", "south")),
    "pets": tacit.SeveralOf(("cat", "dog", "fish")),
    "income": tacit.Number(0, 10, unit="thousand a month"),
    "age": tacit.Number(0, 100),
    "born": tacit.Date("1950-01-01", "2010-01-01"),
}
SHEETS = ["smoker", ("region", "income"), "pets", "age:bins", ("income:moments", "age:moments")]
ONE = {"smoker": "yes", "region": "south", "pets": ["cat", "dog"], "income": 3, "age": 41,
       "born": "1980-05-06"}  # fmt: skip
SETTINGS = {"title": "Life", "purpose": "To know.", "minimum": 20}


def survey(sheets=SHEETS, divided=False, epsilon=4):
    return tacit.Survey(QUESTIONS, epsilon=epsilon, sheets=sheets, divided=divided)


def people(count, seed=0):
    drawn = np.random.default_rng(seed)
    return {
        "smoker": np.where(drawn.random(count) < 0.3, "yes", "no"),
        "region": np.where(drawn.random(count) < 0.4, "south", "north"),
        "pets": ["cat" if one < 0.5 else "cat;dog" for one in drawn.random(count)],
        "income": 10 * drawn.beta(2, 4, count),
        "age": 100 * drawn.beta(3, 4, count),
        "born": np.datetime64("1950-01-01") + drawn.integers(0, 20_000, count),
    }


class House:
    """A campaign behind the interface, and a client of its owner."""

    def __init__(self, store, epsilon=4, **settings):
        self.store, made = store, survey(epsilon=epsilon)
        self.campaign, self.key = store.create(made, **{**SETTINGS, **settings})
        self.http = TestClient(make_app(store, limits=Limits(rate=math.inf, token_rate=math.inf)))
        self.base = f"/v1/campaigns/{self.campaign.id}"

    def client(self, **given):
        url = f"http://testserver/c/{self.campaign.id}"
        return Client(url, transport=self.http._transport, retries=0, **given)

    def owner(self):
        return self.client(key=self.key)

    def post(self, report, token):
        body = {"artifact": self.campaign.fingerprint, "report": report}
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.post(f"{self.base}/reports", json=body, headers=headers)


@pytest.fixture(name="house")
def _house(store):
    made = House(store)
    with made.http:
        yield made


# --- the compact form ------------------------------------------------------------------------


@pytest.mark.parametrize("divided", [False, True])
def test_a_report_takes_few_bytes_and_comes_back(divided):
    channel = survey(divided=divided).channel()
    columns = survey(divided=divided).release(people(500)).columns
    wire = channel.to_bytes(columns)
    assert wire.shape == (500, channel.report_bytes)
    assert channel.report_bytes <= 8
    back = channel.from_bytes(wire)
    assert all(np.array_equal(back[name], columns[name]) for name in columns)


def test_bytes_that_are_no_report_are_refused():
    """Every change of one byte is refused, or is the one form of another report."""
    channel = survey().channel()
    wire = channel.to_bytes(survey().release(people(40)).columns)
    refused = 0
    for row, place, value in itertools.product(range(40), range(wire.shape[1]), (0, 1, 128, 255)):
        changed = wire[row : row + 1].copy()
        changed[0, place] = value
        try:
            columns = channel.from_bytes(changed)
        except errors.InvalidData:
            refused += 1
        else:
            assert np.array_equal(channel.to_bytes(columns), changed)
    assert refused > 100
    channel.from_bytes(wire[:0])  # none at all


def test_more_sheets_than_a_byte_can_count():
    several = tacit.SeveralOf(tuple(f"option {at}" for at in range(300)))
    made = tacit.Survey({"several": several}, epsilon=2)
    columns = made.release({"several": [["option 7"]] * 500}).columns
    assert columns["sheet"].max() > 255
    back = made.channel().from_bytes(made.channel().to_bytes(columns))
    assert np.array_equal(back["sheet"], columns["sheet"])


def test_an_artifact_keeps_the_order_of_questions_and_the_channel():
    made = artifact.unpack(artifact.pack(survey()))
    assert list(made.questions) == list(QUESTIONS)
    assert made.channel() == survey().channel()
    assert artifact.fingerprint(made) == artifact.fingerprint(survey())


# --- what is taken and refused ---------------------------------------------------------------


def test_one_report_of_each_token(house):
    owner = house.owner()
    (token,) = owner.invite(1)
    (first,), (second,) = (as_json(owner.draw(ONE)) for _ in range(2))
    while second == first:
        (second,) = as_json(owner.draw(ONE))
    assert house.post(first, token).status_code == 201
    assert house.post(first, token).json() == house.post(first, token).json()
    assert house.post(second, token).status_code == 409
    (stored,) = house.store._contents(house.campaign.id, "report")[1]
    assert len(stored) == house.campaign.channel.report_bytes


def changes(report, channel):
    """Reports that the channel cannot have released, beginning with a true one."""
    sheet, symbols = report["sheet"], report["symbols"]
    size = sum(part.width for part in channel.sheets[sheet])
    parts = channel.sheets[sheet]
    yield {"sheet": len(channel.sheets), "symbols": symbols}
    yield {"sheet": -1, "symbols": symbols}
    yield {"sheet": True, "symbols": symbols}
    yield {"sheet": float(sheet), "symbols": symbols}
    yield {"symbols": symbols}
    yield {"sheet": sheet, "symbols": symbols, "answer": "yes"}
    yield {"sheet": sheet, "symbols": symbols[:-1]}
    yield {"sheet": sheet, "symbols": [*symbols, -1]}
    yield {"sheet": sheet, "symbols": [parts[0].sent.released, *symbols[1:]]}
    yield {"sheet": sheet, "symbols": [-1, *symbols[1:]]}
    if size < channel.width:
        yield {"sheet": sheet, "symbols": [*symbols[:-1], 0]}
    if parts[0].width > 1:
        yield {"sheet": sheet, "symbols": [symbols[1], symbols[0], *symbols[2:]]}
        yield {"sheet": sheet, "symbols": [symbols[0], symbols[0], *symbols[2:]]}


def test_what_no_device_can_have_drawn_is_refused_and_nothing_is_stored(house):
    channel = house.campaign.channel
    drawn = as_json(house.owner().draw(people(200)))
    by_sheet = {one["sheet"]: one for one in drawn}
    assert len(by_sheet) == len(channel.sheets)
    (token,) = house.owner().invite(1)
    count = 0
    for report in by_sheet.values():
        for changed in changes(report, channel):
            found = house.post(changed, token)
            assert found.status_code == 422, changed
            assert found.json()["type"] == "tacit:not-a-report"
            count += 1
    assert count > 60
    assert house.store.status(house.campaign.id).reports == 0
    assert house.post(drawn[0], token).status_code == 201


def test_a_survey_has_no_label_and_no_votes(store):
    for wrong in ({"labelled": True}, {"vote_epsilon": 1.0}):
        with pytest.raises(errors.InvalidParameter):
            store.create(survey(), **SETTINGS, **wrong)


def test_the_server_publishes_the_schema_and_the_laws(house):
    told = house.http.get(f"{house.base}/device").json()
    assert tacit.Survey.from_plain(told["schema"]).to_plain() == survey().to_plain()
    assert list(told["schema"]["questions"]) == list(QUESTIONS)
    channel = survey().channel()
    for sheet, parts in zip(told["channel"]["sheets"], channel.sheets, strict=True):
        for part, own in zip(sheet, parts, strict=True):
            if own.base is None:
                assert part["law"]["inclusion"] == str(own.law.event.inclusion)
            else:
                assert part["law"]["base"] == [str(weight) for weight in own.base]
            assert part["measures"] == [one.to_plain() for one in own.measures]


def test_one_persons_answers_are_a_mapping_of_single_values():
    made = survey()
    assert surveys.together(made, ONE) == ({name: [one] for name, one in ONE.items()}, True)
    assert surveys.together(made, people(3))[1] is False
    only = tacit.Survey({"pets": QUESTIONS["pets"]}, epsilon=1)
    assert surveys.together(only, {"pets": "cat;dog"})[1] is True
    assert surveys.together(only, {"pets": [["cat"], []]})[1] is False


# --- what owners read ------------------------------------------------------------------------


def test_results_wait_for_the_minimum_and_an_open_campaign_promises_readers_nothing(store):
    owner = House(store, epsilon=1).owner()
    assert crowd.answer(owner, people(19), 19).stored == 19
    for ask in (owner.results, lambda: owner.answer("share of smoker")):
        with pytest.raises(errors.TacitError, match="19 reports"):
            ask()
    assert crowd.answer(owner, people(2_000), 2_000, batch=500).rows == 2_000
    for told in (owner.results(), owner.answer("share of smoker")):
        assert told["readers"] == surveys.OPEN
        assert "DP" not in told["readers"]
    assert owner.results()["closed"] is False
    owner.close_campaign()
    summary = owner.results()
    assert summary["closed"] is True
    for told in (summary, owner.answer("share of smoker")):
        assert "1e-06)-DP (central, replace-one, unit: person)" in told["readers"]
        assert "one closed batch" in told["readers"]
        assert surveys.WITHDRAWN in told["readers"]
        assert told["guarantee"] == "1-DP (local, any-two-inputs, unit: person)"


def test_the_end_of_a_campaign_by_time_is_not_a_closed_batch(store):
    """A report that is being stored may come after the time; an owner's word ends it for good."""
    made = House(store, closes=tacit_time("2001-01-01T00:00Z"), minimum=1)
    reports = survey().release(people(50))
    found = surveys.summarize(reports, 0.95, store.status(made.campaign.id).closed)
    assert store.describe(made.campaign.id)["state"] == "closed"
    assert found["readers"] == surveys.OPEN


def tacit_time(text):
    from datetime import datetime

    return datetime.fromisoformat(text)


def test_answers_are_those_of_the_downloaded_reports(house, tmp_path, capsys):
    owner = house.owner()
    crowd.answer(owner, people(1_500), 1_500, batch=500)
    owner.close_campaign()
    path = owner.download_reports(tmp_path / "reports.parquet")
    for question in ("share of pets", "mean income by region", "correlation of income and age"):
        assert main(["ask", str(path), question, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        told = owner.answer(question)
        assert json.loads(told.pop("certificate"))["about"]
        assert told.pop("readers") == f"{printed.pop('readers')} {surveys.WITHDRAWN}"
        assert told == printed


def test_the_summary_asks_what_each_question_can_answer(house):
    owner = house.owner()
    crowd.answer(owner, people(3_000), 3_000, batch=1_000)
    told = {one["name"]: one for one in owner.results(0.999)["answers"]}
    assert {name: one["question"] for name, one in told.items()} == {
        "smoker": "share of smoker",
        "region": "share of region",
        "pets": "share of pets",
        "income": "mean income",
        "age": "mean age",  # measured as moments, too
    }  # nobody is asked for a date
    low, high = told["smoker"]["interval"]
    assert low < np.mean(people(3_000)["smoker"] == "yes") < high


def test_a_sheet_without_reports_is_said_and_the_rest_is_answered():
    reports = survey().release(people(30), assigned=np.zeros(30, int))
    told = {one["name"]: one for one in surveys.summarize(reports, 0.95, False)["answers"]}
    assert "interval" in told["smoker"]
    assert "two reports or more" in told["region"]["problem"]


def test_the_effect_of_fakes_is_that_of_forgers_who_choose_the_smallest_sheet():
    made = tacit.Survey({"smoker": tacit.YesNo(), "age": tacit.Number(0, 9)}, epsilon=2)
    rows = {"smoker": ["no"] * 500, "age": [3] * 500}
    reports = made.release(rows, assigned=np.repeat([0, 1], [200, 300]))
    told = surveys.summarize(reports, 0.95, False)["poisoning"]
    assert [one["fakes"] for one in told] == [1, 10, 100]
    p, q = made.channel().sheets[0][0].law.inclusion
    for one in told:
        assert one["lying"] == pytest.approx(one["fakes"] / 200)  # of those with a share
        # A forged yes counts (1 - q)/(p - q) where an honest no counts 0 on average.
        assert one["share"] == pytest.approx(min(1, one["fakes"] / 200 * (1 - q) / (p - q)))


def test_bad_questions_are_refused_with_what_can_be_asked(house):
    owner = house.owner()
    crowd.answer(owner, people(30), 30)
    for question, said in (
        ("mean of nonsense", "about one of smoker"),
        ("tell me everything", "share of Q"),
        ("mean region", "a number"),
        ("x" * 400, "at most 300"),
    ):
        with pytest.raises(errors.TacitError, match=said):
            owner.answer(question)
    assert house.http.get(f"{house.base}/answer?question=mean+income").status_code == 401
    other = {"Authorization": "Bearer another"}
    path = f"{house.base}/answer?question=mean+income"
    assert house.http.get(path, headers=other).status_code == 401


def test_only_surveys_answer_questions(store, mechanism):
    campaign, key = store.create(mechanism, **SETTINGS, labelled=True)
    http = TestClient(make_app(store))
    path, headers = f"/v1/campaigns/{campaign.id}/answer", {"Authorization": f"Bearer {key}"}
    found = http.get(path, params={"question": "mean income"}, headers=headers)
    assert found.status_code == 422
    assert "surveys" in found.json()["detail"]


def test_what_is_withdrawn_is_gone_from_answers(house):
    owner = house.owner()
    crowd.answer(owner, people(40), 40)
    person = house.client(state=house.store.engine.url.database + ".kept")
    (token,) = owner.invite(1)
    receipt = person.report(token, ONE)
    assert owner.results()["reports"] == 41
    person.withdraw(receipt)
    assert owner.results()["reports"] == 40
    with pytest.raises(errors.TacitError, match="withdrawn"):
        person.report(token, ONE)


# --- the command line ------------------------------------------------------------------------


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory):
    """A server whose campaign was made by `tacit campaign create` from a schema file."""
    folder = tmp_path_factory.mktemp("site")
    settings = {"title": "Other", "labelled": False, "vote_epsilon": None}
    started = new_server(f"sqlite:///{folder}/c.db", folder / "secret", survey(), **settings)
    yield started
    started.stop()


def rows_file(path, table):
    lines = [",".join(table)]
    lines += [
        ",".join(str(column[at]) for column in table.values()) for at in range(len(table["age"]))
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.heavy
def test_from_a_schema_file_to_answers(site, tmp_path, capsys, monkeypatch):
    server = site
    schema = tmp_path / "survey.json"
    schema.write_text(json.dumps(survey().to_plain()))
    given = ["--db", server.db, "--secret", str(server.secret), "--minimum", "50", "--json"]
    made = ["campaign", "create", str(schema), "--title", "Life", "--purpose", "To know.", *given]
    assert main(made) == 0
    campaign = json.loads(capsys.readouterr().out)
    url = f"{server.url}{campaign['page']}"
    monkeypatch.setenv("TACIT_KEY", campaign["key"])
    table = rows_file(tmp_path / "people.csv", people(300))
    assert main(["campaign", "crowd", url, "--data", table, "--people", "300", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stored"] == 300
    with Client(url, key=campaign["key"]) as owner:
        (token,) = owner.invite(1)
    me = rows_file(tmp_path / "me.csv", people(1))
    part = ["campaign", "take-part", url, "--token", token, "--state", str(tmp_path / "state")]
    assert main([*part, "--data", table, "--yes"]) == 2
    assert "one person" in capsys.readouterr().err
    assert main([*part, "--data", me, "--yes"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "your answers to one sheet of questions" in said
    assert "4-DP (local, any-two-inputs, unit: person)" in said
    assert main([*part, "--yes", "--json"]) == 0  # the same report again
    assert json.loads(capsys.readouterr().out)["drawn_before"] is True
    assert main(["campaign", "results", url]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "301 reports" in shown
    assert "share of pets: cat" in shown
    assert "the campaign is open" in shown
    assert main(["campaign", "close", url]) == 0
    capsys.readouterr()
    assert main(["campaign", "results", url, "--json"]) == 0
    assert "central, replace-one" in json.loads(capsys.readouterr().out)["readers"]


HEADER = ",".join(QUESTIONS)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("me.csv", "smoker,region\nyes,south\n", "column 'pets' must be present"),
        ("me.csv", f"{HEADER}\nyes,south,cat,Zaphod,41,1980-05-06\n", "must be numbers"),
        ("me.csv", f"{HEADER}\n", "at least one row"),
        ("me.json", '{"smoker": Zaphod}', "JSON object"),
        ("me.json", "[1]", "JSON object"),
    ],
)
def test_files_of_answers_that_do_not_fit_are_refused_without_quoting(
    tmp_path, name, content, said
):
    from tacit.apps.cli.campaign.surveys import read_answers

    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(errors.TacitError, match=said) as caught:
        read_answers(path, survey())
    assert "Zaphod" not in str(caught.value)


def test_files_of_answers_of_every_kind_are_read_alike(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    from tacit.apps.cli.campaign.surveys import read_answers

    text = {name: [one] for name, one in ONE.items()} | {"pets": ["cat;dog"]}
    rows_file(tmp_path / "me.csv", text)
    (tmp_path / "me.json").write_text(json.dumps(ONE))
    pa.parquet.write_table(pa.table({n: [v] for n, v in ONE.items()}), tmp_path / "me.parquet")
    coded = [survey().encode(read_answers(tmp_path / f"me.{kind}", survey())).tolist()
             for kind in ("csv", "json", "parquet")]  # fmt: skip
    assert coded[0] == coded[1] == coded[2]


def test_a_database_holds_a_survey_over_a_restart(tmp_path):
    url = f"sqlite:///{tmp_path}/c.db"
    first = Store.open(url)
    made, _ = first.create(survey(), **SETTINGS)
    first.engine.dispose()
    again = Store.open(url).campaign(made.id)
    assert again.mechanism.to_plain() == survey().to_plain()
    assert again.channel == made.channel
    assert again.fingerprint == made.fingerprint
