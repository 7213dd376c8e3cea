"""Campaigns with a codebook: the model that the server learns, and those that owners publish."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.apps.service.connection import ServiceError
from tacit.apps.service.given import as_json
from tacit.apps.service.results import learn
from tacit.apps.service.tables import REPORT
from tacit.local.inference.default import model_for
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.student import StudentClassifier
from tacit.local.learned import onnx as graphs
from tacit.local.learned.codebook import Codebook
from tacit.privacy import artifact, errors

from .test_client import Campaign, House, _house, _waits  # noqa: F401
from .test_rounds import CLASSES, INHOUSE, SETTINGS, TABLE, rows


@pytest.fixture(scope="module", name="book")
def _book() -> Codebook:
    made = Codebook(epsilon=4, codewords=6, classes=CLASSES, unit="person")
    return made.fit(INHOUSE, schema=TABLE, inhouse_public=True)


@pytest.fixture(name="campaign")
def _campaign(house: House, book: Codebook, tmp_path: Path, waits: list[float]) -> Campaign:
    campaign = Campaign(house, book, tmp_path / "state", **SETTINGS)
    drawn = as_json(book.release(*rows(200, 3)))
    items = list(zip(campaign.store.invite(campaign.id, 200), drawn, strict=True))
    outcomes = campaign.store.submit(REPORT, campaign.id, items, artifact.fingerprint(book))
    assert all(isinstance(one, str) for one in outcomes)
    return campaign


def test_the_server_learns_what_the_command_learns(book: Codebook, campaign: Campaign) -> None:
    with campaign.client(key=campaign.key) as owner:
        owner.learn()
        (reports,) = owner.reports()
        published = owner.model()
    same = model_for(reports.mechanism, prior="inhouse").fit(reports)
    assert isinstance(published, StudentClassifier)
    table, _ = rows(500, 4)
    np.testing.assert_array_equal(published.predict_proba(table), same.predict_proba(table))


def test_more_classes_get_the_table_of_labels(mechanism: Codebook, digits: Any) -> None:
    few = mechanism.release(*(part[:200] for part in digits))
    assert isinstance(learn(few), NoiseAwareClassifier)


@pytest.mark.parametrize("rule", [{}, {"threshold": 0.0}, {"priors": [0.9, 0.1]}])
def test_owners_publish_a_student_of_public_rows(campaign: Campaign, rule: dict[str, Any]) -> None:
    with campaign.client(key=campaign.key) as owner, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = owner.learn(INHOUSE, inhouse_public=True, **rule)
        model = owner.model()
        assert told["reports"] == model.reports_ == 200
        assert told["sha256"] == artifact.fingerprint(model)
        table, labels = rows(500, 4)
        if not rule:
            assert np.mean(model.predict(table) == labels) > 0.6
        if "threshold" in rule:
            assert set(model.predict(table)) == {CLASSES[1]}
        # Browsers run its graph, and need nothing else.
        described = owner._connection.get("/ballot").decode()
        assert '"graph":"' in described.replace(" ", "")
        answers = graphs.run(owner._connection.get("/model.onnx"), TABLE.rows(table))
    assert np.mean(np.asarray(CLASSES)[answers] == model.predict(table)) > 0.99


def test_a_rule_alone_is_learned_by_the_owner(campaign: Campaign) -> None:
    with campaign.client(key=campaign.key) as owner, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        owner.learn(costs={("yes", "no"): 10**6})
        assert set(owner.model().predict(rows(200, 4)[0])) == {"yes"}


def test_rows_must_be_public(campaign: Campaign, book: Codebook) -> None:
    with campaign.client(key=campaign.key) as owner:
        with pytest.raises(errors.InvalidParameter, match="inhouse_public must be True"):
            owner.learn(INHOUSE)
        (reports,) = owner.reports()
        private = StudentClassifier(inhouse=INHOUSE).fit(reports)
        with pytest.raises(ServiceError) as caught:
            owner._connection.put("/model", artifact.pack(private), bearer=campaign.key)
        assert caught.value.status == 422
    assert campaign.store.status(campaign.id).model is None


def test_before_there_are_enough_reports(
    house: House, book: Codebook, tmp_path: Path, waits: list[float]
) -> None:
    empty = Campaign(house, book, tmp_path / "state", **SETTINGS)
    with empty.client(key=empty.key) as owner, pytest.raises(ServiceError) as caught:
        owner.learn(INHOUSE, inhouse_public=True)
    assert caught.value.code == "too-few"
