"""Frames as Arrow tables: types are settled here, once, from declarations and not from rows.

Whatever a row holds, a frame of the same types is converted: an error here would be seen by whoever
opens the table, and nothing was charged for it.
"""

from __future__ import annotations

from typing import Any

from tacit.privacy import errors


def arrow(frame: Any) -> Any:
    """A frame as an Arrow table, with times in microseconds."""
    pa = pyarrow()
    if isinstance(frame, pa.Table):
        return _in_microseconds(frame)
    module, kind = type(frame).__module__.split(".")[0], type(frame).__name__
    if module == "polars" and hasattr(frame, "collect"):
        # It is a view: what it computes may fail on one row.
        remedy = "Collect it first: frame.collect()."
        errors.refuse("Curator", "source", "a table whose rows are stored", kind, remedy)
    if module not in ("pandas", "polars"):
        kinds = "a path, a pandas, Polars or Arrow table, or a connection"
        errors.refuse("Curator", "source", kinds, kind)
    try:
        if module == "polars":
            return _in_microseconds(frame.to_arrow())
        return _in_microseconds(pa.Table.from_pandas(_typed(frame), preserve_index=False))
    except Exception:  # of whichever package
        message = "Curator: source must have columns of one type and name each. Convert them first."
    raise errors.InvalidData(message)  # outside the handler: the original may quote the data


def fragile(schema: Any) -> frozenset[str]:
    """The columns whose times DuckDB converts while it reads, which fails on far ones."""
    pa = pyarrow()

    def converted(kind: Any) -> bool:
        if pa.types.is_dictionary(kind):
            return converted(kind.value_type)
        if pa.types.is_timestamp(kind):
            return str(kind.unit) in ("s", "ms")
        return bool(pa.types.is_duration(kind) or pa.types.is_date64(kind))

    return frozenset(field.name for field in schema if converted(field.type))


def _in_microseconds(table: Any) -> Any:
    """Nanoseconds, as pandas has them, cut off; no other unit of time fits whatever it holds."""
    pa = pyarrow()
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", field.type.tz)
            column = table.column(at).cast(kind, safe=False)
            table = table.set_column(at, field.name, column)
    return table


def _typed(frame: Any) -> Any:
    """With columns of Python objects as text: a type found out from the rows would tell of them.

    What is no text counts as missing, and so is text that UTF-8 does not have (lone surrogates).
    """
    texts = {
        name: [one if isinstance(one, str) and _encodes(one) else None for one in frame[name]]
        for name in frame.columns
        if not _is_stored(frame[name].dtype)
    }
    return frame.assign(**texts).astype(dict.fromkeys(texts, "string")) if texts else frame


def _is_stored(dtype: Any) -> bool:
    """Whether values are numbers, times or Arrow's own, which are converted whatever they hold."""
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
    """The package, or one line that says how to get it."""
    try:
        import pyarrow as found
    except ImportError:
        raise errors.TacitError(
            "queries: the pyarrow package must be installed to read text files and frames. "
            "pip install 'tacit[queries]'."
        ) from None
    return found
