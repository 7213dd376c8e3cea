"""Campaigns with partitions, in rounds: one report each, to the mechanism that was shown."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.stats import chi2

from tacit.apps.cli import main
from tacit.apps.service import crowd, results
from tacit.apps.service.client import Client
from tacit.apps.service.connection import ServiceError
from tacit.apps.service.given import as_json
from tacit.apps.service.store import Store
from tacit.apps.service.tables import REPORT
from tacit.data import datasets
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.channels import PartitionedChannel
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.partitions import Partitions
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors
from tacit.privacy.randomness import Seeded

from .test_client import Campaign, House, _house, _waits  # noqa: F401

TABLE = TableSchema(
    (
        Continuous("age", 18, 90),
        Continuous("sleep", 0, 14, missing="indicate", outside="clip"),
        Categorical("travel", ("bike", "bus", "car"), unseen="other"),
    )
)
SETTINGS = {
    "title": "Tired",
    "purpose": "To learn who is tired.",
    "labelled": True,
    "vote_epsilon": 2.0,
    "minimum": 50,
}
CLASSES = ("no", "yes")
Make = Callable[..., Campaign]


def rows(count: int, seed: int) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    table = {
        "age": rng.integers(18, 80, count).astype(float),
        "sleep": rng.normal(7, 1.5, count).clip(2, 12),
        "travel": rng.choice(["bike", "bus", "car"], count),
    }
    tired = (7 - table["sleep"]) + (table["travel"] == "car") + (table["age"] - 50) / 30 > 0
    return table, np.where(tired, "yes", "no")


INHOUSE, _ = rows(300, 1)


@pytest.fixture(scope="module", name="first")
def _first() -> Partitions:
    made = Partitions(epsilon=4, people=400, classes=CLASSES, codewords=4, unit="person")
    return made.fit(INHOUSE, schema=TABLE, inhouse_public=True)


@pytest.fixture(scope="module", name="second")
def _second(first: Partitions) -> Partitions:
    model = ProportionsClassifier(inhouse=INHOUSE, inhouse_public=True)
    model.fit(first.release(*rows(200, 2)))
    adapted: Partitions = model.next_round(INHOUSE, inhouse_public=True)
    return adapted


@pytest.fixture(name="make")
def _make(house: House, first: Partitions, tmp_path: Path, waits: list[float]) -> Make:
    def make(of: Any = first, **settings: Any) -> Campaign:
        return Campaign(house, of, tmp_path / "state", **{**SETTINGS, **settings})

    return make


@pytest.fixture(name="campaign")
def _campaign(make: Make) -> Campaign:
    return make()


def filled(campaign: Campaign, mechanism: Partitions, count: int = 60, seed: int = 3) -> None:
    """Let this many people report to the mechanism."""
    drawn = as_json(mechanism.release(*rows(count, seed)))
    items = list(zip(campaign.store.invite(campaign.id, count), drawn, strict=True))
    outcomes = campaign.store.submit(REPORT, campaign.id, items, artifact.fingerprint(mechanism))
    assert all(isinstance(one, str) for one in outcomes)


def opened(campaign: Campaign, first: Partitions, second: Partitions) -> Campaign:
    """The campaign, in its second round."""
    filled(campaign, first)
    campaign.store.open_round(campaign.id, 2, second)
    return campaign


def one(seed: int = 5) -> tuple[dict[str, Any], str]:
    table, labels = rows(1, seed)
    return {name: column[0] for name, column in table.items()}, str(labels[0])


def stored(campaign: Campaign) -> dict[int, list[bytes]]:
    return campaign.store._contents(campaign.id, REPORT)


# --- a whole campaign ----------------------------------------------------------------------------


@pytest.fixture(scope="module", name="table")
def _table(tmp_path_factory: pytest.TempPathFactory) -> datasets.Dataset:
    import pandas as pd

    folder = tmp_path_factory.mktemp("table")
    table, labels = rows(2000, 7)
    pd.DataFrame({**table, "tired": labels}).to_csv(folder / "rows.csv", index=False)
    plain = {**TABLE.to_plain(), "label": {"column": "tired", "classes": list(CLASSES)}}
    (folder / "schema.json").write_text(json.dumps(plain))
    return datasets.load(str(folder / "rows.csv"), folder / "schema.json")


def test_a_crowd_in_rounds_teaches_a_model_that_people_vote_on(
    make: Make, table: datasets.Dataset
) -> None:
    split = table.collection(crowd.SPLIT_SEED)
    inhouse = table.take(split.inhouse)
    made = Partitions(epsilon=4, people=400, classes=table.classes, unit="person")
    campaign = make(made.fit(inhouse, schema=table.schema, inhouse_public=True))
    with campaign.client(key=campaign.key) as owner:
        outcome = crowd.run(owner, table, 400, rounds=2, inhouse_public=True)
        assert (outcome.stored, outcome.refused) == (400, {})
        told = owner.describe()
        assert (told["round"], told["reports"]) == (2, 400)
        assert told["epsilon"] == 4
        assert [len(part) for part in owner.reports()] == [200, 200]
        published = owner.learn(inhouse, inhouse_public=True)
        assert published["reports"] == 400
        rest = table.take(split.test), np.asarray(table.classes)[table.labels[split.test]]
        assert np.mean(owner.model().predict(rest[0]) == rest[1]) > 0.75
        assert crowd.run(owner, table, 80, vote=True).stored == 80
        found = owner.results(0.999)
    assert found["accuracy"]["voters"] == 80
    shares = np.bincount(table.labels[split.people[:400]])
    for at, entry in enumerate(found["classes"]):
        low, high = entry["interval"]
        assert low <= shares[at] / 400 <= high
    assert 0 < found["shift"] <= 1
    assert found["codewords"] == []
    assert found["poisoning"][0]["class_share"] > found["poisoning"][0]["lying"]


@pytest.mark.heavy
def test_a_crowd_in_rounds_on_synthetic_rows(
    make: Make, table: datasets.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds and model come from the mechanism and reports: no in-house row is read again."""
    split = table.collection(crowd.SPLIT_SEED)
    made = Partitions(
        epsilon=4, people=400, classes=2, unit="person", central_epsilon=5, central_delta=1e-5
    )
    campaign = make(made.fit(table.take(split.inhouse), schema=table.schema))
    asked: list[Any] = []
    take = datasets.Dataset.take
    monkeypatch.setattr(
        datasets.Dataset, "take", lambda self, rows: (asked.append(rows), take(self, rows))[1]
    )
    with campaign.client(key=campaign.key) as owner:
        outcome = crowd.run(owner, table, 400, rounds=2)
        assert (outcome.stored, outcome.refused) == (400, {})
        assert owner.describe()["round"] == 2
        assert owner.mechanism().synthetic_ is not None
        assert owner.learn()["reports"] == 400
        answers = owner.model().predict(take(table, split.test))
        assert set(answers.tolist()) <= {0, 1}
        assert crowd.run(owner, table, 80, vote=True).stored == 80
        assert owner.results()["accuracy"]["voters"] == 80
    assert not set(np.concatenate(asked).tolist()) & set(split.inhouse.tolist())


