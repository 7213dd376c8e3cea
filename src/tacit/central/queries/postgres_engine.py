"""PostgreSQL engine: every aggregate runs in the server, in a read-only transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tacit.central.queries.compile import Compiler, parts_of, table_of
from tacit.central.queries.engine import Row, failed, must_be_stored
from tacit.central.queries.table import Column, Kind
from tacit.privacy import errors

_KINDS = {
    Kind.WHOLE: {20: "int8", 21: "int2", 23: "int4"},
    Kind.REAL: {700: "float4", 701: "float8"},
    Kind.DECIMAL: {1700: "numeric"},
    Kind.TEXT: {25: "text", 1043: "varchar", 1042: "bpchar", 2950: "uuid"},
    Kind.TRUTH: {16: "bool"},
    Kind.DATE: {1082: "date"},
    Kind.MOMENT: {1114: "timestamp"},
}
_SESSION = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL standard_conforming_strings = on",
    # Functions and operators are the server's own, whatever other schemas contain. pg_temp is
    # listed last because it is otherwise searched first, and a type defined there could be "text".
    "SET LOCAL search_path = pg_catalog, pg_temp",
    # A slow row must not decide between an answer and an error. The last setting exists from
    # version 17 on.
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL lock_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    "SELECT set_config('transaction_timeout', '0', true) "
    "WHERE current_setting('transaction_timeout', true) IS NOT NULL",
)
_CATALOG = """
WITH RECURSIVE tree AS (
    SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = %s::oid
    UNION
    SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT n.nspname, c.relname, c.relkind, c.oid = %s::oid, pg_catalog.row_security_active(c.oid),
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a
     WHERE a.attrelid = c.oid AND a.attgenerated NOT IN ('', 's'))
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_STORED = ("r", "p", "m")  # tables, partitioned tables, materialized views


class PostgresEngine:
    """A table of a PostgreSQL database, read through a psycopg connection."""

    def __init__(self, connection: Any, table: str, *, owned: bool) -> None:
        self.title, self.statements = table, 0
        if not isinstance(connection, package().Connection):
            remedy = "Asynchronous connections are not supported."
            errors.refuse("Curator", "connection", "a psycopg.Connection", type(connection), remedy)
        self._connection, self._owned = connection, owned
        oid = self._number(table)
        with self.session():
            self.table = table_of(
                *_stored(table, self._run(_CATALOG, "table", (oid, oid)).fetchall())
            )
            statement = f"SELECT * FROM {self.table.sql('postgres')} LIMIT 0"
            described = self._run(statement, "table").description
        columns = {one.name: _column(one.name, one.type_code) for one in described}
        self.compiler = Compiler(columns, "postgres")

    @contextmanager
    def session(self) -> Iterator[None]:
        self._must_be_idle()
        with self._connection.transaction():
            for statement in _SESSION:
                self._run(statement, "table")
            yield

    def rows(self, tree: Any) -> list[Row]:
        self.statements += 1
        # Without parameters, psycopg does not interpret percent signs.
        return list(self._run(self.compiler.sql(tree), "rows").fetchall())

    def close(self) -> None:
        if self._owned:
            self._connection.close()

    def _number(self, table: str) -> int:
        """Return the object identifier of the table that the connection's search path finds."""
        self._must_be_idle()
        name = table_of(*parts_of(table)).sql("postgres")
        with self._connection.transaction():
            statement = "SELECT pg_catalog.to_regclass(%s)::pg_catalog.oid"
            ((oid,),) = self._run(statement, "table", (name,)).fetchall()
        return 0 if oid is None else int(oid)

    def _must_be_idle(self) -> None:
        idle = package().pq.TransactionStatus.IDLE
        if self._connection.closed or self._connection.info.transaction_status != idle:
            remedy = "Give the curator a connection of its own."
            state = "one that is closed or in a transaction"
            errors.refuse("Curator", "connection", "open and outside a transaction", state, remedy)

    def _run(self, sql: str, what: str, values: tuple[Any, ...] | None = None) -> Any:
        """Run a statement on a cursor of our own: the connection's may return other types."""
        psycopg = package()
        cursor = psycopg.Cursor(self._connection, row_factory=psycopg.rows.tuple_row)
        numbers = psycopg.types.numeric
        for name in ("int2", "int4", "int8", "oid"):
            cursor.adapters.register_loader(name, numbers.IntLoader)
        cursor.adapters.register_loader("numeric", numbers.NumericLoader)
        try:
            return cursor.execute(sql, values, binary=False)
        except psycopg.Error as error:
            reason = type(error).__name__
        failed(what, reason)


def _stored(table: str, relations: list[Row]) -> tuple[str, str]:
    """Return schema and name of a table; refuse it if something is computed while it is read."""
    names = []
    for schema, name, kind, itself, secured, generated in relations:
        if kind not in _STORED:
            must_be_stored(table, "a view" if kind == "v" else "with rows on another server")
        if secured:
            must_be_stored(table, "with row security")
        if generated:
            must_be_stored(table, "with generated columns that are not stored")
        names += [(schema, name)] if itself else []
    if not names:
        failed("table", "UndefinedTable")
    return names[0]


def connect(url: str, table: str) -> PostgresEngine:
    """Open a connection that the engine owns and closes."""
    psycopg = package()
    try:
        connection = psycopg.connect(re.sub(r"^postgres(ql)?(\+psycopg)?", "postgresql", url))
    except psycopg.Error as error:
        reason = type(error).__name__  # the message may hold the password
    else:
        return _owned(connection, table)
    failed("source", reason)


def _owned(connection: Any, table: str) -> PostgresEngine:
    try:
        return PostgresEngine(connection, table, owned=True)
    except BaseException:
        connection.close()
        raise


def _column(name: str, oid: int) -> Column:
    for kind, types in _KINDS.items():
        if oid in types:
            return Column(name, kind, types[oid])
    return Column(name, Kind.OTHER, f"type {oid}")


def package() -> Any:
    """Import psycopg, or say how to install it."""
    try:
        import psycopg
    except ImportError:
        raise errors.TacitError(
            "queries: the psycopg package must be installed. pip install 'tacit[service]'."
        ) from None
    return psycopg
