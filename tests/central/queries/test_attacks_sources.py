"""What a second hostile reader found in connections, frames and files, kept."""

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.central.queries import duckdb_functions, model
from tacit.central.queries.curator import Curator
from tacit.privacy.errors import InvalidParameter

from .conftest import BOUNDS, KEYS, exact, questions

# A macro or a Python function named like a built-in must not take the clipping away.

REPLACED = {
    "least": "CREATE MACRO least(a, b) AS a",
    "case": "CREATE TEMP MACRO LEAST(a, b) AS a",
    "aggregate": "CREATE MACRO sum(a) AS max(a)",
    "count": "CREATE MACRO count_star() AS 2",
    "operator": 'CREATE MACRO "-"(a, b) AS a',
    "schema": "CREATE SCHEMA s; CREATE MACRO s.least(a, b) AS a; SET search_path = 's,main'",
    "overload": ("least", ["INTEGER", "INTEGER"]),
    "overloaded operator": ("-", ["INTEGER", "BIGINT"]),
}
HIDDEN = (
    "CREATE MACRO lower(a) AS 'x'; CREATE MACRO current_setting(a) AS 'x';"
    "CREATE MACRO duckdb_functions() AS TABLE SELECT 'x' AS function_name;"
    "CREATE MACRO duckdb_settings() AS TABLE SELECT 'x' AS name, 'x' AS value;"
)


def pay():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE pay AS SELECT 50 AS salary, range % 9 AS who FROM range(99)")
    connection.execute("INSERT INTO pay VALUES (2000000000, 9)")
    return connection


def replace(connection, made):
    if isinstance(made, str):
        connection.execute(made)
    else:
        name, types = made
        connection.create_function(name, lambda a, b: a, types, "BIGINT")


@pytest.mark.quick(5)
@pytest.mark.parametrize("made", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("hidden", ["", HIDDEN], ids=["open", "hidden"])
def test_functions_of_somebody_are_refused(made, hidden):
    with pay() as connection:
        connection.execute(hidden) if hidden else None
        replace(connection, made)
        with pytest.raises(InvalidParameter, match="functions must be DuckDB's own"):
            Curator(connection, 1.0, table="pay", bounds={"salary": (0, 100)})


def test_functions_that_come_later_are_refused():
    with pay() as connection:
        curator = Curator(connection, 9.0, table="pay", unit="who", keys={"who": [1, 2]})
        for name, asked in {
            "hash(a, b, c)": model.Count(by=("who",)),
            "list_position(a, b)": model.Count(by=("who",)),
            "count(a)": model.Count("salary"),
        }.items():
            connection.execute(f"CREATE MACRO {name} AS 1")
            with pytest.raises(InvalidParameter, match="functions must be DuckDB's own"):
                exact(curator, asked, epsilon=1.0)
            connection.execute(f"DROP MACRO {name.split('(')[0]}")
            exact(curator, asked, epsilon=1.0)


def test_other_macros_and_schemas_do_no_harm():
    with pay() as connection:
        connection.execute(HIDDEN + "CREATE SCHEMA temp; CREATE MACRO mine(a) AS a")
        options = {"bounds": {"salary": (0, 100)}, "unit": "who", "max_rows": 3}
        with Curator(connection, 699.0, table="pay", **options) as curator:
            assert curator.sum("salary", epsilon=600).value == pytest.approx(
                9 * 3 * 50 + 100, abs=9
            )


@pytest.mark.heavy
def test_every_function_is_looked_up(people):
    """All that is called is a plain function of DuckDB: no macro, whose parts would not be seen."""
    called = set()

    def seen(connection, sql):
        called.update(duckdb_functions.names(sql))

    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        patch.setattr("tacit.central.queries.duckdb_engine.must_be_built_in", seen)
        connection.register("frame", people)
        connection.execute("CREATE TABLE people AS SELECT * FROM frame")
        for unit in ({}, {"unit": "person", "max_rows": 2, "max_groups": 2}):
            options = {"table": "people", "bounds": BOUNDS, "keys": KEYS, **unit}
            with Curator(connection, 699.0, **options) as curator:
                for query in (*questions(), *questions(("sex",)), model.Quantile("x")):
                    curator.answer(query, epsilon=9.0)
        assert called >= {"sum", "count", "count_star", "least", "list_position", "//", "*", "-"}
        found = duckdb_functions.overloads(connection)
        kinds = {overload[2] for name in called for overload in found[name]}
        assert kinds <= {"scalar", "aggregate", "window"}


def test_settings_do_not_change_what_is_asked():
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('a'), ('A')) AS v(x)")
        connection.execute("SET default_collation = 'nocase'")
        with Curator(connection, 99.0, table="t") as curator:
            assert curator.count(where="x = 'a'", epsilon=60).value == 1
        found = "SELECT value FROM duckdb_settings() WHERE name = 'default_collation'"
        assert connection.execute(found).fetchall() == [("nocase",)]


