"""DuckDB: embedded over files and frames, or a connection of yours.

The embedded one gets a limit of memory, reads the given files and no others, loads no extension,
and its settings are locked before the first question.

DuckDB holds NaN to be the largest number, but the largest value that a Parquet file states leaves
NaN out, and by that value DuckDB decides comparisons and skips row groups. Whether a NaN fulfils
x > 5 then depends on the rows beside it, and one row more could bring many of them into a count.
So both optimisers that read such statistics are off while a question is answered.

On a connection that was handed in, a question is one transaction, its functions must be DuckDB's
own (`duckdb_functions`), and settings that change what a statement means are set as DuckDB has
them by default.
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


# No function is called here: a macro could stand before it.
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
"""Settings of which some versions have some; other values change comparisons and arithmetic."""
_USUAL = """
SELECT COUNT(*), COUNT(x), SUM(LEAST(GREATEST(x, 1), 2) - 1), SUM(x * x), ISNAN(x) FROM t
"""
"""What nearly every question calls, so that it is refused before the first charge."""


class DuckDBEngine:
    """A table of a DuckDB connection; of an embedded one, unless the connection was handed in."""

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
        with self.session():  # settings that are locked are found out before anything is charged
            self._check(_USUAL)

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._settings(), self._snapshot():
            try:
                yield
            finally:
                with suppress(errors.TacitError):  # a transaction that failed has dropped it
                    self._run(f"DROP TABLE IF EXISTS {KEPT}", "table")

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """The optimisers that read statistics off, and the meaning of statements the usual one."""
        found = self._run("SELECT name, value FROM system.main.duckdb_settings()", "table")
        before = {name: "" if value is None else str(value) for name, value in found}
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
        """One state of tables and functions, on a connection that others may write through."""
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
        """Whether the connection is in one already: else each statement has a number of its own."""
        asked = "SELECT system.main.txid_current()"
        return self._run(asked, "table") == self._run(asked, "table")

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
        """Read text files, once, when the first question that was charged asks for rows."""
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
    """A stored table of somebody's connection, under its full name: nothing can stand before it."""
    duckdb, parts = package(), parts_of(table)
    try:
        found = connection.execute(_CATALOG).fetchall()
    except duckdb.Error as error:
        reason = type(error).__name__
    else:
        named = [one for one in found if one[2].casefold() == parts[-1].casefold()]
        stored = table_of(*_stored(table, parts, named))
        return DuckDBEngine(connection, stored, title=table, handed=True)
    failed("table", reason)


def _stored(table: str, parts: list[str], found: list[Row]) -> tuple[str, str, str]:
    """The one relation of this name; refused where it is no table of DuckDB's own."""
    above = [part.casefold() for part in parts[:-1]]
    names = [(database.casefold(), schema.casefold()) for database, schema, *_ in found]
    fit = [
        one
        for one, (database, schema) in zip(found, names, strict=True)
        if above in ([], [schema], [database], [database, schema])
    ]
    if not fit:
        failed("table", "CatalogException")
    if len(fit) > 1:
        remedy = "Give its full name: database.schema.name."
        errors.refuse(
            "Curator", "table", "one of the connection's", f"{len(fit)} of {table}", remedy
        )
    database, schema, name, kind, sql = fit[0]
    if kind != "duckdb":
        must_be_stored(table, "a view" if kind == "view" else f"of a database of type {kind}")
    if "GENERATED ALWAYS" in str(sql).upper():
        must_be_stored(table, "with generated columns")
    return database, schema, name


def embedded(source: Any, memory: str, threads: int | None) -> DuckDBEngine:
    """DuckDB in this process, over files or a frame."""
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
    # What did not fit into memory is written there: gone with the engine.
    engine._tidy = weakref.finalize(engine, rmtree, folder, ignore_errors=True)
    return engine


def _set(name: str, value: str) -> str:
    return f"SET {name} = {text(value)}"
