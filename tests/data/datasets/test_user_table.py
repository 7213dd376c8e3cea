"""A user's table and its schema file become a data set, or one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tacit.data import datasets
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.privacy import errors

ROWS = 1000
SCHEMA = TableSchema(
    (Continuous("age", 18, 100), Continuous("income", 0, 1000), Categorical("town", ("n", "s")))
)
LABEL = {"column": "loyal", "classes": ["no", "yes"]}


def people(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "number": np.arange(ROWS),
        "town": rng.choice(["n", "s"], ROWS),
        "age": rng.integers(18, 100, ROWS),
        "income": rng.random(ROWS) * 1000,
        "loyal": rng.choice(["no", "yes"], ROWS),
    } | changed


def load(folder: Path, table: dict[str, Any], form: str = "csv", **plain: Any) -> datasets.Dataset:
    data, schema = folder / f"people.{form}", folder / "people.json"
    write = pa.csv.write_csv if form == "csv" else pq.write_table
    write(pa.table(table), data)
    schema.write_text(json.dumps({**SCHEMA.to_plain(), "label": LABEL, **plain}))
    return datasets.load(str(data), schema)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_come_in_the_order_of_the_schema(tmp_path: Path, form: str) -> None:
    table = people()
    found = load(tmp_path, table, form)
    assert found.rows.column_names == ["age", "income", "town"]
    assert found.rows["town"].to_pylist() == table["town"].tolist()
    assert np.array_equal(found.labels, (table["loyal"] == "yes").astype(int))
    assert found.take(np.array([3, 1]))["age"].to_pylist() == table["age"][[3, 1]].tolist()
    assert found.classes == ("no", "yes")
    assert found.taken_as_public == ()
    assert list(found.sha256) == [f"people.{form}", "schema"]
    assert found.name == f"people.{form}"
    assert found.tasks == {}


def test_splits_have_the_stated_shares(tmp_path: Path) -> None:
    split = load(tmp_path, people()).collection(1)
    assert [len(part) for part in vars(split).values()] == [480, 240, 80, 200]
    assert len(set(np.concatenate(list(vars(split).values())).tolist())) == ROWS


def test_classes_that_are_read_off_are_said_to_be(tmp_path: Path) -> None:
    grades = np.random.default_rng(0).choice([2, 10, 1], ROWS)
    for form in ("csv", "parquet"):
        found = load(tmp_path, people(loyal=grades), form, label="loyal")
        assert found.classes == (1, 2, 10)
        assert found.taken_as_public == ("The values of the label 'loyal'.",)
        assert np.array_equal(np.array(found.classes)[found.labels], grades)
    assert (found.labels[found.novel(0, 2).people] == 1).all()
    assert load(tmp_path, people(), label="loyal").classes == ("no", "yes")


def test_declared_numbers_may_be_labels(tmp_path: Path) -> None:
    label = {"column": "loyal", "classes": [1, 0]}
    found = load(tmp_path, people(loyal=np.arange(ROWS) % 2), label=label)
    assert found.labels[:4].tolist() == [1, 0, 1, 0]


def test_another_party_holds_what_the_schema_says(tmp_path: Path) -> None:
    ours, theirs = load(tmp_path, people(), join=["town", "age"]).join()
    assert ours.schema.names == ("income",)
    assert theirs.rows.column_names == ["town", "age"]
    assert len(theirs.schema.rows(theirs.rows)) == ROWS
    with pytest.raises(errors.InvalidParameter, match="split by columns for a join"):
        load(tmp_path, people()).join()


WORDS = np.array(["secret"] * ROWS)


@pytest.mark.parametrize(
    ("table", "plain", "said"),
    [
        (people(), {"label": "faithful"}, "label must be a column of .*, got 'faithful'"),
        (people(loyal=WORDS), {}, "every label must be one of no, yes"),
        (people(loyal=np.array(["yes"] * ROWS)), {}, "have at least 2 classes, got 1"),
        (people(loyal=np.array(["yes"] * ROWS)), {"label": "loyal"}, "at least 2 classes, got 1"),
        (
            people(loyal=np.arange(ROWS) * 7),
            {"label": {"column": "loyal", "classes": [0, 7]}},
            "0, 7",
        ),
        (people(age=np.full(ROWS, 17)), {}, "column 'age' must be within"),
        (people(town=WORDS), {}, "column 'town' must be one of its 2 declared"),
        (people(age=WORDS), {}, "column 'age' must be without missing values"),
        ({"age": [1], "loyal": ["no"]}, {}, "it must have a column 'income'"),
        (people(), {"label": 7}, "label must be a column's name"),
        (people(), {"label": {"column": "loyal", "classes": ["no"]}}, "classes must be at least 2"),
        (people(), {"label": {"column": "loyal", "classes": ["no", 1]}}, "classes must be at"),
        (people(), {"label": "age"}, "label must be absent from 'columns', got 'age'"),
        (people(), {"join": ["shoe"]}, "join must be a list of columns of the schema"),
        (people(), {"join": ["age", "income", "town"]}, "join must be distinct columns, and not"),
        (people(), {"join": "age"}, "join must be a list of columns"),
        (people(), {"columns": []}, "columns must be distinct"),
        (people(), {"kind": "tabel"}, "kind must be array or table"),
        (people(), {"surplus": 1}, "fields must be kind and columns, got .*surplus"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, table: dict[str, Any], plain: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.TacitError, match=said) as caught:
        load(tmp_path, table, **plain)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_too_many_classes_are_taken_for_numbers_of_people(tmp_path: Path) -> None:
    table = {name: np.tile(column, 2) for name, column in people().items()}
    table["loyal"] = np.arange(2 * ROWS)
    with pytest.raises(errors.InvalidParameter, match="labels must be at most 1024 values"):
        load(tmp_path, table, label="loyal")


def test_too_few_rows_are_an_impossible_split(tmp_path: Path) -> None:
    few = {name: column[:600] for name, column in people().items()}
    found = load(tmp_path, few)
    with pytest.raises(errors.InvalidParameter) as caught:
        found.collection(0)
    assert str(caught.value) == (
        "people.csv: rows in voters must be at least 50, got 48. "
        "The data set is too small for this split."
    )


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    load(tmp_path, people(), "csv")
    load(tmp_path, people(), "parquet")
    data, schema = str(tmp_path / "people.csv"), tmp_path / "people.json"
    with pytest.raises(errors.InvalidParameter, match="schema must be a JSON file for"):
        datasets.load(data)
    with pytest.raises(errors.InvalidParameter, match="schema must be a readable file"):
        datasets.load(data, tmp_path / "none.json")
    for name in ("people.csv", "people.parquet"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-25])
        with pytest.raises(errors.InvalidData, match=r"it must be a|without missing values"):
            datasets.load(str(path), schema)
    schema.write_text(schema.read_text()[:-10])
    with pytest.raises(errors.InvalidData, match=r"people\.json: it must be JSON"):
        datasets.load(data, schema)
    schema.write_text("[]")
    with pytest.raises(errors.InvalidData, match=r"a key 'label'\. Add for example .label"):
        datasets.load(data, schema)
