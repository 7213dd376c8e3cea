"""Convert frames to Arrow tables: types are decided here, from declarations and not from rows.

Conversion must succeed whatever the rows hold: an error here would be seen by whoever opens the
table, before anything is charged.
"""

from __future__ import annotations

from typing import Any

from tacit.privacy import errors


def arrow(frame: Any) -> Any:
    """Convert a frame to an Arrow table, with times in microseconds."""
    pa = pyarrow()
    if isinstance(frame, pa.Table):
        return _in_microseconds(frame)
    module, kind = type(frame).__module__.split(".")[0], type(frame).__name__
    if module == "polars" and hasattr(frame, "collect"):
        # A lazy frame is a view: its computation may fail on one row.
        remedy = "Collect it first: frame.collect()."
        errors.refuse("Curator", "source", "a table whose rows are stored", kind, remedy)
    if module not in ("pandas", "polars"):
        kinds = "a path, a pandas, Polars or Arrow table, or a connection"
        errors.refuse("Curator", "source", kinds, kind)
    try:
        if module == "polars":
            return _in_microseconds(frame.to_arrow())
        return _in_microseconds(pa.Table.from_pandas(_typed(frame), preserve_index=False))
    except Exception:  # pandas, Polars and Arrow have no common base
        message = (
            "Curator: source must be a table whose columns have one name and one type each. "
            "Convert them first."
        )
    raise errors.InvalidData(message)  # outside the handler: the original may quote the data


def fragile(schema: Any) -> frozenset[str]:
    """Return columns whose times DuckDB converts while reading, which fails on distant dates."""
    pa = pyarrow()

    def converted(kind: Any) -> bool:
        if pa.types.is_dictionary(kind):
            return converted(kind.value_type)
        if pa.types.is_timestamp(kind):
            return str(kind.unit) in ("s", "ms")
        return bool(pa.types.is_duration(kind) or pa.types.is_date64(kind))

    return frozenset(field.name for field in schema if converted(field.type))


def _in_microseconds(table: Any) -> Any:
    """Truncate nanoseconds, as pandas has them, to microseconds; other units could overflow."""
    pa = pyarrow()
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", field.type.tz)
            column = table.column(at).cast(kind, safe=False)
            table = table.set_column(at, field.name, column)
    return table


def _typed(frame: Any) -> Any:
    """Convert columns of Python objects to text: a type inferred from rows would reveal them.

    A value that is not text counts as missing, and so does text with lone surrogates, which UTF-8
    cannot encode.
    """
    texts = {
        name: [one if isinstance(one, str) and _encodes(one) else None for one in frame[name]]
        for name in frame.columns
        if not _is_stored(frame[name].dtype)
    }
    return frame.assign(**texts).astype(dict.fromkeys(texts, "string")) if texts else frame


def _is_stored(dtype: Any) -> bool:
    """Check for numbers, times and Arrow types: their conversion never depends on the values."""
    import pandas as pd  # type: ignore[import-untyped]

    if isinstance(dtype, pd.CategoricalDtype):
        return _is_stored(dtype.categories.dtype)
    if isinstance(dtype, pd.StringDtype):
        return str(dtype.storage).startswith("pyarrow")
    if isinstance(dtype, pd.ArrowDtype | pd.DatetimeTZDtype):
        return True
    if isinstance(dtype, pd.api.extensions.ExtensionDtype):
        return isinstance(dtype, pd.BooleanDtype) or str(dtype) in _NULLABLE
    return dtype.kind in "biufmM"


_NULLABLE = frozenset(
    [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)] + ["Float32", "Float64"]
)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def pyarrow() -> Any:
    """Import pyarrow, or say how to install it."""
    try:
        import pyarrow as package
    except ImportError:
        raise errors.TacitError(
            "queries: the pyarrow package must be installed to read text files and frames. "
            "pip install 'tacit[queries]'."
        ) from None
    return package
