"""Label fields: shares of labels in small cells, from reports of joined cells."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.local.inference import field
from tacit.local.inference.finite import Evidence
from tacit.local.learned.cells import joined
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

CLASSES = 3


def clusters(count, rng):
    kinds = rng.integers(0, CLASSES, count)
    return (4 * np.eye(CLASSES)[kinds] + rng.normal(size=(count, CLASSES))).astype(
        np.float32
    ), kinds


def reported(epsilon, people, vectors, labels, cells, rng):
    codes = cells(vectors)
    assigned = rng.integers(0, cells.partitions, people)
    law = SubsetSelection(categories=cells.count * CLASSES, epsilon=epsilon)
    parts = []
    for index, groups in enumerate(cells.groups):
        own = assigned == index
        sets = law.release(codes[own, index] * CLASSES + labels[own], Seeded(index))
        shares = np.bincount(codes[:, index], minlength=cells.count) / people
        parts.append(field.JoinedReports(Evidence(sets, law, CLASSES), groups, shares))
    return parts


@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 0.85), (4, 0.95)])
def test_clusters_get_their_labels(epsilon, least):
    rng = np.random.default_rng(0)
    inhouse, _ = clusters(1500, rng)
    vectors, labels = clusters(4000, rng)
    rows, truth = clusters(1000, rng)
    cells = joined(inhouse, 6, 4, seed=0)
    parts = reported(epsilon, 4000, vectors, labels, cells, rng)
    fitted = field.fit(parts, inhouse, cells.centres[0], CLASSES)
    odds = fitted.predict_proba(rows)
    np.testing.assert_allclose(odds.sum(axis=1), 1, atol=1e-6)
    assert odds.min() >= 0
    assert (odds.argmax(axis=1) == truth).mean() > least


def test_partitions_without_reports_are_left_out():
    rng = np.random.default_rng(0)
    inhouse, _ = clusters(600, rng)
    vectors, labels = clusters(1000, rng)
    cells = joined(inhouse, 6, 2, seed=0)
    first, second = reported(4, 1000, vectors, labels, cells, rng)
    empty = Evidence(second.evidence.sets[:0], second.evidence.channel, CLASSES)
    alone = field.fit([first], inhouse, cells.centres[0], CLASSES)
    both = field.fit(
        [first, field.JoinedReports(empty, second.groups, second.shares)],
        inhouse,
        cells.centres[0],
        CLASSES,
    )
    np.testing.assert_array_equal(alone.values, both.values)


def test_covariances_are_larger_within_what_is_linked():
    rng = np.random.default_rng(0)
    inhouse, _ = clusters(1500, rng)
    centres = joined(inhouse, 6, 1, seed=0).centres[0]
    covariance = field.diffusion(inhouse, centres)
    kind = centres.argmax(axis=1)
    same = kind[:, None] == kind
    assert covariance[same].mean() > 0.3
    assert covariance[~same].mean() < 0
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


@pytest.mark.parametrize("name", ["centres", "values"])
def test_stored_fields_that_do_not_fit_are_refused(name):
    arrays = {"centres": np.ones((3, 2)), "values": np.full((3, 2), 0.5)}
    assert field.Field.from_parts(arrays).values.shape == (3, 2)
    with pytest.raises(ValueError, match="shares"):
        field.Field.from_parts({**arrays, name: arrays[name][:2]})
