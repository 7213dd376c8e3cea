"""Data sets for studies: rows, labels, public bounds, and who holds which rows.

A split says which rows are in-house, which belong to people who report, which to voters and which
are for testing. It is drawn from a seed, and the same seed gives the same split everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.schema import ArraySchema, Schema, TableSchema
from tacit.privacy import errors

Integers = npt.NDArray[np.int64]

FEWEST_ROWS = 50
"""The fewest rows in a part of a split: fewer would show nothing."""


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a data set by who holds them: disjoint indices."""

    inhouse: Integers
    people: Integers
    voters: Integers
    test: Integers

    def limited(self, inhouse: int, people: int, voters: int, test: int) -> Split:
        """Keep the first `count` rows of each part."""
        return Split(
            _first(self.inhouse, "inhouse", inhouse),
            _first(self.people, "people", people),
            _first(self.voters, "voters", voters),
            _first(self.test, "test", test),
        )


@dataclass(frozen=True, eq=False)
class NovelSplit:
    """Rows for learning a class that no in-house row has: disjoint indices.

    Parameters
    ----------
    inhouse : array of int64
        Rows of the other classes.
    heldout : array of int64
        More rows of the other classes, one per person, as examples of "not new" for the classifier.
    people : array of int64
        Rows of the new class.
    test : array of int64
        Rows of which half are of the new class.
    is_new : array of int64
        1 for the test rows of the new class, 0 for the others.
    """

    inhouse: Integers
    heldout: Integers
    people: Integers
    test: Integers
    is_new: Integers

    def limited(self, inhouse: int, heldout: int, people: int, test: int) -> NovelSplit:
        """Keep the first rows of each part; test rows stay balanced, so an odd number loses one."""
        half = errors.whole("NovelSplit.limited", "test", test, least=2) // 2
        chosen = np.concatenate([np.flatnonzero(self.is_new == kind)[:half] for kind in (1, 0)])
        return NovelSplit(
            _first(self.inhouse, "inhouse", inhouse),
            _first(self.heldout, "heldout", heldout),
            _first(self.people, "people", people),
            self.test[chosen],
            self.is_new[chosen],
        )


@dataclass(frozen=True, eq=False)
class ColumnSubset:
    """Some columns of all rows, with their schema."""

    rows: Any
    schema: Schema


@dataclass(frozen=True)
class Pools:
    """Sizes of the parts of a split that is drawn at random.

    Parameters
    ----------
    inhouse, people, voters, test : int
        Number of rows in each part.
    training : int, optional
        The number of leading rows that are for training; the rest is for testing, as the authors
        of the data set decided. Without it, test rows are drawn at random too.
    """

    inhouse: int
    people: int
    voters: int
    test: int
    training: int | None = None

    def halves(self, rng: np.random.Generator, rows: int) -> tuple[Integers, Integers]:
        """Return the rows for training and the rows for testing."""
        if self.training is not None:
            return np.arange(self.training), np.arange(self.training, rows)
        order = rng.permutation(rows)
        return order[: rows - self.test], order[rows - self.test :]

    def draw(self, rng: np.random.Generator, rows: int) -> Split:
        """Draw one split."""
        training, testing = self.halves(rng, rows)
        order = rng.permutation(training)
        cuts = np.cumsum([self.inhouse, self.people, self.voters])
        inhouse, people, voters, _ = np.split(order, cuts)
        return Split(inhouse, people, voters, rng.permutation(testing)[: self.test])


