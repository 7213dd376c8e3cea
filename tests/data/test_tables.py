"""Files of rows: what is read, what is refused, and samples that favour nobody."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from tacit.data import tables
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.privacy.errors import InvalidData, InvalidParameter

FALSE_ALARM = 1e-6
SCHEMA = TableSchema((Continuous("x", 0, 10), Categorical("job", ("1", "2", "x"))))
SECRET = "Zaphod7531"


def text(rows=5, delimiter=","):
    lines = [("x", "job")] + [(f"{i % 7}.5", "12x"[i % 3]) for i in range(rows)]
    return "".join(delimiter.join(line) + "\n" for line in lines)


def written(folder, name, rows=5):
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text(rows).encode()))
    elif name.lower().endswith(("csv", "tsv")):
        path.write_text(text(rows, "\t" if name.lower().endswith("tsv") else ","))
    else:
        x, job = [i % 7 + 0.5 for i in range(rows)], ["12x"[i % 3] for i in range(rows)]
        columns = {"x": pa.array(x, pa.float64()), "job": pa.array(job, pa.string())}
        pq.write_table(pa.table(columns), path)
    return path


def whole(path, *arguments, **options):
    return pa.Table.from_batches(list(tables.batches(path, *arguments, **options)))


def refused(path, *arguments, **options) -> str:
    with pytest.raises((InvalidData, InvalidParameter)) as error:
        whole(path, *arguments, **options)
    message = str(error.value)
    assert "\n" not in message
    assert path.name in message
    assert SECRET not in message
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return message


# --- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.tsv", "a.csv.gz", "a.parquet", "a.pq"])
@pytest.mark.parametrize("rows", [1, 5, 2000])
def test_every_kind_of_file_is_read(tmp_path, name, rows):
    table = whole(written(tmp_path, name, rows), SCHEMA)
    assert table.column_names == ["x", "job"]
    assert table["x"].to_pylist() == [i % 7 + 0.5 for i in range(rows)]
    assert table["job"].to_pylist() == ["12x"[i % 3] for i in range(rows)]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_batches_are_small_and_none_is_empty(tmp_path, name):
    path = written(tmp_path, name, 1000)
    sizes = [batch.num_rows for batch in tables.batches(path, SCHEMA, 300)]
    assert sum(sizes) == 1000
    assert min(sizes) > 0
    assert max(sizes) <= 300


def test_a_file_is_not_read_ahead(tmp_path):
    """The first batch is there before the last line is looked at: text there comes out later."""
    path = tmp_path / "a.csv"
    path.write_text(text(1_000_000) + f"{SECRET},x\n")
    stream = tables.batches(path)
    assert next(stream).num_rows > 0
    with pytest.raises(InvalidData, match="text in columns of numbers"):
        list(stream)


def test_types_come_from_the_schema_and_not_from_the_first_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,job\n1,1\n2,2\n")
    given = whole(path, SCHEMA)
    assert given.schema.field("x").type == pa.float64()
    assert given.schema.field("job").type == pa.string()
    pixels = ArraySchema(2, 0, 16, columns=("x", "job"))
    assert whole(path, pixels).schema.types == [pa.float64(), pa.float64()]


def test_a_column_can_be_read_as_words(tmp_path):
    """Labels 01 and true are not 1 and True."""
    path = tmp_path / "a.csv"
    path.write_text("x,l,m\n1,01,true\n2,02,false\n")
    assert whole(path, words="l")["l"].to_pylist() == ["01", "02"]
    assert whole(path, words="m")["m"].to_pylist() == ["true", "false"]


def test_gaps_are_gaps(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,job\n,1\n2,\n")
    table = whole(path, SCHEMA)
    assert table["x"].to_pylist() == [None, 2.0]
    assert table["job"].to_pylist() == ["1", None]


def test_whole_numbers_first_and_fractions_later(tmp_path):
    """Without a schema, the first megabyte does not decide that a column is of whole numbers."""
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "1,2\n" * 300_000 + "0.5,3\n")
    table, total = tables.sample(path, 10, 0)
    assert total == 300_001
    assert table.num_rows == 10


# --- what is refused -----------------------------------------------------------------------------


def test_a_missing_file_is_refused(tmp_path):
    assert "existing file" in refused(tmp_path / "nowhere.csv")
    assert "existing file" in refused(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.csv.zip", "a", "csv", "a.pkl"])
def test_another_kind_of_file_is_refused(tmp_path, name):
    (tmp_path / name).write_text(text())
    assert ".parquet" in refused(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet"])
@pytest.mark.parametrize("given", [None, SCHEMA])
def test_an_empty_file_is_refused(tmp_path, name, given):
    (tmp_path / name).write_bytes(b"")
    refused(tmp_path / name, given)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet"])
@pytest.mark.parametrize("given", [None, SCHEMA])
def test_a_header_alone_is_refused(tmp_path, name, given):
    assert "at least one row" in refused(written(tmp_path, name, 0), given)


@pytest.mark.quick(3)
@pytest.mark.parametrize("line", [f"{SECRET},x", "1e999,x", "--1,x", "1_0,x", "inf,x"])
@pytest.mark.parametrize("rows", [1, 8192, 1_000_000])
def test_text_among_numbers_is_missing_wherever_it_is(tmp_path, line, rows):
    """The schema says what becomes of a missing value; without one the file is refused."""
    path = tmp_path / "a.csv"
    path.write_text(text(rows) + line + "\n")
    if rows == 1_000_000:
        assert "text in columns of numbers" in refused(path)
        return
    table = whole(path, SCHEMA)
    assert table["x"].to_pylist()[-1] is None
    assert table["x"].null_count == 1
    with pytest.raises(InvalidData, match="column 'x' must be without missing values"):
        SCHEMA.rows(table)


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "line", [f"1,x,{SECRET}", SECRET, f"{SECRET},1,2,3", '1,"x', '"1"5,x', "1,\0x"]
)
@pytest.mark.parametrize("rows", [1, 300_000])
def test_lines_of_another_length_are_missing(tmp_path, line, rows):
    path = tmp_path / "a.csv"
    path.write_text(text(rows) + line + "\n1,x\n")
    assert "another number of fields" in refused(path)
    table = whole(path, SCHEMA)
    assert table.slice(rows).to_pylist() == [{"x": None, "job": None}, {"x": 1.0, "job": "x"}]


def test_bytes_that_are_no_text_are_missing(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(text().encode() + b"1,\xff\xfe" + SECRET.encode() + b"\n")
    assert whole(path, SCHEMA).slice(5).to_pylist() == [{"x": None, "job": None}]
    refused(path)


def test_no_record_decides_what_another_becomes(tmp_path):
    """With a schema that takes everything, no line raises, and every other is read as before."""
    lenient = TableSchema(
        (Continuous("x", 0, 10, "indicate", "clip"), Categorical("job", ("1", "x"), "other"))
    )
    lines = [f"{i % 7}.5,{'12x'[i % 3]}" for i in range(300)]
    path = tmp_path / "a.csv"

    def rows(body):
        path.write_text("\n".join(["x,job", *body]) + "\n", newline="")
        read = lenient.rows(whole(path, lenient))
        return read.numbers.tobytes(), read.codes.tobytes()

    numbers, codes = rows(lines)
    for line in ('"1,x', "1,x\ry", "inf,1", "1e999,\0", "2020-01-01,true", ",", "NA,1,", '1,""x'):
        for place in (0, 100, 300):
            more = rows([*lines[:place], line, *lines[place:]])
            assert more[0][: 4 * place] + more[0][4 * place + 4 :] == numbers
            assert more[1][: 8 * place] + more[1][8 * place + 8 :] == codes


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c[: len(c) // 2],
        lambda c: c[:-5],
        lambda c: b"hello" * 20,
        lambda c: c[: len(c) // 3] + bytes(20) + c[len(c) // 3 + 20 :],
        lambda c: c[:-60] + bytes(30) + c[-30:],
    ],
)
def test_damaged_files_are_refused(tmp_path, name, damage):
    path = written(tmp_path, name, 400)
    path.write_bytes(damage(path.read_bytes()))
    refused(path, SCHEMA)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_doubled_names_are_refused(tmp_path, name):
    path = tmp_path / name
    if name.endswith("csv"):
        path.write_text("x,x,l\n1,2,3\n")
    else:
        pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), path)
    assert "distinct names" in refused(path)


# --- labels --------------------------------------------------------------------------------------


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def test_a_label_is_split_off():
    rows, labels = tables.split_label(batch(x=[1, 2], l=["a", "b"]), "l", "f.csv")
    assert rows.schema.names == ["x"]
    assert labels.tolist() == ["a", "b"]
    rows, labels = tables.split_label(pa.table({"l": [3, 4], "x": [1, 2]}), "l", "f.csv")
    assert rows.column_names == ["x"]
    assert labels.tolist() == [3, 4]
    rows, labels = tables.split_label(batch(x=[1]), None, "f.csv")
    assert (rows.schema.names, labels) == (["x"], None)


def test_a_label_with_gaps_is_refused_unless_it_is_left_out():
    gaps = batch(x=[1, 2], l=["a", None])
    with pytest.raises(InvalidData, match=r"f\.csv: column 'l' must be without missing values"):
        tables.split_label(gaps, "l", "f.csv")
    assert tables.without_label(gaps, "l", "f.csv").schema.names == ["x"]
    assert tables.without_label(gaps, None, "f.csv") is gaps


def test_one_row_changes_neither_types_nor_other_rows(tmp_path):
    given = TableSchema((Continuous("x", 0, 9), Categorical("l", ("1", "2"))))
    lines = ["id,l,note,x", *(f"{i},{1 + i % 2},ok,{i}" for i in range(8))]

    def table(changed=None):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([*lines[:4], changed or lines[4], *lines[5:]]) + "\n")
        return tables.read(path, given)

    plain = table()
    assert plain.schema == pa.schema([("x", pa.float64()), ("l", pa.string())])
    for line in ('3,2,"open,3', "3,two,ok,three", "3,2,a,b,c", "3,NA,ok,NA", '3,2,"a ""b""",3'):
        found = table(line)
        assert found.schema == plain.schema
        assert found.take([0, 1, 2, 4, 5, 6, 7]) == plain.take([0, 1, 2, 4, 5, 6, 7])
    assert table("3,NA,ok,NA").slice(3, 1).to_pylist() == [{"x": None, "l": None}]
    with pytest.raises(InvalidParameter, match="must be present"):
        tables.read(tmp_path / "rows.csv", TableSchema((Continuous("y", 0, 1),)))


