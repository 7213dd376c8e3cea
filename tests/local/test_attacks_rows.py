"""What a hostile reader tried with single rows: each attempt, and why it fails now."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.inference.moments_regressor import MomentsRegressor
from tacit.local.inference.novel import NovelClassClassifier
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inference.student import StudentClassifier
from tacit.local.inference.votes import Ballot, cast
from tacit.local.learned.partitions import Partitions
from tacit.privacy import artifact

OPTIONS = {"epsilon": 4, "people": 600, "classes": 2}
ROWS = [None, math.nan, 2, 2.0, -1, "x", True, 2**70]
COLUMNS = {
    "booleans": ([True, False] * 3, ("True", "False")),
    "whole floats": ([1.0, 2.0] * 3, ("1", "2")),
    "integers": ([1, 2] * 3, ("1", "2")),
    "long integers": ([2**53 + 1, 2**53] * 3, (str(2**53 + 1), str(2**53))),
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_one_row_of_a_list_does_not_change_the_categories_of_others(column, row):
    values, categories = COLUMNS[column]
    schema = TableSchema((Categorical("c", categories, unseen="other"),))
    codes = schema.rows({"c": [*values, row]}).codes[: len(values), 0]
    assert codes.tolist() == [0, 1] * 3


def test_floats_that_stand_for_several_integers_are_no_categories():
    schema = TableSchema((Categorical("c", (str(2**53),), unseen="other"),))
    with pytest.raises(ValueError, match="must be text, integers or booleans"):
        schema.rows({"c": np.array([2.0**53, math.nan])})


def test_one_missing_boolean_does_not_change_what_is_released():
    schema = TableSchema(
        (
            Categorical("smokes", ("True", "False"), unseen="other"),
            Continuous("a", 0, 1, missing="indicate", outside="clip"),
        )
    )
    rng = np.random.default_rng(0)
    known, numbers = (rng.random(399) < 0.5).tolist(), rng.random(400).tolist()
    for missing in (None, math.nan):
        made = Partitions(**OPTIONS, central_epsilon=4, central_delta=1e-5)
        made.fit({"smokes": [*known, missing], "a": numbers}, schema=schema)
        assert made.synthetic_ is not None
        assert np.mean(made.synthetic_.draw(2000, 0).codes < 0) < 0.4


def test_filters_of_a_stranger_do_not_warn_about_some_images():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 8, 8, 3), dtype=np.uint8)
    made = Partitions(**OPTIONS).fit(images, inhouse_public=True)
    large = np.full_like(made.features_.filters, 3e38)  # finite: a file with them is read
    made.features_ = dataclasses.replace(made.features_, filters=large)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for row in (images[:1], np.zeros_like(images[:1])):
            assert len(made.release(row, [0])) == 1


TAUGHT = [ProportionsClassifier, StudentClassifier, NovelClassClassifier, MomentsRegressor]


@pytest.mark.parametrize("kind", TAUGHT)
def test_neither_notebooks_nor_pipelines_show_inhouse_rows(kind):
    model = kind(inhouse=np.full((4, 3), 7.25))
    for one in (model, make_pipeline(model), GridSearchCV(model, {"seed": [1]})):
        shown = (repr(one), str(one.get_params()), *one._repr_mimebundle_().values())
        assert not any("7.25" in text or "array(" in text for text in shown)
        assert any("inhouse" in text for text in shown)


@pytest.mark.parametrize("kind", TAUGHT)
def test_rows_that_are_not_shown_are_the_parameter_still(kind):
    rows = np.full((4, 3), 7.25)
    model = kind(inhouse=rows)
    assert model.inhouse is rows
    np.testing.assert_array_equal(clone(model).inhouse, rows)
    assert kind(**model.get_params()).inhouse is rows
    assert model.set_params(inhouse=None).inhouse is None
    assert repr(model) == f"{kind.__name__}()"


def test_a_strangers_model_does_not_warn_about_some_voters():
    rows = np.random.default_rng(0).normal(size=(900, 4))
    made = Partitions(**OPTIONS).fit(rows[:300], inhouse_public=True)
    reports = made.release(rows[300:], (rows[300:, 0] > 0).astype(int))
    model = ProportionsClassifier(inhouse=rows[:300], inhouse_public=True).fit(reports)
    large = np.full_like(made.projection_.matrix, 3e38)
    model.mechanism_.projection_ = dataclasses.replace(made.projection_, matrix=large)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for row in (np.full((1, 4), 50.0), np.median(rows, axis=0)[None]):
            assert len(cast(model, row, [0], Ballot(epsilon=2))) == 1


def test_what_a_budget_was_spent_on_can_be_read_back_without_quantiles():
    rows = np.random.default_rng(0).normal(size=(500, 4))
    made = Partitions(**OPTIONS, central_epsilon=1, central_delta=1e-5)
    made.fit(rows, schema=ArraySchema(4, -4.0, 4.0, outside="clip"))
    assert made.synthetic_ is not None
    assert made.synthetic_.quantile is None
    read = artifact.unpack(artifact.pack(made), "mechanism")
    assert artifact.fingerprint(read) == artifact.fingerprint(made)
