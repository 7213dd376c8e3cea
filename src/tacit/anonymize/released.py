"""Released rows and whose they are: what every attacker starts from."""

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
"""Principal components that most attackers use."""
_WIDEST = 1500  # columns of which all principal components are found
_ROUNDING = 1e-6  # of float32, which encoders release in
_FAR = 10  # times the range of all but the outermost hundredth on each side


def as_array(where: str, name: str, raw: Any) -> npt.NDArray[Any]:
    """An array; what makes none is refused without being quoted."""
    try:
        return np.asarray(raw)
    except (ValueError, TypeError, RuntimeError):
        raise errors.InvalidData(f"{where}: {name} must form a regular array.") from None


def vectors(where: str, representation: Any) -> Reals:
    """One row of finite numbers a sample; an image or a stack of them is laid out flat."""
    given = as_array(where, "representation", representation)
    given = given.astype(np.uint8) if given.dtype == bool else given
    array = errors.reals(where, given)
    if array.ndim == 0:
        raise errors.InvalidData(f"{where}: representation must be rows of numbers, got one.")
    return array.reshape(len(array), -1)


def people(where: str, private: Any, rows: int) -> tuple[Integers, npt.NDArray[Any]]:
    """Codes from 0 of whose rows these are, and the values in the order of the codes.

    Refused: missing labels, another number of labels than of rows, fewer than two people.
    """
    values, codes = np.unique(_labels(where, private, rows), return_inverse=True)
    if len(values) < 2:
        raise errors.InvalidData(
            f"{where}: private must name at least two people, got one. "
            "Among one person nobody is to be told apart."
        )
    return codes.astype(np.int64), values


