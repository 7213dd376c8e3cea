"""Fixed features: what each column becomes, and that parts rebuild them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.data.schema import ArraySchema, Categorical, Continuous, Rows, TableSchema
from tacit.data.schema_inference import infer
from tacit.local.learned import features
from tacit.privacy.errors import InvalidParameter

TABLE = TableSchema(
    (
        Continuous("x", 0, 1),
        Categorical("job", ("a", "b")),
        Continuous("y", 0, 1, missing="indicate"),
        Categorical("zone", ("p", "q"), unseen="other"),
    )
)
PICTURES = ArraySchema(width=64, lower=0, upper=16, image=(8, 8))


def table_rows(count=2000, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.random((count, 2)).astype(np.float32) ** 3
    numbers[rng.random(count) < 0.2, 1] = np.nan
    codes = np.stack([rng.integers(0, 2, count), rng.choice([-1, 0, 1], count, p=[0.1, 0.3, 0.6])])
    return Rows(numbers, codes.T)


def pictures(count=30, seed=0):
    return PICTURES.rows(np.random.default_rng(seed).integers(0, 17, (count, 64)))


def schema_and_rows(kind):
    return (PICTURES, pictures()) if kind == "scattering" else (TABLE, table_rows())


def test_raw_is_numbers_marks_and_indicators():
    rows = Rows(np.float32([[0.25, np.nan], [1, 0.75]]), np.array([[1, -1], [0, 0]]))
    raw = features.fit("raw", TABLE, rows)
    assert raw.transform(rows).tolist() == [
        [0.25, 0.5, 1, 0, 1, 0, 0, 1],
        [1, 0.75, 0, 1, 0, 1, 0, 0],
    ]
    assert raw.dimension == 8
    assert features.fit("raw", PICTURES, pictures()).dimension == 64


def test_quantile_columns_weigh_alike():
    rows = table_rows(20000)
    out = features.fit("quantile", TABLE, rows).transform(rows).astype(np.float64)
    variance = out.var(axis=0)
    assert abs(variance[0] - 1) < 0.03  # x
    assert abs(variance[1] - 0.8) < 0.03  # y: a fifth sits at the median
    assert abs(variance[2] - 1) < 0.01  # the mark of a missing y
    assert abs(variance[3:5].sum() - 1) < 0.01  # job
    assert abs(variance[5:8].sum() - 1) < 0.01  # zone
    assert np.abs(out.mean(axis=0)).max() < 0.02


def test_quantiles_rank_and_share_ties():
    """Nine in ten are 0: they sit in the middle of what they cover, and the others keep order."""
    column = np.concatenate([np.zeros(900), np.linspace(0.1, 1, 100)]).astype(np.float32)
    schema = TableSchema((Continuous("gain", 0, 1),))
    rows = Rows(column[:, None], np.empty((1000, 0), np.int64))
    out = features.fit("quantile", schema, rows).transform(rows).ravel() / np.sqrt(12) + 0.5
    assert np.all(out[:900] == out[0])
    assert abs(out[0] - 0.45) < 0.01
    assert np.all(np.diff(out[900:]) >= 0)
    assert out[900] > 0.85
    assert out[-1] > 0.98


def test_a_rare_category_is_not_blown_up():
    codes = np.zeros((10000, 1), np.int64)
    codes[0] = 1
    schema = TableSchema((Categorical("job", ("a", "b")),))
    rows = Rows(np.empty((10000, 0), np.float32), codes)
    out = features.fit("quantile", schema, rows).transform(rows)
    assert np.abs(out).max() <= 1 / features.LEAST_DEVIATION


def test_a_column_missing_everywhere_in_house_is_no_trouble():
    rows = table_rows(50)
    rows.numbers[:, 1] = np.nan
    fitted = features.fit("quantile", TABLE, rows)
    assert np.isfinite(fitted.transform(table_rows())).all()


def test_random_features_are_a_gaussian_kernel():
    rows = table_rows(300)
    fitted = features.fit("random", TABLE, rows, seed=5)
    out = fitted.transform(rows).astype(np.float64)
    base = features.fit("quantile", TABLE, rows).transform(rows).astype(np.float64)
    square = ((base[:, None] - base[None]) ** 2).sum(axis=-1)
    error = out @ out.T - np.exp(-square / (2 * 4))
    assert fitted.dimension == out.shape[1] == features.RANDOM
    assert np.abs(error).max() < 6 / np.sqrt(features.RANDOM)
    # A kernel of another width is told apart.
    assert np.abs(out @ out.T - np.exp(-square / 4)).max() > 6 / np.sqrt(features.RANDOM)
    other = features.fit("random", TABLE, rows, seed=6).transform(rows)
    assert not np.array_equal(out, other)
    assert np.array_equal(out, features.fit("random", TABLE, rows, seed=5).transform(rows))


def test_random_features_of_arrays_read_no_data():
    one = features.fit("random", PICTURES, pictures(seed=1), seed=3).parts()[1]
    two = features.fit("random", PICTURES, pictures(seed=2), seed=3).parts()[1]
    assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("kind", features.FIXED)
def test_parts_rebuild_the_features(kind):
    schema, rows = schema_and_rows(kind)
    fitted = features.fit(kind, schema, rows, seed=1)
    params, arrays = fitted.parts()
    again = features.from_parts(kind, schema, json.loads(json.dumps(params)), arrays)
    out = fitted.transform(rows)
    assert fitted.kind == again.kind == kind
    assert out.dtype == np.float32
    assert out.shape == (len(rows), fitted.dimension) == (len(rows), again.dimension)
    assert np.array_equal(again.transform(rows), out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("kind", features.FIXED)
def test_a_row_has_the_same_features_in_any_company(kind):
    schema, rows = schema_and_rows(kind)
    fitted = features.fit(kind, schema, rows, seed=1)
    pieces = [fitted.transform(block) for block in features.blocks(rows, 7)]
    assert np.abs(np.concatenate(pieces) - fitted.transform(rows)).max() < 2e-6
    assert fitted.transform(rows[:0]).shape == (0, fitted.dimension)


@pytest.mark.parametrize("kind", ["quantile", "random"])
def test_weights_that_do_not_fit_are_refused(kind):
    fitted = features.fit(kind, TABLE, table_rows(), seed=1)
    params, arrays = fitted.parts()
    for name in arrays:
        for wrong in (None, arrays[name][:-1], np.full_like(arrays[name], np.nan)):
            with pytest.raises(InvalidParameter, match=name):
                features.from_parts(kind, TABLE, params, {**arrays, name: wrong})


def test_what_cannot_be_scattered_is_refused():
    vectors = infer(np.zeros((2, 64), np.uint8))
    for schema in (TABLE, vectors):
        with pytest.raises(InvalidParameter, match="images"):
            features.fit("scattering", schema, table_rows())
    with pytest.raises(InvalidParameter, match="kind"):
        features.fit("psychic", TABLE, table_rows())
    with pytest.raises(InvalidParameter, match="kind"):
        features.from_parts("psychic", TABLE, {}, {})
