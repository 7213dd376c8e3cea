"""With next to no noise the statistics are numpy's; with noise they are as near as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.central import statistics as ps
from tacit.privacy.randomness import Seeded

ROWS = np.random.default_rng(11).normal(size=(20_000, 6)) @ np.diag([3, 2, 1, 0.5, 0.2, 0.1]) + 1.0
FAR = 40.0
"""No row is as long: nothing is clipped."""


def quiet() -> dict[str, Any]:
    return {"noise_multiplier": 1e-3, "rng": Seeded(1)}


def real() -> dict[str, Any]:
    return {"epsilon": 1.0, "delta": 1e-6, "rng": Seeded(1)}


def test_counts():
    codes = np.random.default_rng(12).integers(0, 5, size=1000)
    assert (ps.counts(codes, 5, **quiet()).value == np.bincount(codes)).all()
    noisy = ps.counts(codes, 5, noise_multiplier=4).value
    assert np.abs(noisy - np.bincount(codes)).max() < 6.5 * 4


def test_sums_and_means():
    assert np.allclose(ps.vector_sum(ROWS, FAR, **quiet()).value, ROWS.sum(axis=0), atol=1)
    about = np.full(6, 1.0)
    found = ps.mean(ROWS, FAR, about, **quiet()).value
    assert np.allclose(found.point, ROWS.mean(axis=0), atol=1e-4)
    assert found.count == 20_000
    noisy = ps.mean(ROWS, FAR, about, **real()).value
    assert np.abs(noisy.point - ROWS.mean(axis=0)).max() < 6.5 * noisy.deviation
    assert abs(noisy.count - 20_000) < 200


def test_rows_beyond_the_bound_are_pulled_in():
    rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    found = ps.vector_sum(rows, 1, **quiet()).value
    assert np.allclose(found, [0.9, 1.2], atol=0.02)
    moved = ps.mean(rows + 7, 1, [7, 7], **quiet()).value.point
    assert np.allclose(moved, [7.45, 7.6], atol=0.02)


def test_second_moments():
    mean = ROWS.mean(axis=0)
    found = ps.covariance(ROWS, FAR, mean, **quiet()).value
    assert np.allclose(found.matrix, np.cov(ROWS.T, bias=True), atol=2e-3)
    assert (found.matrix == found.matrix.T).all()
    noisy = ps.covariance(ROWS, FAR, mean, **real()).value
    assert np.abs(noisy.matrix - np.cov(ROWS.T, bias=True)).max() < 6.5 * noisy.deviation


def test_components():
    mean = ROWS.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(ROWS.T, bias=True))
    found = ps.pca(ROWS, 3, FAR, mean, **quiet()).value
    assert np.allclose(found.variances, values[::-1][:3], rtol=1e-2)
    assert np.allclose(np.abs(found.directions @ vectors[:, ::-1][:, :3]), np.eye(3), atol=0.02)
    assert np.allclose(found.directions @ found.directions.T, np.eye(3), atol=1e-12)
    assert np.allclose(found.transform(ROWS).var(axis=0), found.variances, rtol=1e-2)
    noisy = ps.pca(ROWS, 6, FAR, mean, epsilon=8, delta=1e-6, rng=Seeded(1)).value
    assert 2 <= noisy.above_noise < 6
    assert abs(noisy.directions[0] @ found.directions[0]) > 0.99


@pytest.mark.parametrize("cells", [256, 1024])
def test_quantiles(cells):
    column = ROWS[:, 0]
    levels = [0.01, 0.25, 0.5, 0.5, 0.9]
    exact = np.quantile(column, levels)
    found = ps.quantiles(column, levels, -20, 20, cells=cells, **quiet()).value
    assert np.abs(found - exact).max() < 40 / cells
    noisy = ps.quantiles(column, levels, -20, 20, cells=cells, **real()).value
    ranks = np.searchsorted(np.sort(column), noisy) / len(column)
    assert np.abs(ranks - levels).max() < 0.01 + 160 / (cells * 7)
    assert (np.diff(noisy) >= 0).all()


def test_quantiles_at_the_ends():
    column = np.array([-5.0, 0.25, 0.5, 0.75, np.inf])
    found = ps.quantiles(column, [0, 0.5, 1], 0, 1, cells=64, **quiet()).value
    assert found[0] == 0
    assert abs(found[1] - 0.51) < 0.02
    assert found[2] == 1


def test_standardisation():
    lower, upper = ROWS.min(axis=0) - 1, ROWS.max(axis=0) + 1
    found = ps.standardize(ROWS, lower, upper, **quiet()).value
    assert np.allclose(found.mean, ROWS.mean(axis=0), atol=1e-3)
    assert np.allclose(found.deviation, ROWS.std(axis=0), rtol=1e-2)
    noisy = ps.standardize(ROWS, lower, upper, **real()).value
    shown = noisy.transform(ROWS)
    assert np.abs(shown.mean(axis=0)).max() < 0.2
    assert np.abs(shown.std(axis=0) - 1).max() < 0.2
    with pytest.raises(ValueError, match="must have 6 columns"):
        noisy.transform(ROWS[:, :2])


def test_a_constant_column_is_not_blown_up():
    """Its deviation is what noise could have made of it, not zero."""
    rows = np.full((5000, 2), 3.0)
    found = ps.standardize(rows, 0, 10, **real()).value
    assert (found.deviation > 0.05).all()
    assert np.abs(found.transform(rows)).max() < 5


@pytest.mark.parametrize("start", ["moments", "random"])
def test_clusters(start):
    """Ten well separated groups are found, at ε = 1 too."""
    generator = np.random.default_rng(13)
    truth = generator.normal(size=(10, 8))
    truth = 4 * truth / np.linalg.norm(truth, axis=1, keepdims=True)
    rows = np.repeat(truth, 800, axis=0) + generator.normal(size=(8000, 8)) * 0.2
    scatter = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()
    for noise in (quiet(), real()):
        found = ps.kmeans(rows, 20, 5, start=start, **noise).value
        assert found.centers.shape == (20, 8)
        left = ((rows - found.centers[found.nearest(rows)]) ** 2).sum(axis=1).mean()
        assert left < 0.15 * scatter
        assert abs(found.counts.sum() - 8000) < 20 * 60
        assert (np.linalg.norm(found.centers, axis=1) <= 5 * (1 + 1e-9)).all()


def test_one_step_without_noise_is_lloyds():
    rows = np.array([[0.0, 0.1], [0.2, 0.1], [0.9, 0.8], [0.7, 0.8]])
    public = [[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]
    found = ps.kmeans(rows, 3, 2, 1, public, reach=2, **quiet()).value
    expected = [[0.1, 0.1], [0.8, 0.8], [-1.0, -1.0]]
    assert np.allclose(found.centers, expected, atol=0.02)
    assert list(found.counts) == [2, 2, 0]
    assert list(found.nearest(rows)) == [0, 0, 1, 1]


def test_an_empty_centre_takes_half_of_the_largest_cluster():
    rows = np.random.default_rng(2).normal(size=(4000, 3)) * 0.2
    public = [[0.0, 0.0, 0.0], [1.9, 0.0, 0.0], [0.0, 1.9, 0.0]]
    once = ps.kmeans(rows, 3, 2, 1, public, **quiet()).value
    assert (once.counts == [4000, 0, 0]).all()
    often = ps.kmeans(rows, 3, 2, 6, public, **quiet()).value
    assert often.counts.min() > 500
