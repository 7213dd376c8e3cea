"""The channel of one report of a survey: a sheet, assigned without looking at answers, and symbols.

A sheet has one or more parts. A part releases one joint symbol of all that it measures, with the
part's share of ε; the shares of a sheet's parts sum to ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.outcomes import STEPS
from tacit.local.channels import ColumnForm, ReportChannel
from tacit.local.report_files import Columns
from tacit.local.surveys.parts import Part
from tacit.local.surveys.questions import Integers, Reals
from tacit.privacy import errors
from tacit.privacy.events import Composed, Event, Parallel
from tacit.privacy.randomness import Randomness, source, uniform_below

_NUMBER = np.dtype("<u4")
"""The number of a sheet in the compact form of a report, without its leading zeros."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SurveyChannel(ReportChannel):
    """One sheet of several, and for each of its parts what it releases: one symbol or several.

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
        different = list(dict.fromkeys(self.sheet_events()))
        return different[0] if len(different) == 1 else Parallel(tuple(different))

    def kinds(self, columns: Columns) -> list[tuple[Event, int]]:
        counts = np.bincount(columns["sheet"], minlength=len(self.sheets)).tolist()
        pairs = zip(self.sheet_events(), counts, strict=True)
        return [(event, count) for event, count in pairs if count]

    def sheet_events(self) -> list[Event]:
        """List the event of a report of each sheet."""
        return [_composed([part.event for part in parts]) for parts in self.sheets]

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "Which questions a person is asked is drawn or declared without looking at answers.",
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
                    symbols[rows, place] = part.release(own, stream)
        return {"sheet": assigned, "symbols": symbols}

    def places(self, sheet: int) -> list[slice]:
        """Return where the symbols of a sheet's parts stand in a report."""
        ends = np.cumsum([0, *(part.width for part in self.sheets[sheet])]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    @property
    def report_bytes(self) -> int:
        """Bytes of the number of a sheet, and of what the longest one releases; others end in 0."""
        return self._number_bytes + max(
            sum(part.sent.report_bytes for part in parts) for parts in self.sheets
        )

    @property
    def _number_bytes(self) -> int:
        return max(1, -(-(len(self.sheets) - 1).bit_length() // 8))

    def to_bytes(self, columns: Columns) -> npt.NDArray[np.uint8]:
        checked = self.check(columns)
        wire = np.zeros((len(checked["sheet"]), self.report_bytes), np.uint8)
        numbers = checked["sheet"].astype(_NUMBER)[:, None].view(np.uint8)
        wire[:, : self._number_bytes] = numbers[:, : self._number_bytes]
        for number, part, place, own in self._pieces(checked["sheet"]):
            rows = np.flatnonzero(checked["sheet"] == number)
            wire[rows, own] = part.sent.to_bytes(checked["symbols"][rows, place])
        return wire

    def from_bytes(self, wire: npt.NDArray[np.uint8]) -> Columns:
        numbers = np.zeros((len(wire), _NUMBER.itemsize), np.uint8)
        numbers[:, : self._number_bytes] = wire[:, : self._number_bytes]
        sheet = numbers.view(_NUMBER)[:, 0].astype(np.int64)
        if bool(np.any(sheet >= len(self.sheets))):
            raise errors.InvalidData("survey: a report must be of one of the sheets.")
        symbols, left = np.full((len(wire), self.width), -1, np.int64), wire.copy()
        left[:, : self._number_bytes] = 0
        for number, part, place, own in self._pieces(sheet):
            rows = np.flatnonzero(sheet == number)
            symbols[rows, place] = part.sent.from_bytes(wire[rows, own])
            left[rows, own] = 0
        if bool(np.any(left)):
            raise errors.InvalidData("survey: a report must end in zeros.")
        return self.check({"sheet": sheet, "symbols": symbols})

    def _pieces(self, sheet: Integers) -> Iterator[tuple[int, Part, slice, slice]]:
        """Yield each part of the sheets in use, with its place among symbols and among bytes."""
        for number in np.unique(sheet).tolist():
            parts = self.sheets[number]
            sizes = (self._number_bytes, *(part.sent.report_bytes for part in parts))
            bounds = pairwise(np.cumsum(sizes).tolist())
            for part, place, (start, end) in zip(parts, self.places(number), bounds, strict=True):
                yield number, part, place, slice(start, end)

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        answers = self._answers(raw)
        logs = np.full(len(released["sheet"]), -math.log(len(self.sheets)))
        for number, parts in enumerate(self.sheets):
            rows = np.flatnonzero(released["sheet"] == number)
            own = {name: column[rows] for name, column in answers.items()}
            for part, place in zip(parts, self.places(number), strict=True):
                if rows.size:
                    sent = np.asarray(released["symbols"])[rows, place]
                    logs[rows] += np.log(part.chances(sent, own))
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
        most = max(part.sent.released for parts in self.sheets for part in parts) - 1
        sheet = ColumnForm((), 0, len(self.sheets) - 1)
        return {"sheet": sheet, "symbols": ColumnForm((self.width,), -1, most)}

    def check(self, columns: Columns) -> Columns:
        """Return sheets and symbols; refuse what the channel cannot have released."""
        checked = super().check(columns)
        for number in np.unique(checked["sheet"]).tolist():
            rows = checked["symbols"][checked["sheet"] == number]
            for part, place in zip(self.sheets[number], self.places(number), strict=True):
                part.sent.check(rows[:, place])
            used = sum(part.width for part in self.sheets[number])
            if bool(np.any(rows[:, used:] != -1)):
                raise errors.InvalidData("survey: a report must end in −1 after its last symbol.")
        return checked


def _composed(events: list[Event]) -> Event:
    return events[0] if len(events) == 1 else Composed(tuple(events))
