"""Files of rows, CSV or Parquet, read in batches, so that they may be larger than memory.

Text files are read as described in `lines`: one physical line is one record. Column types come from
the schema, if there is one: text in a column of numbers is a missing value, and a line that cannot
be parsed is a row of missing values. The schema says what happens to missing values. Without a
schema, no guarantee depends on the rows of a file: types are guessed from its first lines, and
values that do not have them are refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import lines
from tacit.data.schema import ArraySchema, Continuous, Schema, TableSchema
from tacit.privacy import errors

BATCH_ROWS = 8192
_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv"), (".parquet", ".pq")
_NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"


def batches(
    path: str | Path,
    given: Schema | None = None,
    rows: int = BATCH_ROWS,
    *,
    words: str | Sequence[str] | None = None,
) -> Iterator[Any]:
    """Yield the Arrow record batches of a file, none empty; refuse a file without rows.

    `words` names columns of a CSV file to be read as text, whatever they look like.
    """
    path = Path(path)
    _must_be_readable(path)
    lower = path.name.lower()
    pa, any_rows = _arrow(), False
    stream = _text(path, given, rows, words) if lower.endswith(_CSV) else _parquet(path, rows)
    try:
        for batch in stream:
            names = batch.schema.names
            if len(set(names)) != len(names):
                raise errors.InvalidData(f"{path}: its columns must have distinct names.")
            if batch.num_rows:
                any_rows = True
                yield batch
    except (pa.ArrowException, EOFError, OSError, zlib.error):
        # `from None`: Arrow's own message may quote a line of the file.
        raise errors.InvalidData(f"{path}: {_complaint(lower)}") from None
    if not any_rows:
        raise errors.InvalidData(f"{path}: it must have at least one row.")


def read(path: str | Path, given: TableSchema) -> Any:
    """Read the schema's columns as one Arrow table, for users such as estimators.

    Numbers and texts are as in the file: bounds and categories are not applied. A missing value,
    or text in a column of numbers, is null. How a line of a text file is read depends on that line
    alone, and no line changes the type of a column.
    """
    known = names(path)
    for name in given.names:
        if name not in known:
            # The file's columns are not listed: without a header they are a person's row.
            remedy = "Check that the first line of a text file is a header."
            raise errors.InvalidParameter(f"{path}: column {name!r} must be present. {remedy}")
    selected = [batch.select(list(given.names)) for batch in batches(path, given)]
    return _arrow().Table.from_batches(selected)


def _must_be_readable(path: Path) -> None:
    if not path.is_file():
        errors.refuse("data", "path", "an existing file", str(path), "Check the path.")
    if not path.name.lower().endswith(_CSV + _PARQUET):
        remedy = "Convert it first."
        errors.refuse("data", "file", f"one of {', '.join(_CSV + _PARQUET)}", path.name, remedy)


def _delimiter(path: Path) -> str:
    return "\t" if path.name.lower().endswith(".tsv") else ","


def _complaint(name: str) -> str:
    if name.endswith(_PARQUET):
        return "it must be a readable Parquet file. It may be damaged."
    return (
        "it must be a CSV file with a header, and every column must have the type in the schema. "
        "Look for text in columns of numbers, and for lines with another number of fields."
    )


def sample(path: str | Path, most: int, seed: int, given: Schema | None = None) -> tuple[Any, int]:
    """Draw at most this many rows uniformly; return them and the number of rows in the file.

    Every row draws a random number; those with the smallest are kept.
    """
    most = errors.whole("data", "rows", most, least=1)
    pa, rng = _arrow(), np.random.default_rng(seed)
    kept: list[Any] = []
    keys = np.empty(0)
    total = 0
    for batch in batches(path, given):
        kept.append(pa.Table.from_batches([batch]))
        keys = np.concatenate([keys, rng.random(batch.num_rows)])
        total += batch.num_rows
        if len(keys) > 2 * most:
            kept, keys = _smallest(kept, keys, most)
    kept, _ = _smallest(kept, keys, most)
    return kept[0].combine_chunks(), total


def _smallest(
    tables: list[Any], keys: npt.NDArray[np.float64], most: int
) -> tuple[list[Any], npt.NDArray[np.float64]]:
    joined = _arrow().concat_tables(tables, promote_options="permissive")
    if len(keys) <= most:
        return [joined], keys
    chosen = np.sort(np.argpartition(keys, most)[:most])
    return [joined.take(chosen)], keys[chosen]


def names(path: str | Path) -> list[str]:
    """Return the names of a file's columns, without reading a row."""
    path = Path(path)
    _must_be_readable(path)
    pa = _arrow()
    import pyarrow.parquet as pq

    try:
        if path.name.lower().endswith(_CSV):
            return lines.header(path, _delimiter(path))
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, EOFError, OSError, zlib.error):
        raise errors.InvalidData(f"{path}: {_complaint(path.name.lower())}") from None


def count(path: str | Path) -> int | None:
    """Return the number of rows if the file's metadata states it, else None."""
    if not str(path).lower().endswith(_PARQUET) or not Path(path).is_file():
        return None
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return int(file.metadata.num_rows)
    except Exception:  # reading it will report what is wrong
        return None


def split_label(
    batch: Any, label: str | None, path: str | Path
) -> tuple[Any, npt.NDArray[Any] | None]:
    """Split a batch into the rows without the label column, and the labels."""
    if label is None:
        return batch, None
    if label not in batch.schema.names:
        errors.refuse("data", "label", f"a column of {path}", label, "Check that it has a header.")
    rest = without_label(batch, label, path)
    column = batch.column(label)
    if column.null_count:
        raise errors.InvalidData(
            f"{path}: column {label!r} must be without missing values. Drop the rows that have no "
            "label, or declare a class for them."
        )
    return rest, np.array(column.to_pylist(), dtype=object)


