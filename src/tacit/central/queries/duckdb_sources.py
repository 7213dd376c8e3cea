"""Files and frames as a table of an embedded DuckDB: which columns are read, and as which types.

The kind of each column is decided here, from names and types alone. Columns that DuckDB may fail
to convert on some rows are detected and not read.
"""

from __future__ import annotations

from collections.abc import Callable
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from tacit.central.queries import frames
from tacit.central.queries.compile import identifier, sqlglot
from tacit.central.queries.engine import failed
from tacit.central.queries.table import Column, Columns, Kind
from tacit.data import lines
from tacit.privacy import errors

TABLE = "data"

_KINDS = {
    Kind.WHOLE: "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER",
    Kind.REAL: "FLOAT DOUBLE HUGEINT UHUGEINT UBIGINT",
    Kind.TEXT: "VARCHAR UUID",
    Kind.TRUTH: "BOOLEAN",
    Kind.DATE: "DATE",
    # DuckDB would convert values or literals of other types while it reads; some would overflow.
    Kind.MOMENT: "TIMESTAMP",
}


def register(connection: Any, source: Any) -> dict[str, Any]:
    """Make the source the table `data`; return its title, columns and a function that fills it."""
    if not isinstance(source, str | Path):
        return {"title": TABLE, "columns": _frame(connection, frames.arrow(source))}
    paths = _files(str(source))
    title = Path(paths[0]).stem
    try:
        if paths[0].lower().endswith(".csv"):
            columns, fill = _text_files(connection, paths)
            return {"title": title, "columns": columns, "fill": fill}
        columns = _parquet_files(connection, paths)
        connection.execute(f"SET allowed_paths = {_texts(paths)}")
    except package().Error as error:
        reason = type(error).__name__
    else:
        return {"title": title, "columns": columns}
    failed("source", reason)


def _view(connection: Any, reader: str, names: list[str], fragile: frozenset[str]) -> Columns:
    """Create the table `data` from the readable columns of a reader; describe all columns.

    Other columns are left out of the table: DuckDB reads their statistics even if a query does not
    name them, and fails if they cannot be converted.
    """
    described = connection.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()
    columns = {name: column_of(name, kind) for name, kind, *_ in described}
    _must_keep_names(names, list(columns))
    for name in fragile:
        columns[name] = Column(name, Kind.OTHER, "a type that cannot always be converted")
    read = [name for name, column in columns.items() if column.kind is not Kind.OTHER]
    chosen = ", ".join(identifier(name).sql("duckdb") for name in read) or "NULL AS tacit_none"
    connection.execute(f"CREATE VIEW {TABLE} AS SELECT {chosen} FROM {reader}")
    return columns


def _frame(connection: Any, frame: Any) -> Columns:
    duckdb = package()
    try:
        connection.register("tacit_frame", frame)
        return _view(connection, "tacit_frame", frame.schema.names, frames.fragile(frame.schema))
    except duckdb.Error as error:
        reason = type(error).__name__
    _must_be_read(connection, frame.schema)
    failed("source", reason)


def _must_be_read(connection: Any, schema: Any) -> None:
    """Refuse the first column whose type DuckDB cannot read from Arrow, without using its rows."""
    duckdb = package()
    for at, field in enumerate(schema):
        try:
            connection.register("tacit_type", schema.empty_table().select([at]))
            connection.execute("SELECT * FROM tacit_type").fetchall()
            continue
        except duckdb.Error:
            pass
        remedy = "Convert it first."
        errors.refuse(
            "Curator", f"column {field.name!r}", "of a type that DuckDB reads", field.type, remedy
        )


def _text_files(connection: Any, paths: list[str]) -> tuple[Columns, Callable[[], None]]:
    """Create an empty table of text; return its columns and a function that adds a row per line.

    DuckDB's own CSV reader finds records by their quotes, so one person's quote could swallow the
    rows of others.
    """
    headers = [_header(path) for path in paths]
    _must_agree(paths, headers)
    _must_differ(headers[0])
    names = [identifier(name).sql("duckdb") for name in headers[0]]
    connection.execute(f"CREATE TABLE {TABLE} ({', '.join(f'{one} VARCHAR' for one in names)})")
    chosen = ", ".join(f"NULLIF({one}, '')" for one in names)

    def fill() -> None:
        pa = frames.pyarrow()
        schema = pa.schema([(name, pa.string()) for name in headers[0]])
        read = (batch for path in paths for batch in lines.batches(path))
        connection.register("tacit_lines", pa.RecordBatchReader.from_batches(schema, read))
        try:
            connection.execute(f"INSERT INTO {TABLE} SELECT {chosen} FROM tacit_lines")
        finally:
            connection.unregister("tacit_lines")

    return {name: Column(name, Kind.LOOSE, "VARCHAR") for name in headers[0]}, fill