def test_names_of_columns_are_read_without_a_row(tmp_path):
    """Whatever stands in the rows: a quote that never ends, another number of fields."""
    text, packed = tmp_path / "t.csv", tmp_path / "t.parquet"
    text.write_bytes(b'a,"b c"\n"open,1\n2,3,4\n\xff\0\n')
    pq.write_table(pa.table({"a": [1], "b c": ["x"]}), packed)
    assert tables.names(text) == tables.names(packed) == ["a", "b c"]
    (tmp_path / "n.csv.gz").write_bytes(b"no gzip")
    (tmp_path / "n.parquet").write_bytes(b"no parquet")
    for name in ("n.csv.gz", "n.parquet"):
        with pytest.raises(InvalidData, match=name):
            tables.names(tmp_path / name)


def test_a_label_that_is_not_there_is_refused_without_naming_what_is():
    """Without a header, the names are somebody's values."""
    with pytest.raises(InvalidParameter, match=r"label must be a column of f\.csv") as error:
        tables.split_label(pa.table({SECRET: [1]}), "l", "f.csv")
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        (["3", "0"], (0, 3), [3, 0]),
        ([3.0, 0.0], (0, 3), [3, 0]),
        ([3, 0], (0, 3), [3, 0]),
        ([1, 0], ("0", "1"), ["1", "0"]),
        (["no", "yes"], ("yes", "no"), ["no", "yes"]),
    ],
)
def test_labels_take_the_type_of_the_classes(values, classes, expected):
    found = tables.as_classes(np.array(values, dtype=object), classes, "column 'l'")
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "value", [SECRET, 3.5, "3.5", float("nan"), float("inf"), None, "", "1e99"]
)
def test_labels_that_are_no_whole_numbers_are_refused(value):
    values = np.array([0, value], dtype=object)
    with pytest.raises(InvalidData, match="column 'l': labels must be whole numbers") as error:
        tables.as_classes(values, (0, 3), "column 'l'")
    assert SECRET not in str(error.value)
    assert "3.5" not in str(error.value)


