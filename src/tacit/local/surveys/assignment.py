"""Sheets that are declared for each person, by the names of their questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.local.surveys.measures import question_of
from tacit.local.surveys.questions import Integers
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, uniform_below

_AND = "+"
Sheet = tuple[str, ...]


def drawn(
    sheets: Sequence[Sheet], sizes: Sequence[int], assigned: Any, rng: Randomness
) -> Integers:
    """Return the number of each person's sheet among all, from what was declared for them.

    Of a question with several answers one option is drawn for each person, without a look at the
    answer.

    Parameters
    ----------
    sheets : sequence of tuple of str
        The declared sheets of the survey.
    sizes : sequence of int
        How many sheets of the channel each of them stands for: one per option of a question with
        several answers.
    assigned : sequence of str, of tuple of str, or of int
        The questions of each person's sheet: "smoker", "region+income" or ("region", "income"); or
        its place among the declared sheets.
    """
    places = names_of(sheets)
    try:
        chosen = np.array([_place(one, places, len(sheets)) for one in _listed(assigned)], np.int64)
    except (KeyError, TypeError):
        known = "; ".join(_AND.join(one) for one in sheets)
        # What was given is not repeated: a wrong column would be somebody's answers.
        raise errors.InvalidData(
            f"Survey.release: assigned must be one of the survey's sheets for each row: {known}."
        ) from None
    first = np.concatenate([[0], np.cumsum(sizes)])[chosen].astype(np.int64)
    for place, size in enumerate(sizes):
        rows = np.flatnonzero(chosen == place)
        if size > 1 and rows.size:
            first[rows] += uniform_below(size, len(rows), rng)
    return first


def names_of(sheets: Sequence[Sheet]) -> Mapping[frozenset[str], int]:
    """Return the place of each sheet by its names, and by its questions where these are enough.

    "income" stands for the sheet "income:bins" if no other sheet asks for the income alone.
    """
    places = {frozenset(sheet): place for place, sheet in enumerate(sheets)}
    questions = [frozenset(map(question_of, sheet)) for sheet in sheets]
    for place, asked in enumerate(questions):
        if questions.count(asked) == 1:
            places.setdefault(asked, place)
    return places


def _place(given: Any, places: Mapping[frozenset[str], int], sheets: int) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        if not 0 <= given < sheets:
            raise KeyError
        return given
    return places[_named(given, places)]


def _named(given: Any, places: Mapping[frozenset[str], int]) -> frozenset[str]:
    if not isinstance(given, str):
        return frozenset(given)
    whole = frozenset([given.strip()])
    return whole if whole in places else frozenset(map(str.strip, given.split(_AND)))


def _listed(assigned: Any) -> Iterable[Any]:
    if isinstance(assigned, str):
        raise TypeError
    return assigned.tolist() if hasattr(assigned, "tolist") else list(assigned)