def test_a_crowd_sends_the_labels_of_the_mechanism(table: datasets.Dataset) -> None:
    """By value, by how they are written, by code, or not at all."""
    words = np.asarray(table.classes)[table.labels]
    for classes in (("no", "yes"), ("yes", "no"), ("yes", "perhaps", "no")):
        assert np.array_equal(crowd.labels_for(table, classes), words)
    assert np.array_equal(crowd.labels_for(table, (0, 1)), table.labels)
    numbers = dataclasses.replace(table, classes=(2, 1))
    assert np.array_equal(crowd.labels_for(numbers, (1, 2)), 2 - table.labels)
    assert set(crowd.labels_for(numbers, ("1", "2")).tolist()) == {"1", "2"}
    for classes in (("No", "Yes"), (0, 1, 2), (1, 2), ("yes", "perhaps")):
        with pytest.raises(errors.InvalidParameter, match=r"classes must be those of rows\.csv"):
            crowd.labels_for(table, classes)


def test_a_crowd_of_a_mechanism_with_a_number_of_classes(
    make: Make, table: datasets.Dataset
) -> None:
    split = table.collection(crowd.SPLIT_SEED)
    made = Codebook(epsilon=8, people=300, classes=2, unit="person")
    made.fit(table.take(split.inhouse), schema=table.schema, inhouse_public=True)
    campaign = make(made)
    with campaign.client(key=campaign.key) as owner:
        assert crowd.run(owner, table, 300).stored == 300
        # Both intervals miss in one of 50,000 runs.
        found = {one["class"]: one for one in owner.results(0.99999)["classes"]}
    people = np.bincount(table.labels[split.people[:300]]) / 300
    for code in (0, 1):
        low, high = found[code]["interval"]
        assert low <= people[code] <= high


