"""Powers of probabilities: chosen without labels, stored with the model, and better calibrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.local.inference import tempering
from tacit.local.inference.finite import Evidence
from tacit.local.inference.mixture import FOLDS, Member, Mixture, PartitionReports
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inference.views import Inputs
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

CELLS, CLASSES, COUNT = 8, 2, 4000


def world(steepness: float, partitions: int = 8, seed: int = 0) -> tuple[Any, ...]:
    """Rows on a line; labels follow them with this steepness, and are reported at ε = 4."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(COUNT, 1)).astype(np.float32)
    likely = 1 / (1 + np.exp(-steepness * vectors[:, 0]))
    labels = (rng.random(COUNT) < likely).astype(np.int64)
    parts = []
    for _ in range(partitions):
        ends = np.sort(rng.normal(size=CELLS - 1))
        cells = np.searchsorted(ends, vectors[:, 0])
        people = rng.permutation(COUNT)[: COUNT // partitions]
        channel = SubsetSelection(categories=CELLS * CLASSES, epsilon=4.0)
        sets = channel.release(cells[people] * CLASSES + labels[people], Seeded(seed))
        shares = np.bincount(cells, minlength=CELLS) / COUNT
        parts.append(PartitionReports(Evidence(sets, channel, CLASSES), cells, shares))
    return parts, vectors


def linear(steepness: float) -> Mixture:
    weights = np.zeros((FOLDS, 2, CLASSES), np.float32)
    weights[:, 0, 1] = steepness
    return Mixture((Member(Inputs(0, 1), weights, 1.0),))


@pytest.mark.parametrize("partitions", [8, 2])
@pytest.mark.parametrize("true", [1.0, 2.0, 3.2])
def test_the_power_that_reports_speak_for(true: float, partitions: int) -> None:
    """A model of steepness 2 is raised to that of the labels: powers multiply log odds."""
    parts, vectors = world(true, partitions)
    found = tempering.power(parts, vectors, linear(2.0), CLASSES, 0)
    assert 2.0 * found == pytest.approx(true, rel=0.25)


def test_without_reports_probabilities_stay() -> None:
    parts, vectors = world(3.0)
    few = [
        PartitionReports(Evidence(p.evidence.sets[:0], p.evidence.channel, 2), p.cells, p.shares)
        for p in parts
    ]
    assert tempering.power(few, vectors, linear(2.0), CLASSES, 0) == pytest.approx(1.0)


def test_powers_keep_the_order() -> None:
    given = np.random.default_rng(0).dirichlet(np.ones(4), 100)
    for beta in (0.4, 1.0, 2.5):
        found = tempering.raised(given, beta)
        assert np.array_equal(found.argsort(axis=1), given.argsort(axis=1))
        assert found.sum(axis=1) == pytest.approx(1.0)
    certain = tempering.raised(np.array([[1.0, 0.0], [0.5, 0.5]]), 2.7)
    assert certain == pytest.approx(np.array([[1.0, 0.0], [0.5, 0.5]]))


def test_a_model_keeps_its_sharpness(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 3))
    labels = (rows[:, 0] > 0).astype(int)
    made = tacit.Partitions(epsilon=6, people=600, classes=2).fit(rows[:300])
    model = ProportionsClassifier(inhouse=rows[:300], inhouse_public=True, prior="inhouse")
    model.fit(made.release(rows[300:], labels[300:], rng=Seeded(0)))
    assert model.sharpness_ != 1.0
    learned = model.mixture_.predict_proba(made.vectors(rows))
    expected = tempering.raised(learned, model.sharpness_)
    np.testing.assert_allclose(model.predict_proba(rows), expected)
    loaded = tacit.load(model.save(tmp_path / "model"))
    assert loaded.sharpness_ == model.sharpness_
    parameters, arrays = model.parts()
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="sharpness must be positive"):
            ProportionsClassifier.from_parts(parameters | {"sharpness": wrong}, arrays)
