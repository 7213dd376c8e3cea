"""Data sets with their public bounds and the splits that studies use."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tacit import errors
from tacit.datasets.base import Dataset, NovelSplit, Part, Split
from tacit.datasets.files import MissingFile, Progress

__all__ = ["NAMES", "Dataset", "MissingFile", "NovelSplit", "Part", "Split", "load"]

NAMES = ("digits", "mnist", "lending_club", "adult")
"""Data sets by name; `digits` comes with scikit-learn, the others are files."""


def load(
    data: str,
    schema: str | Path | None = None,
    *,
    fetch: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """A data set by name, or a user's own table.

    Parameters
    ----------
    data : str
        One of `NAMES`, or a CSV or Parquet file.
    schema : path, optional
        For a file: JSON with its columns, bounds, categories and label; see `user_table`.
    fetch : bool
        Whether a published file that is nowhere on this machine is fetched from its home.
    progress : callable, optional
        Called while fetching with the file's name, bytes so far, and bytes in all.

    Examples
    --------
    >>> from tacit import datasets
    >>> digits = datasets.load("digits")
    >>> split = digits.collection(seed=0)
    >>> digits.take(split.people).shape, digits.schema.upper
    ((1080, 8, 8), 16.0)
    """
    if data not in NAMES:
        return _own(data, schema)
    if schema is not None:
        remedy = "It has a schema of its own."
        errors.refuse("datasets", "schema", f"left out for {data}", str(schema), remedy)
    module = import_module(f"tacit.datasets.{data}")
    options = {} if data == "digits" else {"fetch": fetch, "progress": progress}
    found: Dataset = module.load(**options)
    return found


def _own(data: str, schema: str | Path | None) -> Dataset:
    if not Path(data).is_file():
        known = f"one of {', '.join(NAMES)}, or an existing CSV or Parquet file"
        errors.refuse("datasets", "data", known, data, "Check the name or the path.")
    from tacit.datasets import user_table

    return user_table.load(data, schema)