def test_a_report_is_a_few_bytes_and_comes_back(campaign: Campaign, first: Partitions) -> None:
    released = first.release(*rows(60, 3))
    channel = first.channel(True)
    assert isinstance(channel, PartitionedChannel)
    wire = channel.to_bytes(released.columns)
    assert wire.shape == (60, channel.report_bytes)
    assert channel.report_bytes == 3
    back = channel.from_bytes(wire)
    assert all(np.array_equal(back[name], released.columns[name]) for name in back)
    items = zip(campaign.store.invite(campaign.id, 60), as_json(released), strict=True)
    campaign.store.submit(REPORT, campaign.id, list(items))
    (kept,) = campaign.store.reports(campaign.id)
    assert sorted(map(bytes, channel.to_bytes(kept.columns))) == sorted(map(bytes, wire))


@pytest.mark.parametrize(
    "change",
    [
        {"partition": 8}, {"partition": -1}, {"partition": 1.0}, {"partition": [1]},
        {"partition": True}, {"symbols": [1, 1]}, {"symbols": [0, 99]}, {"symbols": 3},
        {"more": 1}, {"partition": 2**70},
    ],
)  # fmt: skip
def test_what_the_mechanism_cannot_have_released_is_refused(
    campaign: Campaign, first: Partitions, change: dict[str, Any]
) -> None:
    (good,) = as_json(first.release(*rows(1, 3)))
    with campaign.client() as person, pytest.raises(ServiceError) as caught:
        person.send(campaign.token(), {**good, **change})
    assert caught.value.status in (400, 422)
    assert stored(campaign) == {}


# --- the partition is nobody's choice ------------------------------------------------------------


def assigned_fairly(reports: Reports, who: Any) -> float:
    """The p-value of partitions that are uniform, whatever the rows are."""
    channel, drawn = reports.channel, reports.columns["partition"]
    assert isinstance(channel, PartitionedChannel)
    counts = np.stack(
        [np.bincount(drawn[who == kind], minlength=channel.partitions) for kind in np.unique(who)]
    )
    expected = counts.sum(axis=1, keepdims=True) / channel.partitions
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, counts.size - len(counts)))


