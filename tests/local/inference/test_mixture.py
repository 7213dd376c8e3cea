"""Models fitted to reports of all partitions: slopes, folds, weights and storage."""

import math

import numpy as np
import pytest

from tacit.local.inference import mixture
from tacit.local.inference.finite import Evidence
from tacit.local.inference.mixture import Member, Mixture, PartitionReports
from tacit.local.inference.views import Inputs
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

ROWS, WIDTH, CLASSES, CELLS, EPSILON = 600, 4, 3, 5, 4.0


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)


def labels_of(vectors):
    return (vectors[:, :CLASSES] * 2).argmax(axis=1)


@pytest.fixture(scope="module")
def parts(vectors):
    """Five partitions, each by a direction, with 400 people each."""
    drawn = np.random.default_rng(1)
    law = SubsetSelection(categories=CELLS * CLASSES, epsilon=EPSILON)
    made = []
    for index in range(5):
        direction = drawn.normal(size=WIDTH)
        edges = np.quantile(vectors @ direction, np.arange(1, CELLS) / CELLS)
        people = drawn.normal(size=(400, WIDTH)).astype(np.float32)
        symbols = np.searchsorted(edges, people @ direction) * CLASSES + labels_of(people)
        sets = law.release(symbols, Seeded(index))
        cells = np.searchsorted(edges, vectors @ direction)
        made.append(
            PartitionReports(Evidence(sets, law, CLASSES), cells, np.full(CELLS, 1 / CELLS))
        )
    return made


def test_slopes_agree_with_differences(parts, vectors):
    everything = mixture._Everything(parts, ROWS, CLASSES)
    theta = np.random.default_rng(2).dirichlet(np.ones(5 * CELLS * CLASSES))
    value, slope = everything._likelihood(theta, everything.sets)
    for place in (0, 17, 40):
        moved = theta.copy()
        moved[place] += 1e-7
        assert (everything._likelihood(moved, everything.sets)[0] - value) / 1e-7 == pytest.approx(
            slope[place], rel=1e-3, abs=1e-2
        )


def test_the_likelihood_is_that_of_each_partition(parts, vectors):
    everything = mixture._Everything(parts, ROWS, CLASSES)
    theta = np.random.default_rng(2).dirichlet(np.ones(CELLS * CLASSES), size=5)
    apart = sum(p.evidence.likelihood(t)[0] for p, t in zip(parts, theta, strict=True))
    assert everything._likelihood(theta.ravel(), everything.sets)[0] == pytest.approx(apart)


def test_shares_are_means_over_the_rows_of_a_cell(parts, vectors):
    everything = mixture._Everything(parts, ROWS, CLASSES)
    inputs = Inputs(0, WIDTH)(vectors)
    weights = np.random.default_rng(3).normal(size=(WIDTH + 1, CLASSES))
    odds, theta = everything._shares(inputs, weights)
    expected = [odds[parts[1].cells == k].mean(axis=0) / CELLS for k in range(CELLS)]
    got = theta.reshape(5, CELLS, CLASSES)[1]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_folds_hold_out_whole_partitions(parts, vectors):
    everything = mixture._Everything(parts, ROWS, CLASSES)
    assert len(everything.folds) == mixture.FOLDS
    times = sum(np.array([h.all() for h in held], int) for held in everything.folds)
    assert times.tolist() == [1] * 5  # each partition in exactly one fold
    few = mixture._Everything(parts[:1], ROWS, CLASSES)
    assert sum(held[0].astype(int) for held in few.folds).tolist() == [1] * 400


def test_labels_are_learned(parts, vectors):
    model = mixture.fit(parts, vectors, [slice(0, WIDTH)], CLASSES, 0)
    fresh = np.random.default_rng(9).normal(size=(3000, WIDTH)).astype(np.float32)
    probabilities = model.predict_proba(fresh)
    assert (probabilities.argmax(axis=1) == labels_of(fresh)).mean() > 0.7
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert math.fsum(member.share for member in model.members) == pytest.approx(1)
    assert model.linear_scores(WIDTH)[0].shape == (WIDTH + 1, CLASSES)


def test_reports_without_information_teach_the_shares_of_labels(parts, vectors):
    """Labels drawn by themselves: no row should get a confident answer."""
    law, drawn = parts[0].evidence.channel, np.random.default_rng(5)
    noise = []
    for part in parts:
        symbols = drawn.integers(0, CELLS, 400) * CLASSES + drawn.integers(0, CLASSES, 400)
        evidence = Evidence(law.release(symbols, Seeded(7)), law, CLASSES)
        noise.append(PartitionReports(evidence, part.cells, part.shares))
    model = mixture.fit(noise, vectors, [slice(0, WIDTH)], CLASSES, 0)
    assert model.predict_proba(vectors).max() < 0.75


def test_linear_scores_are_those_of_the_member(vectors):
    weights = np.random.default_rng(0).normal(size=(2, 3, CLASSES)).astype(np.float32)
    model = Mixture((Member(Inputs(1, 3), weights, 1.0),))
    scores = model.linear_scores(WIDTH)
    np.testing.assert_allclose(
        vectors @ scores[1][:-1] + scores[1][-1], Inputs(1, 3)(vectors) @ weights[1], rtol=1e-4
    )


def test_a_mixture_is_stored_and_rebuilt(parts, vectors):
    model = mixture.fit(parts, vectors, [slice(0, WIDTH)], CLASSES, 0)
    again = Mixture.from_parts(*model.parts())
    np.testing.assert_allclose(again.predict_proba(vectors), model.predict_proba(vectors))
    parameters, arrays = model.parts()
    arrays["0.weights"] = arrays["0.weights"][:, 1:]
    with pytest.raises(ValueError, match="fit their inputs"):
        Mixture.from_parts(parameters, arrays)
