"""Schemas read off in-house rows: what they find, what they leave room for, what they refuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.data.schema_inference import MOST_CATEGORIES, infer
from tacit.privacy.errors import InvalidData


def test_inferred_tables_allow_what_comes_later():
    frame = pd.DataFrame(
        {"x": [1.0, 3.0], "gap": [None, 2.0], "flat": [5, 5], "on": [True, False], "t": ["b", "a"]}
    )
    schema = infer(frame)
    assert schema == TableSchema(
        (
            Continuous("x", 1, 3, outside="clip"),
            Continuous("gap", 2, 3, missing="indicate", outside="clip"),
            Continuous("flat", 5, 6, outside="clip"),
            Categorical("on", ("False", "True"), unseen="other"),
            Categorical("t", ("a", "b"), unseen="other"),
        )
    )
    later = frame.assign(x=[-9.0, 9.0], t=["new", None])
    rows = schema.rows(later)
    assert rows.numbers[:, 0].tolist() == [0, 1]
    assert rows.codes[:, 1].tolist() == [-1, -1]


def test_inferred_arrays():
    grey = np.array([[[3, 200]]], np.uint8)
    assert infer(grey) == ArraySchema(2, 0, 255, (1, 2))
    assert infer(grey.reshape(1, 2)).image is None
    assert infer(grey.reshape(1, 2), image=(2, 1)).image == (2, 1)
    assert infer(np.array([[-1.5, 2.0]])) == ArraySchema(2, -1.5, 2.0, outside="clip")
    assert infer(np.zeros((3, 2))).upper == 1


@pytest.mark.parametrize(
    "raw",
    [
        np.array([[0, np.nan]]),
        np.array([[np.inf, np.inf]]),
        np.array([["a", "b"]]),
        np.zeros((0, 3)),
        np.zeros(3),
        {"x": np.array([np.nan, np.nan])},
        {"x": np.array([], float)},
        {"name": np.arange(MOST_CATEGORIES + 1).astype(str)},
        {"when": np.array(["2020-01-01"], "datetime64[D]")},
        {},
    ],
)
def test_what_nothing_can_be_inferred_from_is_refused(raw):
    with pytest.raises(InvalidData):
        infer(raw)


def test_names_of_few_rows_are_no_categories():
    """They would tell everybody who gets the mechanism who the in-house rows are of."""
    names = np.array([f"person {i}" for i in range(300)])
    for rows in (names, np.append(names, names[:100])):
        with pytest.raises(InvalidData, match="Drop it if it holds names") as refusal:
            infer({"who": rows})
        assert "person" not in str(refusal.value)
    (column,) = infer({"place": np.tile(names[:150], 2)}).columns
    assert len(column.categories) == 150
    (column,) = infer({"place": names[:50]}).columns
    assert len(column.categories) == 50


def test_dates_are_refused_with_a_remedy():
    with pytest.raises(InvalidData, match="got dates or times"):
        infer({"when": np.array(["2020-01-01"], "datetime64[D]")})


def test_tails_leave_resolution_to_the_others():
    usual = np.random.default_rng(0).normal(size=300)
    for tail in (1e300, -1e300, 1.7e308, np.inf, -np.inf):
        values = np.append(usual, tail)
        schema = infer({"x": values})
        scaled = schema.rows({"x": values}).numbers[:, 0]
        assert np.isfinite(scaled).all()
        assert len(np.unique(scaled[:-1])) > 250
        assert scaled[-1] == (tail > 0)
    plain = infer({"x": usual}).columns[0]
    assert (plain.lower, plain.upper) == (usual.min(), usual.max())


def test_bounds_whose_distance_is_beyond_floats():
    schema = TableSchema((Continuous("x", -1e300, 1e300, outside="clip"),))
    assert schema.rows({"x": [-1.7e308, 0.0, 1.7e308]}).numbers[:, 0].tolist() == [0, 0.5, 1]
    wide = infer(np.array([[-1.7e308], [1.7e308]]))
    assert wide.rows(np.array([[-np.inf], [0.0], [np.inf]])).numbers[:, 0].tolist() == [0, 0.5, 1]


# --- images or signals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "shape"),
    [(np.ones((4, 6, 3)), "(6, 3)"), (np.full((4, 5, 5), -0.5), "(5, 5)"),
     (np.ones((4, 6, 3), np.int64), "(6, 3)")],
)  # fmt: skip
def test_windows_that_may_be_signals_must_be_called_so(windows, shape):
    with pytest.raises(InvalidData, match="must be images or signals") as caught:
        infer(windows, where="Collection.fit")
    assert f"pass signal={shape} to a Collection: points in time" in str(caught.value)
    assert f"pass image={shape}" in str(caught.value)
    size = windows.shape[1:]
    assert infer(windows, image=size).image == size
    assert infer(windows, signal=size).signal == size


def test_what_looks_like_images_are_images():
    for images in (np.ones((4, 5, 5)), np.ones((4, 6, 3), np.uint8), np.ones((4, 5, 5), int)):
        assert infer(images).image == images.shape[1:]
    assert infer(np.full((4, 6, 5, 3), -1.0)).colour == (6, 5, 3)
    with pytest.raises(InvalidData, match="finite, without NaN"):
        infer(np.full((4, 5, 5), np.nan))
