"""Engines: an engine knows the columns of one table and runs aggregates where its rows are.

Rows never reach Python; only sums do, and only for a query that was charged.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from tacit.central.queries.compile import Compiler
from tacit.privacy import errors

Row = tuple[Any, ...]


class Engine(Protocol):
    """A table and the statements that run on it."""

    title: str
    """Name of the table in messages and accounts."""
    compiler: Compiler
    statements: int
    """Number of statements that have read rows."""

    @property
    def table(self) -> Any:
        """The table, as an expression for FROM."""
        ...

    def session(self) -> AbstractContextManager[None]:
        """Run one query: its statements see one state of the table and leave nothing behind."""
        ...

    def rows(self, tree: Any) -> list[Row]:
        """Run a statement and return its result."""
        ...

    def close(self) -> None: ...


def open_engine(source: Any, table: str | None, memory: str, threads: int | None) -> Engine:
    """Open the engine of a source: a file, a frame, or a connection and the name of a table."""
    from tacit.central.queries import duckdb_engine, postgres_engine

    if isinstance(source, str) and re.match(r"postgres(ql)?(\+psycopg)?://", source):
        return postgres_engine.connect(source, _named(table))
    module = type(source).__module__.split(".")[0]
    if module == "psycopg":
        return postgres_engine.PostgresEngine(source, _named(table), owned=False)
    if module in ("duckdb", "_duckdb") and hasattr(source, "cursor"):
        return duckdb_engine.of_connection(source, _named(table))
    return duckdb_engine.embedded(source, memory, threads)


def must_be_stored(table: str, kind: str) -> NoReturn:
    """Refuse a table that is computed while it is read: it may fail on one row and reveal it."""
    remedy = "Store its rows first: CREATE TABLE … AS SELECT … ."
    errors.refuse("Curator", "table", "a table whose rows are stored", f"{table}, {kind}", remedy)


def failed(what: str, reason: str) -> NoReturn:
    """Report that a statement failed, without the engine's message: it may quote the data."""
    remedy = {
        "table": "Check the name of the table, and that it can be read.",
        "source": "Check that the file is complete and can be read.",
    }.get(what, "The query stays charged.")
    raise errors.TacitError(f"queries: the engine could not read the {what} ({reason}). {remedy}")


def _named(table: str | None) -> str:
    if not isinstance(table, str) or not table:
        errors.refuse("Curator", "table", "the name of a table of the connection", table)
    return table
