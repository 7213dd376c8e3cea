"""DuckDB engines: embedded over files and frames, or on a connection of the user.

The embedded DuckDB has a memory limit, reads the given files and no others and loads no extension;
its settings are locked before the first query.

DuckDB orders NaN above every number, but the maximum in the statistics of a Parquet file leaves NaN
out, and DuckDB uses that maximum to decide comparisons and to skip row groups. Whether a NaN
satisfies x > 5 would then depend on the rows next to it, and one more row could bring many of them
into a count. So both optimizers that read such statistics are off while a query is answered.

On a user's connection, a query is one transaction, all functions that it calls must be DuckDB's
own (`duckdb_functions`), and settings that change the meaning of a statement have DuckDB's
defaults.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from tacit.central.queries.compile import Compiler, parts_of, table_of
from tacit.central.queries.duckdb_functions import must_be_built_in
from tacit.central.queries.duckdb_sources import TABLE, column_of, package, register, text
from tacit.central.queries.engine import Row, failed, must_be_stored
from tacit.central.queries.table import Columns
from tacit.privacy import errors

KEPT = "temp.main.tacit_kept"

_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
}


# This statement calls no function that a macro could shadow.
_CATALOG = """
SELECT t.database_name, t.schema_name, t.table_name, d.type, t.sql
FROM system.main.duckdb_tables() t JOIN system.main.duckdb_databases() d USING (database_name)
UNION ALL
SELECT database_name, schema_name, view_name, 'view', '' FROM system.main.duckdb_views()
"""
_BY_STATISTICS = {"filter_pushdown", "statistics_propagation"}
_MEANING = {
    "default_collation": "",
    "error_on_division_by_zero": "true",
    "ieee_floating_point_ops": "true",
    "old_implicit_casting": "false",
}
"""Defaults of settings that change comparisons and arithmetic; not every version has them all."""
_USUAL = """
SELECT COUNT(*), COUNT(x), SUM(LEAST(GREATEST(x, 1), 2) - 1), SUM(x * x), ISNAN(x) FROM t
"""
"""The functions that nearly every query calls: replaced ones are refused before any charge."""


class DuckDBEngine:
    """A table of a DuckDB connection: the embedded one, or the user's (`handed`)."""

    def __init__(
        self,
        connection: Any,
        table: Any,
        *,
        title: str,
        columns: Columns | None = None,
        fill: Callable[[], None] | None = None,
        handed: bool = False,
    ) -> None:
        self.title, self.statements, self.table = title, 0, table
        self._fill, self._handed = fill, handed
        self._connection = connection
        self._tidy: weakref.finalize[Any, Any] | None = None
        if columns is None:
            described = self._run(f"DESCRIBE SELECT * FROM {self.table.sql('duckdb')}", "table")
            columns = {name: column_of(name, kind) for name, kind, *_ in described}
        self.compiler = Compiler(columns, "duckdb")
        with self.session():  # locked settings fail here, before anything is charged
            self._check(_USUAL)

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._settings(), self._snapshot():
            try:
                yield
            finally:
                with suppress(errors.TacitError):  # a failed transaction has dropped it already
                    self._run(f"DROP TABLE IF EXISTS {KEPT}", "table")

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Turn off the optimizers that read statistics, and set what changes the meaning of SQL."""
        settings = self._run("SELECT name, value FROM system.main.duckdb_settings()", "table")
        before = {name: "" if value is None else str(value) for name, value in settings}
        wanted = {name: value for name, value in _MEANING.items() if name in before}
        disabled = {name for name in before["disabled_optimizers"].split(",") if name}
        if not disabled >= _BY_STATISTICS:
            wanted["disabled_optimizers"] = ",".join(sorted(disabled | _BY_STATISTICS))
        changed = {name: value for name, value in wanted.items() if before[name] != value}
        for name, value in changed.items():
            self._run(_set(name, value), "table")
        try:
            yield
        finally:
            for name in changed:
                self._run(_set(name, before[name]), "table")

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Keep one state of tables and functions, on a connection that others may write to."""
        if not self._handed or self._in_transaction():
            yield
            return
        self._run("BEGIN TRANSACTION", "table")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK", "table")
            raise
        self._run("COMMIT", "table")

    def _in_transaction(self) -> bool:
        """Check whether a transaction is open: otherwise each statement has its own number."""
        statement = "SELECT system.main.txid_current()"
        return self._run(statement, "table") == self._run(statement, "table")

    def rows(self, tree: Any) -> list[Row]:
        self._fetch()
        self.statements += 1
        sql = self.compiler.sql(tree)
        self._check(sql)
        return self._run(sql, "rows")

    def keep(self, tree: Any) -> None:
        """Store a result as the temporary table `KEPT`, for the rest of this session."""
        self._fetch()
        self.statements += 1
        sql = self.compiler.sql(tree)
        self._check(sql)
        self._run(f"CREATE OR REPLACE TEMP TABLE {KEPT} AS {sql}", "rows")

    def _check(self, sql: str) -> None:
        if self._handed:
            duckdb = package()
            try:
                return must_be_built_in(self._connection, sql)
            except duckdb.Error as error:
                reason = type(error).__name__
            failed("table", reason)

    def close(self) -> None:
        if self._tidy is not None:
            self._connection.close()
            self._tidy()

    def _fetch(self) -> None:
        """Read text files once, when the first charged query needs rows."""
        if self._fill is not None:
            try:
                self._fill()
                self._fill = None
                return
            except (package().Error, OSError) as error:
                reason = type(error).__name__
            failed("rows", reason)

    def _run(self, sql: str, what: str) -> list[Row]:
        duckdb = package()
        try:
            return list(self._connection.execute(sql).fetchall())
        except duckdb.Error as error:
            reason = type(error).__name__
        failed(what, reason)  # outside the handler: no chained message


