"""DuckDB: embedded over files and frames, or a connection of yours.

The embedded one gets a limit of memory, reads the given files and no others, loads no extension,
and its settings are locked before the first question.

DuckDB holds NaN to be the largest number, but the largest value that a Parquet file states leaves
NaN out, and by that value DuckDB decides comparisons and skips row groups. Whether a NaN fulfils
x > 5 then depends on the rows beside it, and one row more could bring many of them into a count.
So both optimisers that read such statistics are off while a question is answered.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from tacit.central.queries.compile import Compiler, identifier, parts_of, sqlglot, table_of
from tacit.central.queries.engine import Row, failed, must_be_stored
from tacit.central.queries.table import Column, Kind
from tacit.data import lines
from tacit.privacy import errors

TABLE, KEPT = "data", "tacit_kept"

_KINDS = {
    Kind.WHOLE: "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER",
    Kind.REAL: "FLOAT DOUBLE HUGEINT UHUGEINT UBIGINT",
    Kind.TEXT: "VARCHAR UUID",
    Kind.TRUTH: "BOOLEAN",
    Kind.DATE: "DATE",
    # Others would be converted while rows are read, or literals to them, and some do not fit.
    Kind.MOMENT: "TIMESTAMP",
}
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
}


_CATALOG = """
SELECT t.database_name, t.schema_name, t.table_name, d.type, t.sql
FROM duckdb_tables() t JOIN duckdb_databases() d USING (database_name)
WHERE lower(t.table_name) = lower($1)
UNION ALL
SELECT database_name, schema_name, view_name, 'view', '' FROM duckdb_views()
WHERE lower(view_name) = lower($1)
"""
_BY_STATISTICS = {"filter_pushdown", "statistics_propagation"}


class DuckDBEngine:
    """A table of a DuckDB connection."""

    def __init__(
        self,
        connection: Any,
        table: Any,
        *,
        title: str,
        loose: bool = False,
        fragile: frozenset[str] = frozenset(),
        fill: Callable[[], None] | None = None,
    ) -> None:
        self.title, self.statements, self.table = title, 0, table
        self._fill = fill
        self._connection = connection
        self._tidy: weakref.finalize[Any, Any] | None = None
        described = self._run(f"DESCRIBE SELECT * FROM {self.table.sql('duckdb')}", "table")
        columns = {name: _column(name, kind, loose) for name, kind, *_ in described}
        for name in fragile & columns.keys():
            columns[name] = Column(name, Kind.OTHER, "a type that cannot always be converted")
        self.compiler = Compiler(columns, "duckdb")
        with self.session():  # settings that are locked are found out before anything is charged
            pass

    @contextmanager
    def session(self) -> Iterator[None]:
        ((found,),) = self._run("SELECT current_setting('disabled_optimizers')", "table")
        before = {name for name in str(found).split(",") if name}
        if missing := _BY_STATISTICS - before:
            self._run(_disable(before | missing), "table")
        try:
            yield
        finally:
            if missing:
                self._run(_disable(before), "table")
            self._run(f"DROP TABLE IF EXISTS temp.{KEPT}", "table")

    def rows(self, tree: Any) -> list[Row]:
        self._fetch()
        self.statements += 1
        return self._run(self.compiler.sql(tree), "rows")

    def keep(self, tree: Any) -> None:
        """Store a result as the temporary table `KEPT`, for the rest of this session."""
        self._fetch()
        self.statements += 1
        self._run(f"CREATE OR REPLACE TEMP TABLE {KEPT} AS {self.compiler.sql(tree)}", "rows")

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
        found = connection.execute(_CATALOG, [parts[-1]]).fetchall()
    except duckdb.Error as error:
        reason = type(error).__name__
    else:
        return DuckDBEngine(connection, table_of(*_stored(table, parts, found)), title=table)
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
        options = _register(connection, source)
        connection.execute(_disable(_BY_STATISTICS))
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


def _disable(optimisers: set[str]) -> str:
    return f"SET disabled_optimizers = {_text(','.join(sorted(optimisers)))}"


def _register(connection: Any, source: Any) -> dict[str, Any]:
    """Make the source the table `data`, and allow its files: what the engine must know of it.

    Its title, whether it is text, the columns that the engine may fail to read, and what is still
    to be read.
    """
    if not isinstance(source, str | Path):
        frame = _in_microseconds(_arrow(source))
        connection.register("tacit_frame", frame)
        connection.execute(f"CREATE VIEW {TABLE} AS SELECT * FROM tacit_frame")
        return {"title": TABLE, "fragile": _fragile_fields(frame.schema)}
    paths = _files(str(source))
    title = Path(paths[0]).stem
    try:
        if paths[0].lower().endswith(".csv"):
            return {"title": title, "loose": True, "fill": _text_files(connection, paths)}
        reader = f"read_parquet({_texts(paths)}, hive_partitioning = false)"
        connection.execute(f"CREATE VIEW {TABLE} AS SELECT * FROM {reader}")
        _must_agree(paths, [_parquet_types(connection, path) for path in paths])
        fragile = _fragile_columns(connection, paths)
    except package().Error as error:
        reason = type(error).__name__
    else:
        connection.execute(f"SET allowed_paths = {_texts(paths)}")
        return {"title": title, "fragile": fragile}
    failed("source", reason)


def _text_files(connection: Any, paths: list[str]) -> Callable[[], None]:
    """An empty table of the columns, and what fills it: one row for each line, all of it text.

    DuckDB's own reader finds records by their quotes, so that one person's could swallow others.
    """
    headers = [_header(path) for path in paths]
    _must_agree(paths, headers)
    names = [identifier(name).sql("duckdb") for name in headers[0]]
    connection.execute(f"CREATE TABLE {TABLE} ({', '.join(f'{one} VARCHAR' for one in names)})")
    chosen = ", ".join(f"NULLIF({one}, '')" for one in names)

    def fill() -> None:
        pa = _pyarrow()
        schema = pa.schema([(name, pa.string()) for name in headers[0]])
        read = (batch for path in paths for batch in lines.batches(path))
        connection.register("tacit_lines", pa.RecordBatchReader.from_batches(schema, read))
        try:
            connection.execute(f"INSERT INTO {TABLE} SELECT {chosen} FROM tacit_lines")
        finally:
            connection.unregister("tacit_lines")

    return fill


def _parquet_types(connection: Any, path: str) -> list[Any]:
    reader = f"read_parquet({_text(path)}, hive_partitioning = false)"
    described = connection.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()
    return [(name, kind) for name, kind, *_ in described]


def _must_agree(paths: list[str], columns: list[Any]) -> None:
    """Files are read as the first is: another type would fail, another order be another column."""
    for path, found in zip(paths, columns, strict=True):
        if found != columns[0]:
            remedy = "Write them alike."
            errors.refuse("Curator", "files", "of the same columns and types", path, remedy)


def _fragile_columns(connection: Any, paths: list[str]) -> frozenset[str]:
    """Times in milliseconds or 96 bits: converted while reading, which fails on far ones."""
    found = connection.execute(
        "SELECT name, type, converted_type, logical_type::VARCHAR "
        f"FROM parquet_schema({_texts(paths)})"
    ).fetchall()
    return frozenset(
        name
        for name, kind, converted, logical in found
        if kind == "INT96" or "MILLI" in f"{converted} {logical}".upper()
    )


def _fragile_fields(schema: Any) -> frozenset[str]:
    import pyarrow as pa

    def converted(kind: Any) -> bool:
        if pa.types.is_timestamp(kind):
            return str(kind.unit) in ("s", "ms")
        return bool(pa.types.is_duration(kind) or pa.types.is_date64(kind))

    return frozenset(field.name for field in schema if converted(field.type))


def _files(source: str) -> list[str]:
    paths = sorted(glob(source)) if has_magic(source) else [source]
    if not paths or not all(Path(path).is_file() for path in paths):
        errors.refuse("Curator", "source", "a file that exists", source)
    kinds = {Path(path).suffix.lower() for path in paths}
    if kinds != {".parquet"} and kinds != {".csv"}:
        errors.refuse("Curator", "source", "Parquet (.parquet) or CSV (.csv) files", source)
    # A link is not another file: its rows would count twice.
    known: dict[tuple[int, int], str] = {}
    for path in paths:
        state = Path(path).stat()
        known.setdefault((state.st_dev, state.st_ino), str(Path(path).resolve()))
    for path in known.values():
        if has_magic(path):  # DuckDB would take it for a pattern
            errors.refuse("Curator", "source", "a path without *, ? and [", path, "Rename it.")
    return list(known.values())


def _header(path: str) -> list[str]:
    try:
        return lines.header(path)
    except (errors.InvalidData, OSError):
        pass
    wanted = "a CSV file whose first line names its columns, each once"
    errors.refuse("Curator", "source", wanted, path)


def _column(name: str, kind: str, loose: bool) -> Column:
    base = kind.split("(")[0]
    if loose:
        return Column(name, Kind.LOOSE, base)
    for known, types in _KINDS.items():
        if base in types.split():
            return Column(name, known, base)
    if base == "ENUM":
        return Column(name, Kind.TEXT, base)
    return Column(name, Kind.DECIMAL if base == "DECIMAL" else Kind.OTHER, base)


def _arrow(frame: Any) -> Any:
    """A frame as an Arrow table: types are settled here, once, not while a question runs."""
    pa = _pyarrow()
    if isinstance(frame, pa.Table):
        return frame
    module = type(frame).__module__.split(".")[0]
    try:
        if module == "polars":
            return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        if module == "pandas":
            return pa.Table.from_pandas(_typed(frame), preserve_index=False)
    except (pa.ArrowException, AttributeError, TypeError, ValueError):
        message = "Curator: source must have columns of one type and name each. Convert them first."
        raise errors.InvalidData(message) from None  # the original may quote the data
    kinds = "a path, a pandas, Polars or Arrow table, or a connection"
    errors.refuse("Curator", "source", kinds, type(frame).__name__)


def _in_microseconds(table: Any) -> Any:
    """Nanoseconds, as pandas has them, cut off; no other unit of time fits whatever it holds."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", field.type.tz)
            column = table.column(at).cast(kind, safe=False)
            table = table.set_column(at, field.name, column)
    return table


def _typed(frame: Any) -> Any:
    """With columns of objects as text: a type found out from the rows would tell of them.

    What is no text counts as missing, and so is text that UTF-8 does not have (lone surrogates).
    """
    texts = {
        name: [one if isinstance(one, str) and _encodes(one) else None for one in frame[name]]
        for name in frame.columns
        if frame[name].dtype == object
    }
    return frame.assign(**texts).astype(dict.fromkeys(texts, "string")) if texts else frame


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise errors.TacitError(
            "queries: the pyarrow package must be installed to read text files and frames. "
            "pip install 'tacit[queries]'."
        ) from None
    return pyarrow


def _text(value: str) -> str:
    return str(sqlglot().exp.Literal.string(value).sql("duckdb"))


def _texts(values: list[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def package() -> Any:
    """DuckDB, or one line that says how to get it."""
    try:
        import duckdb
    except ImportError:
        raise errors.TacitError(
            "queries: the duckdb package must be installed. pip install 'tacit[queries]'."
        ) from None
    return duckdb
