"""The channel of one report of a survey: a sheet, assigned without looking at answers, and sets.

A sheet has one or more parts. A part is one joint symbol of all that it measures, released by
subset selection with the part's share of ε; the shares of a sheet's parts sum to ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from tacit.data.outcomes import STEPS
from tacit.local.channels import ColumnForm, ReportChannel
from tacit.local.report_files import Columns
from tacit.local.surveys.measures import Measure
from tacit.local.surveys.questions import Integers, Reals
from tacit.privacy import errors
from tacit.privacy.events import Composed, Event, Parallel
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Randomness, source, uniform_below


@dataclass(frozen=True)
class Part:
    """Measures that are released as one symbol, with this ε."""

    measures: tuple[Measure, ...]
    epsilon: Fraction

    @cached_property
    def law(self) -> SubsetSelection:
        """The law of the set that is released for a symbol."""
        levels = math.prod(self.shape)
        return SubsetSelection(categories=levels, epsilon=self.epsilon, unit=Unit.PERSON)

    @property
    def shape(self) -> tuple[int, ...]:
        """The levels of each measure."""
        return tuple(one.levels for one in self.measures)

    @property
    def width(self) -> int:
        """The symbols in a released set."""
        return self.law.event.size

    def symbols(self, raw: dict[str, Integers], rng: Randomness) -> Integers:
        """Draw the level of each measure and join them."""
        levels = [one.draw(raw[one.variable], rng) for one in self.measures]
        return np.ravel_multi_index(levels, self.shape).astype(np.int64)

    def chances(self, sets: Integers, raw: dict[str, Integers]) -> Reals:
        """Return the probability of each set given each person's encoded answers."""
        own = np.ones(sets.shape)
        for one, levels in zip(self.measures, np.unravel_index(sets, self.shape), strict=True):
            own *= np.take_along_axis(one.law(raw[one.variable]), levels, axis=1)
        outside = next((s for s in range(self.law.categories) if s not in sets[0]), 0)
        held = float(np.exp(self.law.log_prob(sets[:1], [int(sets[0, 0])]))[0])
        missed = float(np.exp(self.law.log_prob(sets[:1], [outside]))[0])
        return np.asarray(missed + (held - missed) * own.sum(axis=1))


@dataclass(frozen=True, kw_only=True, repr=False)
class SurveyChannel(ReportChannel):
    """One sheet of several, and for each of its parts a set of symbols.

    Parameters
    ----------
    variables : tuple of str
        The columns of raw input: encoded answers to all questions.
    most : tuple of int
        The largest encoded answer of each variable.
    sheets : tuple of tuple of Part
        A sheet is drawn uniformly, and publicly, unless the assignment is given.
    """

    variables: tuple[str, ...]
    most: tuple[int, ...]
    sheets: tuple[tuple[Part, ...], ...]
    classes: tuple[Any, ...] | None = None

    @cached_property
    def width(self) -> int:
        """Symbols of the longest report; shorter ones end in −1."""
        return max(sum(part.width for part in parts) for parts in self.sheets)

    @property
    def event(self) -> Event:
        each = [_composed([part.law.event for part in parts]) for parts in self.sheets]
        different = list(dict.fromkeys(each))
        return different[0] if len(different) == 1 else Parallel(tuple(different))

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "Which questions a person is asked is drawn or declared without looking at answers; "
            "a person sends one report.",
        )

    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        return errors.integers("survey", encoded)

    def release(self, raw: Any, rng: Randomness | None = None, assigned: Any = None) -> Columns:
        answers, stream = self._answers(raw), source(rng)
        people = len(answers[self.variables[0]])
        if assigned is None:
            assigned = uniform_below(len(self.sheets), people, stream)
        assigned = errors.integers("survey", assigned, lower=0, upper=len(self.sheets) - 1)
        if assigned.shape != (people,):
            raise errors.InvalidData("survey: assigned must be one sheet per person.")
        symbols = np.full((people, self.width), -1, np.int64)
        for number, parts in enumerate(self.sheets):
            rows = np.flatnonzero(assigned == number)
            own = {name: column[rows] for name, column in answers.items()}
            for part, place in zip(parts, self.places(number), strict=True):
                if rows.size:
                    symbols[rows, place] = part.law.release(part.symbols(own, stream), stream)
        return {"sheet": assigned, "symbols": symbols}

    def places(self, sheet: int) -> list[slice]:
        """Return where the sets of a sheet's parts stand in a report."""
        ends = np.cumsum([0, *(part.width for part in self.sheets[sheet])]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def of_sheet(self, number: int) -> Any:
        """Return what a person with this sheet runs: the law of its one part, or a channel."""
        parts = self.sheets[number]
        return parts[0].law if len(parts) == 1 else replace(self, sheets=(parts,))

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        answers = self._answers(raw)
        logs = np.full(len(released["sheet"]), -math.log(len(self.sheets)))
        for number, parts in enumerate(self.sheets):
            rows = np.flatnonzero(released["sheet"] == number)
            own = {name: column[rows] for name, column in answers.items()}
            for part, place in zip(parts, self.places(number), strict=True):
                if rows.size:
                    sets = np.asarray(released["symbols"])[rows, place]
                    logs[rows] += np.log(part.chances(sets, own))
        return logs

    def _answers(self, raw: Any) -> dict[str, Integers]:
        """Check the answers to all questions: a refusal must not depend on the assigned sheet."""
        whole = errors.integers("survey", raw, lower=0, upper=max(STEPS, *self.most))
        if whole.ndim != 2 or whole.shape[1] != len(self.variables):
            raise errors.InvalidData("survey: encoded answers must be one column per variable.")
        if bool(np.any(whole > np.array(self.most))):
            raise errors.InvalidData("survey: answers must be among the declared options.")
        return dict(zip(self.variables, whole.T, strict=True))

    def forms(self) -> dict[str, ColumnForm]:
        most = max(part.law.categories for parts in self.sheets for part in parts) - 1
        sheet = ColumnForm((), 0, len(self.sheets) - 1)
        return {"sheet": sheet, "symbols": ColumnForm((self.width,), -1, most)}

    def check(self, columns: Columns) -> Columns:
        """Return sheets and sets of symbols; refuse what the channel cannot have released."""
        checked = super().check(columns)
        for number, parts in enumerate(self.sheets):
            rows = checked["symbols"][checked["sheet"] == number]
            for part, place in zip(parts, self.places(number), strict=True):
                if len(rows):
                    part.law.must_be_sets(rows[:, place])
            used = sum(part.width for part in parts)
            if bool(np.any(rows[:, used:] != -1)):
                raise errors.InvalidData("survey: a report must end in −1 after its last set.")
        return checked


def _composed(events: list[Event]) -> Event:
    return events[0] if len(events) == 1 else Composed(tuple(events))
