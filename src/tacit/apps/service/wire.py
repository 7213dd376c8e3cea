"""The form of reports and votes: JSON in transit, bytes in storage.

An answer that the mechanism cannot have released is refused. A report has the same bytes however
its JSON was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.apps.service.problems import Problem
from tacit.local.channels import ReportChannel
from tacit.local.inference.votes import Ballot, Votes
from tacit.local.report_files import Columns
from tacit.local.reports import Reports
from tacit.privacy import errors, events

_LARGEST = 2**62
_FLAT = "<i8"
_COMPACT = (",", ":")
_LAPLACE_TAIL, _GAUSSIAN_TAIL = 64, 12
"""In scales and in standard deviations: noise beyond them has a probability below 1e-27."""


class Form(Protocol):
    """The form of one kind of answer: how it is read and stored."""

    refusal: str

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        """Return the bytes of answers as they came in JSON; refuse all if one is not valid."""
        ...


def pack_each(form: Form, answers: Sequence[Any]) -> list[bytes | Problem]:
    """Return the bytes of each answer, or its problem: an invalid answer affects no other."""
    try:
        return list(form.pack(answers))
    except Problem:
        if len(answers) > 1:
            return [one for answer in answers for one in pack_each(form, [answer])]
        return [Problem(form.refusal)]


class ReportForm:
    """The form of one mechanism's reports."""

    refusal = "not-a-report"

    def __init__(self, mechanism: Any, channel: ReportChannel) -> None:
        self.mechanism, self.channel = mechanism, channel
        self._compact = channel.report_bytes is not None

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        if self._compact:
            columns = _columns(answers, list(self.channel.forms()))
            with _refused(self.refusal):
                return _rows(self.channel.to_bytes(columns))
        columns = _columns(answers, _names(answers[0]))
        with _refused(self.refusal):
            self.channel.check(columns)
        if any(np.abs(columns[name]).max() > most for name, most in self._reach.items()):
            raise Problem(self.refusal)
        return [json.dumps(one, sort_keys=True, separators=_COMPACT).encode() for one in answers]

    @cached_property
    def _reach(self) -> dict[str, float]:
        """Largest noised number to accept: larger ones do not occur, and would ruin every mean."""
        return {name: _farthest(noise.event) for name, noise in self.channel.additive.items()}

    def reports(self, contents: Sequence[bytes], release: str) -> Reports:
        """Return all reports, at least one, as a release of this name."""
        if self._compact:
            wire = np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), -1)
            columns = self.channel.from_bytes(wire)
        else:
            answers = [json.loads(content) for content in contents]
            columns = _columns(answers, _names(answers[0]))
        return Reports(self.mechanism, columns, self.channel, releases=(release,))


class VoteForm:
    """The form of one ballot's votes."""

    refusal = "not-a-vote"

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        symbols = _column(answers)
        with _refused(self.refusal):
            Votes(self.ballot, symbols)
        return _rows(symbols.reshape(len(answers), -1).astype(_FLAT))

    def votes(self, contents: Sequence[bytes], about: str) -> Votes:
        """Return all votes."""
        flat = np.frombuffer(b"".join(contents), _FLAT).astype(np.int64)
        wide = self.ballot.law.size > 1
        return Votes(self.ballot, flat.reshape(len(contents), -1) if wide else flat, about=about)


@contextmanager
def _refused(code: str) -> Iterator[None]:
    """Turn a mechanism's refusal into this problem, without its message."""
    try:
        yield
    except errors.TacitError:
        raise Problem(code) from None


def _farthest(event: events.Laplace | events.Gaussian) -> float:
    if isinstance(event, events.Laplace):
        return float(event.l1_sensitivity + _LAPLACE_TAIL * event.scale)
    return float(event.l2_sensitivity + _GAUSSIAN_TAIL * event.sigma)


def _names(answer: Any) -> list[str]:
    return sorted(answer) if type(answer) is dict else []


# These loops run in C: otherwise most of a batch's time would be spent here.


def _columns(answers: Sequence[Any], names: list[str]) -> Columns:
    """Return the columns of answers that have exactly these names."""
    if set(map(type, answers)) != {dict} or set(map(len, answers)) != {len(names)}:
        raise Problem("not-a-report")
    try:
        return {name: _column([answer[name] for answer in answers]) for name in names}
    except KeyError:
        raise Problem("not-a-report") from None


def _column(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return whole numbers, or lists of the same length of them; refuse True and 1.0."""
    wide = type(values[0]) is list
    if wide and (set(map(type, values)) != {list} or len(set(map(len, values))) != 1):
        raise Problem("not-a-report")
    flat = list(chain.from_iterable(values)) if wide else list(values)
    if set(map(type, flat)) != {int} or not -_LARGEST <= min(flat) <= max(flat) <= _LARGEST:
        raise Problem("not-a-report")
    column = np.array(flat, np.int64)
    return column.reshape(len(values), -1) if wide else column


def _rows(wire: npt.NDArray[Any]) -> list[bytes]:
    content, width = wire.tobytes(), wire.shape[1] * wire.itemsize
    return [content[start : start + width] for start in range(0, len(content), width)]
