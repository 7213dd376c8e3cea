"""A real PostgreSQL: the same integers as DuckDB, whatever rows hold, in a reading transaction."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tacit.central.queries.curator import Curator
from tacit.central.queries.model import (
    Compare,
    Count,
    Histogram,
    Mean,
    Quantile,
    Several,
    Sum,
    Variance,
)
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

from .conftest import BOUNDS, KEYS, exact, questions

psycopg = pytest.importorskip("psycopg")


def _helper():
    path = Path(__file__).parents[2] / "apps" / "service" / "postgres.py"
    spec = importlib.util.spec_from_file_location("queries_postgres", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["queries_postgres"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def url():
    helper = _helper()
    if not helper.present():
        pytest.skip(helper.ABSENT)
    with helper.started() as server:
        yield server.create().replace("+psycopg", "")


@pytest.fixture
def filled(url, people):
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute("CREATE TABLE people (person bigint, sex text, x float8, n int)")
        with connection.cursor().copy("COPY people FROM STDIN") as copy:
            for row in zip(
                *(people[name].to_pylist() for name in people.column_names), strict=True
            ):
                copy.write_row(row)
    return url


OPTIONS = [
    {},
    {"unit": "person", "max_rows": 2, "max_groups": 2},
    {"unit": "person", "max_rows": 1, "max_groups": 2},
]


@pytest.mark.heavy
@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_integers_as_duckdb(filled, people, options):
    given = {"bounds": BOUNDS, "keys": KEYS} | options
    asked = [*questions(), *questions(("sex",))]
    asked += [Count(where=Compare("x", ">", 0.5), by="sex"), Count(where=Compare("n", "<=", 5.5))]
    with (
        Curator(people, 1.0, threads=1, **given) as here,
        Curator(filled, 1.0, table="people", **given) as there,
    ):
        for query in asked:
            found = exact(there, query, epsilon=1.0)
            assert found == exact(here, query, epsilon=1.0), query


def test_answers(filled):
    with Curator(
        filled, 700.0, table="public.people", bounds=BOUNDS, keys=KEYS, unit="person"
    ) as curator:
        several = Several((Count(by="sex"), Mean("n", by="sex")))
        assert set(curator.answer(several, epsilon=100).parts[1].groups) == {"F", "M"}
        assert curator.median("x", by="sex", epsilon=50).groups["F"].interval is not None
        assert curator.top_k("sex", 1, epsilon=50).value in (["F"], ["M"])
        assert curator.above_threshold(10, epsilon=50).ask("x > 0.5 or sex = 'F'")
        # A person is in one group, chosen by a hash: in all they count once.
        counts = curator.count(by="sex", epsilon=100).groups
        assert sum(one.value for one in counts.values()) <= 100


VALUES = "('NaN'), ('Infinity'), ('-Infinity'), (NULL), (1), (1e-320), (1e300), (-1e-300)"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("float8", VALUES),
        ("float4", "('NaN'), ('Infinity'), ('-Infinity'), (NULL), (1), (1e-40), (1e30), (-1e-40)"),
        ("numeric", VALUES.replace("1e-320", "1e-3000").replace("(1e300)", "(1e3000)")),
        ("int8", "(NULL), (1), (9223372036854775807), (-9223372036854775808)"),
        ("int2", "(NULL), (1), (32767), (-32768)"),
    ],
)
@pytest.mark.parametrize("bounds", [(0, 10), (0.5, 1e12), (-1e-9, 1e-9)])
def test_no_row_makes_it_fail(url, kind, values, bounds):
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS odd")
        connection.execute(f"CREATE TABLE odd (v {kind})")
        connection.execute(f"INSERT INTO odd VALUES {values}")
    with Curator(url, 700.0, table="odd", bounds={"v": bounds}) as curator:
        present = 3 if kind.startswith("int") else 6
        assert curator.count("v", epsilon=100).value == present
        for query in (Mean("v"), Variance("v"), Sum("v"), Quantile("v")):
            curator.answer(query, epsilon=10)
        curator.answer(Histogram("v", (-float("inf"), 0.0, 0.1, 5.0, float("inf"))), epsilon=10)
        for value in (1, 0.5, -(10**40), 1e300, 1e-300):
            curator.count(where=Compare("v", ">", value), epsilon=1)


def test_a_connection_of_yours(filled):
    with psycopg.connect(filled) as connection:
        curator = Curator(connection, 10.0, table="people")
        curator.count(epsilon=1)
        connection.execute("SELECT 1")  # a transaction of the owner's
        with pytest.raises(errors.TacitError, match="outside a transaction"):
            curator.count(epsilon=1)
        connection.rollback()
        curator.count(epsilon=1)
        curator.close()
        assert not connection.closed


def test_it_cannot_write(filled):
    from tacit.central.queries.compile import sqlglot

    with Curator(filled, 1.0, table="people") as curator:
        tree = sqlglot().parse_one("DELETE FROM public.people")
        refused = pytest.raises(errors.TacitError, match="ReadOnlySqlTransaction")
        with refused, curator._engine.session():
            curator._engine.rows(tree)


def test_refusals(filled):
    with pytest.raises(errors.TacitError, match="could not read the table"):
        Curator(filled, 1.0, table="nobody")
    with pytest.raises(errors.TacitError, match="name of a table"):
        Curator(filled, 1.0)
    with pytest.raises(errors.TacitError, match="could not read the source") as caught:
        Curator("postgresql://postgres:hush@127.0.0.1:1/x", 1.0, table="people")
    assert "hush" not in str(caught.value)
    with Curator(filled, 1.0, table="people") as curator:
        with pytest.raises(errors.TacitError, match="of its kind"):
            curator.count(where="sex > 3", epsilon=0.1)
        assert curator.statements == 0


@pytest.mark.parametrize(
    ("rows", "name"), [(240_000, "variance"), (1_000_000, "mean"), (1_000_000, "sum")]
)
def test_a_person_with_many_rows(url, rows, name):
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS many")
        connection.execute(
            f"CREATE TABLE many AS SELECT 1 AS p, 1.0::float8 AS x FROM generate_series(1, {rows})"
        )
    with Curator(
        url, 100.0, table="many", unit="p", bounds={"x": (0, 1)}, rng=Seeded(1)
    ) as curator:
        assert getattr(curator, name)("x", epsilon=50).value is not None


# --- what a hostile reader found, kept -----------------------------------------------------------


@pytest.mark.parametrize("b", [0, 1])
@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW trap AS SELECT 1 / b AS x FROM base",
        "CREATE VIEW trap AS SELECT CAST(s AS int) AS x FROM base",
        "CREATE TABLE trap (x int, s text); INSERT INTO trap SELECT b, s FROM base; "
        "ALTER TABLE trap ENABLE ROW LEVEL SECURITY; ALTER TABLE trap FORCE ROW LEVEL SECURITY; "
        "CREATE POLICY p ON trap USING (CAST(s AS int) = 0)",
        "CREATE TABLE trap (x int) PARTITION BY LIST (x); "
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER f FOREIGN DATA WRAPPER w; "
        "CREATE FOREIGN TABLE leaf PARTITION OF trap FOR VALUES IN (1) SERVER f",
    ],
)
def test_what_is_worked_out_while_it_is_read_is_refused(url, made, b):
    with psycopg.connect(url) as connection:
        connection.execute("DROP VIEW IF EXISTS trap") if "VIEW" in made else None
        connection.execute("CREATE ROLE plain") if not connection.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = 'plain'"
        ).fetchone() else None
        connection.execute("DROP TABLE IF EXISTS base CASCADE")
        connection.execute(f"CREATE TABLE base AS SELECT {b} AS b, 'x{b}'::text AS s")
        connection.execute(made)
        connection.execute("GRANT SELECT ON trap TO plain")
        connection.commit()
        try:
            connection.execute("SET ROLE plain")
            connection.commit()
            with pytest.raises(errors.InvalidParameter, match="a table whose rows are stored"):
                Curator(connection, 9.0, table="trap", rng=Seeded(1))
        finally:
            connection.execute("RESET ROLE")
            kind = "VIEW" if "VIEW" in made else "TABLE"
            connection.execute(f"DROP {kind} trap CASCADE")
            connection.execute("DROP FOREIGN DATA WRAPPER IF EXISTS w CASCADE")


@pytest.mark.quick(3)
@pytest.mark.parametrize("factory", ["dict_row", "namedtuple_row", "class_row", "scalar_row"])
def test_a_connection_with_other_rows_is_answered(filled, factory):
    from psycopg import rows
    from psycopg.types.numeric import FloatLoader

    made = rows.class_row(dict) if factory == "class_row" else getattr(rows, factory)
    with psycopg.connect(filled, row_factory=made, cursor_factory=psycopg.ClientCursor) as given:
        given.adapters.register_loader("numeric", FloatLoader)
        with (
            Curator(given, 9.0, table="people", bounds=BOUNDS, unit="person") as odd,
            Curator(filled, 9.0, table="people", bounds=BOUNDS, unit="person") as usual,
        ):
            for query in questions():
                found = exact(odd, query, epsilon=1.0)
                assert found == exact(usual, query, epsilon=1.0)
                assert all(type(entry) is int for entry in found[0][0])
            assert odd.median("x", epsilon=1).value is not None
        assert given.row_factory is made


def test_an_asynchronous_connection_is_refused(filled):
    connection = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    with pytest.raises(errors.InvalidParameter, match=r"must be a psycopg\.Connection"):
        Curator(connection, 9.0, table="people")


def test_functions_of_somebody_are_not_called(filled):
    """One of the same name in front of the server's own could fail on a row, or count it twice."""
    with psycopg.connect(filled) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS mine")
        connection.execute(
            "CREATE OR REPLACE FUNCTION mine.round(float8) RETURNS float8 "
            "AS 'SELECT 1 / 0.0::float8' LANGUAGE sql"
        )
        connection.execute("SET search_path = mine, public, pg_catalog")
        connection.commit()
        with Curator(connection, 699.0, table="people", bounds=BOUNDS) as curator:
            assert curator.mean("x", epsilon=50).value is not None


