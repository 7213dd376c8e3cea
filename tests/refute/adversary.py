"""Neighbours that somebody chooses who knows the code.

Rows at the edges of bounds, beyond them, at ties, of extreme size, subnormal, not numbers at all,
alone in their class, many times there; in the first place, in the last, and between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .refuter import Pair, Path, asked_of

Columns = tuple[np.ndarray, ...]
"""Records as columns: rows, and what is beside them (labels)."""


def hostile_rows(width: int, low: float, high: float) -> dict[str, np.ndarray]:
    """Rows that bounds, clipping and grids are tried with."""
    middle, half = (low + high) / 2, (high - low) / 2
    ones, signs = np.ones(width), np.where(np.arange(width) % 2, -1.0, 1.0)
    first = np.eye(1, width)[0]
    return {
        "corner": high * ones,
        "other corner": low * ones,
        "beyond": 1e308 * signs,
        "not a number": np.full(width, np.nan),
        "one not a number": np.where(first > 0, np.nan, middle),
        "infinite": np.inf * signs,
        "subnormal": 5e-324 * ones,
        "middle": middle * ones,
        "just outside": np.nextafter(high, np.inf) * ones,
        "just inside": np.nextafter(high, -np.inf) * ones,
        "edge of a ball": middle + half * first,
        "just beyond a ball": middle + np.nextafter(half, np.inf) * first,
        "within a rounding of a ball": middle + half * np.sqrt(1 / width) * signs * (1 + 2**-52),
        "opposite signs": middle + half * signs,
        "half a grid step": middle + half * 2.0**-21 * signs,
        "a third of the width": low + (high - low) / 3 * ones,
    }


FEW = ("corner", "beyond", "not a number", "just beyond a ball")


def neighbours(
    base: Columns,
    adjacency: str,
    low: float,
    high: float,
    everything: bool,
    beside: tuple[Any, ...] = (),
    *,
    finite: bool = False,
    last: bool = False,
) -> Iterator[Pair]:
    """Pairs of this adjacency: a hostile row, there and not there, blank or replaced.

    `beside` are values of the second column (labels) that a hostile row may have. `finite` is for
    paths that refuse other rows, and say so; `last` for those that toss a coin for each row, which
    is then the same for the others.
    """
    rows = hostile_rows(base[0].shape[1], low, high)
    if not everything:
        rows = {name: rows[name] for name in FEW}
    if finite:
        rows = {name: row for name, row in rows.items() if np.isfinite(row).all()}
    rows["twin"] = base[0][len(base[0]) // 2].astype(np.float64)
    labels = beside if everything else beside[:2]
    for name, row in rows.items():
        for label in labels or (None,):
            told = (row,) if label is None else (row, label)
            for place in _places(len(base[0]), everything, last):
                said = f"{name}, {label!r}, at {place}"
                yield _pair(said, base, told, place, adjacency, rows["corner"])
    if everything:
        same = tuple(np.repeat(column[:1], len(column), axis=0) for column in base)
        ordered = tuple(column[np.argsort(base[0][:, 0], kind="stable")] for column in base)
        for name, other in (("all equal", same), ("sorted", ordered)):
            told = (rows["corner"],) if not beside else (rows["corner"], beside[-1])
            row = rows["other corner"]
            yield _pair(f"corner among {name}", other, told, -1 if last else 0, adjacency, row)


def _places(count: int, everything: bool, last: bool) -> tuple[int, ...]:
    if last:
        return (count,)
    return (0, count // 2, count) if everything else (0,)


def _pair(
    name: str, base: Columns, told: tuple[Any, ...], place: int, adjacency: str, instead: Any
) -> Pair:
    place = len(base[0]) if place < 0 else place
    there = inserted(base, told, place)
    if adjacency == "add-remove":
        return Pair(name, there, base)
    if adjacency == "zero-out":
        blank = (np.full(base[0].shape[1], np.nan), *told[1:])
        return Pair(name, there, inserted(base, blank, place))
    return Pair(name, there, inserted(base, (instead, *told[1:]), place))


def inserted(base: Columns, told: tuple[Any, ...], place: int) -> Columns:
    """The records with one more, in this place."""
    return tuple(
        np.insert(column, place, value, axis=0) for column, value in zip(base, told, strict=True)
    )


def at_an_edge(path: Path, low: np.ndarray, high: np.ndarray, copies: int) -> Iterator[Pair]:
    """A row tuned by bisection to where the first answer flips, many times, with a row before it.

    Copies are off by a few roundings each: where a value depends on its place, or on its company,
    some of them flip when the row before them is gone.
    """

    def between(share: float) -> np.ndarray:
        return np.tile(low + (high - low) * share, (copies, 1))

    start, end = 0.0, 1.0
    first = asked_of(path, (between(start),))[:1]
    for _ in range(52):
        middle = (start + end) / 2
        if asked_of(path, (between(middle),))[:1] == first:
            start = middle
        else:
            end = middle
    drawn = np.random.default_rng(0)
    for jitter in (0.0, 3e-8, 1e-7, 3e-7):
        many = between(end) * (1 + jitter * drawn.normal(size=(copies, len(low))))
        yield Pair(f"one before copies off by {jitter}", (np.vstack([high[None], many]),), (many,))
