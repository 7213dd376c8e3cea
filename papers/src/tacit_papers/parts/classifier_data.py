"""Rows for estimators: numbers and codes in two encodings, and their public bounds.

A number is scaled by its public bounds to [−1, 1]; a missing one is put in the middle and marked in
a column of its own. Linear models and networks take a category as indicators, 0 or 1, with one more
for missing or unseen values where the schema allows them. At most one indicator of a column is 1,
and a marked number is 0, so the norm of a row of p numbers and q categories is at most √(p + q):
that bound is public, too. Trees take the code itself as a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.data import datasets
from tacit.data.datasets.arrow import arrow
from tacit.data.datasets.files import Progress, find, refuse_missing, sha256_of
from tacit.data.schema import ArraySchema, Categorical, Continuous, Schema, TableSchema
from tacit.local.learned.features import Raw
from tacit.privacy import errors
from tacit_papers.data import loans
from tacit_papers.data.lending_club import HOME, NAMES

Reals = npt.NDArray[np.float64]

TEST = 0.2
"""Share of the test rows, drawn anew in every trial."""

RATES = (5.0, 25.0)
"""Public bounds of interest rates, in per cent per year: the lender posts its rates."""

_SET_BY_HAND = (
    "Bounds of the numbers: round ones, set by hand by somebody who had seen the columns. What "
    "lies outside is held to them."
)


class RowsAndTargets(NamedTuple):
    """Rows and their targets."""

    X: Reals
    y: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Encoding:
    """Columns with their public bounds.

    Parameters
    ----------
    X : array
        The rows.
    lower, upper : array
        One bound per column.
    norm : float, optional
        Largest norm of a row, where it is smaller than the bounds imply.
    """

    X: Reals
    lower: Reals
    upper: Reals
    norm: float | None = None

    @property
    def centred(self) -> tuple[Reals, Reals]:
        """Bounds symmetric about zero: measured from there, rows with many indicators are short."""
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return -reach, reach


@dataclass(frozen=True, eq=False)
class Case:
    """A data set as estimators take it.

    Parameters
    ----------
    name : str
        Name of the data set.
    indicators, numbered : Encoding
        Rows with indicators for codes, and with the codes themselves.
    target : array
        One target per row: a code of `classes`, or a number.
    classes : tuple
        Classes; empty for a regression.
    target_bounds : pair of float
        Bounds of the target of a regression.
    sha256, taken_as_public
        As in `tacit.datasets.Dataset`.
    """

    name: str
    indicators: Encoding
    numbered: Encoding
    target: npt.NDArray[Any]
    classes: tuple[Any, ...] = ()
    target_bounds: tuple[float, float] = (0.0, 1.0)
    sha256: Mapping[str, str] = field(default_factory=dict)
    taken_as_public: tuple[str, ...] = ()

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return "accuracy" if self.classes else "r2"

    def split(
        self, encoding: Encoding, seed: int, most: int | None = None
    ) -> tuple[RowsAndTargets, RowsAndTargets]:
        """Split at random into training and test rows; `most` limits their number."""
        order = np.random.default_rng(seed).permutation(len(self.target))[:most]
        cut = len(order) - round(TEST * len(order))
        train, test = order[:cut], order[cut:]
        X, y = encoding.X, self.target
        return RowsAndTargets(X[train], y[train]), RowsAndTargets(X[test], y[test])


def load(name: str, progress: Progress | None = None) -> Case:
    """Load a case by name."""
    errors.choice("study", "data", name, tuple(CASES))
    return CASES[name](name, progress)


def _labelled(name: str, progress: Progress | None) -> Case:
    dataset = datasets.load(name, progress=progress)
    return Case(
        name,
        *encodings(dataset.schema, dataset.rows),
        dataset.labels,
        dataset.classes,
        sha256=dataset.sha256,
        taken_as_public=dataset.taken_as_public,
    )


def encodings(schema: Schema, raw: Any) -> tuple[Encoding, Encoding]:
    """Encode rows in both ways; see the module."""
    rows = schema.rows(raw)
    X = np.asarray(Raw(schema).transform(rows), np.float64)
    numbers = rows.numbers.shape[1]
    X[:, :numbers] = 2 * X[:, :numbers] - 1
    lower = np.where(np.arange(X.shape[1]) < numbers, -1.0, 0.0)
    if isinstance(schema, ArraySchema):
        only = Encoding(X, lower, np.ones_like(lower))
        return only, only
    norm = float(np.sqrt(len(schema.columns)))
    marks = sum(column.missing == "indicate" for column in schema.continuous)
    most = [len(c.categories) - (c.unseen == "refuse") for c in schema.categorical]
    # A code of −1 is missing or unseen: the last place, as among the indicators.
    codes = np.where(rows.codes < 0, most, rows.codes)
    kept = numbers + marks
    upper = np.concatenate([np.ones(kept), most])
    counted = Encoding(
        np.hstack([X[:, :kept], codes]), np.append(lower[:kept], 0 * codes[0]), upper
    )
    return Encoding(X, lower, np.ones_like(lower), norm), counted


# What an applicant and a credit bureau know. Grade, sub-grade and instalment are left out: the
# lender derives them from the rate, or the rate from them.
LOANS = TableSchema(
    (
        Continuous("issued", 2007, 2012, outside="clip"),
        Continuous("loan_amnt", 500, 40_000, outside="clip"),
        *(
            Continuous(name, lower, upper, missing="indicate", outside="clip")
            for name, lower, upper in (
                ("annual_inc", 0, 200_000),
                ("dti", 0, 40),
                ("open_acc", 0, 40),
                ("pub_rec", 0, 2),
                ("revol_bal", 0, 60_000),
                ("revol_util", 0, 100),
                ("total_acc", 0, 80),
                ("pub_rec_bankruptcies", 0, 2),
                ("emp_length", 0, 10),
                ("earliest_cr_line", 1970, 2012),
            )
        ),
        *(
            Categorical(name, loans.CATEGORIES[name], unseen="other")
            for name in ("term", "home_ownership", "verification_status", "purpose", "addr_state")
        ),
    )
)


def _interest(name: str, progress: Progress | None) -> Case:
    if (path := find(name, NAMES)) is None:
        remedy = f"Get it from {HOME}, which asks for an account: Tacit cannot fetch it."
        refuse_missing(name, f"{NAMES[0]} (or .csv.gz)", remedy)
    return of_loans(name, loans.read(path), path)


def _words(column: Categorical, codes: Any) -> Any:
    """Turn codes into categories; −1 is a missing value."""
    pa = arrow()
    return pa.array(column.categories).take(pa.array(codes, mask=codes < 0))


def of_loans(name: str, ended: loans.Loans, path: Path) -> Case:
    """Make the case of the interest rate, from what was known when a loan was asked for."""
    pa = arrow()
    numbers = {"issued": ended.issued, **ended.numbers}
    table = {
        column.name: pa.array(numbers[column.name])
        if isinstance(column, Continuous)
        else _words(column, ended.codes[column.name])
        for column in LOANS.columns
    }
    return Case(
        name,
        *encodings(LOANS, pa.table(table)),
        ended.numbers["int_rate"],
        target_bounds=RATES,
        sha256={path.name: sha256_of(path)},
        taken_as_public=(_SET_BY_HAND,),
    )


def _diabetes(name: str, progress: Progress | None) -> Case:
    """Load ten measurements of 442 people and the progress of their illness, from scikit-learn."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    lower = np.array([18, 1, 15, 60, 90, 40, 20, 2, 3, 55.0])
    upper = np.array([80, 2, 45, 135, 305, 245, 100, 10, 6.5, 125.0])
    X = np.clip(2 * (bunch.data - lower) / (upper - lower) - 1, -1, 1)
    only = Encoding(X, np.full(10, -1.0), np.ones(10))
    taken = (_SET_BY_HAND,)
    return Case(name, only, only, bunch.target, (), (20.0, 350.0), taken_as_public=taken)


CASES: Mapping[str, Callable[[str, Progress | None], Case]] = {
    "adult": _labelled,
    "lending_club": _interest,
    "digits": _labelled,
    "diabetes": _diabetes,
}
"""Adult and digits are classifications, the others regressions."""
