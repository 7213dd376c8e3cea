"""Every answer once, whatever is sent, and nothing that tells of anybody."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import REPORT, VOTE, Store
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy import errors

from .conftest import SETTINGS, always_many


@pytest.fixture(params=["sqlite", "postgresql", "sqlite-log", "postgresql-copy"])
def opened(request, tmp_path, monkeypatch):
    """A new database of each kind, also with the way that large numbers of answers take."""
    url = f"sqlite:///{tmp_path}/campaign.db"
    if request.param.startswith("postgresql"):
        url = request.getfixturevalue("postgres").create()
    if "-" in request.param:
        always_many(monkeypatch)
    found = Store.open(url, tmp_path / "secret")
    yield found
    found.engine.dispose()


def released(mechanism, digits, count=5):
    images, labels = digits
    rows = slice(600, 600 + count)
    sets = mechanism.release(images[rows], labels[rows]).columns["symbols"].tolist()
    return [{"symbols": symbols} for symbols in sets]


def codes(outcomes):
    return [one.code if isinstance(one, Problem) else "kept" for one in outcomes]


def test_same_again_is_answered_as_before_and_anything_else_refused(opened, mechanism, digits):
    campaign, _ = opened.create(mechanism, **SETTINGS)
    token, other = opened.invite(campaign.id, 2)
    first, second, *_ = released(mechanism, digits)
    assert first != second
    (receipt,) = opened.submit(REPORT, campaign.id, [(token, first)])
    assert opened.submit(REPORT, campaign.id, [(token, first)]) == [receipt]
    assert codes(opened.submit(REPORT, campaign.id, [(token, second)])) == ["already-reported"]
    mixed = [(token, first), ("nobody", first), (other, second), (other, second), (other, first)]
    outcomes = opened.submit(REPORT, campaign.id, mixed)
    assert codes(outcomes) == ["kept", "unknown-token", "kept", "kept", "already-reported"]
    assert outcomes[0] == receipt
    assert outcomes[2] == outcomes[3]
    assert opened.status(campaign.id).reports == 2


def test_withdrawal_deletes_the_row_and_the_token_stays_spent(opened, mechanism, digits):
    campaign, _ = opened.create(mechanism, **SETTINGS)
    (token,) = opened.invite(campaign.id, 1)
    report, other, *_ = released(mechanism, digits)
    (receipt,) = opened.submit(REPORT, campaign.id, [(token, report)])
    for _ in range(2):
        opened.withdraw(campaign.id, receipt)
        with opened.engine.connect() as connection:
            (left,) = connection.execute(sql.select(tables.answers)).all()
        assert left.content is None  # an empty mark, so that it cannot come back
        assert opened.status(campaign.id).reports == 0
        assert opened.used(campaign.id, token) == {"report": "withdrawn", "vote": "none"}
    for again in (report, other):
        assert codes(opened.submit(REPORT, campaign.id, [(token, again)])) == ["withdrawn"]
    forged = receipt[:-1] + ("0" if receipt[-1] != "0" else "1")
    for wrong in (forged, "", receipt + "0", receipt.upper() + " ", "é", token):
        with pytest.raises(Problem, match="receipt"):
            opened.withdraw(campaign.id, wrong)


def test_quota_and_times_hold_to_the_last_place(opened, mechanism, digits):
    settings = {**SETTINGS, "minimum": 1, "quota": 3}
    campaign, _ = opened.create(mechanism, **settings)
    tokens = opened.invite(campaign.id, 5)
    items = list(zip(tokens, released(mechanism, digits), strict=True))
    assert codes(opened.submit(REPORT, campaign.id, items)) == ["kept"] * 3 + ["full"] * 2
    assert codes(opened.submit(REPORT, campaign.id, items[:1])) == ["kept"]  # a repetition
    assert opened.describe(campaign.id)["state"] == "full"
    opened.end(campaign.id)
    with pytest.raises(Problem, match="ended"):
        opened.invite(campaign.id, 1)
    assert codes(opened.submit(REPORT, campaign.id, items)) == ["kept"] * 3 + ["not-open"] * 2
    later = datetime.now(UTC) + timedelta(days=1)
    early = datetime.now(UTC) - timedelta(seconds=1)
    for times in ({"opens": later}, {"closes": early}):
        campaign, _ = opened.create(mechanism, **SETTINGS)
        (token,) = opened.invite(campaign.id, 1)
        opened._known[campaign.id, 1] = replace(campaign, **times)  # as if time had passed
        found = opened.submit(REPORT, campaign.id, [(token, items[0][1])])
        assert codes(found) == ["not-open"]
        assert opened.status(campaign.id).reports == 0


def test_many_threads_with_the_same_token_store_one_report(opened, mechanism, digits):
    campaign, _ = opened.create(mechanism, **SETTINGS)
    (token,) = opened.invite(campaign.id, 1)
    reports, found = released(mechanism, digits, 8), []

    def send(report):
        try:
            found.extend(opened.submit(REPORT, campaign.id, [(token, report)]))
        except Problem as problem:  # another one was quicker: 503, and the sender asks again
            found.append(problem)

    threads = [threading.Thread(target=send, args=(report,)) for report in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes(found).count("kept") == 1
    assert opened.status(campaign.id).reports == 1
    with opened.engine.connect() as connection:
        assert len(connection.execute(sql.select(tables.answers)).all()) == 1


def test_votes_are_about_the_published_model(opened, mechanism, digits):
    from tacit.local.inference.noise_aware import NoiseAwareClassifier

    campaign, _ = opened.create(mechanism, **{**SETTINGS, "minimum": 30})
    tokens = opened.invite(campaign.id, 40)
    items = list(zip(tokens, released(mechanism, digits, 40), strict=True))
    assert codes(opened.submit(VOTE, campaign.id, [(tokens[0], 1)], "0" * 64)) == ["no-model"]
    opened.submit(REPORT, campaign.id, items)
    model = NoiseAwareClassifier(prior="inhouse").fit(opened.reports(campaign.id)[0])
    sha256 = opened.publish(campaign.id, model, 40)["sha256"]
    assert codes(opened.submit(VOTE, campaign.id, [(tokens[0], 1)], "0" * 64)) == ["other-model"]
    votes = campaign.ballot.release(np.ones(40, int)).symbols.tolist()
    cast = list(zip(tokens, votes, strict=True))
    assert codes(opened.submit(VOTE, campaign.id, cast, sha256)) == ["kept"] * 40
    for wrong in (2, -1, [1], True, 1.0, "1", None, {"vote": 1}):
        assert codes(opened.submit(VOTE, campaign.id, [(tokens[0], wrong)], sha256)) == [
            "not-a-vote"
        ]
    assert sorted(opened.votes(campaign.id).symbols.tolist()) == sorted(votes)
    with pytest.raises(Problem, match="voted"):
        opened.publish(campaign.id, model, 40)


def test_reports_come_back_as_they_were_sent(opened, mechanism, digits):
    images, labels = digits
    direct = Direct(epsilon=4, classes=10).fit(images[:500], image=(8, 8), inhouse_public=True)
    unlabelled = Codebook(epsilon=2, unit="person").fit(
        images[:300], image=(8, 8), inhouse_public=True
    )
    theirs = labels[600:650]
    for made, given in ((mechanism, theirs), (direct, theirs), (unlabelled, None)):
        settings = {**SETTINGS, "labelled": given is not None, "minimum": 2}
        settings |= {} if given is not None else {"vote_epsilon": None}
        campaign, _ = opened.create(made, **settings)
        columns = made.release(images[600:650], given).columns
        rows = [{n: columns[n][i].tolist() for n in sorted(columns)} for i in range(50)]
        tokens = opened.invite(campaign.id, 50)
        assert (
            codes(opened.submit(REPORT, campaign.id, list(zip(tokens, rows, strict=True))))
            == ["kept"] * 50
        )
        (back,) = opened.reports(campaign.id)
        again = [{n: back.columns[n][i].tolist() for n in sorted(columns)} for i in range(50)]
        assert sorted(map(str, again)) == sorted(map(str, rows))
        assert not back.seeded


def test_too_few_reports_show_nothing(opened, mechanism, digits):
    campaign, _ = opened.create(mechanism, **SETTINGS)
    tokens = opened.invite(campaign.id, 19)
    opened.submit(
        REPORT, campaign.id, list(zip(tokens, released(mechanism, digits, 19), strict=True))
    )
    with pytest.raises(Problem, match="19 reports, and results need at least 20"):
        opened.reports(campaign.id)


def test_the_database_holds_no_token_key_or_receipt(store, mechanism, digits, tmp_path):
    campaign, key = store.create(mechanism, **SETTINGS)
    tokens = store.invite(campaign.id, 30)
    items = list(zip(tokens, released(mechanism, digits, 30), strict=True))
    receipts = [store.submit(REPORT, campaign.id, [item])[0] for item in items]
    with store.engine.connect() as connection:
        rows = connection.execute(sql.text('SELECT "row" FROM answers')).scalars().all()
        invited = connection.execute(sql.text('SELECT "row" FROM invitations')).scalars().all()
    assert not set(rows) & set(invited)
    assert not any(row.hex() in receipt for row in (*rows, *invited) for receipt in receipts)
    store.engine.dispose()
    content = b"".join(path.read_bytes() for path in tmp_path.glob("campaign.db*"))
    assert campaign.title.encode() in content
    for word in (*tokens, *receipts, key):
        assert word.encode() not in content


def test_another_secret_or_schema_is_refused(tmp_path, mechanism):
    url = f"sqlite:///{tmp_path}/campaign.db"
    store = Store.open(url)
    assert (tmp_path / "campaign.db.secret").stat().st_mode & 0o777 == 0o600
    with pytest.raises(errors.InvalidParameter, match="another does not exist"):
        Store.open(url, tmp_path / "another")
    assert not (tmp_path / "another").exists()
    (tmp_path / "another").write_bytes(bytes(32))
    with pytest.raises(errors.InvalidParameter, match="secret must be the one"):
        Store.open(url, tmp_path / "another")
    (tmp_path / "short").write_bytes(b"short")
    with pytest.raises(errors.InvalidParameter, match="32 bytes"):
        Store.open(url, tmp_path / "short")
    with store.engine.begin() as connection:
        connection.execute(tables.versions.update().values(version=99))
    store.engine.dispose()
    with pytest.raises(errors.InvalidParameter, match="schema must be 5, got 99"):
        Store.open(url)
    (tmp_path / "damaged.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(errors.InvalidData, match="undamaged"):
        Store.open(f"sqlite:///{tmp_path}/damaged.db")
    for wrong in ("nonsense", "mysql://localhost/x", "sqlite://"):
        with pytest.raises(errors.TacitError, match="database"):
            Store.open(wrong)
    with pytest.raises(errors.InvalidParameter, match="secret must be given for PostgreSQL"):
        Store.open("postgresql://localhost/x")


def test_what_may_not_leave_the_house_is_not_served(store, digits):
    images, _ = digits
    inside = Codebook(epsilon=4, people=1200, classes=10).fit(images[:300], image=(8, 8))
    with pytest.raises(errors.TacitError, match="central"):
        store.create(inside, **SETTINGS)
    assert store.campaigns() == []


def test_settings_that_promise_too_much_are_refused(store, mechanism):
    now = datetime.now(UTC)
    for name, wrong in (
        ("title", " "),
        ("title", "two\nlines"),
        ("question", ""),
        ("minimum", 0),
        ("quota", 3),
        ("opens", datetime(2026, 1, 1)),
        ("vote_epsilon", -1.0),
        ("vote_epsilon", float("nan")),
    ):
        with pytest.raises(errors.InvalidParameter):
            store.create(mechanism, **{**SETTINGS, name: wrong})
    with pytest.raises(errors.InvalidParameter, match="closes must be after"):
        store.create(mechanism, **SETTINGS, opens=now, closes=now)
    with pytest.raises(errors.InvalidParameter, match="vote_epsilon"):
        store.create(mechanism, **{**SETTINGS, "labelled": False})
    assert store.campaigns() == []


def test_report_and_vote_together_cost_their_sum(store, mechanism):
    campaign, _ = store.create(mechanism, **SETTINGS)
    assert campaign.certificate.guarantee.epsilon == pytest.approx(6)
    campaign.certificate.verify()
    said = campaign.certificate.explain()
    assert "report and vote come from the same person" in said
    alone, _ = store.create(mechanism, **{**SETTINGS, "vote_epsilon": None})
    assert alone.certificate.guarantee.epsilon == pytest.approx(4)
    assert "vote" not in alone.certificate.explain()