def of_connection(connection: Any, table: str) -> DuckDBEngine:
    """Open a stored table of a user's connection by its full name, which nothing can shadow."""
    duckdb, parts = package(), parts_of(table)
    try:
        relations = connection.execute(_CATALOG).fetchall()
    except duckdb.Error as error:
        reason = type(error).__name__
    else:
        named = [one for one in relations if one[2].casefold() == parts[-1].casefold()]
        stored = table_of(*_stored(table, parts, named))
        return DuckDBEngine(connection, stored, title=table, handed=True)
    failed("table", reason)


def _stored(table: str, parts: list[str], relations: list[Row]) -> tuple[str, str, str]:
    """Return the one relation of this name; refuse it unless it is one of DuckDB's own tables."""
    above = [part.casefold() for part in parts[:-1]]
    names = [(database.casefold(), schema.casefold()) for database, schema, *_ in relations]
    fit = [
        one
        for one, (database, schema) in zip(relations, names, strict=True)
        if above in ([], [schema], [database], [database, schema])
    ]
    if not fit:
        failed("table", "CatalogException")
    if len(fit) > 1:
        remedy = "Give its full name: database.schema.name."
        errors.refuse("Curator", "table", "the name of one table", f"{len(fit)} of {table}", remedy)
    database, schema, name, kind, sql = fit[0]
    if kind != "duckdb":
        must_be_stored(table, "a view" if kind == "view" else f"in a database of type {kind}")
    if "GENERATED ALWAYS" in str(sql).upper():
        must_be_stored(table, "with generated columns")
    return database, schema, name


def embedded(source: Any, memory: str, threads: int | None) -> DuckDBEngine:
    """Open DuckDB in this process, over files or a frame."""
    duckdb = package()
    if not isinstance(memory, str) or not re.fullmatch(r"[0-9.]+ ?[KMGT]i?B", memory):
        errors.refuse("Curator", "memory", 'a size such as "1GB"', memory)
    config: dict[str, Any] = _SETTINGS | {"memory_limit": memory}
    if threads is not None:
        config["threads"] = errors.whole("Curator", "threads", threads, least=1, most=1024)
    folder = config["temp_directory"] = mkdtemp(prefix="tacit-queries-")
    connection = duckdb.connect(":memory:", config=config)
    try:
        options = register(connection, source)
        connection.execute(_set("disabled_optimizers", ",".join(sorted(_BY_STATISTICS))))
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        engine = DuckDBEngine(connection, table_of(TABLE), **options)
    except BaseException:
        connection.close()
        rmtree(folder, ignore_errors=True)
        raise
    # DuckDB spills what does not fit into memory to this folder; it is removed with the engine.
    engine._tidy = weakref.finalize(engine, rmtree, folder, ignore_errors=True)
    return engine


def _set(name: str, value: str) -> str:
    return f"SET {name} = {text(value)}"