def people_among(where: str, known: npt.NDArray[Any], private: Any, rows: int) -> Integers:
    """Codes of whose rows these are, among people known from other rows; others are refused."""
    given = _labels(where, private, rows)
    if (given.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise errors.InvalidData(f"{where}: private must be words in both parts, or in neither.")
    place = np.searchsorted(known, given).clip(max=len(known) - 1)
    unseen = known[place] != given
    if bool(unseen.any()):
        raise errors.InvalidData(
            f"{where}: people of the test rows must be among the {len(known)} of the training "
            f"rows; row {int(np.argmax(unseen))} is not. Leave such rows out."
        )
    return np.asarray(place, np.int64)


def split(where: str, person: Integers, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows attackers are tried on: a share of each person's, at least one, never all."""
    share = errors.probability(where, "share", share, zero=False)
    rng = np.random.default_rng(seed)
    tried = np.zeros(len(person), bool)
    for code in range(int(person.max()) + 1):
        mine = rng.permutation(np.flatnonzero(person == code))
        if len(mine) < 2:
            raise errors.InvalidData(
                f"{where}: every person must have at least two rows, to learn from and to be tried "
                "on. Leave out people with one row."
            )
        tried[mine[: min(max(round(share * len(mine)), 1), len(mine) - 1)]] = True
    return tried


def distinct(rows: npt.NDArray[Any]) -> Integers:
    """Which of the distinct rows each one is, by its bytes: −0.0 is not 0.0."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    whole = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))
    return np.asarray(np.unique(whole.ravel(), return_inverse=True)[1].ravel(), np.int64)


def batch(rows: int) -> int:
    """Rows a step of a network's training: few enough that a pass over few rows has many steps."""
    return min(max(rows // 20, 32), 200, rows)


@dataclass(frozen=True, eq=False)
class Standard:
    r"""Columns with mean 0 and spread 1 on the rows that an attacker learns from.

    Columns that are constant there teach nothing and are left out. Of n rows none is further than
    :math:`\sqrt n` from the mean; a later row is held to that, so that nothing overflows. Values
    far outside are held first: beside one of 1e12 all others would be alike.
    """

    fences: tuple[Reals, Reals]
    largest: Reals
    mean: Reals
    spread: Reals
    kept: npt.NDArray[np.bool_]
    limit: float

    @classmethod
    def of(cls, rows: Reals) -> Self:
        """Learned from these rows."""
        fences = _fences(rows)
        rows = np.clip(rows, *fences)
        # By the largest value first: the square of 1e200 is none.
        largest = np.abs(rows).max(axis=0)
        largest[largest == 0] = 1.0
        scaled = rows / largest
        spread = scaled.std(axis=0)
        # Of equal values, too, the computed spread may not be zero.
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
    """Between what a column is held; nowhere where nearly all of its values are equal."""
    outer = min(max(len(rows) // 100, 1), (len(rows) - 1) // 2)
    ends = outer, len(rows) - 1 - outer
    low, high = np.partition(rows, ends, axis=0)[list(ends)]
    with np.errstate(over="ignore"):
        reach = _FAR * (high - low)
        reach[reach == 0] = np.inf
        return low - reach, high + reach


@dataclass(frozen=True, eq=False)
class Ranks:
    """Places of values among those of the rows that an attacker learns from, from −1 to 1.

    They do not know how far apart values are: however many are far out, and however close the
    others lie, down to the last bit of float64, what is larger stays larger.
    """

    ordered: Reals
    kept: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Reals) -> Self:
        """Learned from these rows, without columns that are constant there."""
        ordered = np.sort(rows.T, axis=1)
        kept = ordered[:, 0] < ordered[:, -1]
        return cls(ordered[kept], kept)

    def __call__(self, rows: Reals) -> Coordinates:
        if not self.kept.any():
            return np.zeros((len(rows), 1), np.float32)
        found = np.empty((len(self.ordered), len(rows)), np.float32)
        for place, (ordered, column) in enumerate(
            zip(self.ordered, rows.T[self.kept], strict=True)
        ):
            # Equal values share the middle of their places; a new one lies between two.
            both = (np.searchsorted(ordered, column, side) for side in ("left", "right"))
            found[place] = sum(both) / len(ordered) - 1
        return np.ascontiguousarray(found.T)


@dataclass(frozen=True, eq=False)
class White:
    """Principal components, each with spread 1 on the rows that an attacker learns from.

    What an encoder shrinks it does not remove: within one digit's cluster a person may be plain in
    directions that are a thousandth of the distance between clusters. Networks do not find those
    by themselves in columns that the clusters dominate; with every direction at one scale they do.
    """

    mean: Reals
    axes: Reals
    limit: float

    @classmethod
    def of(cls, rows: Coordinates, seed: int = 0) -> Self:
        """Learned from these rows, strongest first, without directions that only rounding fills."""
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
        found = (rows - self.mean) @ self.axes
        return np.clip(found, -self.limit, self.limit).astype(np.float32)


def _leading(centred: Reals, seed: int) -> tuple[Reals, Reals]:
    """Of very many columns the leading directions alone; ascending, as from `eigh`."""
    from sklearn.utils.extmath import randomized_svd

    count = min(LEADING, len(centred) - 1)
    _, values, axes = randomized_svd(centred, count, random_state=seed)
    return (values[::-1] ** 2) / len(centred), axes[::-1].T


def _labels(where: str, private: Any, rows: int) -> npt.NDArray[Any]:
    """One label a row: numbers, or words; none missing."""
    given = as_array(where, "private", private)
    if given.ndim != 1 or len(given) != rows:
        raise errors.InvalidData(
            f"{where}: private must be one label a row, got shape {given.shape} for {rows} rows."
        )
    missing = np.fromiter(map(_is_missing, given.tolist()), bool, len(given))
    if bool(missing.any()):
        raise errors.InvalidData(
            f"{where}: private must name somebody in every row; row {int(np.argmax(missing))} "
            "has no label. Leave such rows out."
        )
    if given.dtype.kind == "O":
        words = all(isinstance(label, str) for label in given)
        try:
            given = given.astype(str if words else np.float64)
        except (TypeError, ValueError):
            raise errors.InvalidData(
                f"{where}: private must be all numbers or all words."
            ) from None
    return given


def _is_missing(label: Any) -> bool:
    """None, NaN, a time that is none, an empty word, or a value that cannot be compared."""
    try:
        return label is None or bool(label != label) or label == ""
    except TypeError:
        return True
