"""Rows with two labels: one for the task, and one for the person to be kept private.

A representation should keep the regular label and lose the private one. A split is drawn from a
seed, and everybody in the validation or test rows is also in the training rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.columns import all_numbers, distinct_texts, numeric
from tacit.data.datasets.arrow import read_table, select
from tacit.data.datasets.base import Integers
from tacit.data.datasets.files import sha256_of
from tacit.data.schema import Schema, TableSchema, from_plain
from tacit.data.schema_inference import MOST_CATEGORIES, infer
from tacit.privacy import errors
from tacit.privacy.errors import InvalidData

SHARES = (0.73, 0.135, 0.135)
"""Shares of training, validation and test rows, about those of the paper's pen digits."""

FEWEST_OF_A_PERSON = 3
"""The fewest rows of a person: with fewer, a person cannot be both learned and tested."""

FEWEST_ROWS = 5
"""The fewest rows in a part of a split: fewer would show nothing."""


@dataclass(frozen=True, eq=False)
class TwiceSplit:
    """Rows for training, validation (early stopping) and test: disjoint indices."""

    training: Integers
    validation: Integers
    test: Integers


@dataclass(frozen=True, eq=False, repr=False)
class TwiceLabelled:
    """Rows of people, each with a label for the task and one for the person.

    Parameters
    ----------
    name : str
        Name of the data set.
    rows : array of uint8 (n, height, width), array of numbers (n, p), or pyarrow.Table
        Rows without the labels.
    regular, private : array of int64
        Codes from 0.
    regular_name, private_name : str
        Names of the labels: "digit", "writer".
    regular_classes, private_classes : tuple
        The values of the labels, in the order of their codes.
    schema : ArraySchema or TableSchema
        Bounds and categories of rows.
    sizes : (int, int, int), optional
        Rows for training, validation and test. Without it, all rows are split by `SHARES`.
    others : mapping of str to array
        Further values, one per row, that training does not see.
    sha256 : mapping of str to str
        Name and hash of the files that were read.
    """

    name: str
    rows: Any
    regular: Integers
    private: Integers
    regular_name: str
    private_name: str
    regular_classes: tuple[Any, ...]
    private_classes: tuple[Any, ...]
    schema: Schema
    sizes: tuple[int, int, int] | None = None
    others: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for which in ("regular", "private", *self.others):
            count = len(self.others[which] if which in self.others else getattr(self, which))
            if count != len(self.rows):
                needed = f"{len(self.rows)}, one per row"
                errors.refuse(self.name, f"the number of {which!r}", needed, count)
        _at_least_two(self.name, self.regular_name, self.regular, self.regular_classes)
        _at_least_two(self.name, self.private_name, self.private, self.private_classes)
        if (rare := int(np.bincount(self.private).min())) < FEWEST_OF_A_PERSON:
            raise InvalidData(
                f"{self.name}: every {self.private_name} must have at least {FEWEST_OF_A_PERSON} "
                f"rows, got {rare} for one. Leave such rows out, or merge them."
            )

    def __repr__(self) -> str:
        """Show name and sizes, and no row."""
        counted = f"{len(self.regular_classes)} of {self.regular_name!r}"
        counted += f", {len(self.private_classes)} of {self.private_name!r}"
        return f"TwiceLabelled({self.name!r}, {len(self)} rows, {counted})"

    def __len__(self) -> int:
        return len(self.regular)

    def take(self, indices: Any) -> Any:
        """Return the chosen rows, as an array or a table like `rows`."""
        return self.rows[indices] if isinstance(self.rows, np.ndarray) else self.rows.take(indices)

    def split(self, seed: int) -> TwiceSplit:
        """Split rows at random into training, validation and test.

        If a label would be missing from training, the first row of every label is put there.
        """
        rng = np.random.default_rng(errors.whole(self.name, "seed", seed, least=0))
        sizes = self._sizes()
        order = rng.permutation(len(self))
        first = np.union1d(*(np.unique(code[order], return_index=True)[1] for code in self._codes))
        if first[-1] >= sizes[0]:
            if len(first) > sizes[0]:
                least, remedy = (
                    f"at least {len(first)}",
                    "There are too few rows for this many labels.",
                )
                errors.refuse(self.name, "rows for training", least, sizes[0], remedy)
            order = np.concatenate([order[first], np.delete(order, first)])
        training, validation, test, _ = np.split(order, np.cumsum(sizes))
        return TwiceSplit(training, validation, test)

    @property
    def _codes(self) -> tuple[Integers, Integers]:
        return self.regular, self.private

    def _sizes(self) -> tuple[int, int, int]:
        if self.sizes is not None:
            sizes = self.sizes
        else:
            validation, test = (round(len(self) * share) for share in SHARES[1:])
            sizes = (len(self) - validation - test, validation, test)
        if min(sizes) < FEWEST_ROWS or sum(sizes) > len(self):
            condition = f"at least {FEWEST_ROWS} in each part and {len(self)} in all"
            errors.refuse(self.name, "rows of a split", condition, sizes, "Give more rows.")
        return sizes


