"""Sources: every kind gives the same integers, whatever rows hold, and nothing else is reached."""

from __future__ import annotations

from datetime import date

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.central.queries import duckdb_engine
from tacit.central.queries.curator import Curator
from tacit.central.queries.model import Compare, Count, Histogram, Mean, Not, Several, Sum, Variance
from tacit.privacy import errors

from .conftest import BOUNDS, KEYS, exact, questions

ASKED = [*questions(), *questions(("sex",)), Count(where=Compare("n", ">", 5.5), by="sex")]


def integers(source, **options):
    options = {"bounds": BOUNDS, "keys": KEYS, "threads": 1} | options
    with Curator(source, 1.0, **options) as curator:
        return [exact(curator, query, epsilon=1.0) for query in ASKED]


@pytest.mark.heavy
def test_all_sources_agree(people, tmp_path):
    expected = integers(people)
    path = tmp_path / "people.parquet"
    pq.write_table(people, path)
    assert integers(path) == expected
    assert integers(str(path)) == expected
    frame = pd.DataFrame({name: people[name].to_pandas() for name in people.column_names})
    assert integers(frame.astype({"n": "int32"})) == expected
    assert integers(pl.from_arrow(people)) == expected
    assert integers(pl.from_arrow(people).lazy().collect()) == expected
    with duckdb.connect() as connection:
        connection.register("frame", people)
        connection.execute("CREATE SCHEMA s")
        connection.execute("CREATE TABLE s.people AS SELECT * FROM frame")
        assert integers(connection, table="s.people") == expected
        assert not connection.execute("SELECT * FROM duckdb_tables() WHERE temporary").fetchall()


def test_several_files_are_one_table(people, tmp_path):
    pq.write_table(people.slice(0, 100), tmp_path / "a.parquet")
    pq.write_table(people.slice(100), tmp_path / "b.parquet")
    assert integers(f"{tmp_path}/*.parquet") == integers(people)


