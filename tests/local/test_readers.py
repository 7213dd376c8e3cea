"""What readers of results learn: certificates state it, and learners ignore orders of reports."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.local.inference.join import MATCHED, JoinClassifier
from tacit.local.inference.moments_regressor import MomentsRegressor
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.noise_aware_regressor import NoiseAwareRegressor
from tacit.local.inference.novel import NovelClassClassifier
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inference.student import StudentClassifier
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.local.learned.partitions import Partitions
from tacit.local.shuffling import readers
from tacit.privacy import artifact, errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency
from tacit.privacy.randomness import Seeded


def rows(count: int, seed: int) -> tuple[Any, Any]:
    drawn = np.random.default_rng(seed)
    points = drawn.normal(size=(count, 2))
    return points, (points[:, 0] + drawn.normal(size=count) > 0).astype(int)


INHOUSE = rows(300, 0)[0]
PEOPLE = rows(600, 1)


@lru_cache
def reports(kind: str, labelled: bool = True) -> Any:
    classes = 2 if labelled else None
    made: Any = {
        "codebook": lambda: Codebook(epsilon=2, classes=classes, codewords=6),
        "direct": lambda: Direct(epsilon=8, classes=classes),
        "partitions": lambda: Partitions(epsilon=2, classes=2, people=600),
    }[kind]().fit(INHOUSE)
    return made.release(PEOPLE[0], PEOPLE[1] if labelled else None, rng=Seeded(3))


def few_partitions() -> Any:
    """Reports of so few partitions that folds hold out reports, and not partitions."""
    made = Partitions(epsilon=2, classes=2, people=600, partitions=2).fit(INHOUSE)
    return made.release(*PEOPLE, rng=Seeded(3))


@lru_cache
def outcomes(kind: str) -> Any:
    """Reports of a number, by each channel that there is for them."""
    asked: Any = {"outcome": tacit.Numeric(-3, 3)}
    made: Any = {
        "codebook": lambda: Codebook(epsilon=2, codewords=6, **asked),
        "halves": lambda: Partitions(epsilon=2, people=600, **asked),
        "cells": lambda: Partitions(epsilon=4, people=600, **asked),
    }[kind]().fit(INHOUSE)
    return made.release(PEOPLE[0], PEOPLE[0][:, 0] + PEOPLE[1], rng=Seeded(3))


LEARNERS: dict[str, Any] = {
    "table": (lambda: NoiseAwareClassifier(), lambda: reports("codebook")),
    "network": (lambda: NoiseAwareClassifier(), lambda: reports("direct")),
    "cells": (lambda: StudentClassifier(), lambda: reports("codebook")),
    "student": (
        lambda: StudentClassifier(inhouse=INHOUSE, teaching="table", seed=1),
        lambda: reports("codebook"),
    ),
    "likelihood": (
        lambda: StudentClassifier(inhouse=INHOUSE, teaching="likelihood"),
        lambda: reports("codebook"),
    ),
    "proportions": (lambda: ProportionsClassifier(inhouse=INHOUSE), lambda: reports("partitions")),
    "few partitions": (lambda: ProportionsClassifier(inhouse=INHOUSE), few_partitions),
    "novel": (lambda: NovelClassClassifier(inhouse=INHOUSE), lambda: reports("codebook", False)),
    "mean outcomes": (lambda: NoiseAwareRegressor(), lambda: outcomes("codebook")),
    "moments": (lambda: MomentsRegressor(inhouse=INHOUSE), lambda: outcomes("codebook")),
    "moments of halves": (lambda: MomentsRegressor(inhouse=INHOUSE), lambda: outcomes("halves")),
    "moments of cells": (lambda: MomentsRegressor(inhouse=INHOUSE), lambda: outcomes("cells")),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LEARNERS)
def test_another_order_gives_the_same_model(name: str) -> None:
    """Bit by bit: the fingerprint, and whatever the model says of its shares."""
    learner, made = LEARNERS[name]
    given = made()
    order = np.random.default_rng(5).permutation(len(given))
    other = given[order]
    other.__dict__["certificate"] = given.certificate  # its date is that of its first use
    models = [learner().fit(one) for one in (given, other)]
    assert artifact.fingerprint(models[0]) == artifact.fingerprint(models[1])
    if hasattr(models[0], "class_shares") and name not in ("network",):
        shares = [np.concatenate([x.ravel() for x in m.class_shares()]) for m in models]
        assert shares[0].tobytes() == shares[1].tobytes()


@pytest.mark.filterwarnings("ignore")
def test_without_an_order_of_its_own_the_network_would_tell_the_order(monkeypatch) -> None:
    """The mutant: what the sort protects from."""
    monkeypatch.setattr(tacit.Reports, "as_multiset", lambda self: self)
    given = reports("direct")
    other = given[np.random.default_rng(5).permutation(len(given))]
    other.__dict__["certificate"] = given.certificate
    models = [NoiseAwareClassifier().fit(one) for one in (given, other)]
    assert artifact.fingerprint(models[0]) != artifact.fingerprint(models[1])


@pytest.mark.parametrize("kind", ["codebook", "direct", "partitions"])
def test_the_canonical_order_keeps_every_report(kind: str) -> None:
    given = reports(kind)
    shuffled = given[np.random.default_rng(1).permutation(len(given))].as_multiset()
    again = given.as_multiset()
    for name, column in again.columns.items():
        assert column.tobytes() == shuffled.columns[name].tobytes()
        assert sorted(map(str, column)) == sorted(map(str, given.columns[name]))


def test_the_canonical_order_does_not_put_like_reports_side_by_side() -> None:
    """Folds that take each n-th report of a sorted file would all look the same."""
    label = reports("direct").as_multiset().columns["label"]
    assert abs(np.corrcoef(label[1:], label[:-1])[0, 1]) < 0.2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LEARNERS)
def test_certificates_of_models_state_both_guarantees(name: str, tmp_path) -> None:
    learner, made = LEARNERS[name]
    model, given = learner().fit(made()), made()
    certificate = model.certificate
    assert certificate.guarantee == given.guarantee
    assert certificate.readers == given.readers()
    towards = certificate.readers.guarantee
    assert towards.adjacency is Adjacency.REPLACE_ONE
    assert towards.epsilon <= given.guarantee.epsilon
    certificate.verify()
    told = certificate.explain()
    assert "Readers of the result" in told
    assert certificate.readers.words in told
    saved = artifact.load(model.save(tmp_path / "model"))
    assert saved.certificate == certificate


def test_the_guarantee_is_that_of_shuffled_reports() -> None:
    given = reports("codebook")
    stated = given.readers()
    assert stated.guarantee == tacit.shuffled(given.channel, people=600)
    assert stated.guarantee.epsilon < given.guarantee.epsilon / 3
    assert given.readers(fake=500).guarantee == tacit.shuffled(given.channel, people=100)
    assert "at least 100 people" in given.readers(fake=500).words
    assert given.readers(delta=1e-9).guarantee.epsilon > stated.guarantee.epsilon
    with pytest.raises(errors.InvalidParameter, match="fake"):
        given.readers(fake=600)


def test_the_smallest_partition_and_round_decide() -> None:
    given = few_partitions()
    counts = np.bincount(given.columns["partition"])
    assert given.readers().people == counts.min()
    few = given[np.flatnonzero(given.columns["partition"] == 1)[:20]]
    both = readers([given, few])
    assert both == readers([few, given])
    assert both.people == 20
    assert both.guarantee == tacit.shuffled(given.channel, people=20)


@pytest.mark.filterwarnings("ignore")
def test_joins_do_not_promise_readers_anything() -> None:
    given = reports("codebook", False)
    model = JoinClassifier(hidden=()).fit(given, PEOPLE[1], clean=PEOPLE[0][:, :1])
    assert model.certificate.readers is None
    assert MATCHED in model.certificate.not_protected


def test_reports_themselves_promise_readers_nothing() -> None:
    assert reports("codebook").certificate.readers is None


def test_a_certificate_that_states_too_little_is_refused() -> None:
    given = reports("codebook")
    right = given.certify(readers=given.readers())
    right.verify()
    stated = right.readers.guarantee
    wrong = (
        replace(right.readers, guarantee=replace(stated, epsilon=stated.epsilon / 1.01)),
        replace(right.readers, people=300),
        replace(right.readers, fake=300),
        replace(right.readers, guarantee=replace(stated, delta=1e-9)),
        replace(right.readers, guarantee=given.guarantee),
    )
    for one in wrong:
        with pytest.raises(errors.CertificateError, match="towards readers"):
            replace(right, readers=one).verify()


def test_certificates_are_read_byte_for_byte() -> None:
    given = reports("codebook")
    right = given.certify(readers=given.readers())
    again = Certificate.from_json(right.to_json())
    assert again == right
    body = json.loads(right.to_json())
    assert body["readers"]["assumption"] == right.readers.words
    for change in ({"people": 10**10}, {"people": True}, {"fake": -1}, {"fake": 600}):
        changed = copy.deepcopy(body)
        changed["readers"] |= change
        with pytest.raises(errors.CertificateError):
            Certificate.from_json(json.dumps(changed))