def test_types_and_timeouts_of_somebody_are_not_used(filled):
    """A temporary table is a type of its name, and stands before the server's own."""
    with psycopg.connect(filled) as connection:
        connection.execute("CREATE TEMP TABLE text (x int)")
        connection.execute("CREATE TEMP TABLE date (x int)")
        for name in ("statement_timeout", "lock_timeout", "transaction_timeout"):
            known = "SELECT count(*) FROM pg_settings WHERE name = %s"
            if connection.execute(known, (name,)).fetchone() == (1,):
                connection.execute(f"SET {name} = '1h'")
        connection.commit()
        options = {"bounds": BOUNDS, "keys": KEYS, "unit": "person"}
        with Curator(connection, 699.0, table="people", **options) as curator:
            assert curator.count(by="sex", epsilon=50).groups
            with curator._engine.session():
                asked = (
                    "SELECT setting FROM pg_settings WHERE name ~ '_timeout$' AND context = 'user' "
                    "AND name ~ '^(statement|lock|transaction|idle_in_transaction)' "
                )
                assert set(curator._engine._run(asked, "rows").fetchall()) == {("0",)}
        assert connection.execute("SHOW statement_timeout").fetchone() == ("1h",)


EXTREME = [
    (0, 1e-100),
    (-1e100, 1e100),
    (1e100 * (1 - 2.0**-38), 1e100),
    (2.0**62, 2.0**62 + 2.0**28),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("bounds", EXTREME, ids=str)
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            "float8",
            "5e-324 -5e-324 2.3e-308 1e-300 1e-101 1e-100 1e100 1.7e308 -1.7e308 infinity nan 0",
        ),
        ("float4", "1e-45 -1e-45 3e38 infinity -infinity nan 0 1"),
        (
            "numeric",
            f"0.{'0' * 16000}1 {'9' * 131000} -{'9' * 131000} 0.{'3' * 16380} nan infinity 0",
        ),
        ("int8", f"{2**63 - 1} {-(2**63)} {2**62 + 5} 0 1 -1"),
    ],
)
def test_no_row_fails_at_extreme_bounds(url, kind, values, bounds):
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS far")
        connection.execute(f"CREATE TABLE far (p int, v {kind})")
        for at, value in enumerate(values.split()):
            connection.execute(
                "INSERT INTO far VALUES (%s, CAST(%s::text AS " + kind + "))", (at // 2, value)
            )
    for given in ({}, {"unit": "p", "max_rows": 2}):
        with Curator(url, 699.0, table="far", bounds={"v": bounds}, **given) as curator:
            for query in (Mean("v"), Variance("v"), Sum("v"), Quantile("v")):
                curator.answer(query, epsilon=10)
            curator.answer(Histogram("v", (-1e300, -5e-324, 0.0, 5e-324, 1e300)), epsilon=10)
            for value in (5e-324, -1e300, 2**63, -(2**70), 0):
                curator.count(where=Compare("v", "<=", value), epsilon=9)