def test_a_question_sees_one_state_of_the_table():
    """Rows that another cursor adds between two statements would not be bounded."""
    with pay() as connection:
        options = {"unit": "who", "max_rows": 2, "bounds": {"salary": (0, 100)}}
        curator = Curator(connection, 9.0, table="pay", **options)
        engine, other = curator._engine, connection.cursor()
        count = f"SELECT count(*) FROM {engine.table.sql('duckdb')}"
        with engine.session():
            assert engine._run(count, "rows") == [(100,)]
            other.execute("INSERT INTO pay SELECT 100, 8 FROM range(50)")
            assert engine._run(count, "rows") == [(100,)]
        connection.execute("BEGIN")  # a transaction of somebody's stays theirs
        assert exact(curator, model.Count(), epsilon=1.0)[0][0] == [9 * 2 + 1]
        connection.execute("ROLLBACK")


# A lazy frame is a view: what it computes may fail on one row, and quote it.


@pytest.mark.parametrize("last", ["2", "alice@secret.org"])
def test_a_lazy_frame_is_refused(last):
    lazy = pl.LazyFrame({"x": ["1", last]}).with_columns(pl.col("x").cast(pl.Int64))
    with pytest.raises(InvalidParameter, match="Collect it first") as caught:
        Curator(lazy, 1.0)
    assert caught.value.__context__ is None


# Names that differ in case alone are renamed by DuckDB, and lost what was known of them.


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_names_that_differ_in_case_are_refused(kind, tmp_path):
    moments = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("ms"))
    source = pa.table([pa.array([1, 2]), moments], names=["Visit", "visit"])
    if kind == "parquet":
        pq.write_table(source, tmp_path / "a.parquet")
        source = tmp_path / "a.parquet"
    elif kind == "csv":
        source = tmp_path / "a.csv"
        source.write_text("Visit,visit\n1,2\n")
    with pytest.raises(InvalidParameter, match="must be unique, ignoring case"):
        Curator(source, 1.0)


def test_times_inside_of_others_are_found(tmp_path):
    """The columns of a Parquet file stand between the parts of nested ones."""
    far = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("ms"))
    nested = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["far", "b"])
    inside = pa.StructArray.from_arrays([far], ["far"])
    table = {"s": nested, "list": [[1], [2, 3]], "far": far, "x": [1, 2], "inside": inside}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with Curator(tmp_path / "a.parquet", 99.0) as curator:
        with pytest.raises(InvalidParameter, match="times in microseconds"):
            curator.count(where="far > '1960-01-01'", epsilon=1)
        # DuckDB fails on the statistics of a column that is in the table, asked for or not.
        assert curator.count(epsilon=40).value == 2
        assert curator.count("x", epsilon=40).value == 2


def test_a_file_of_which_nothing_is_read_is_counted(tmp_path):
    far = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("ms"))
    pq.write_table(pa.table({"far": far}), tmp_path / "a.parquet")
    with Curator(tmp_path / "a.parquet", 99.0) as curator:
        assert curator.count(epsilon=60).value == 2


# Text of Python's is converted value by value, whatever pandas calls its type.


@pytest.mark.parametrize("dtype", [object, pd.StringDtype("python"), "category"])
@pytest.mark.parametrize("text", ["a", "x\ud800"])
def test_one_text_does_not_refuse_a_frame(dtype, text):
    names = pd.Series([text, "b"], dtype=object if dtype == "category" else dtype)
    if dtype == "category":
        names = pd.Categorical.from_codes([0, 1], categories=pd.Index(names, dtype=object))
    frame = pd.DataFrame({"x": [1.0, 2.0], "name": names})
    with Curator(frame, 199.0) as curator:
        assert curator.count(where="name = 'b'", epsilon=60).value == 1


@pytest.mark.parametrize("value", [1, True, 2.5])
def test_categories_of_numbers_are_numbers(value):
    frame = pd.DataFrame({"x": pd.Series([value, value]).astype("category")})
    with Curator(frame, 99.0) as curator:
        assert curator.count(where=model.Compare("x", "=", value), epsilon=60).value == 2


# Types that DuckDB does not take are refused by name, in one line.


@pytest.mark.parametrize("kind", [pa.float16(), pa.decimal256(70, 2)], ids=str)
def test_types_that_are_not_read(kind):
    table = pa.table({"x": [1, 2], "y": pa.array([None, None], kind)})
    with pytest.raises(InvalidParameter, match="column 'y' must be of a type that DuckDB reads"):
        Curator(table, 1.0)
