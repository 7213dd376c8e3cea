"""A user's own table: a CSV or Parquet file, and a JSON file that describes it publicly.

The JSON file is a table schema as `TableSchema.to_plain` writes it, with two more keys::

    {"kind": "table", "columns": [...],
     "label": {"column": "loyal", "classes": ["no", "yes"]},
     "join": ["income"]}

`label` may be the column's name alone; its values are then read off the rows. `join`, which may be
left out, names the columns that another party holds. Columns of the file that the schema does not
name are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tacit.data import schema
from tacit.data.datasets.arrow import label_codes, read_table, select
from tacit.data.datasets.base import Dataset, Pools
from tacit.data.datasets.files import sha256_of
from tacit.data.schema import TableSchema
from tacit.data.schema_inference import MOST_CATEGORIES
from tacit.data.tables import as_classes, split_label
from tacit.privacy import errors

TEST, INHOUSE, PEOPLE = 0.2, 0.6, 0.3
"""Share of test rows; of the rest, shares of in-house rows and people. Voters get what remains."""


def load(data: str, described: str | Path | None) -> Dataset:
    """Load the rows of a file, with random splits by the shares of this module."""
    path = Path(data)
    if described is None:
        remedy = "It declares columns, bounds, categories and the label."
        errors.refuse("datasets", "schema", f"a JSON file for {data}", None, remedy)
    given, label, classes, theirs = _read(Path(described))
    table = read_table(path, given, words=label)
    rows = select(table, given, str(path))
    values = _values(table, label, path)
    declared = classes is not None
    classes = classes or _distinct(values, path)
    labels = label_codes(as_classes(values, classes, str(path)).tolist(), classes, str(path))
    if len(set(labels.tolist())) < 2:
        raise errors.InvalidData(f"{path}: its rows must have at least 2 classes, got 1.")
    return Dataset(
        name=path.name,
        rows=rows,
        labels=labels,
        classes=classes,
        schema=given,
        pools=_pools(len(labels)),
        taken_as_public=() if declared else (f"The values of the label {label!r}.",),
        sha256={path.name: sha256_of(path), "schema": sha256_of(Path(described))},
        others={"schema": theirs} if theirs else {},
    )


def _pools(rows: int) -> Pools:
    test = int(rows * TEST)
    inhouse, people = (int((rows - test) * share) for share in (INHOUSE, PEOPLE))
    return Pools(inhouse, people, rows - test - inhouse - people, test)


def _read(path: Path) -> tuple[TableSchema, str, tuple[Any, ...] | None, tuple[str, ...]]:
    """Read the schema, label column, declared classes (if any) and columns of the other party."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        errors.refuse("datasets", "schema", "a readable file", str(path), "Check the path.")
    except ValueError:
        raise errors.InvalidData(f"{path}: it must be JSON.") from None
    where = str(path)
    if not isinstance(plain, dict) or "label" not in plain:
        raise errors.InvalidData(
            f"{where}: it must be an object with a key 'label'. Add for example "
            '"label": {"column": "loyal", "classes": ["no", "yes"]}.'
        )
    label, classes = _label(where, plain.pop("label"))
    theirs = plain.pop("join", [])
    given = _schema(where, plain)
    if label in given.names:
        errors.refuse(where, "label", "absent from 'columns'", label, "Remove it from 'columns'.")
    return given, label, classes, _theirs(where, theirs, given)


def _schema(where: str, plain: dict[str, Any]) -> TableSchema:
    try:
        given = schema.from_plain(plain)
    except (ValueError, TypeError) as error:
        reason = str(error) if isinstance(error, errors.TacitError) else "it must be a schema."
        raise errors.InvalidData(f"{where}: {reason}") from None
    if not isinstance(given, TableSchema):
        errors.refuse(where, "kind", "table", "array", "Images are not read from files.")
    return given


def _label(where: str, label: Any) -> tuple[str, tuple[Any, ...] | None]:
    if isinstance(label, str):
        return label, None
    if not isinstance(label, dict) or set(label) != {"column", "classes"}:
        errors.refuse(where, "label", "a column's name, or 'column' and 'classes'", label)
    classes = label["classes"]
    kinds = {type(value) for value in classes} if isinstance(classes, list) else set()
    if kinds not in ({str}, {int}) or len(set(classes)) != len(classes) or len(classes) < 2:
        errors.refuse(where, "classes", "at least 2 distinct words, or integers", classes)
    return str(label["column"]), tuple(classes)


def _theirs(where: str, theirs: Any, given: TableSchema) -> tuple[str, ...]:
    names = set(given.names)
    if not isinstance(theirs, list) or not set(map(str, theirs)) <= names:
        errors.refuse(where, "join", "a list of columns of the schema", theirs)
    if len(set(theirs)) != len(theirs) or len(theirs) == len(names):
        errors.refuse(where, "join", "distinct columns, and not all of them", theirs)
    return tuple(theirs)


def _values(table: Any, label: str, path: Path) -> npt.NDArray[Any]:
    _, values = split_label(table, label, path)
    assert values is not None  # a label was named
    return values


def _distinct(values: Any, path: Path) -> tuple[Any, ...]:
    """Return distinct labels in order; sort them as numbers if all are integers."""
    texts = sorted({str(value) for value in values})
    if len(texts) > MOST_CATEGORIES:
        remedy = "Check that it is the right column."
        errors.refuse(str(path), "labels", f"at most {MOST_CATEGORIES} values", len(texts), remedy)
    if all(text.lstrip("-").isdecimal() and str(int(text)) == text for text in texts):
        return tuple(sorted(map(int, texts)))
    return tuple(texts)