def load(
    path: Path, regular: str | None, private: str | None, given: Schema | str | Path | None = None
) -> TwiceLabelled:
    """Load a CSV or Parquet file with two label columns; rows are the schema's, or all others.

    Without a schema, bounds and categories are read off the rows without any protection.
    """
    given = _read_schema(given) if isinstance(given, str | Path) else given
    table = read_table(path, given, words=private)
    columns = (_column(table, "regular", regular, path), _column(table, "private", private, path))
    if regular == private:
        errors.refuse(str(path), "private", "another column than regular", private)
    # Both are read as text in a CSV file: "07" and "7" may be two people.
    values = read_table(path, given, words=columns[0])[columns[0]], table[columns[1]]
    rows = table.drop_columns(list(columns))
    hashes = {path.name: sha256_of(path)}
    if isinstance(given, TableSchema):
        if named := [column for column in columns if column in given.names]:
            errors.refuse(str(path), "schema", "without the labels", named[0])
        rows = select(rows, given, str(path))
    elif given is not None:
        given.rows(rows, str(path))
    names = {"regular_name": columns[0], "private_name": columns[1]}
    return labelled(path.name, rows, *values, given, **names, sha256=hashes)


def labelled(
    name: str,
    rows: Any,
    regular: Any,
    private: Any,
    schema: Schema | None = None,
    *,
    regular_name: str = "regular",
    private_name: str = "private",
    **more: Any,
) -> TwiceLabelled:
    """Make a data set from rows and the values of two labels; `more` are further fields.

    Parameters
    ----------
    name : str
        Name of the data set.
    rows : array or pyarrow.Table
        Images, numbers or a table, without the labels.
    regular, private : sequence of text, integers or booleans
        The labels. One that is missing (null, NaN or empty text) is refused.
    schema : Schema, optional
        Bounds and categories; without a schema, they are read off the rows.
    regular_name, private_name : str
        Names of the labels.
    """
    if schema is None:
        schema = infer(rows, where=name)
    regular_codes, regular_classes = coded(regular, regular_name, name)
    private_codes, private_classes = coded(private, private_name, name)
    return TwiceLabelled(
        name=name,
        rows=rows,
        regular=regular_codes,
        private=private_codes,
        regular_name=regular_name,
        private_name=private_name,
        regular_classes=regular_classes,
        private_classes=private_classes,
        schema=schema,
        **more,
    )


def coded(values: Any, label: str, where: str) -> tuple[Integers, tuple[Any, ...]]:
    """Return codes and classes; integers are sorted as numbers, anything else as text."""
    array = np.asarray(values if hasattr(values, "dtype") else _objects(values))
    if array.dtype.kind == "O" and all_numbers(array):
        array = numeric(array, f"label {label!r}", where)
    texts, place = distinct_texts(array, f"label {label!r}", where)
    if any(text is None or not text.strip() for text in texts):
        raise InvalidData(
            f"{where}: label {label!r} must be without missing values. Fill or drop them."
        )
    if len(texts) > MOST_CATEGORIES:
        condition, remedy = (
            f"of at most {MOST_CATEGORIES} values",
            "Check that it is the right label.",
        )
        errors.refuse(where, f"label {label!r}", condition, len(texts), remedy)
    words = [str(text) for text in texts]
    numbers = all(text.lstrip("-").isdecimal() and str(int(text)) == text for text in words)
    classes = sorted(map(int, words)) if numbers else sorted(words)
    code = {str(value): index for index, value in enumerate(classes)}
    return np.array([code[text] for text in words], np.int64)[place], tuple(classes)


def _objects(values: Any) -> npt.NDArray[Any]:
    """Keep objects as they are: numpy would turn a missing value among words into "nan"."""
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    kept = np.empty(len(values), object)
    kept[:] = values
    return kept


def _column(table: Any, which: str, name: str | None, path: Path) -> str:
    if name is None or name not in table.column_names:
        errors.refuse(str(path), which, "one of its columns", name, "Check that it has a header.")
    return name


def _read_schema(path: str | Path) -> Schema:
    try:
        return from_plain(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError:
        errors.refuse("datasets", "schema", "a readable file", str(path), "Check the path.")
    except (ValueError, TypeError) as error:
        reason = str(error) if isinstance(error, errors.TacitError) else "it must be JSON."
        raise InvalidData(f"{path}: {reason}") from None


def _at_least_two(where: str, label: str, codes: Integers, classes: tuple[Any, ...]) -> None:
    used = len(np.unique(codes))
    if used < 2:
        raise InvalidData(
            f"{where}: label {label!r} must have at least 2 values, got {used}. "
            "One value leaves nothing to predict."
        )
    if codes.min() < 0 or used != len(classes) or codes.max() >= used:
        errors.refuse(where, f"label {label!r}", f"of {len(classes)} codes from 0, all used", used)
