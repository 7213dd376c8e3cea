"""Projection, cells, and cells joined into codewords, against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data.schema import ArraySchema
from tacit.local import proximity
from tacit.local.learned import quantizer
from tacit.local.learned.features import Raw
from tacit.local.learned.quantizer import Projection, Quantizer
from tacit.privacy.errors import InvalidData, InvalidParameter


def rings(count=1200, seed=0):
    """A ring around a disc: two clusters that no two compact cells can tell apart."""
    rng = np.random.default_rng(seed)
    inner = rng.random(count) < 0.5
    angle = rng.uniform(0, 2 * np.pi, count)
    radius = np.where(inner, 0.6 * np.sqrt(rng.random(count)), rng.uniform(2.6, 3.0, count))
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points.astype(np.float32), inner


def purity(codes, truth):
    """The share of points whose codeword is mostly of their own kind."""
    counts = np.zeros((codes.max() + 1, 2))
    np.add.at(counts, (codes, truth.astype(int)), 1)
    return counts.max(axis=1).sum() / len(codes)


@pytest.mark.parametrize("count", [1, 2, 4095, 4096, 4097, 9000])
def test_nearest_is_the_nearest_across_blocks(count):
    rng = np.random.default_rng(count)
    vectors = rng.normal(size=(count, 3)).astype(np.float32)
    cells = rng.normal(size=(17, 3)).astype(np.float32)
    distance = ((vectors[:, None].astype(float) - cells[None]) ** 2).sum(axis=2)
    found = quantizer.nearest(vectors, cells)
    assert found.shape == (count,)
    chosen = np.take_along_axis(distance, found[:, None], axis=1)[:, 0]
    # Up to the rounding of float32: then either cell will do.
    assert np.all(chosen <= distance.min(axis=1) + 1e-5)
    assert np.mean(found == distance.argmin(axis=1)) > 0.999


def test_of_equal_cells_the_first_is_nearest():
    cells = np.array([[5, 5], [1, 1], [1, 1], [0, 9]], np.float32)
    assert quantizer.nearest(np.ones((3, 2), np.float32), cells).tolist() == [1, 1, 1]


@pytest.mark.parametrize("places", [2, 3, 5])
def test_ranked_cells_come_in_order(places):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(300, 4)).astype(np.float32)
    cells = rng.normal(size=(5, 4)).astype(np.float32)
    distance = ((vectors[:, None].astype(float) - cells[None]) ** 2).sum(axis=2)
    found = proximity.ranked(vectors, cells, places)
    assert found.shape == (300, places)
    assert np.mean(found == distance.argsort(axis=1)[:, :places]) > 0.999


def test_groups_map_cells_to_codewords():
    projection = Projection(np.array([1, 0], np.float32), np.array([[2], [0]], np.float32))
    cells = np.array([[-4], [0], [4]], np.float32)
    mapped = Quantizer(projection, cells, np.array([1, 0, 1]))
    assert mapped.codewords == 2
    # (x − 1)·2 is −4, 0, 4 at x = −1, 1, 3, whatever the second feature.
    features = np.array([[-1, 7], [1, -7], [3, 0], [1.9, 0], [2.1, 0]], np.float32)
    assert mapped(features).tolist() == [1, 0, 1, 0, 1]
    assert mapped.of_vectors(np.array([[3.0]], np.float32)).tolist() == [1]


def test_no_matrix_leaves_features_alone():
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert Projection(np.full(3, 9, np.float32), None)(vectors) is vectors


def spread_rows(count=500, deviations=(0.2, 0.1, 0.01, 0.01)):
    rng = np.random.default_rng(0)
    given = ArraySchema(len(deviations), 0, 1)
    raw = np.clip(0.5 + rng.normal(size=(count, len(deviations))) * deviations, 0, 1)
    return given, given.rows(raw)


@pytest.mark.parametrize("damped", [False, True])
def test_projection_keeps_the_main_components(damped):
    given, rows = spread_rows()
    found = quantizer.fit_projection(Raw(given), rows, 2, damped, 0)
    projected = quantizer.project(Raw(given), rows, found)
    assert projected.shape == (500, 2)
    assert projected.dtype == np.float32
    assert np.abs(projected.mean(axis=0)).max() < 1e-4
    deviation = np.array([0.2, 0.1])
    # Damped components are divided by the square root of their deviation.
    expected = np.sqrt(deviation) if damped else deviation
    assert projected.std(axis=0) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("components", "count"), [(None, 500), (4, 500), (9, 500), (3, 3)])
def test_no_projection_where_there_is_nothing_to_leave_out(components, count):
    given, rows = spread_rows()
    found = quantizer.fit_projection(Raw(given), rows[:count], components, True, 0)
    assert found.matrix is None
    assert not found.mean.any()


def test_compact_codewords_are_cells():
    points, _ = rings()
    cells, groups = quantizer.fit_cells(points, 12, "compact", 0)
    assert len(cells) == 12
    assert groups.tolist() == list(range(12))


def test_linked_codewords_follow_the_shape_of_clusters():
    """Two linked codewords tell a ring from the disc inside; two compact ones cannot."""
    points, inner = rings()
    cells, groups = quantizer.fit_cells(points, 2, "linked", 0)
    assert len(cells) > 20
    assert np.unique(groups).tolist() == [0, 1]
    assert purity(groups[quantizer.nearest(points, cells)], inner) > 0.98
    cells, groups = quantizer.fit_cells(points, 2, "compact", 0)
    assert purity(groups[quantizer.nearest(points, cells)], inner) < 0.9


@pytest.mark.parametrize("grouping", quantizer.GROUPINGS)
@pytest.mark.parametrize("codewords", [2, 5, 40])
def test_every_cell_and_codeword_is_used(grouping, codewords):
    points, _ = rings()
    cells, groups = quantizer.fit_cells(points, codewords, grouping, 3)
    nearest = quantizer.nearest(points, cells)
    assert np.unique(nearest).size == len(cells) == len(groups)
    assert np.unique(groups).tolist() == list(range(groups.max() + 1))
    assert groups.max() + 1 <= codewords


@pytest.mark.parametrize("grouping", quantizer.GROUPINGS)
@pytest.mark.parametrize(("rows", "codewords"), [(2, 2), (4, 3), (5, 4), (33, 32), (70, 3)])
def test_few_rows_are_enough(grouping, rows, codewords):
    points, _ = rings(rows)
    cells, groups = quantizer.fit_cells(points, codewords, grouping, 0)
    assert len(cells) == len(groups)
    assert 1 <= groups.max() + 1 <= codewords


def test_the_same_seed_gives_the_same_cells():
    points, _ = rings(400)
    first = quantizer.fit_cells(points, 6, "linked", 5)
    again = quantizer.fit_cells(points, 6, "linked", 5)
    other = quantizer.fit_cells(points, 6, "linked", 6)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_fewer_rows_than_codewords_are_refused():
    points, _ = rings(5)
    with pytest.raises(InvalidData, match="at least 6, one per codeword"):
        quantizer.fit_cells(points, 6, "compact", 0)


def test_another_grouping_is_refused():
    with pytest.raises(InvalidParameter, match="grouping must be one of linked, compact"):
        quantizer.fit_cells(rings(50)[0], 2, "loose", 0)
