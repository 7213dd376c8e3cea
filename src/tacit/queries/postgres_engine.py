"""PostgreSQL: every aggregate runs in the server, in a transaction that cannot write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tacit import errors
from tacit.queries.compile import Compiler, table_of
from tacit.queries.engine import Row, failed
from tacit.queries.table import Column, Kind

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
)


class PostgresEngine:
    """A table of a PostgreSQL database, by a psycopg connection."""

    def __init__(self, connection: Any, table: str, *, owned: bool) -> None:
        self.title, self.statements = table, 0
        self.table = table_of(table)
        self._connection, self._owned = connection, owned
        with self.session():
            described = self._describe(f"SELECT * FROM {self.table.sql('postgres')} LIMIT 0")
        columns = {one.name: _column(one.name, one.type_code) for one in described}
        self.compiler = Compiler(columns, "postgres")

    @contextmanager
    def session(self) -> Iterator[None]:
        psycopg = package()
        idle = psycopg.pq.TransactionStatus.IDLE
        if self._connection.closed or self._connection.info.transaction_status != idle:
            remedy = "Give the curator a connection of its own."
            errors.refuse("Curator", "connection", "open and outside a transaction", "not", remedy)
        with self._connection.transaction():
            for statement in _SESSION:
                self._connection.execute(statement)
            yield

    def rows(self, tree: Any) -> list[Row]:
        self.statements += 1
        try:
            # Without parameters psycopg leaves percent signs alone.
            return list(self._connection.execute(self.compiler.sql(tree)).fetchall())
        except package().Error as error:
            reason = type(error).__name__
        failed("rows", reason)

    def close(self) -> None:
        if self._owned:
            self._connection.close()

    def _describe(self, sql: str) -> Any:
        try:
            return self._connection.execute(sql).description
        except package().Error as error:
            reason = type(error).__name__
        failed("table", reason)


def connect(url: str, table: str) -> PostgresEngine:
    """Open a connection of its own."""
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
    """The driver, or one line that says how to get it."""
    try:
        import psycopg
    except ImportError:
        raise errors.TacitError(
            "queries: the psycopg package must be installed. pip install 'tacit[service]'."
        ) from None
    return psycopg
