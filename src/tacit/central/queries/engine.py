"""Where the rows are: an engine knows the columns of one table and runs aggregates over it.

Rows never come to Python: only what was added up does, and only under a plan that was charged.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from tacit.central.queries.compile import Compiler
from tacit.privacy import errors

Row = tuple[Any, ...]


class Engine(Protocol):
    """A table, and statements over it."""

    title: str
    """What the table is called in messages and accounts."""
    compiler: Compiler
    statements: int
    """How many statements have read rows."""

    @property
    def table(self) -> Any:
        """The table, for a FROM."""
        ...

    def session(self) -> AbstractContextManager[None]:
        """One question: its statements see one state of the table, and leave nothing behind."""
        ...

    def rows(self, tree: Any) -> list[Row]:
        """The result of a statement."""
        ...

    def close(self) -> None: ...


def open_engine(source: Any, table: str | None, memory: str, threads: int | None) -> Engine:
    """The engine of a source: a file, a frame, or a connection with the name of a table."""
    from tacit.central.queries import duckdb_engine, postgres_engine

    if isinstance(source, str) and re.match(r"postgres(ql)?(\+psycopg)?://", source):
        return postgres_engine.connect(source, _named(table))
    module = type(source).__module__.split(".")[0]
    if module == "psycopg":
        return postgres_engine.PostgresEngine(source, _named(table), owned=False)
    if module in ("duckdb", "_duckdb") and hasattr(source, "cursor"):
        return duckdb_engine.of_connection(source, _named(table))
    return duckdb_engine.embedded(source, memory, threads)


def must_be_stored(table: str, found: str) -> NoReturn:
    """Refuse what is worked out while it is read: it may fail on one row, and tell of it."""
    remedy = "Store its rows first: CREATE TABLE … AS SELECT … ."
    errors.refuse("Curator", "table", "a table whose rows are stored", f"{table}, {found}", remedy)


def failed(what: str, reason: str) -> NoReturn:
    """Say that a statement failed, and no more: an engine's message may quote the data."""
    remedy = {
        "table": "Check the name of the table and that it can be read.",
        "source": "Check that the file is whole and can be read.",
    }.get(what, "What it was charged stays charged.")
    raise errors.TacitError(f"queries: the engine could not read the {what} ({reason}). {remedy}")


def _named(table: str | None) -> str:
    if not isinstance(table, str) or not table:
        errors.refuse("Curator", "table", "the name of a table of the connection", table)
    return table