@dataclass(frozen=True)
class Chronological:
    """A split in order of time: training rows are the oldest, then voters, then test rows.

    Parameters
    ----------
    training : int
        The number of leading rows that are for training.
    inhouse : float
        Share of these that is in-house; the others belong to people.
    """

    training: int
    inhouse: float

    def halves(self, rng: np.random.Generator, rows: int) -> tuple[Integers, Integers]:
        """Return the rows for training and the rows for testing."""
        return np.arange(self.training), np.arange(self.training, rows)

    def draw(self, rng: np.random.Generator, rows: int) -> Split:
        """Draw one split."""
        training, newer = self.halves(rng, rows)
        order = rng.permutation(training)
        cut, half = int(len(training) * self.inhouse), len(newer) // 2
        return Split(order[:cut], order[cut:], newer[:half], newer[half:])


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of people with labels, and everything that is public about them.

    Parameters
    ----------
    name : str
        Name of the data set.
    rows : array of uint8 (n, height, width), or pyarrow.Table
        Images, or a table.
    labels : array of int64
        Codes from 0.
    classes : tuple
        The values of labels, in the order of their codes.
    schema : ArraySchema or TableSchema
        Public bounds and categories.
    pools : Pools or Chronological
        How a split is drawn.
    taken_as_public : tuple of str
        What was read off the rows and is treated as public; one sentence each.
    sha256 : mapping of str to str
        Name and hash of the files that were read.
    others : mapping of str to tuple
        Column splits by name: the columns that the other party holds. Columns of a table by name,
        those of an image by number.
    tasks : mapping of str to tuple of int
        Other tasks on the same rows: the answer for each label.
    """

    name: str
    rows: Any
    labels: Integers
    classes: tuple[Any, ...]
    schema: Schema
    pools: Pools | Chronological
    taken_as_public: tuple[str, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show name and sizes, and no row."""
        return f"Dataset({self.name!r}, {len(self)} rows, {len(self.classes)} classes)"

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Any) -> Any:
        """Return the chosen rows, as an array or a table like `rows`."""
        return self.rows[indices] if isinstance(self.rows, np.ndarray) else self.rows.take(indices)

    def collection(self, seed: int) -> Split:
        """Draw the split for people who report labelled rows."""
        split = self.pools.draw(self._rng(seed), len(self))
        for part, rows in vars(split).items():
            self._enough(part, len(rows))
        return split

    def novel(self, seed: int, new: Any = None) -> NovelSplit:
        """Draw the split for a new class: a value of `classes`, by default the last one.

        Eight ninths of the training rows of the other classes are in-house, nine tenths of the
        training rows of the new class belong to people. The test rows are all test rows of the new
        class and equally many others.
        """
        code = self._new_code(new)
        rng = self._rng(seed)
        training, testing = self.pools.halves(rng, len(self))
        others = rng.permutation(training[self.labels[training] != code])
        new_rows = rng.permutation(training[self.labels[training] == code])
        new_test = testing[self.labels[testing] == code]
        other_test = rng.permutation(testing[self.labels[testing] != code])
        cut, people = len(others) * 8 // 9, len(new_rows) * 9 // 10
        half = min(len(new_test), len(other_test))
        for part, rows in (("inhouse", cut), ("people", people), ("test", 2 * half)):
            self._enough(part, rows, fewest=10)
        return NovelSplit(
            others[:cut],
            others[cut : cut + people],
            new_rows[:people],
            np.concatenate([new_test[:half], other_test[:half]]),
            np.repeat(np.array([1, 0]), half),
        )

    def joins(self) -> tuple[str, ...]:
        """Return the names of the column splits; the first is the default."""
        return tuple(self.others)

    def join(self, name: str | None = None) -> tuple[ColumnSubset, ColumnSubset]:
        """Return our columns, clean, and those of the other party, to be privatized."""
        if not self.others:
            remedy = "Name the columns of the other party under 'join' in the schema file."
            errors.refuse(self.name, "data", "split by columns for a join", "no such split", remedy)
        name = errors.choice(self.name, "join", name or self.joins()[0], self.joins())
        theirs = self.others[name]
        ours = tuple(column for column in self._columns() if column not in theirs)
        return self._part(ours), self._part(theirs)

    def _columns(self) -> tuple[Any, ...]:
        if isinstance(self.schema, TableSchema):
            return self.schema.names
        return tuple(range(self.rows.shape[2]))

    def _part(self, columns: tuple[Any, ...]) -> ColumnSubset:
        if isinstance(self.schema, TableSchema):
            chosen = {column.name: column for column in self.schema.columns}
            schema = TableSchema(tuple(chosen[name] for name in columns))
            return ColumnSubset(self.rows.select(list(columns)), schema)
        size = (self.rows.shape[1], len(columns))
        bounds = self.schema.lower, self.schema.upper
        return ColumnSubset(
            self.rows[:, :, columns], ArraySchema(size[0] * size[1], *bounds, image=size)
        )

    def _new_code(self, new: Any) -> int:
        if len(self.classes) < 3:
            count = len(self.classes)
            errors.refuse(self.name, "classes", "at least 3 for one to be new", count)
        texts = [str(value) for value in self.classes]
        text = texts[-1] if new is None else str(new)
        if text not in texts:  # not listed: they may have been read off the rows
            errors.refuse(self.name, "the novel class", f"one of the {len(texts)} classes", text)
        return texts.index(text)

    def _rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(errors.whole(self.name, "seed", seed, least=0))

    def _enough(self, part: str, rows: int, fewest: int = FEWEST_ROWS) -> None:
        if rows < fewest:
            remedy = "The data set is too small for this split."
            errors.refuse(self.name, f"rows in {part}", f"at least {fewest}", rows, remedy)


def _first(indices: Integers, part: str, most: int) -> Integers:
    return indices[: errors.whole("limited", part, most, least=1)]
