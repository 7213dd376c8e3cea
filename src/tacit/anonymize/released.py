"""Released rows, their people, and the coordinates that attackers use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Coordinates = npt.NDArray[np.float32]

LEADING = 128
"""Number of principal components that most attackers use."""
_WIDEST = 1500  # columns up to which all principal components are computed
_ROUNDING = 1e-6  # of float32, in which encoders release
_FAR = 10  # times the range without the outermost 1 % on each side


def as_array(where: str, name: str, raw: Any) -> npt.NDArray[Any]:
    """Convert to an array; refuse other input without quoting it."""
    try:
        return np.asarray(raw)
    except (ValueError, TypeError, RuntimeError):
        raise errors.InvalidData(f"{where}: {name} must form a regular array.") from None


def vectors(where: str, representation: Any) -> Reals:
    """Return one row of finite numbers per sample; images are flattened."""
    rows = as_array(where, "representation", representation)
    rows = rows.astype(np.uint8) if rows.dtype == bool else rows
    array = errors.reals(where, rows)
    if array.ndim == 0:
        raise errors.InvalidData(f"{where}: representation must be rows of numbers, got one.")
    return array.reshape(len(array), -1)


def people(where: str, private: Any, rows: int) -> tuple[Integers, npt.NDArray[Any]]:
    """Return the code of each row's person, from 0, and the values in the order of the codes.

    Missing labels, another number of labels than rows, and fewer than two people are refused.
    """
    values, codes = np.unique(_labels(where, private, rows), return_inverse=True)
    if len(values) < 2:
        raise errors.InvalidData(
            f"{where}: private must name at least two people, got one. "
            "A single person cannot be distinguished from others."
        )
    return codes.astype(np.int64), values


def people_among(where: str, known: npt.NDArray[Any], private: Any, rows: int) -> Integers:
    """Return the code of each row's person among known people; refuse unknown people."""
    labels = _labels(where, private, rows)
    if (labels.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise errors.InvalidData(f"{where}: private must be strings in both parts, or in neither.")
    place = np.searchsorted(known, labels).clip(max=len(known) - 1)
    unseen = known[place] != labels
    if bool(unseen.any()):
        raise errors.InvalidData(
            f"{where}: people of the test rows must be among the {len(known)} of the training "
            f"rows; row {int(np.argmax(unseen))} is not. Leave such rows out."
        )
    return np.asarray(place, np.int64)


def split(where: str, person: Integers, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Mark the rows for testing: a share of each person's, at least one and never all."""
    share = errors.probability(where, "share", share, zero=False)
    rng = np.random.default_rng(seed)
    tried = np.zeros(len(person), bool)
    for code in range(int(person.max()) + 1):
        mine = rng.permutation(np.flatnonzero(person == code))
        if len(mine) < 2:
            raise errors.InvalidData(
                f"{where}: every person must have at least two rows, one to train on and one to "
                "test on. Leave out people with one row."
            )
        tried[mine[: min(max(round(share * len(mine)), 1), len(mine) - 1)]] = True
    return tried


def distinct(rows: npt.NDArray[Any]) -> Integers:
    """Number the distinct rows, compared by their bytes: −0.0 is not 0.0."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    whole = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))
    return np.asarray(np.unique(whole.ravel(), return_inverse=True)[1].ravel(), np.int64)


def batch(rows: int) -> int:
    """Return the batch size of a network, small enough for many steps even with few rows."""
    return min(max(rows // 20, 32), 200, rows)


@dataclass(frozen=True, eq=False)
class Standard:
    r"""A map to columns with mean 0 and standard deviation 1 on an attacker's training rows.

    Columns that are constant there carry no information and are dropped. None of n rows is further
    than :math:`\sqrt n` from the mean; test rows are clipped to that, so that nothing overflows.
    Outliers are clipped first: next to a value of 1e12 all others would be equal.
    """

    fences: tuple[Reals, Reals]
    largest: Reals
    mean: Reals
    spread: Reals
    kept: npt.NDArray[np.bool_]
    limit: float

    @classmethod
    def of(cls, rows: Reals) -> Self:
        """Fit on these rows."""
        fences = _fences(rows)
        rows = np.clip(rows, *fences)
        # Divided by the largest value first, since the square of 1e200 overflows.
        largest = np.abs(rows).max(axis=0)
        largest[largest == 0] = 1.0
        scaled = rows / largest
        spread = scaled.std(axis=0)
        # Even for equal values the computed standard deviation may not be zero.
        kept = (rows.max(axis=0) > rows.min(axis=0)) & (spread > 0)
        return cls(fences, largest, scaled.mean(axis=0), spread, kept, float(len(rows)) ** 0.5)

    def __call__(self, rows: Reals) -> Coordinates:
        if not self.kept.any():
            return np.zeros((len(rows), 1), np.float32)
        kept = self.kept
        with np.errstate(over="ignore"):
            scaled = np.clip(rows, *self.fences)[:, kept] / self.largest[kept]
            held = (scaled - self.mean[kept]) / self.spread[kept]
        return np.clip(held, -self.limit, self.limit).astype(np.float32)


def _fences(rows: Reals) -> tuple[Reals, Reals]:
    """Compute limits that clip each column; infinite if nearly all of its values are equal."""
    outer = min(max(len(rows) // 100, 1), (len(rows) - 1) // 2)
    ends = outer, len(rows) - 1 - outer
    low, high = np.partition(rows, ends, axis=0)[list(ends)]
    with np.errstate(over="ignore"):
        reach = _FAR * (high - low)
        reach[reach == 0] = np.inf
        return low - reach, high + reach


@dataclass(frozen=True, eq=False)
class Ranks:
    """A map to ranks of values among those of an attacker's training rows, from −1 to 1.

    Ranks do not depend on distances: however many outliers there are, and however close the other
    values are, down to the last bit of float64, the larger value has the larger rank.
    """

    ordered: Reals
    kept: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Reals) -> Self:
        """Fit on these rows, without columns that are constant there."""
        ordered = np.sort(rows.T, axis=1)
        kept = ordered[:, 0] < ordered[:, -1]
        return cls(ordered[kept], kept)

    def __call__(self, rows: Reals) -> Coordinates:
        if not self.kept.any():
            return np.zeros((len(rows), 1), np.float32)
        ranks = np.empty((len(self.ordered), len(rows)), np.float32)
        for place, (ordered, column) in enumerate(
            zip(self.ordered, rows.T[self.kept], strict=True)
        ):
            # Equal values share the mean of their ranks; a new value lies between two.
            both = (np.searchsorted(ordered, column, side) for side in ("left", "right"))
            ranks[place] = sum(both) / len(ordered) - 1
        return np.ascontiguousarray(ranks.T)


@dataclass(frozen=True, eq=False)
class White:
    """A map to principal components, each with standard deviation 1 on the training rows.

    What an encoder shrinks it does not remove: within one digit's cluster a person may be obvious
    in directions that are a thousandth of the distance between clusters. Networks do not find these
    in columns that the clusters dominate; with all directions at one scale they do.
    """

    mean: Reals
    axes: Reals
    limit: float

    @classmethod
    def of(cls, rows: Coordinates, seed: int = 0) -> Self:
        """Fit on these rows, strongest first, without directions that hold only rounding error."""
        mean = rows.mean(axis=0, dtype=np.float64)
        centred = rows - mean
        if rows.shape[1] > _WIDEST:
            values, axes = _leading(centred, seed)
        else:
            values, axes = np.linalg.eigh(centred.T @ centred / len(rows))
        values, axes = values[::-1], axes[:, ::-1]
        filled = values > max(float(values[0]), 1e-30) * _ROUNDING**2
        spread = np.sqrt(values[filled])
        return cls(mean, axes[:, filled] / spread, float(len(rows)) ** 0.5)

    def __call__(self, rows: Coordinates) -> Coordinates:
        if not self.axes.shape[1]:
            return np.zeros((len(rows), 1), np.float32)
        scaled = (rows - self.mean) @ self.axes
        return np.clip(scaled, -self.limit, self.limit).astype(np.float32)


def _leading(centred: Reals, seed: int) -> tuple[Reals, Reals]:
    """Compute only the leading directions, in ascending order as `eigh` does."""
    from sklearn.utils.extmath import randomized_svd

    count = min(LEADING, len(centred) - 1)
    _, values, axes = randomized_svd(centred, count, random_state=seed)
    return (values[::-1] ** 2) / len(centred), axes[::-1].T


def _labels(where: str, private: Any, rows: int) -> npt.NDArray[Any]:
    """Return one label per row, numbers or strings; refuse missing labels."""
    labels = as_array(where, "private", private)
    if labels.ndim != 1 or len(labels) != rows:
        raise errors.InvalidData(
            f"{where}: private must be one label per row, got shape {labels.shape} for {rows} rows."
        )
    missing = np.fromiter(map(_is_missing, labels.tolist()), bool, len(labels))
    if bool(missing.any()):
        raise errors.InvalidData(
            f"{where}: private must have no missing labels; row {int(np.argmax(missing))} has "
            "none. Leave such rows out."
        )
    if labels.dtype.kind == "O":
        words = all(isinstance(label, str) for label in labels)
        try:
            labels = labels.astype(str if words else np.float64)
        except (TypeError, ValueError):
            raise errors.InvalidData(
                f"{where}: private must be all numbers or all strings."
            ) from None
    return labels


def _is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, NaT, an empty string, or cannot be compared."""
    try:
        return label is None or bool(label != label) or label == ""
    except TypeError:
        return True
