"""Rows with one label each, and how many of them are in-house and how many belong to people.

A table comes from a user's file, or from a *packed* file, which also states label and sizes:
Parquet for tables, NumPy's npz for pictures. Packed files carry tables to machines on which their
packages and published files are not installed.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.datasets.arrow import arrow, read_table
from tacit.data.datasets.base import Integers
from tacit.data.datasets.files import sha256_of
from tacit.data.schema_inference import MOST_CATEGORIES
from tacit.privacy import errors

INHOUSE, PEOPLE = 0.2, 0.6
"""Shares of a user's rows that are in-house and that belong to people; the others are for tests."""

FEWEST = 100
MISSING = "missing"
_KEY = b"tacit"
_LABEL = "label"


@dataclass(frozen=True, eq=False, repr=False)
class LabelledTable:
    """Rows with labels.

    Parameters
    ----------
    name : str
        Name of the table.
    rows : pyarrow.Table, or array of uint8
        A table of numbers and text, or pictures (n, height, width) or (n, height, width, 3).
    labels : array of int64
        Codes from 0.
    classes : tuple of str
        The values of labels, in the order of their codes.
    inhouse, people : int
        Numbers of rows that are in-house and that belong to people; the others are for tests.
    sha256 : dict
        Name and hash of the files that were read.
    """

    name: str
    rows: Any
    labels: Integers
    classes: tuple[str, ...]
    inhouse: int
    people: int
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def is_picture(self) -> bool:
        """Whether rows are pictures."""
        return isinstance(self.rows, np.ndarray)

    @property
    def columns(self) -> int:
        """Number of columns, or of the numbers of a picture."""
        return int(np.prod(self.rows.shape[1:])) if self.is_picture else self.rows.num_columns

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Integers) -> Any:
        """Return the chosen rows."""
        return self.rows[chosen] if self.is_picture else self.rows.take(chosen)


def plain(table: Any) -> Any:
    """Return a table of numbers and text, with a word for text that is missing."""
    pa = arrow()
    from pyarrow import compute

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            columns[name] = column.cast(pa.float64(), safe=False)
        else:
            columns[name] = compute.fill_null(column.cast(pa.string()), MISSING)
    return pa.table(columns).combine_chunks()


def coded(values: Any) -> tuple[Integers, tuple[str, ...]]:
    """Return the codes of labels and the classes, in alphabetical order."""
    classes, codes = np.unique(np.asarray(values, str), return_inverse=True)
    return codes.astype(np.int64), tuple(map(str, classes))


# --- files ------------------------------------------------------------------------------------


def own(path: Path, label: str | None) -> LabelledTable:
    """Read a user's CSV or Parquet file, or a packed file, which needs no `label`."""
    if path.suffix == ".npz":
        return _pictures(path)
    table = read_table(path, words=label)
    stated = (table.schema.metadata or {}).get(_KEY)
    if label is None and stated is not None:
        return _packed(path, table, json.loads(stated))
    if label not in table.column_names:
        remedy = "Name the column of labels with --label."
        errors.refuse("study", "label", f"a column of {path.name}", label, remedy)
    values = table[label].cast(arrow().string()).to_pylist()
    if None in values:
        raise errors.InvalidData(f"{path}: every row must have a label. Drop rows without one.")
    labels, classes = coded(values)
    if not 2 <= len(classes) <= MOST_CATEGORIES:
        found = len(classes)
        errors.refuse("study", "label", f"a column of 2 to {MOST_CATEGORIES} values", found)
    if len(labels) < FEWEST:
        raise errors.InvalidData(f"{path}: it must have at least {FEWEST} rows.")
    return LabelledTable(
        name=path.stem,
        rows=plain(table.drop_columns(label)),
        labels=labels,
        classes=classes,
        inhouse=int(INHOUSE * len(labels)),
        people=int(PEOPLE * len(labels)),
        sha256={path.name: sha256_of(path)},
    )


def pack(table: LabelledTable, folder: Path) -> Path:
    """Write a table to a packed file in a folder, and return its path."""
    stated = {
        "name": table.name,
        "classes": table.classes,
        "inhouse": table.inhouse,
        "people": table.people,
    }
    if table.is_picture:
        path = folder / f"{table.name}.npz"
        np.savez_compressed(
            path, rows=table.rows, labels=table.labels.astype(np.uint8), stated=json.dumps(stated)
        )
        return path
    import pyarrow.parquet as pq

    path = folder / f"{table.name}.parquet"
    both = table.rows.append_column(_LABEL, [table.labels])
    pq.write_table(
        both.replace_schema_metadata({_KEY: json.dumps(stated)}), path, compression="zstd"
    )
    return path


def _packed(path: Path, table: Any, stated: dict[str, Any]) -> LabelledTable:
    rows, labels = table.drop_columns(_LABEL), table[_LABEL].to_numpy()
    bare = rows.replace_schema_metadata(None).combine_chunks()
    return _stated(path, bare, labels.astype(np.int64), stated)


def _pictures(path: Path) -> LabelledTable:
    try:
        with np.load(path, allow_pickle=False) as held:
            stated = json.loads(str(held["stated"]))
            return _stated(path, held["rows"], held["labels"].astype(np.int64), stated)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise errors.InvalidData(f"{path}: it must be a packed file of pictures.") from None


def _stated(path: Path, rows: Any, labels: Integers, stated: dict[str, Any]) -> LabelledTable:
    return LabelledTable(
        name=str(stated["name"]),
        rows=rows,
        labels=labels,
        classes=tuple(stated["classes"]),
        inhouse=int(stated["inhouse"]),
        people=int(stated["people"]),
        sha256={path.name: sha256_of(path)},
    )