def _parquet_files(connection: Any, paths: list[str]) -> Columns:
    """Read the files as one table; they must have the same columns and types."""
    readers = [f"read_parquet({text(one)}, hive_partitioning = false)" for one in paths]
    described = [connection.execute(f"DESCRIBE SELECT * FROM {one}").fetchall() for one in readers]
    _must_agree(paths, [[(name, kind) for name, kind, *_ in rows] for rows in described])
    known = [_parquet_columns(connection, path) for path in paths]
    _must_agree(paths, [names for names, _ in known])
    reader = f"read_parquet({_texts(paths)}, hive_partitioning = false)"
    fragile = frozenset().union(*(some for _, some in known))
    return _view(connection, reader, known[0][0], fragile)


def _must_keep_names(names: list[str], described: list[str]) -> None:
    """Refuse names that DuckDB changes, as it does if two names differ only in case.

    What is known about a column by its name would be lost.
    """
    _must_differ(names)
    if names != described:
        failed("source", "renamed columns")


def _must_differ(names: list[str]) -> None:
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            remedy = "Rename one of them."
            errors.refuse("Curator", "column", "unique, ignoring case", name, remedy)


def _must_agree(paths: list[str], columns: list[Any]) -> None:
    """Refuse a file that differs from the first, whose columns and types are used for all."""
    for path, own in zip(paths, columns, strict=True):
        if own != columns[0]:
            remedy = "Write all files with the same columns, in the same order."
            errors.refuse("Curator", "files", "of the same columns and types", path, remedy)


def _parquet_columns(connection: Any, path: str) -> tuple[list[str], frozenset[str]]:
    """Return the names in the file, and those of times in milliseconds or 96 bits.

    DuckDB converts such times while it reads, which fails on distant dates.
    """
    elements = connection.execute(
        "SELECT num_children, name, type, converted_type, logical_type::VARCHAR "
        f"FROM parquet_schema({text(path)})"
    ).fetchall()
    top, inside = [], 0
    for children, *column in elements[1:]:  # the first is the root
        if not inside:
            top.append(column)
        inside += (children or 0) - (1 if inside else 0)
    fragile = (
        name
        for name, kind, converted, logical in top
        if kind == "INT96" or "MILLI" in f"{converted} {logical}".upper()
    )
    return [name for name, *_ in top], frozenset(fragile)


def _files(source: str) -> list[str]:
    paths = sorted(glob(source)) if has_magic(source) else [source]
    if not paths or not all(Path(path).is_file() for path in paths):
        errors.refuse("Curator", "source", "a file that exists", source)
    kinds = {Path(path).suffix.lower() for path in paths}
    if kinds != {".parquet"} and kinds != {".csv"}:
        errors.refuse("Curator", "source", "Parquet (.parquet) or CSV (.csv) files", source)
    # Two links to one file would count its rows twice.
    known: dict[tuple[int, int], str] = {}
    for path in paths:
        state = Path(path).stat()
        known.setdefault((state.st_dev, state.st_ino), str(Path(path).resolve()))
    for path in known.values():
        if has_magic(path):  # DuckDB would read it as a pattern
            errors.refuse("Curator", "source", "a path without *, ? and [", path, "Rename it.")
    return list(known.values())


def _header(path: str) -> list[str]:
    try:
        return lines.header(path)
    except (errors.InvalidData, OSError):
        pass
    wanted = "a CSV file with unique column names in its first line"
    errors.refuse("Curator", "source", wanted, path)


def column_of(name: str, kind: str) -> Column:
    """Describe a column by DuckDB's name of its type."""
    base = kind.split("(")[0]
    for known, types in _KINDS.items():
        if base in types.split():
            return Column(name, known, base)
    if base == "ENUM":
        return Column(name, Kind.TEXT, base)
    return Column(name, Kind.DECIMAL if base == "DECIMAL" else Kind.OTHER, base)


def text(value: str) -> str:
    """Quote a text literal."""
    return str(sqlglot().exp.Literal.string(value).sql("duckdb"))


def _texts(values: list[str]) -> str:
    return f"[{', '.join(map(text, values))}]"


def package() -> Any:
    """Import DuckDB, or say how to install it."""
    try:
        import duckdb
    except ImportError:
        raise errors.TacitError(
            "queries: the duckdb package must be installed. pip install 'tacit[queries]'."
        ) from None
    return duckdb
