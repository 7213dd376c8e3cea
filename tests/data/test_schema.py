"""What a row may be: every raw form reads alike, and what is refused is named but not shown."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tacit.data.columns import IgnoredColumnsWarning
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema, from_plain
from tacit.data.schema_inference import infer
from tacit.privacy.errors import InvalidData, InvalidParameter

PEOPLE = TableSchema(
    (
        Continuous("age", 0, 120),
        Continuous("income", -1000, 1000, missing="indicate", outside="clip"),
        Categorical("job", ("baker", "smith")),
        Categorical("zone", ("1", "2", "3"), unseen="other"),
    )
)


def people(**changes):
    columns = {
        "age": [30, 60, 120],
        "income": [0.0, np.nan, 5000.0],
        "job": ["smith", "baker", "smith"],
        "zone": [1, 9, 3],
    }
    return {name: np.asarray(value) for name, value in (columns | changes).items()}


# --- arrays ----------------------------------------------------------------------------------


def test_arrays_are_scaled_by_public_bounds():
    schema = ArraySchema(width=4, lower=-10, upper=30, image=(2, 2))
    raw = np.array([[-10, 30, 10, 0], [-10, -10, 20, 5]])
    rows = schema.rows(raw)
    assert rows.numbers.dtype == np.float32
    assert rows.numbers.tolist() == [[0, 1, 0.5, 0.25], [0, 0, 0.75, 0.375]]
    assert rows.codes.shape == (2, 0)
    assert np.array_equal(schema.rows(raw.reshape(2, 2, 2)).numbers, rows.numbers)
    assert len(rows) == 2
    assert len(rows[1:]) == 1
    assert np.array_equal(rows[np.array([1, 0])].numbers, rows.numbers[::-1])


def test_the_same_value_is_the_same_number_whatever_type_it_came_as():
    schema = ArraySchema(width=256, lower=0, upper=255)
    levels = np.arange(256).reshape(1, -1)
    expected = schema.rows(levels.astype(np.float64)).numbers
    for dtype in (np.uint8, np.int16, np.int64, np.float32):
        assert np.array_equal(schema.rows(levels.astype(dtype)).numbers, expected)


def test_rows_across_blocks_are_the_same_as_alone():
    raw = np.random.default_rng(0).random((300, 784))
    schema = ArraySchema(width=784, lower=0, upper=1)
    assert np.array_equal(schema.rows(raw).numbers, raw.astype(np.float32))


@pytest.mark.parametrize(
    ("value", "said"),
    [(np.nan, "column 17 must be finite"), (np.inf, "finite"), (256.5, r"within \[0, 255\]")],
)
def test_a_bad_number_names_its_column_and_not_itself(value, said):
    raw = np.full((400, 784), 7.0)
    raw[399, 17] = value
    with pytest.raises(InvalidData, match=said) as caught:
        ArraySchema(width=784, lower=0, upper=255).rows(raw, "release")
    assert str(caught.value).startswith("release: column 17 ")
    assert "256.5" not in str(caught.value)


def test_clipping_is_only_where_declared():
    raw = np.array([[-5.0, 300.0]])
    clipped = ArraySchema(width=2, lower=0, upper=255, outside="clip").rows(raw)
    assert clipped.numbers.tolist() == [[0, 1]]
    with pytest.raises(InvalidData, match="column 0"):
        ArraySchema(width=2, lower=0, upper=255).rows(raw)
    endless = np.array([[-np.inf, np.inf]])
    clips = ArraySchema(width=2, lower=0, upper=255, outside="clip")
    assert clips.rows(endless).numbers.tolist() == [[0, 1]]
    with pytest.raises(InvalidData, match="finite, without NaN"):
        clips.rows(np.array([[0, np.nan]]))


@pytest.mark.parametrize(
    "raw",
    [
        np.zeros((3, 5)),
        np.zeros((3, 4, 1)),
        np.zeros(4),
        np.zeros((0, 4)),
        np.array([["a"] * 4]),
        np.zeros((1, 4), bool),
        np.zeros((1, 4), complex),
        [[1, 2], [3]],
        {"a": [1], "b": [2], "c": [3], "d": [4]},
    ],
)
def test_arrays_of_another_shape_or_type_are_refused(raw):
    with pytest.raises(InvalidData):
        ArraySchema(width=4, lower=0, upper=255, image=(2, 2)).rows(raw)


def test_an_array_schema_may_name_its_columns():
    frame = pd.DataFrame({"p0": [0, 255], "p1": [51, 0]})
    schema = infer(frame, image=(1, 2))
    assert schema == ArraySchema(2, 0, 255, (1, 2), "clip", ("p0", "p1"))
    assert schema.rows(frame).numbers.tolist() == [[0, np.float32(0.2)], [1, 0]]
    assert np.array_equal(schema.rows(frame).numbers, schema.rows(frame.to_numpy()).numbers)
    swapped = frame[["p1", "p0"]].assign(p2="x")
    with pytest.warns(IgnoredColumnsWarning, match="are ignored: p2"):
        assert np.array_equal(schema.rows(swapped).numbers, schema.rows(frame).numbers)
    with pytest.raises(InvalidData, match="column 'p0' must be present"):
        schema.rows(frame[["p1"]])
    with pytest.raises(InvalidData, match="column 'p1' must be finite"):
        schema.rows(frame.assign(p1=np.nan))
    with pytest.raises(InvalidData, match="column 'p1' must have one value per row"):
        schema.rows({"p0": [1, 2], "p1": [1]})


def test_bounds_hold_in_the_precision_of_the_data():
    """0.1 in float32 is more than 0.1, and still within it; one step further is not."""
    for dtype in (np.float16, np.float32, np.float64):
        edge = np.array([[0.1]], dtype)
        beyond = np.nextafter(edge, dtype(1))
        array, table = ArraySchema(1, 0, 0.1), TableSchema((Continuous("x", 0, 0.1),))
        assert array.rows(edge).numbers.tolist() == [[1]] or dtype is np.float16
        assert table.rows({"x": edge[0]}).numbers[0, 0] <= 1
        with pytest.raises(InvalidData, match="column 0 must be within"):
            array.rows(beyond)
        with pytest.raises(InvalidData, match="column 'x' must be within"):
            table.rows({"x": beyond[0]})
        assert ArraySchema(1, -1e300, 1e300).rows(edge).numbers.tolist() == [[0.5]]


# --- tables ----------------------------------------------------------------------------------


def test_every_form_of_a_table_reads_alike():
    expected = PEOPLE.rows(people())
    assert expected.numbers[:, 0].tolist() == [0.25, 0.5, 1]
    assert np.array_equal(expected.numbers[:, 1], np.float32([0.5, np.nan, 1]), equal_nan=True)
    assert expected.codes.tolist() == [[1, 0], [0, -1], [1, 2]]
    frame = pd.DataFrame(people())
    typed = frame.astype({"income": "Float64", "job": "category", "zone": "Int64"})
    arrow = pa.Table.from_pandas(frame)
    for raw in (frame, typed, arrow, pa.Table.from_pandas(typed), arrow.to_batches()[0]):
        rows = PEOPLE.rows(raw)
        assert np.array_equal(rows.numbers, expected.numbers, equal_nan=True)
        assert np.array_equal(rows.codes, expected.codes)


def test_missing_is_missing_in_every_library():
    """Chunked Arrow dictionaries turn nulls into their last category when read as arrays."""
    schema = TableSchema((Categorical("job", ("a", "b"), unseen="other"),))
    frame = pd.DataFrame({"job": pd.Categorical(["a", "b", None])})
    forms = [frame, pa.Table.from_pandas(frame), pa.Table.from_pandas(frame).to_batches()[0]]
    forms += [pd.DataFrame({"job": pd.array(["a", "b", pd.NA], dtype="string")})]
    forms += [{"job": np.array(["a", "b", value], object)} for value in (None, np.nan, "zzz")]
    for raw in forms:
        assert schema.rows(raw).codes.ravel().tolist() == [0, 1, -1]
    numbers = TableSchema((Continuous("x", 0, 4, missing="indicate"),))
    for gap in (None, np.nan, pd.NA):
        read = numbers.rows({"x": np.array([1, gap, 3.0], object)}).numbers.ravel()
        assert np.array_equal(read, np.float32([0.25, np.nan, 0.75]), equal_nan=True)


def test_integers_with_gaps_arrive_as_floats():
    schema = TableSchema((Categorical("zone", ("1", "2"), unseen="other"),))
    assert schema.rows({"zone": np.array([2.0, np.nan, 1.0])}).codes.ravel().tolist() == [1, -1, 0]
    for bad in ([1.5, 1.0], [np.inf, 1.0]):
        with pytest.raises(InvalidData, match="'zone' must be text, integers"):
            schema.rows({"zone": np.array(bad)})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"age": [30, 60, 121]}, r"column 'age' must be within \[0, 120\]"),
        ({"age": [30, np.nan, 1]}, "column 'age' must be without missing values"),
        ({"age": ["30", "60", "12"]}, "column 'age' must be numbers"),
        ({"age": [True, False, True]}, "column 'age' must be numbers"),
        ({"age": np.array(["2020-01-01"] * 3, "datetime64[D]")}, "column 'age' must be numbers"),
        ({"age": [0, np.inf, 1]}, "column 'age' must be finite"),
        ({"job": ["smith", "thief", "baker"]}, "column 'job' must be one of its 2 declared"),
        ({"job": np.array(["smith", None, "baker"], object)}, "column 'job'"),
        ({"job": [0.5, 1, 2]}, "column 'job' must be text"),
        ({"zone": [b"1", b"2", b"3"]}, "column 'zone' must be text"),
        ({"zone": [1, 2]}, "column 'zone' must have one value per row"),
        ({"zone": [[1], [2], [3]]}, "column 'zone' must have one value per row"),
    ],
)
def test_a_bad_column_is_named_and_its_values_are_not_shown(changes, said):
    with pytest.raises(InvalidData, match=said) as caught:
        PEOPLE.rows(people(**changes), "release")
    assert str(caught.value).startswith("release: ")
    assert "thief" not in str(caught.value)
    assert "121" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::tacit.data.columns.IgnoredColumnsWarning")
def test_columns_are_chosen_by_name():
    frame = pd.DataFrame(people())
    expected = PEOPLE.rows(frame)
    for table in (
        frame[["income", "age", "job", "zone"]],
        frame.assign(name=["Ann", "Bo", "Cy"]),
        pa.table(frame).append_column("notes", [[["x"], None, ["y", "z"]]]),
    ):
        found = PEOPLE.rows(table)
        assert np.array_equal(found.numbers, expected.numbers, equal_nan=True)
        assert np.array_equal(found.codes, expected.codes)
    with pytest.raises(InvalidData, match=r"column 'zone' must be present\. The columns are: age"):
        PEOPLE.rows(frame[["age", "income", "job"]])
    twice = pd.concat([frame, frame[["age"]]], axis=1)
    with pytest.raises(InvalidData, match="column 'age' must occur only once"):
        PEOPLE.rows(twice)
    # A file without a header has a person's values for names.
    with pytest.raises(InvalidData) as caught:
        PEOPLE.rows(frame.rename(columns={"age": "secret"}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("raw", [np.zeros((2, 4)), {}, pd.DataFrame(people()).iloc[:0]])
def test_what_is_no_table_or_has_no_rows_is_refused(raw):
    with pytest.raises(InvalidData):
        PEOPLE.rows(raw)


# --- storing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        PEOPLE,
        ArraySchema(width=784, lower=0, upper=255, image=(28, 28)),
        ArraySchema(width=2, lower=0.1, upper=0.3, outside="clip", columns=("a", "b")),
    ],
)
def test_schemas_survive_json(schema):
    stored = json.loads(json.dumps(schema.to_plain()))
    assert from_plain(stored) == schema
    assert hash(from_plain(stored)) == hash(schema)
    for key in {"kind", "width", "lower", "upper", "columns"} & set(stored):
        if (stored["kind"], key) != ("array", "columns"):  # which has a default
            with pytest.raises(InvalidParameter):
                from_plain({name: value for name, value in stored.items() if name != key})
    with pytest.raises(InvalidParameter):
        from_plain(stored | {"surplus": 1})


@pytest.mark.parametrize("data", [None, [], {}, {"kind": "array"}, {"kind": "table"},
                                  {"kind": "table", "columns": [{"kind": "odd"}]}])  # fmt: skip
def test_other_documents_are_refused(data):
    with pytest.raises(InvalidParameter):
        from_plain(data)


@pytest.mark.parametrize(
    "build",
    [
        lambda: ArraySchema(width=0, lower=0, upper=1),
        lambda: ArraySchema(width=4, lower=1, upper=1),
        lambda: ArraySchema(width=4, lower=0, upper=np.nan),
        lambda: ArraySchema(width=4, lower=0, upper=np.inf),
        lambda: ArraySchema(width=4, lower=0, upper=1, image=(2, 3)),
        lambda: ArraySchema(width=4, lower=0, upper=1, image=4),
        lambda: ArraySchema(width=4, lower=0, upper=1, outside="wrap"),
        lambda: ArraySchema(width=2, lower=0, upper=1, columns=("a", "a")),
        lambda: Continuous("x", 1, 0),
        lambda: Continuous("x", 0, 1, missing="drop"),
        lambda: Categorical("x", ()),
        lambda: Categorical("x", ("a", "a")),
        lambda: Categorical("x", ("a",), unseen="drop"),
        lambda: TableSchema(()),
        lambda: TableSchema((Continuous("x", 0, 1), Continuous("x", 0, 1))),
    ],
)
def test_schemas_that_mean_nothing_are_refused(build):
    with pytest.raises(InvalidParameter):
        build()


def test_what_has_a_default_may_be_left_out():
    plain = {
        "kind": "table",
        "columns": [
            {"kind": "continuous", "name": "age", "lower": 0, "upper": 100},
            {"kind": "categorical", "name": "town", "categories": ["n", "s"]},
        ],
    }
    assert from_plain(plain) == TableSchema(
        (Continuous("age", 0, 100), Categorical("town", ("n", "s")))
    )
    plain["columns"][0].pop("upper")
    with pytest.raises(InvalidParameter, match=r"fields must be .*'upper'"):
        from_plain(plain)


# --- what people send that no in-house row had ---------------------------------------------------


def test_ignored_columns_are_named_and_counted_but_no_value_is_shown():
    given = {"x": [1.0, 2.0], **{f"other{i}": ["secret", "secret"] for i in range(7)}}
    with pytest.warns(IgnoredColumnsWarning) as caught:
        infer({"x": [1.0, 2.0]}).rows(given, "release")
    (one,) = caught
    wanted = "other0, other1, other2, other3, other4 and 2 more."
    assert str(one.message) == f"release: columns that are not in the schema are ignored: {wanted}"


def test_a_file_without_a_header_shows_no_value():
    with pytest.raises(InvalidData) as caught:
        infer({"x": [1.0], "y": [2.0]}).rows({"7531": [1.0], "y": [2.0]})
    assert "7531" not in str(caught.value)