def test_the_client_draws_the_partition_whatever_the_row_is(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, labels = rows(4000, 6)
    with campaign.client() as person:
        assert assigned_fairly(person.draw(table, labels), labels) > 1e-6

        def by_row(bound: int, size: int, rng: Any) -> Any:
            return np.where(labels == "yes", rng.words(size) % bound, rng.words(size) % (bound - 1))

        monkeypatch.setattr("tacit.local.channels.uniform_below", by_row)
        assert assigned_fairly(person.draw(table, labels), labels) < 1e-6


# --- one report of each token, over all rounds ---------------------------------------------------


def test_those_who_have_not_answered_get_the_new_mechanism(
    campaign: Campaign, first: Partitions, second: Partitions
) -> None:
    with campaign.client() as person:
        assert person.terms().fingerprint == artifact.fingerprint(first)
    opened(campaign, first, second)
    with campaign.client() as person:
        terms = person.terms()
        assert (terms.round, terms.fingerprint) == (2, artifact.fingerprint(second))
        assert terms.certificate.guarantee == person.terms().next(first).certificate.guarantee
        person.report(campaign.token(), *one())
    assert [len(stored(campaign)[number]) for number in (1, 2)] == [60, 1]


def test_a_person_who_was_shown_the_first_round_keeps_their_answer(
    campaign: Campaign, first: Partitions, second: Partitions
) -> None:
    token = campaign.token()
    with campaign.client() as person:
        person.terms()  # as a page that stays open
        opened(campaign, first, second)
        receipt = person.report(token, *one())
        assert person.report(token, *one()) == receipt
    assert {number: len(kept) for number, kept in stored(campaign).items()} == {1: 61}
    (reports,) = campaign.store.reports(campaign.id)
    assert artifact.fingerprint(reports.mechanism) == artifact.fingerprint(first)


def test_a_draw_that_got_lost_is_sent_unchanged_in_the_next_round(
    campaign: Campaign, first: Partitions, second: Partitions
) -> None:
    token = campaign.token()

    def lost(request: httpx.Request, answer: httpx.Response) -> Any:
        gone = request.url.path.endswith("/reports")
        return httpx.ConnectError("away") if gone else answer

    with campaign.client(retries=0) as person:
        campaign.wire.change = lost
        with pytest.raises(ServiceError):
            person.report(token, *one())
    campaign.wire.change = lambda request, answer: answer
    opened(campaign, first, second)
    with campaign.client() as person:
        person.report(token, *one(8))  # a new row makes no new draw
    assert len(set(campaign.wire.bodies("/reports"))) == 1
    # The first attempt had reached the server, though its answer was lost.
    assert {number: len(kept) for number, kept in stored(campaign).items()} == {1: 61}


def test_a_second_report_in_another_round_is_refused(
    campaign: Campaign, first: Partitions, second: Partitions
) -> None:
    opened(campaign, first, second)
    (token,) = campaign.store.invite(campaign.id, 1)
    (report,) = as_json(first.release(*rows(1, 3)))
    marks = [artifact.fingerprint(mechanism) for mechanism in (first, second)]

    def sent(mark: str) -> httpx.Response:
        url = f"http://testserver/v1/campaigns/{campaign.id}/reports"
        headers = {"Authorization": f"Bearer {token}"}
        body = {"artifact": mark, "report": report}
        return campaign.wire.house.answer(httpx.Request("POST", url, json=body, headers=headers))

    receipt = sent(marks[0]).json()["receipt"]
    assert sent(marks[0]).json()["receipt"] == receipt
    # The same numbers in another round are another report: its groups are others.
    again = sent(marks[1])
    assert (again.status_code, again.json()["type"]) == (409, "tacit:already-reported")
    other = sent("0" * 64)
    assert (other.status_code, other.json()["type"]) == (409, "tacit:other-artifact")
    campaign.store.withdraw(campaign.id, receipt)
    assert [sent(mark).status_code for mark in marks] == [410, 410]
    assert {number: len(kept) for number, kept in stored(campaign).items()} == {1: 60}


def test_a_device_that_lost_its_draw_draws_nothing_in_the_next_round(
    campaign: Campaign, first: Partitions, second: Partitions, tmp_path: Path
) -> None:
    token = campaign.token()
    with campaign.client() as person:
        person.report(token, *one())
    opened(campaign, first, second)
    elsewhere = Client(campaign.url, state=tmp_path / "elsewhere", transport=campaign.wire)
    with elsewhere as person, pytest.raises(ServiceError, match="Nothing was drawn"):
        person.report(token, *one())
    assert sum(map(len, stored(campaign).values())) == 61


# --- opening a round -----------------------------------------------------------------------------


def test_a_round_is_opened_once(campaign: Campaign, first: Partitions, second: Partitions) -> None:
    store, name = campaign.store, campaign.id
    with pytest.raises(errors.TacitError, match="0 reports, and the round after round 1 needs"):
        store.open_round(name, 2, second)
    filled(campaign, first)
    for number in (1, 3):
        with pytest.raises(errors.TacitError, match="in round 1"):
            store.open_round(name, number, second)
    assert store.open_round(name, 2, second).round == 2
    assert store.open_round(name, 2, second).round == 2  # sent again
    with pytest.raises(errors.TacitError, match="in round 2"):
        store.open_round(name, 2, first)
    with pytest.raises(errors.TacitError, match="0 reports, and the round after round 2 needs"):
        store.open_round(name, 3, first)
    store.end(name)
    assert store.describe(name)["round"] == 2


def test_another_process_sees_the_round(
    tmp_path: Path, first: Partitions, second: Partitions
) -> None:
    url = f"sqlite:///{tmp_path}/campaign.db"
    here = Store.open(url)
    made, _ = here.create(first, **SETTINGS)
    there = Store.open(url)
    assert there.describe(made.id)["round"] == 1
    tokens, drawn = here.invite(made.id, 60), as_json(first.release(*rows(60, 3)))
    there.submit(REPORT, made.id, list(zip(tokens, drawn, strict=True)))
    here.open_round(made.id, 2, second)
    assert there.describe(made.id)["artifact"]["sha256"] == artifact.fingerprint(second)
    (token,), (report,) = there.invite(made.id, 1), as_json(second.release(*rows(1, 4)))
    there.submit(REPORT, made.id, [(token, report)], artifact.fingerprint(second))
    assert [len(part) for part in here.reports(made.id)] == [60, 1]
    for store in (here, there):
        store.engine.dispose()


def test_a_crash_while_a_round_opens_leaves_all_of_it_or_nothing(
    campaign: Campaign, first: Partitions, second: Partitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(campaign, first)

    def crash(made: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("tacit.apps.service.rows.of_round", crash)
        with pytest.raises(RuntimeError):
            campaign.store.open_round(campaign.id, 2, second)
    assert campaign.store.describe(campaign.id)["round"] == 1
    assert campaign.store.open_round(campaign.id, 2, second).round == 2


def test_a_round_that_changes_what_people_are_told_is_refused(
    campaign: Campaign, first: Partitions, second: Partitions, mechanism: Codebook, make: Make
) -> None:
    filled(campaign, first)
    open_round = campaign.store.open_round
    with pytest.raises(errors.InvalidParameter, match="same epsilon, classes, columns"):
        open_round(campaign.id, 2, second.at(2))
    with pytest.raises(errors.InvalidParameter, match="same epsilon, classes, columns"):
        open_round(campaign.id, 2, mechanism)
    private = ProportionsClassifier(inhouse=INHOUSE).fit(first.release(*rows(200, 2)))
    with pytest.raises(errors.InvalidParameter, match="would reveal the in-house rows"):
        open_round(campaign.id, 2, private.next_round(INHOUSE, inhouse_public=True))
    with pytest.raises(errors.InvalidParameter, match="may leave the organisation"):
        campaign.store.publish(campaign.id, private, 200)
    with pytest.raises(errors.InvalidData, match="got a model"):
        open_round(campaign.id, 2, private)
    seeded = ProportionsClassifier(inhouse=INHOUSE, inhouse_public=True)
    seeded.fit(first.release(*rows(200, 2), rng=Seeded(0)))
    with pytest.raises(errors.InvalidParameter, match="seeded"):
        open_round(campaign.id, 2, seeded.next_round(INHOUSE, inhouse_public=True))
    codebook = make(mechanism)
    with pytest.raises(errors.InvalidParameter, match="Only campaigns with partitions"):
        codebook.store.open_round(codebook.id, 2, mechanism.at(4))
    assert campaign.store.describe(campaign.id)["round"] == 1


# --- owners --------------------------------------------------------------------------------------


def test_models_and_rounds_need_public_rows(campaign: Campaign, first: Partitions) -> None:
    filled(campaign, first)
    with campaign.client(key=campaign.key) as owner:
        with pytest.raises(errors.InvalidParameter, match="inhouse must be given"):
            owner.learn()
        for ask in (owner.learn, owner.next_round):
            with pytest.raises(errors.InvalidParameter, match="inhouse_public must be True"):
                ask(INHOUSE)
        with pytest.raises(ServiceError, match="learned with in-house rows"):
            owner._connection.post("/model", b"{}", bearer=campaign.key)
    with campaign.client(key="x" * 32) as stranger, pytest.raises(ServiceError) as caught:
        stranger._connection.put("/rounds/2", artifact.pack(first), bearer="x" * 32)
    assert caught.value.status == 401


def test_only_a_model_of_these_reports_is_published(
    campaign: Campaign, first: Partitions, mechanism: Codebook, digits: Any
) -> None:
    filled(campaign, first)
    other = Partitions(epsilon=4, people=400, classes=CLASSES, codewords=4, unit="person")
    other.fit(rows(300, 11)[0], schema=TABLE, inhouse_public=True)
    stranger = ProportionsClassifier(inhouse=INHOUSE, inhouse_public=True)
    stranger.fit(other.release(*rows(200, 2)))
    wrong = {
        "other-artifact": stranger,
        "bad-request": results.learn(mechanism.release(*(part[:200] for part in digits))),
    }
    with campaign.client(key=campaign.key) as owner:
        for code, model in wrong.items():
            with pytest.raises(ServiceError) as caught:
                owner._connection.put("/model", artifact.pack(model), bearer=campaign.key)
            assert caught.value.code == code
        for content in (b"", b"nonsense", artifact.pack(first)):
            with pytest.raises(ServiceError) as caught:
                owner._connection.put("/model", content, bearer=campaign.key)
            assert caught.value.status == 422
    assert campaign.store.status(campaign.id).model is None


def test_reports_of_a_round_are_downloaded_by_its_number(
    campaign: Campaign, first: Partitions, second: Partitions, tmp_path: Path
) -> None:
    opened(campaign, first, second)
    with campaign.client(key=campaign.key) as owner:
        with pytest.raises(ServiceError, match="2 rounds: name one"):
            owner.download_reports(tmp_path / "all.parquet")
        with pytest.raises(ServiceError, match="Round 2 has no reports yet"):
            owner.download_reports(tmp_path / "second.parquet", 2)
        for number in (0, 3, 2**70):
            with pytest.raises(ServiceError) as caught:
                owner.download_reports(tmp_path / "none.parquet", number)
            assert caught.value.code == "no-round"
        with pytest.raises(ServiceError, match="round 2 has no reports yet"):
            owner.next_round(INHOUSE, inhouse_public=True)
        filled(campaign, second, 5)
        files = [owner.download_reports(tmp_path / f"{n}.parquet", n) for n in (1, 2)]
    assert [len(Reports.read(path)) for path in files] == [60, 5]
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["1.parquet", "2.parquet"]


def test_a_database_of_another_layout_is_refused_unchanged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/campaign.db"
    old = sqlite3.connect(tmp_path / "campaign.db")
    old.execute("CREATE TABLE tacit_schema (version INTEGER PRIMARY KEY, secret_mark BLOB)")
    old.execute("INSERT INTO tacit_schema VALUES (2, x'00')")
    old.commit()
    with pytest.raises(errors.InvalidParameter, match=r"schema must be \d+, got 2\. Make a backup"):
        Store.open(url)
    names = old.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    old.close()
    assert names == [("tacit_schema",)]
    assert not (tmp_path / "campaign.db.secret").exists()


@pytest.fixture(name="run")
def _run(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Commands whose requests reach the campaign's house."""
    made = Client.__init__
    monkeypatch.setattr(
        Client,
        "__init__",
        lambda self, url, **given: made(self, url, **{**given, "transport": campaign.wire}),
    )

    def run(*arguments: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["campaign", *map(str, arguments), "--json"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_commands_learn_and_open_rounds(
    campaign: Campaign, first: Partitions, tmp_path: Path, run: Callable[..., Any]
) -> None:
    import pandas as pd

    filled(campaign, first, 200)
    table, labels = rows(300, 1)
    pd.DataFrame({**table, "tired": labels}).to_csv(tmp_path / "rows.csv", index=False)
    owner = (campaign.url, "--key", campaign.key)
    inhouse = ("--inhouse", tmp_path / "rows.csv", "--label", "tired")
    code, _, err = run("learn", *owner)
    assert (code, "--inhouse must be given" in err) == (2, True)
    code, _, err = run("next", *owner, *inhouse)
    assert (code, "--inhouse-public must be" in err) == (2, True)
    code, out, err = run("next", *owner, *inhouse, "--inhouse-public")
    assert code == 0, err
    assert json.loads(out)["round"] == 2
    code, out, err = run("learn", *owner, *inhouse, "--inhouse-public", "--threshold", 0.0)
    assert code == 0, err
    assert json.loads(out)["reports"] == 200
    with Client(campaign.url, transport=campaign.wire) as anyone:
        assert set(anyone.model().predict(table)) == {anyone.model().classes_[1]}
    code, out, err = run("reports", *owner, "--round", 1, "--out", tmp_path / "r")
    assert code == 0, err
    assert len(Reports.read(tmp_path / "r")) == 200


def test_a_pinned_mechanism_is_that_of_the_draw(
    campaign: Campaign,
    first: Partitions,
    second: Partitions,
    tmp_path: Path,
    run: Callable[..., Any],
) -> None:
    row, label = one()
    (tmp_path / "me.json").write_text(json.dumps({**row, "tired": label}))
    tokens, state = [campaign.token(), campaign.token()], tmp_path / "state"
    mine = ("--data", tmp_path / "me.json", "--state", state, "--yes")
    pinned = ("take-part", campaign.url, "--mechanism", artifact.fingerprint(first))
    code, out, err = run(*pinned, "--token", tokens[0], *mine)
    assert code == 0, err
    assert "partitions (round 1)" in err
    opened(campaign, first, second)
    again = run(*pinned, "--token", tokens[0], "--state", state)
    assert (again[0], json.loads(again[1])["receipt"]) == (0, json.loads(out)["receipt"])
    code, _, err = run(*pinned, "--token", tokens[1], *mine)
    assert (code, "Nothing was drawn" in err) == (2, True)