def test_a_csv_file_holds_text_that_is_read_as_asked(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(
        'sex,x,note\nF,1.5,"a, b"\nM,nan,\nM,inf,x\nF,many,y\nF,,z\nX,2,w\nM,-1e400,u\nshort\n'
    )
    with Curator(path, 600.0, bounds={"x": (0, 10)}, keys={"sex": ["F", "M"]}, threads=1) as made:
        groups = made.count("x", by="sex", epsilon=50).groups
        values = {key: one.value for key, one in groups.items()}
        # A number beyond doubles may read as infinite or as nothing; the rest is plain.
        assert values["F"] == 1
        assert values["M"] in (1, 2)
        assert made.count(where=Compare("x", ">", 1.75), epsilon=50).value >= 2
        assert made.count(where=Compare("note", "=", "a, b"), epsilon=50).value == 1
        assert made.sum("x", where=Compare("sex", "=", "F"), epsilon=300).value == pytest.approx(
            1.5, abs=0.5
        )


TYPES = [
    (pa.int8(), [1, -128, 127, None]),
    (pa.uint8(), [1, 0, 255, None]),
    (pa.int16(), [1, -(2**15), 2**15 - 1, None]),
    (pa.uint32(), [1, 0, 2**32 - 1, None]),
    (pa.int64(), [1, -(2**63), 2**63 - 1, None]),
    (pa.uint64(), [1, 0, 2**64 - 1, None]),
    (pa.float32(), [1.0, float("-inf"), float("inf"), float("nan")]),
    (pa.float64(), [1.0, -1.7e308, 1.7e308, float("nan")]),
    (pa.decimal128(38, 10), [1, -(10**27), 10**27, None]),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda one: str(one)[:20])
@pytest.mark.parametrize("bounds", [(0, 10), (0.5, 10.25), (-(10**6), 10**6)])
def test_every_type_of_number_at_its_ends(kind, values, bounds):
    """No overflow, no failing cast: whatever a row holds, a question is answered."""
    table = pa.table({"v": pa.array(values, kind), "p": [1, 1, 2, 3]})
    expected = [
        min(max(float(v), bounds[0]), bounds[1]) for v in values if v is not None and v == v
    ]
    for unit in (None, "p"):
        options = {"unit": unit, "max_rows": 9} if unit else {}
        with Curator(table, 700.0, bounds={"v": bounds}, threads=1, **options) as made:
            assert made.count("v", epsilon=100).value == 3
            total = made.sum("v", epsilon=200).value
            assert total == pytest.approx(sum(expected), abs=max(map(abs, bounds)) * 3)
            for query in (Mean("v"), Variance("v"), Histogram("v", (-1.0, 0.0, 2.0, 1e6))):
                made.answer(query, epsilon=10)
            made.median("v", epsilon=10)
            for value in (5, 0.5, -(10**30), 1e300):
                made.count(where=Compare("v", ">=", value), epsilon=1)
                made.count(where=Compare("v", "=", value), epsilon=1)


def test_only_the_given_file_is_reached(people, tmp_path):
    path, other = tmp_path / "people.parquet", tmp_path / "other.parquet"
    pq.write_table(people, path)
    pq.write_table(people, other)
    with Curator(path, 1.0, threads=1) as made:
        run = made._engine._connection.execute
        for statement in (
            f"SELECT * FROM read_parquet('{other}')",
            f"COPY data TO '{tmp_path}/copy.csv'",
            f"ATTACH '{tmp_path}/new.db'",
            "INSTALL httpfs",
            "SET memory_limit = '64GB'",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error):
                run(statement)
        assert run("SELECT current_setting('memory_limit')").fetchone()[0] == "1.8 GiB"


def test_an_engine_that_fails_says_nothing_of_the_rows(people, monkeypatch):
    with Curator(people, 1.0, threads=1) as made:
        sql = "SELECT CAST('secret' AS INTEGER)"
        monkeypatch.setattr(made._engine.compiler.__class__, "sql", lambda self, tree: sql)
        with pytest.raises(errors.TacitError, match="stays charged") as caught:
            made.count(epsilon=0.5)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert made.remaining["epsilon"] == 0.5


def test_nothing_is_left_behind(people, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Curator(people, 10.0, unit="person", threads=1) as made:
        made.count(epsilon=1)
        assert any(tmp_path.iterdir())
    assert not any(tmp_path.iterdir())


def test_packages_that_are_missing_are_named(people, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(errors.TacitError, match=r"tacit\[queries\]"):
        duckdb_engine.package()


def test_strange_names_and_texts():
    name, value = 'a "b"; DROP TABLE data; --', "it's; -- \\ %s $1 :x ?"
    table = pa.table({name: [value, "other"], "GROUP": [1, 2], "k": [1, 1], "n": [5, 6]})
    bounds, keys = {"GROUP": (0, 5), "k": (0, 5)}, {name: [value, "none"], "k": [1]}
    for unit in (None, "n"):
        with Curator(table, 700.0, bounds=bounds, keys=keys, unit=unit, threads=1) as made:
            groups = made.mean("GROUP", by=name, epsilon=300).groups
            assert groups[value].value == pytest.approx(1, abs=0.2)
            assert (
                made.count(where=Compare(name, "=", value), by="k", epsilon=50).groups[1].value == 1
            )
            parts = made.answer(Several((Count(by="k"), Sum("k", by="k"))), epsilon=100).parts
            assert parts[0].groups[1].value == pytest.approx(2, abs=0.3)


NAN = float("nan")


def beside(path, rows):
    """The integers of every comparison and statistic of a column that holds NaN."""
    pq.write_table(pa.table({"x": pa.array(rows, pa.float64())}), path)
    asked = [
        Count(where=where)
        for operator in ("=", "<>", "<", "<=", ">", ">=")
        for value in (0, 1, 1.5, 2, 5)
        for where in (Compare("x", operator, value), Not(Compare("x", operator, value)))
    ]
    asked += [Count("x"), Sum("x"), Mean("x"), Variance("x"), Histogram("x", (0, 1, 9))]
    with Curator(path, 1.0, bounds={"x": (0, 5)}, threads=1) as made:
        assert made.quantile("x", 0.5, epsilon=1.0).value is not None
        return [exact(made, query, epsilon=1.0)[0] for query in asked]


def compare(folder, own):
    values = [1.0, *[NAN] * 50, 2.0]
    before, after = (
        beside(folder / "a.parquet", values),
        beside(folder / "b.parquet", [*values, own]),
    )
    assert before[-5][0] == [2]
    for (first, (bound, _)), (second, _) in zip(before, after, strict=True):
        assert sum(abs(a - b) for a, b in zip(first, second, strict=True)) <= bound


@pytest.mark.quick(1)
@pytest.mark.parametrize("own", [6.0, NAN, None, 0.5, float("inf")])
def test_nan_in_parquet_is_not_counted_by_its_neighbours(own, tmp_path):
    """The statistics of a Parquet file leave NaN out; a NaN must count nowhere all the same.

    DuckDB holds NaN > 5 to be true, but skips a row group whose largest value is below 5. One row
    more, of 6, would then bring all the NaN of its group into the count.
    """
    compare(tmp_path, own)


def test_with_the_statistics_it_would_be(tmp_path, monkeypatch):
    monkeypatch.setattr(duckdb_engine, "_BY_STATISTICS", set())

    def all_of_them():
        for own in (6.0, 0.5):
            compare(tmp_path, own)

    with pytest.raises((AssertionError, errors.TacitError)):
        all_of_them()


def test_a_connection_of_yours_keeps_its_settings(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1.0, NAN, NAN, 2.0]}), path)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE v AS SELECT * FROM '{path}'")
        connection.execute("SET disabled_optimizers = 'top_n'")
        curator = Curator(connection, 600.0, table="v", bounds={"x": (0, 5)})
        assert curator.count("x", epsilon=100).value == 2
        assert curator.count(where=Compare("x", ">", 0), epsilon=100).value == 2
        assert curator.count(where=Not(Compare("x", ">", 5)), epsilon=100).value == 2
        (found,) = connection.execute("SELECT current_setting('disabled_optimizers')").fetchone()
        assert found == "top_n"
        curator.close()
        connection.execute("SELECT 1")


def test_dates_and_times():
    table = pa.table(
        {
            "born": pa.array([0, 1, 2, None], pa.date32()),
            "at": pa.array([0, 10**6, 2 * 10**6, None], pa.timestamp("us")),
        }
    )
    keys = {"born": ["1970-01-02", date(1970, 1, 3).isoformat()]}
    with Curator(table, 600.0, keys=keys, threads=1) as made:
        assert made.count(where=Compare("born", ">=", date(1970, 1, 2)), epsilon=50).value == 2
        assert made.count(where="born < '1970-01-02'", epsilon=50).value == 1
        assert made.count(where="at > '1970-01-01 00:00:00'", epsilon=50).value == 2
        groups = made.count(by="born", epsilon=50).groups
        assert {key: one.value for key, one in groups.items()} == dict.fromkeys(keys["born"], 1)
