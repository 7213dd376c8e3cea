"""From a campaign to an accuracy, over HTTP, with a real server and a real database.

The accuracy's interval is taken at a confidence of 0.9999: it is exact for votes of given people,
so a sound system fails the assertion about it in at most one run of 10,000.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.apps.service import crowd
from tacit.apps.service.client import Client
from tacit.apps.service.store import Store
from tacit.data import datasets
from tacit.local.learned.codebook import Codebook
from tacit.local.reports import Reports
from tacit.privacy import artifact

from .conftest import SETTINGS, Server, new_server

pytestmark = pytest.mark.heavy

CONFIDENCE = 0.9999
PEOPLE, VOTERS = 600, 600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A mechanism fitted on the in-house rows of the split whose people make the crowd."""
    digits = datasets.load("digits")
    inhouse = digits.take(digits.collection(crowd.SPLIT_SEED).inhouse)
    made = Codebook(epsilon=4, people=PEOPLE, classes=10, unit="person")
    made.fit(inhouse, schema=digits.schema, inhouse_public=True)
    folder = tmp_path_factory.mktemp("served")
    started = new_server(f"sqlite:///{folder}/campaign.db", folder / "secret", made)
    yield started
    started.stop()


@pytest.fixture(name="owner")
def _owner(server: Server, tmp_path: Path) -> Iterator[Client]:
    """The owner of a new campaign, on the server that is there."""
    store = Store.open(server.db, server.secret)
    made, key = store.create(store.campaign(server.campaign_id).mechanism, **SETTINGS)
    store.engine.dispose()
    with Client(f"{server.url}/c/{made.id}", key=key, state=tmp_path / "state") as client:
        yield client


def test_from_a_campaign_to_an_accuracy(owner: Client) -> None:
    digits = datasets.load("digits")
    outcome = crowd.run(owner, digits, PEOPLE)
    assert (outcome.stored, outcome.rows, outcome.refused) == (PEOPLE, PEOPLE, {})
    assert owner.describe()["reports"] == PEOPLE

    published = owner.learn()
    assert published["reports"] == PEOPLE
    model = owner.model()
    assert artifact.fingerprint(model) == published["sha256"]

    assert crowd.run(owner, digits, VOTERS, vote=True).stored == VOTERS
    found = owner.results(CONFIDENCE)
    chosen = np.resize(digits.collection(crowd.SPLIT_SEED).voters, VOTERS)
    truth = float(np.mean(model.predict(digits.take(chosen)) == digits.labels[chosen]))
    low, high = found["accuracy"]["interval"]
    assert low <= truth <= high
    # Neither is it so wide that it would cover anything, nor is naming one digit as good.
    assert high - low < 0.3
    assert low > 0.2
    assert found["accuracy"]["voters"] == found["votes"] == VOTERS
    _shares_cover(found, digits)


def _shares_cover(found: dict[str, Any], digits: Any) -> None:
    """Within 5 points of the people's shares or inside the interval, whichever is wider."""
    people = digits.labels[digits.collection(crowd.SPLIT_SEED).people[:PEOPLE]]
    shares = np.bincount(people, minlength=10) / PEOPLE
    assert [one["class"] for one in found["classes"]] == list(range(10))
    for one, share in zip(found["classes"], shares, strict=True):
        low, high = one["interval"]
        assert low - 0.05 <= share <= high + 0.05


def test_what_the_owner_downloads_and_what_the_database_holds(
    owner: Client, server: Server, tmp_path: Path
) -> None:
    digits = datasets.load("digits")
    row, label = digits.rows[-1], int(digits.labels[-1])
    tokens = owner.invite(30)
    receipts = [owner.report(token, row, label) for token in tokens]
    path = owner.download_reports(tmp_path / "reports.parquet")
    owner.withdraw(receipts[0])
    assert owner.describe()["reports"] == 29

    sent = [
        json.loads(json.loads(kept.read_text())["body"])["report"]["symbols"]
        for kept in (tmp_path / "state").iterdir()
    ]
    assert sorted(Reports.read(path).columns["symbols"].tolist()) == sorted(sent)

    stored = b"".join(path.read_bytes() for path in server.secret.parent.glob("campaign.db*"))
    assert owner.address.campaign.encode() in stored
    assert not [secret for secret in (*tokens, *receipts) if secret.encode() in stored]
    # Nor does any part of a receipt lead to a row for whoever has not the server's secret.
    halves = [bytes.fromhex(one[1:])[at : at + 16] for one in receipts for at in (0, 16)]
    assert not [half for half in halves if half in stored]
    assert row.tobytes() not in stored
    assert json.dumps(row.ravel().tolist()).encode() not in stored