# --- samples -------------------------------------------------------------------------------------


def numbered(folder, rows, group=400):
    path = folder / "n.parquet"
    pq.write_table(pa.table({"i": np.arange(rows)}), path, row_group_size=group)
    return path


@pytest.mark.parametrize("most", [1, 17, 999, 1000, 5000])
def test_a_sample_has_the_size_asked_for(tmp_path, most):
    table, total = tables.sample(numbered(tmp_path, 1000), most, 3)
    found = table["i"].to_pylist()
    assert total == 1000
    assert len(found) == min(most, 1000)
    assert found == sorted(set(found))


def test_a_sample_follows_its_seed(tmp_path):
    path = numbered(tmp_path, 1000)
    first = tables.sample(path, 50, 1)[0]
    assert first.equals(tables.sample(path, 50, 1)[0])
    assert not first.equals(tables.sample(path, 50, 2)[0])


def test_every_row_is_as_likely_as_any_other(tmp_path, monkeypatch):
    """How often rows come, early, late, at the edges of batches: χ², false alarms once in 10⁶.

    Small batches and a small sample: what was kept is thinned out many times on the way.
    """
    path = numbered(tmp_path, 120)
    read = tables.batches
    monkeypatch.setattr(tables, "batches", lambda path, given: read(path, given, 7))
    draws, most = 500, 10
    seen = np.zeros(120)
    for seed in range(draws):
        seen[tables.sample(path, most, seed)[0]["i"].to_numpy()] += 1
    expected = draws * most / 120
    # Without replacement: counts vary by 1 − most/rows less than χ² takes for granted.
    statistic = ((seen - expected) ** 2 / expected).sum() / (1 - most / 120)
    assert stats.chi2.sf(statistic, 119) > FALSE_ALARM
    assert stats.chi2.cdf(statistic, 119) > FALSE_ALARM
    # A sample of the first rows with a hint of the others would be seen.
    biased = seen + np.where(np.arange(120) < 60, 8, -8)
    assert stats.chi2.sf(((biased - expected) ** 2 / expected).sum(), 119) < FALSE_ALARM


@pytest.mark.parametrize("most", [0, -5, 2.5])
def test_a_sample_of_no_rows_is_refused(tmp_path, most):
    with pytest.raises(InvalidParameter, match="rows must be an integer from 1"):
        tables.sample(numbered(tmp_path, 10), most, 0)


# --- counts --------------------------------------------------------------------------------------


def test_rows_are_counted_where_the_file_says_so(tmp_path):
    assert tables.count(numbered(tmp_path, 77)) == 77
    assert tables.count(written(tmp_path, "a.csv")) is None
    assert tables.count(tmp_path / "nowhere.parquet") is None
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    assert tables.count(tmp_path / "bad.parquet") is None
