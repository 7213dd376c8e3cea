"""Adult: UCI's files and a Parquet file give the same people."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data import datasets
from tacit.data.datasets import files
from tacit.data.datasets.base import Dataset
from tacit.privacy import errors
from tacit_papers.data import adult

Published = Callable[[str], Dataset]
PARQUET = files.find("adult", ["adult.parquet"])
COLUMNS = [*adult.SCHEMA.names[:2], "fnlwgt", *adult.SCHEMA.names[2:], "income"]
PEOPLE = [
    [39, "State-gov", 77516, "Bachelors", 13, "Never-married", "Adm-clerical", "Not-in-family"],
    [50, None, 83311, "HS-grad", 9, "Widowed", None, "Unmarried"],
]
PEOPLE[0] += ["White", "Male", 2174, 0, 40, "United-States", "<=50K"]
PEOPLE[1] += ["Black", "Female", 0, 4356, 13, None, ">50K"]


def as_text(people: list[list[Any]], end: str = "") -> bytes:
    lines = [", ".join("?" if v is None else str(v) for v in person) for person in people]
    return "".join(f"{line}{end}\n" for line in lines).encode() + b"\n"


def as_table(people: list[list[Any]]) -> Any:
    return pa.table(dict(zip(COLUMNS, map(list, zip(*people, strict=True)), strict=True)))


def test_both_forms_of_uci_are_read() -> None:
    train = adult.parse(as_text(PEOPLE))
    test = adult.parse(b"|1x3 Cross validator\n" + as_text(PEOPLE, "."))
    assert train.to_pylist() == test.to_pylist() == as_table(PEOPLE).to_pylist()


def test_gaps_are_marked_and_weights_left_out() -> None:
    found = adult.from_table(adult.parse(as_text(PEOPLE)), {}, "here")
    assert found.labels.tolist() == [0, 1]
    assert "fnlwgt" not in found.rows.column_names
    codes = found.schema.rows(found.rows).codes
    names = [column.name for column in adult.SCHEMA.categorical]
    assert {names[index] for index in np.flatnonzero(codes[1] < 0)} == {
        "workclass",
        "occupation",
        "native_country",
    }
    assert (codes[0] >= 0).all()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("age", 16, "'age'"),
        ("sex", "secret", "'sex'"),
        ("education", None, "'education'"),
        ("income", "secret", "every label must be one of <=50K, >50K"),
        ("hours_per_week", None, "'hours_per_week'"),
    ],
)
def test_what_the_census_does_not_have_is_refused(column: str, value: object, said: str) -> None:
    people = [list(PEOPLE[0]), list(PEOPLE[1])]
    people[1][COLUMNS.index(column)] = value
    with pytest.raises(errors.InvalidData, match=said) as caught:
        adult.from_table(as_table(people), {}, "here")
    assert "secret" not in str(caught.value)


def test_a_file_of_another_kind_is_one_line(bare: Path) -> None:
    path = bare / "adult" / "adult.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"age": [30]}), path)
    with pytest.raises(errors.InvalidData, match=r"adult\.parquet: it must have a column 'workc"):
        datasets.load("adult")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(errors.InvalidData, match="must be a readable Parquet file"):
        datasets.load("adult")
    path.unlink()
    with pytest.raises(datasets.MissingFile, match=r"adult\.data must be in .* https://archive\."):
        datasets.load("adult", fetch=False)


def test_published_people(published: Published) -> None:
    data = published("adult")
    assert data.rows.shape == (48_842, 13)
    assert data.labels.sum() == 11_687
    split = data.collection(0)
    assert [len(part) for part in vars(split).values()] == [24_000, 12_000, 1_200, 11_642]
    for name in data.joins():
        ours, theirs = data.join(name)
        names = [*ours.rows.column_names, *theirs.rows.column_names]
        assert sorted(names) == sorted(data.schema.names)
        assert len(theirs.schema.rows(theirs.rows)) == 48_842
    with pytest.raises(errors.InvalidParameter, match="classes must be at least 3"):
        data.novel(0)


def test_both_readers_give_the_same_published_people(bare: Path) -> None:
    if PARQUET is None:
        pytest.skip("adult: adult.parquet is not here to compare with.")
    table = pq.read_table(PARQUET)
    data = adult.from_table(table, {}, "here")
    people = table.select(COLUMNS).to_pydict()
    rows = [list(person) for person in zip(*people.values(), strict=True)]
    train = table["split"].to_pylist().index("test")
    contents = {
        "adult.data": as_text(rows[:train]),
        "adult.test": b"|1x3 Cross validator\n" + as_text(rows[train:], "."),
    }
    (bare / "adult").mkdir(parents=True)
    for file in adult.FILES:
        content = contents[file.name]
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
        (bare / "adult" / file.name).write_bytes(content)
    again = datasets.load("adult")
    assert again.sha256 == {file.name: file.sha256 for file in adult.FILES}
    assert again.rows.equals(data.rows)
    assert np.array_equal(again.labels, data.labels)
