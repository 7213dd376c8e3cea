"""Which rows of which release a table of reports or votes holds, so that nobody counts twice.

A release has a number, drawn at random when it is drawn, and rows 0, …, n − 1. Whatever is chosen
from it keeps that number and says which rows it has, in their order: "4f…[0:50]", or
"4f…[3:4,7:9]". Two tables that share a row of a release hold the same person.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Integers = npt.NDArray[np.int64]
_FORM = re.compile(r"([^\[\]]+)(?:\[(\d+:\d+(?:,\d+:\d+)*)\])?")


def fresh() -> tuple[str, ...]:
    """Draw the number of a new release."""
    return (secrets.token_hex(16),)


def settled(where: str, releases: Iterable[str], rows: int) -> tuple[str, ...]:
    """Check the releases of rows; a number alone stands for all rows of its release."""
    releases = tuple(map(str, releases))
    if len(releases) == 1 and "[" not in releases[0]:
        releases = (f"{releases[0]}[0:{rows}]",) if rows else ()
    held = sum(int((stops - starts).sum()) for _, starts, stops in _parsed(where, releases))
    if held != rows:
        raise errors.InvalidData(f"{where}: releases must say of each row where it is from.")
    must_be_once(where, releases)
    return releases


def chosen(where: str, releases: tuple[str, ...], which: Any) -> tuple[str, ...]:
    """Return the releases of the chosen rows, in their order."""
    pieces = list(_parsed(where, releases))
    sizes = [int((stops - starts).sum()) for _, starts, stops in pieces]
    owner = np.repeat(np.arange(len(pieces)), sizes)[which]
    runs = [run for _, *ends in pieces for run in zip(*ends, strict=True)]
    places = [np.arange(start, stop) for start, stop in runs]
    place = np.concatenate([np.empty(0, np.int64), *places])[which]
    if not place.size:
        return ()
    begins = np.flatnonzero(np.append(True, (np.diff(owner) != 0) | (np.diff(place) != 1)))
    ends = np.append(begins[1:], place.size)
    return tuple(_written(pieces, owner[begins], place[begins], ends - begins))


def must_be_once(where: str, releases: Iterable[str]) -> None:
    """Refuse a row of a release that is there twice."""
    runs_of: dict[str, list[tuple[Integers, Integers]]] = {}
    for name, starts, stops in _parsed(where, releases):
        runs_of.setdefault(name, []).append((starts, stops))
    for parts in runs_of.values():
        starts, stops = (np.concatenate(ends) for ends in zip(*parts, strict=True))
        order = np.argsort(starts, kind="stable")
        if bool(np.any(starts[order][1:] < stops[order][:-1])):
            raise errors.InvalidData(
                f"{where}: every row of a release must occur once: the same people would "
                "count twice. Leave copies out."
            )


def _parsed(where: str, releases: Iterable[str]) -> Iterator[tuple[str, Integers, Integers]]:
    """Parse the number of each part, and the first rows and the ends of its runs."""
    for text in releases:
        form = _FORM.fullmatch(text)
        if form is None or form[2] is None:
            raise errors.InvalidData(f"{where}: releases must be numbers with their rows.")
        runs = np.array([run.split(":") for run in form[2].split(",")]).astype(np.int64)
        if bool(np.any(runs[:, 0] >= runs[:, 1])):
            raise errors.InvalidData(f"{where}: releases must be numbers with their rows.")
        yield form[1], runs[:, 0], runs[:, 1]


def _written(pieces: list[Any], owner: Integers, first: Integers, sizes: Integers) -> Iterator[str]:
    """Write one text for each stretch of runs that are from the same part."""
    turns = np.append(np.flatnonzero(np.append(True, np.diff(owner) != 0)), owner.size)
    for begin, end in pairwise(turns.tolist()):
        runs = zip(first[begin:end].tolist(), sizes[begin:end].tolist(), strict=True)
        listed = ",".join(f"{start}:{start + size}" for start, size in runs)
        yield f"{pieces[owner[begin]][0]}[{listed}]"
