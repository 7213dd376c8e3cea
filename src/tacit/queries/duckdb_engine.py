"""DuckDB: embedded over files and frames, or a connection of yours.

The embedded one gets a limit of memory, reads the given files and no others, loads no extension,
and its settings are locked before the first question.

DuckDB holds NaN to be the largest number, but the largest value that a Parquet file states leaves
NaN out, and by that value DuckDB decides comparisons and skips row groups. Whether a NaN fulfils
x > 5 then depends on the rows beside it, and one row more could bring many of them into a count.
So both optimisers that read such statistics are off while a question is answered.
"""

from __future__ import annotations

import csv
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from tacit import errors
from tacit.queries.compile import Compiler, sqlglot, table_of
from tacit.queries.engine import Row, failed
from tacit.queries.table import Column, Kind

TABLE, KEPT = "data", "tacit_kept"

_KINDS = {
    Kind.WHOLE: "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER",
    Kind.REAL: "FLOAT DOUBLE HUGEINT UHUGEINT UBIGINT",
    Kind.TEXT: "VARCHAR UUID",
    Kind.TRUTH: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.MOMENT: "TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS",
}
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
}


_BY_STATISTICS = {"filter_pushdown", "statistics_propagation"}


class DuckDBEngine:
    """A table of a DuckDB connection."""

    def __init__(
        self, connection: Any, table: str, *, title: str | None = None, loose: bool = False
    ) -> None:
        self.title, self.statements = title or table, 0
        self.table = table_of(table)
        self._connection = connection
        self._tidy: weakref.finalize[Any, Any] | None = None
        described = self._run(f"DESCRIBE SELECT * FROM {self.table.sql('duckdb')}", "table")
        columns = {name: _column(name, kind, loose) for name, kind, *_ in described}
        self.compiler = Compiler(columns, "duckdb")

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
                self._connection.execute(_disable(before))
            self._connection.execute(f"DROP TABLE IF EXISTS temp.{KEPT}")

    def rows(self, tree: Any) -> list[Row]:
        self.statements += 1
        return self._run(self.compiler.sql(tree), "rows")

    def keep(self, tree: Any) -> None:
        """Store a result as the temporary table `KEPT`, for the rest of this session."""
        self.statements += 1
        self._run(f"CREATE OR REPLACE TEMP TABLE {KEPT} AS {self.compiler.sql(tree)}", "rows")

    def close(self) -> None:
        if self._tidy is not None:
            self._connection.close()
            self._tidy()

    def _run(self, sql: str, what: str) -> list[Row]:
        duckdb = package()
        try:
            return list(self._connection.execute(sql).fetchall())
        except duckdb.Error as error:
            reason = type(error).__name__
        failed(what, reason)  # outside the handler: no chained message


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
        title, loose = _register(connection, source)
        connection.execute(_disable(_BY_STATISTICS))
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        engine = DuckDBEngine(connection, TABLE, title=title, loose=loose)
    except BaseException:
        connection.close()
        rmtree(folder, ignore_errors=True)
        raise
    # What did not fit into memory is written there: gone with the engine.
    engine._tidy = weakref.finalize(engine, rmtree, folder, ignore_errors=True)
    return engine


def _disable(optimisers: set[str]) -> str:
    return f"SET disabled_optimizers = {_text(','.join(sorted(optimisers)))}"


def _register(connection: Any, source: Any) -> tuple[str, bool]:
    """Make the source the table `data`, and allow its files; its title, and whether it is CSV."""
    if not isinstance(source, str | Path):
        connection.register("tacit_frame", _arrow(source))
        connection.execute(f"CREATE VIEW {TABLE} AS SELECT * FROM tacit_frame")
        return TABLE, False
    paths = _files(str(source))
    try:
        connection.execute(f"CREATE VIEW {TABLE} AS {_reader(paths)}")
    except package().Error as error:
        reason = type(error).__name__
    else:
        connection.execute(f"SET allowed_paths = {_texts(paths)}")
        return Path(paths[0]).stem, paths[0].lower().endswith(".csv")
    failed("source", reason)


def _files(source: str) -> list[str]:
    paths = sorted(glob(source)) if has_magic(source) else [source]
    if not paths or not all(Path(path).is_file() for path in paths):
        errors.refuse("Curator", "source", "a file that exists", source)
    kinds = {Path(path).suffix.lower() for path in paths}
    if kinds != {".parquet"} and kinds != {".csv"}:
        errors.refuse("Curator", "source", "Parquet (.parquet) or CSV (.csv) files", source)
    return [str(Path(path).resolve()) for path in paths]


def _reader(paths: list[str]) -> str:
    if paths[0].lower().endswith(".parquet"):
        return f"SELECT * FROM read_parquet({_texts(paths)})"
    names = _header(paths[0])
    # Every column is text: types guessed from the rows would be told from the rows.
    types = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
    options = "header = true, delim = ',', quote = '\"', escape = '\"', auto_detect = false"
    lenient = "ignore_errors = true, null_padding = true, strict_mode = false, parallel = false"
    reader = f"read_csv({_texts(paths)}, {options}, {lenient}, columns = {{{types}}})"
    return f"SELECT * FROM {reader}"


def _header(path: str) -> list[str]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file), [])
    if not names or len(set(names)) != len(names) or not all(names):
        errors.refuse("Curator", "source", "a CSV file whose first line names its columns", path)
    return names


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
    try:
        import pyarrow as pa
    except ImportError:
        raise errors.TacitError(
            "queries: the pyarrow package must be installed to read frames. "
            "pip install 'tacit[queries]'."
        ) from None
    if isinstance(frame, pa.Table):
        return frame
    module = type(frame).__module__.split(".")[0]
    try:
        if module == "polars":
            return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        if module == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        message = "Curator: source must have columns of one type each. Convert them first."
        raise errors.InvalidData(message) from None  # the original may quote the data
    kinds = "a path, a pandas, Polars or Arrow table, or a connection"
    errors.refuse("Curator", "source", kinds, type(frame).__name__)


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
