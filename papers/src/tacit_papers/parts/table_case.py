"""One split of a table, and its rows as the study's own baselines see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import schema, schema_inference
from tacit.data.datasets.base import Integers
from tacit.data.schema import Rows, Schema
from tacit_papers.data.labelled import LabelledTable

Floats = npt.NDArray[np.float64]

MOST_TEST = 8000
"""Largest number of test rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """Who holds which rows in one trial.

    Parameters
    ----------
    inhouse, people, test
        Rows: tables, or pictures (n, height, width) or (n, height, width, 3).
    labels, truth : array of int64
        Labels of the people, and of the test rows.
    classes : int
        Number of classes.
    """

    inhouse: Any
    people: Any
    test: Any
    labels: Integers
    truth: Integers
    classes: int

    @property
    def is_picture(self) -> bool:
        """Whether rows are pictures."""
        return isinstance(self.people, np.ndarray)


def split(table: LabelledTable, seed: int, most: int | None = None) -> Case:
    """Draw one split; `most` limits every part of a quick run."""
    order = np.random.default_rng(seed).permutation(len(table))
    cuts = [table.inhouse, table.inhouse + table.people]
    inhouse, people, test = (part[:most] for part in np.split(order, cuts))
    test = test[:MOST_TEST]
    return Case(
        table.take(inhouse),
        table.take(people),
        table.take(test),
        table.labels[people],
        table.labels[test],
        len(table.classes),
    )


def flat(rows: Any) -> Any:
    """Return pictures as rows of numbers; tables as they are."""
    return rows.reshape(len(rows), -1) if isinstance(rows, np.ndarray) else rows


def grey(rows: Any) -> Any:
    """Return pictures without colour; everything else as it is."""
    if isinstance(rows, np.ndarray) and rows.ndim == 4:
        return np.rint(rows.mean(axis=3)).astype(np.uint8)
    return rows


def bounds(rows: Any) -> Schema:
    """Read bounds and categories off rows; a number may be missing in any column.

    Others must not be refused because none of these rows lacked a value.
    """
    read = schema_inference.infer(rows)
    if isinstance(read, schema.ArraySchema):
        return read
    columns = (
        replace(one, missing="indicate") if isinstance(one, schema.Continuous) else one
        for one in read.columns
    )
    return schema.TableSchema(tuple(columns))


def checked(given: Schema, *parts: Any) -> tuple[Rows, ...]:
    """Return parts as checked rows of one schema."""
    return tuple(given.rows(flat(part)) for part in parts)