def split_outcome(batch: Any, name: str, path: str | Path) -> tuple[Any, npt.NDArray[Any]]:
    """Split a batch into the rows and a column of outcomes, whatever its values are."""
    if name not in batch.schema.names:
        errors.refuse("data", "label", f"a column of {path}", name, "Check that it has a header.")
    values = batch.column(name).to_pylist()
    return without_label(batch, name, path), np.array([*values, None], dtype=object)[:-1]


def without_label(batch: Any, label: str | None, path: str | Path) -> Any:
    """Drop the label column of a batch, whatever the labels are."""
    if label is None:
        return batch
    if label not in batch.schema.names:
        remedy = "If these rows have no label, leave it out; else check that there is a header."
        errors.refuse("data", "label", f"a column of {path}", label, remedy)
    return batch.drop_columns([label])


def words_of(classes: tuple[Any, ...] | None, label: str | None) -> str | None:
    """Return the label column if labels are words: "01" must not be read as a number."""
    return label if classes and isinstance(classes[0], str) else None


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Make errors about data name the file."""
    try:
        yield
    except errors.InvalidData as error:
        raise errors.InvalidData(f"{path}: {error}") from None


def as_classes(
    values: npt.NDArray[Any], classes: tuple[Any, ...] | None, where: str
) -> npt.NDArray[Any]:
    """Convert labels of a file to the type of the classes: "3" is 3 if classes are numbers."""
    wanted = int if classes and isinstance(classes[0], int) else str
    try:
        if wanted is str:
            return np.array([str(value) for value in values])
        numbers = [int(value) for value in values]
        if any(float(value) != number for value, number in zip(values, numbers, strict=True)):
            raise ValueError
        return np.array(numbers)
    except (TypeError, ValueError, OverflowError):
        raise errors.InvalidData(
            f"{where}: labels must be whole numbers, as the declared classes are."
        ) from None


def as_numbers(values: npt.NDArray[Any], where: str) -> npt.NDArray[np.float64]:
    """Convert the outcomes of a file to numbers."""
    try:
        numbers = np.array([float(value) for value in values])
    except (TypeError, ValueError, OverflowError):
        raise errors.InvalidData(f"{where}: outcomes must be numbers.") from None
    if not bool(np.isfinite(numbers).all()):
        raise errors.InvalidData(f"{where}: outcomes must be finite numbers.")
    return numbers


def _nulls(declared: set[str]) -> Any:
    """Return the texts that mean a missing value: Arrow's, except declared categories."""
    from pyarrow import csv

    words = csv.ConvertOptions().null_values
    return _arrow().array([word for word in words if word not in declared])


def _text(
    path: Path, given: Schema | None, rows: int, words: str | Sequence[str] | None
) -> Iterator[Any]:
    """Yield batches of a text file; with a schema, no record affects how another one is read."""
    pa = _arrow()
    types = {} if given is None else _types(given)
    types |= dict.fromkeys([words] if isinstance(words, str) else words or (), pa.string())
    nulls, first = _nulls(_declared(given)), True
    for batch in lines.batches(path, _delimiter(path)):
        if first:
            columns_by_name = zip(batch.schema.names, batch.columns, strict=True)
            types = {name: _guessed(column, nulls) for name, column in columns_by_name} | types
            first = False
        columns = [
            _read(column, types[name], nulls, strict=given is None)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        read = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        for start in range(0, read.num_rows, rows):
            yield read.slice(start, rows)


def _guessed(column: Any, nulls: Any) -> Any:
    """Guess the type of a column: numbers if every value is one."""
    numbers = _numbers(_without(column, nulls))
    whole = numbers.null_count == _without(column, nulls).null_count
    return _arrow().float64() if whole else _arrow().string()


def _read(column: Any, kind: Any, nulls: Any, *, strict: bool) -> Any:
    """Convert text to the column's type; other text is an error if strict, else missing."""
    pa = _arrow()
    if strict and column.null_count:
        raise pa.ArrowInvalid("a line with another number of fields")
    text = _without(column, nulls)
    if kind == pa.string():
        return text
    numbers = _numbers(text)
    if strict and numbers.null_count > text.null_count:
        raise pa.ArrowInvalid("text in a column of numbers")
    return numbers


def _without(column: Any, nulls: Any) -> Any:
    import pyarrow.compute as pc

    return pc.if_else(pc.is_in(column, nulls), _arrow().scalar(None, _arrow().string()), column)


def _numbers(text: Any) -> Any:
    """Convert each text by itself to a finite number; all others are missing."""
    import pyarrow.compute as pc

    pa = _arrow()
    trimmed = pc.utf8_trim_whitespace(text)
    plain = pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, None)
    values = pc.utf8_ltrim(plain, "+").cast(pa.float64())
    return pc.if_else(pc.is_finite(values), values, None)


def _parquet(path: Path, rows: int) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=rows)


def _declared(given: Schema | None) -> set[str]:
    if not isinstance(given, TableSchema):
        return set()
    return {category for column in given.categorical for category in column.categories}


def _types(given: Schema) -> dict[str, Any]:
    pa = _arrow()
    if isinstance(given, ArraySchema):
        return dict.fromkeys(given.columns or (), pa.float64())
    return {
        column.name: pa.float64() if isinstance(column, Continuous) else pa.string()
        for column in given.columns
    }


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise errors.TacitError(
            "data: CSV and Parquet need the pyarrow package. pip install 'tacit[collect]'."
        ) from None
    return pyarrow
