"""Rows with two labels: coded, split so that nobody is left out of training, refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tacit.data import datasets
from tacit.data.datasets import twice
from tacit.data.datasets.twice import TwiceLabelled
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.privacy import errors

ROWS = 300
SECRET = "Miriam-77"
SCHEMA = TableSchema((Continuous("height", 0, 3), Categorical("town", ("n", "s"))))


def people(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "height": rng.random(ROWS) + 1,
        "activity": rng.choice(["walk", "run", "sit"], ROWS),
        "town": rng.choice(["n", "s"], ROWS),
        "subject": rng.choice(["07", "7", SECRET], ROWS),
    } | changed


def load(
    folder: Path,
    table: dict[str, Any],
    form: str = "csv",
    *,
    regular: str | None = "activity",
    private: str | None = "subject",
    schema: Any = None,
) -> TwiceLabelled:
    path = folder / f"people.{form}"
    (pa.csv.write_csv if form == "csv" else pq.write_table)(pa.table(table), path)
    return datasets.load_twice(path, regular, private, schema)


def array(private: Any, regular: Any = None, **more: Any) -> TwiceLabelled:
    count = len(private)
    regular = np.arange(count) % 2 if regular is None else regular
    rows = np.random.default_rng(1).random((count, 4))
    return twice.labelled("people", rows, regular, private, **more)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_labels_leave_the_rows_of_a_table(tmp_path: Path, form: str) -> None:
    table = people()
    found = load(tmp_path, table, form)
    assert found.rows.column_names == ["height", "town"]
    assert found.regular_classes == ("run", "sit", "walk")
    assert found.private_classes == ("07", "7", SECRET)  # two people, though one number
    assert [found.private_classes[code] for code in found.private] == table["subject"].tolist()
    assert [found.regular_classes[code] for code in found.regular] == table["activity"].tolist()
    assert (found.regular_name, found.private_name) == ("activity", "subject")
    assert found.schema.names == ("height", "town")
    assert found.take(np.array([5, 2]))["town"].to_pylist() == table["town"][[5, 2]].tolist()
    assert list(found.sha256) == [f"people.{form}"]
    assert len(found) == len(found.schema.rows(found.rows)) == ROWS
    assert found.others == {}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_labels_that_are_numbers_are_in_their_order(tmp_path: Path, form: str) -> None:
    subject = np.arange(ROWS) % 12
    found = load(tmp_path, people(subject=subject), form)
    assert found.private_classes == tuple(range(12))
    assert np.array_equal(found.private, subject)


@pytest.mark.parametrize("column", ["activity", "subject"])
def test_both_labels_of_a_csv_file_are_text(tmp_path: Path, column: str) -> None:
    found = load(tmp_path, people(**{column: ["07", "7", "8"] * (ROWS // 3)}))
    classes = found.regular_classes if column == "activity" else found.private_classes
    assert classes == ("07", "7", "8")


def test_other_columns_may_be_of_any_kind(tmp_path: Path) -> None:
    flags = np.arange(ROWS) % 2 == 0
    found = load(tmp_path, people(flag=flags, steps=np.arange(ROWS)), "parquet")
    checked = found.schema.rows(found.rows)
    assert checked.codes.shape == (ROWS, 2)
    assert set(np.unique(checked.codes)) == {0, 1}
    assert np.isclose(checked.numbers[:, 1], np.arange(ROWS) / (ROWS - 1)).all()


@pytest.mark.parametrize("as_file", [True, False])
def test_a_schema_says_which_columns_are_rows(tmp_path: Path, as_file: bool) -> None:
    given: Any = SCHEMA
    if as_file:
        given = tmp_path / "schema.json"
        given.write_text(json.dumps(SCHEMA.to_plain()))
    found = load(tmp_path, people(extra=np.zeros(ROWS)), schema=given)
    assert found.rows.column_names == ["height", "town"]
    assert found.schema == SCHEMA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "datasets: schema must be a readable file, got"),
        ("{", "schema.json: it must be JSON."),
        ("{}", "schema.json: schema.from_plain: kind must be array or table"),
    ],
)
def test_a_schema_file_that_is_none_is_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "schema.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.TacitError) as caught:
        load(tmp_path, people(), schema=path)
    assert message in str(caught.value)


def test_a_schema_with_a_label_is_refused(tmp_path: Path) -> None:
    given = TableSchema((*SCHEMA.columns, Categorical("subject", ("07", "7"))))
    with pytest.raises(errors.InvalidParameter, match="schema must be without the labels"):
        load(tmp_path, people(), schema=given)


@pytest.mark.parametrize("column", ["activity", "subject"])
@pytest.mark.parametrize("gap", [None, "", "  "])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_missing_label_is_refused(
    tmp_path: Path, column: str, gap: str | None, form: str
) -> None:
    table = people()
    table[column] = [gap, *table[column][1:].tolist()]
    with pytest.raises(errors.InvalidData) as caught:
        load(tmp_path, table, form)
    assert str(caught.value) == (
        f"people.{form}: label {column!r} must be without missing values. Fill or drop them."
    )


@pytest.mark.parametrize("column", ["activity", "subject"])
def test_a_label_of_one_value_is_refused(tmp_path: Path, column: str) -> None:
    with pytest.raises(errors.InvalidData) as caught:
        load(tmp_path, people(**{column: [SECRET] * ROWS}))
    assert str(caught.value) == (
        f"people.csv: label {column!r} must have at least 2 values, got 1. "
        "One value leaves nothing to predict."
    )


def test_a_person_of_two_rows_is_refused(tmp_path: Path) -> None:
    subject = ["a", "b"] * (ROWS // 2 - 1) + [SECRET] * 2
    with pytest.raises(errors.InvalidData) as caught:
        load(tmp_path, people(subject=subject))
    assert str(caught.value) == (
        "people.csv: every subject must have at least 3 rows, got 2 for one. "
        "Leave such rows out, or merge them."
    )


@pytest.mark.parametrize(
    ("regular", "private", "message"),
    [
        (None, "subject", "regular must be one of its columns, got None"),
        ("activity", None, "private must be one of its columns, got None"),
        ("action", "subject", "regular must be one of its columns, got 'action'"),
        ("subject", "subject", "private must be another column than regular, got 'subject'"),
    ],
)
def test_two_columns_must_be_named(
    tmp_path: Path, regular: str | None, private: str | None, message: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match=message):
        load(tmp_path, people(), regular=regular, private=private)


def test_a_label_with_a_value_a_row_is_refused(tmp_path: Path) -> None:
    names = [f"{SECRET}-{index}" for index in range(2000)]
    with pytest.raises(errors.InvalidParameter) as caught:
        array(names)
    assert str(caught.value) == (
        "people: label 'private' must be of at most 1024 values, got 2000. "
        "Check that it is the right label."
    )


def test_arrays_and_lists_are_taken_too() -> None:
    found = array(["NA", "B"] * 30, regular=np.repeat([2.0, 1.0], 30))
    assert found.private_classes == ("B", "NA")
    assert found.regular_classes == (1, 2)
    assert found.regular[0] == 1
    assert isinstance(found.schema, ArraySchema)
    assert found.schema.width == 4
    assert found.take(np.array([3, 1])).shape == (2, 4)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([1.0, np.nan] * 30),
        [1, None] * 30,
        ["a", float("nan")] * 30,
        ["a", None] * 30,
        pa.array(["a", None] * 30),
    ],
)
def test_gaps_of_any_kind_are_seen(labels: Any) -> None:
    with pytest.raises(errors.InvalidData, match="label 'private' must be without missing values"):
        array(labels)


def test_labels_that_are_measurements_are_refused() -> None:
    with pytest.raises(errors.InvalidData, match="must be text, integers or booleans") as caught:
        array(np.linspace(0.123, 1, 60))
    assert "0.123" not in str(caught.value)


def test_every_row_has_both_labels() -> None:
    with pytest.raises(
        errors.InvalidParameter, match="number of 'regular' must be 60, one per row"
    ):
        array(["a", "b"] * 30, regular=np.arange(59) % 2)
    with pytest.raises(errors.InvalidParameter, match="number of 'more' must be 60, one per row"):
        array(["a", "b"] * 30, others={"more": np.zeros(61)})


def test_codes_are_those_of_the_classes() -> None:
    found = array(["a", "b"] * 30)
    with pytest.raises(errors.InvalidParameter, match="label 'private' must be of 3 codes from 0"):
        TwiceLabelled(**{**vars(found), "private_classes": ("a", "b", "c")})


def parts(found: TwiceLabelled, seed: int) -> list[npt.NDArray[np.int64]]:
    return list(vars(found.split(seed)).values())


def test_a_split_is_disjoint_and_drawn_from_its_seed() -> None:
    found = array(np.arange(1000) % 10)
    drawn = parts(found, 5)
    assert [len(part) for part in drawn] == [730, 135, 135]
    assert np.array_equal(np.sort(np.concatenate(drawn)), np.arange(1000))
    for same, other, part in zip(parts(found, 5), parts(found, 6), drawn, strict=True):
        assert np.array_equal(same, part)
        assert not np.array_equal(other, part)


def test_given_sizes_are_kept() -> None:
    found = array(np.arange(100) % 10, sizes=(50, 20, 10))
    assert [len(part) for part in parts(found, 0)] == [50, 20, 10]
    assert len(set(np.concatenate(parts(found, 0)).tolist())) == 80


def test_nobody_is_left_out_of_training() -> None:
    # Twenty people of three rows: a plain draw leaves one of them out about a third of the time.
    private = np.repeat(np.arange(20), 3)
    regular = np.arange(60) % 2
    regular[7] = 2  # one row only
    found = array(private, regular)
    redrawn = 0
    for seed in range(40):
        training, validation, test = parts(found, seed)
        assert (len(training), len(validation), len(test)) == (44, 8, 8)
        assert len(set(np.concatenate([training, validation, test]).tolist())) == 60
        assert np.array_equal(np.unique(found.private[training]), np.arange(20))
        assert np.array_equal(np.unique(found.regular[training]), np.arange(3))
        plain = np.random.default_rng(seed).permutation(60)[:44]
        redrawn += not np.array_equal(plain, training)
    assert 0 < redrawn < 40


def test_a_split_that_cannot_be_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter) as caught:
        array(np.arange(20) % 2).split(0)
    assert str(caught.value) == (
        "people: rows of a split must be at least 5 in each part and 20 in all, got (14, 3, 3). "
        "Give more rows."
    )
    with pytest.raises(errors.InvalidParameter, match="must be at least 5 in each part and 60 in"):
        array(np.arange(60) % 2, sizes=(50, 10, 10)).split(0)
    many = array(np.repeat(np.arange(20), 3), sizes=(15, 20, 20))
    with pytest.raises(errors.InvalidParameter, match="rows for training must be at least 20"):
        many.split(0)
    with pytest.raises(errors.InvalidParameter, match="seed must be an integer"):
        many.split(-1)


def test_names_and_options_must_fit(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidParameter, match="data must be pendigits, a CSV or Parquet"):
        datasets.load_twice("pendigit")
    for options in ({"schema": SCHEMA}, {"pattern": "x"}, {"size": (2, 2)}):
        with pytest.raises(errors.InvalidParameter, match=r"^pendigits: .* must be left out"):
            datasets.load_twice("pendigits", **options)
    (tmp_path / "x.csv").write_text("a,b\n")
    with pytest.raises(errors.InvalidParameter, match="pattern must be left out"):
        datasets.load_twice(tmp_path / "x.csv", "a", "b", pattern="ferg")
    with pytest.raises(errors.InvalidParameter, match="schema must be left out"):
        datasets.load_twice(tmp_path, schema=SCHEMA)
