"""Data sets with their public bounds and the splits that studies use."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from tacit.data.datasets.base import ColumnSubset, Dataset, NovelSplit, Split
from tacit.data.datasets.files import MissingFile, Progress
from tacit.data.datasets.twice import TwiceLabelled, TwiceSplit
from tacit.data.schema import Schema
from tacit.privacy import errors

__all__ = [
    "NAMES",
    "TWICE_NAMES",
    "ColumnSubset",
    "Dataset",
    "MissingFile",
    "NovelSplit",
    "Split",
    "TwiceLabelled",
    "TwiceSplit",
    "load",
    "load_twice",
]


def _installed(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=group))}


_LOADERS = _installed("tacit.datasets")
_TWICE_LOADERS = _installed("tacit.datasets.twice")

NAMES = tuple(_LOADERS)
"""Data sets by name: `digits` comes with scikit-learn; tacit-papers adds published files."""

TWICE_NAMES = tuple(_TWICE_LOADERS)
"""Data sets by name whose rows have a label for the task and one for the person."""


def load(
    data: str,
    schema: str | Path | None = None,
    *,
    fetch: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set by name, or a user's own table.

    Parameters
    ----------
    data : str
        One of `NAMES`, or a CSV or Parquet file.
    schema : path, optional
        For a file: JSON with its columns, bounds, categories and label; see `user_table`.
    fetch : bool
        Whether to download a published file that is not on this machine.
    progress : callable, optional
        Called while fetching, with the file's name, the bytes so far and the total bytes.

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
        remedy = "This data set has its own schema."
        errors.refuse("datasets", "schema", f"left out for {data}", str(schema), remedy)
    module = _LOADERS[data].load()
    options = {} if data == "digits" else {"fetch": fetch, "progress": progress}
    dataset: Dataset = module.load(**options)
    return dataset


def _own(data: str, schema: str | Path | None) -> Dataset:
    if not Path(data).is_file():
        known = f"one of {', '.join(NAMES)}, or an existing CSV or Parquet file"
        errors.refuse("datasets", "data", known, data, "Check the name or the path.")
    from tacit.data.datasets import user_table

    return user_table.load(data, schema)


def load_twice(
    data: str | Path,
    regular: str | None = None,
    private: str | None = None,
    schema: Schema | str | Path | None = None,
    *,
    pattern: str | None = None,
    size: tuple[int, int] | None = None,
    fetch: bool = True,
    progress: Progress | None = None,
) -> TwiceLabelled:
    r"""Load rows with a label for the task and one for the person.

    Parameters
    ----------
    data : str or path
        One of `TWICE_NAMES`, a CSV or Parquet file, or a folder of images.
    regular, private : str, optional
        For a file: the columns with the labels, which are not part of the rows. For a folder: names
        for the labels. For a named data set: left out, or the names that it has.
    schema : Schema or path, optional
        For a file: bounds and categories of the other columns, or a JSON file with them. Without a
        schema, they are read off the rows.
    pattern, size
        For a folder: how paths name both labels, and the height and width of every image; see
        `image_folder.load`.
    fetch, progress
        As for `load`.

    Examples
    --------
    >>> from tacit import datasets
    >>> digits = datasets.load_twice("pendigits")  # doctest: +SKIP
    >>> split = digits.split(seed=0)  # doctest: +SKIP
    >>> digits.take(split.training).shape  # doctest: +SKIP
    (5494, 20, 20)
    """
    path = Path(data)
    if str(data) in TWICE_NAMES:
        _left_out(str(data), schema=schema, pattern=pattern, size=size)
        module = _TWICE_LOADERS[str(data)].load()
        return _named(module.load(fetch=fetch, progress=progress), regular, private)
    if path.is_dir():
        from tacit.data.datasets import image_folder

        _left_out(str(path), schema=schema)
        return image_folder.load(path, pattern, size, regular=regular, private=private)
    if path.is_file():
        from tacit.data.datasets import twice

        _left_out(str(path), pattern=pattern, size=size)
        return twice.load(path, regular, private, schema)
    known = f"{', '.join(TWICE_NAMES)}, a CSV or Parquet file, or a folder of images"
    errors.refuse("datasets", "data", known, str(data), "Check the name or the path.")


def _left_out(where: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            errors.refuse(where, name, "left out", value, "It applies to another kind of data.")


def _named(dataset: TwiceLabelled, regular: str | None, private: str | None) -> TwiceLabelled:
    for name, has in ((regular, dataset.regular_name), (private, dataset.private_name)):
        if name not in (None, has):
            errors.refuse(dataset.name, "label", repr(has), name, "This data set has no other.")
    return dataset
