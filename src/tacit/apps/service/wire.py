"""The form of reports and votes: JSON on their way, a fixed number of bytes in storage.

What cannot have come from the mechanism has no such form. The bytes of a report are the same
however its JSON was written.
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
"""In scales and standard deviations: what lies beyond has a probability below 1e-27."""


class Form(Protocol):
    """How the answers of one kind are read, stored and read back."""

    refusal: str

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        """Bytes of answers as they came in JSON; if one does not fit, all are refused."""
        ...


def pack_each(form: Form, answers: Sequence[Any]) -> list[bytes | Problem]:
    """Bytes of each answer, or why it is refused: one that does not fit harms no other."""
    try:
        return list(form.pack(answers))
    except Problem:
        if len(answers) > 1:
            return [one for answer in answers for one in pack_each(form, [answer])]
        return [Problem(form.refusal)]


class ReportForm:
    """Reports of one mechanism."""

    refusal = "not-a-report"

    def __init__(self, mechanism: Any, channel: ReportChannel) -> None:
        self.mechanism, self.channel = mechanism, channel
        self._sets = channel.symbols

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        if self._sets is not None:
            columns = _columns(answers, ["symbols"])
            with _refused(self.refusal):
                return _rows(self._sets.to_bytes(columns["symbols"]))
        columns = _columns(answers, _names(answers[0]))
        with _refused(self.refusal):
            self.channel.check(columns)
        if any(np.abs(columns[name]).max() > most for name, most in self._reach.items()):
            raise Problem(self.refusal)
        return [json.dumps(one, sort_keys=True, separators=_COMPACT).encode() for one in answers]

    @cached_property
    def _reach(self) -> dict[str, float]:
        """How far a noised number can lie: further ones happen to nobody, and spoil every mean."""
        return {name: _farthest(noise.event) for name, noise in self.channel.additive.items()}

    def reports(self, contents: Sequence[bytes], release: str) -> Reports:
        """All reports, of at least one person, as a release of this name."""
        if self._sets is not None:
            wire = np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), -1)
            columns: Columns = {"symbols": self._sets.from_bytes(wire)}
        else:
            answers = [json.loads(content) for content in contents]
            columns = _columns(answers, _names(answers[0]))
        return Reports(self.mechanism, columns, self.channel, releases=(release,))


class VoteForm:
    """Votes on one ballot."""

    refusal = "not-a-vote"

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        symbols = _column(answers)
        with _refused(self.refusal):
            Votes(self.ballot, symbols)
        return _rows(symbols.reshape(len(answers), -1).astype(_FLAT))

    def votes(self, contents: Sequence[bytes], about: str) -> Votes:
        """All votes."""
        flat = np.frombuffer(b"".join(contents), _FLAT).astype(np.int64)
        wide = self.ballot.law.size > 1
        return Votes(self.ballot, flat.reshape(len(contents), -1) if wide else flat, about=about)


@contextmanager
def _refused(code: str) -> Iterator[None]:
    """What a mechanism refuses is this problem, without its words."""
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


# Loops that run in C: most of a batch's time would go here.


def _columns(answers: Sequence[Any], names: list[str]) -> Columns:
    """Answers that have exactly these names, by name."""
    if set(map(type, answers)) != {dict} or set(map(len, answers)) != {len(names)}:
        raise Problem("not-a-report")
    try:
        return {name: _column([answer[name] for answer in answers]) for name in names}
    except KeyError:
        raise Problem("not-a-report") from None


def _column(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Whole numbers, or lists of equally many; True is no number, and neither is 1.0."""
    wide = type(values[0]) is list
    if wide and (set(map(type, values)) != {list} or len(set(map(len, values))) != 1):
        raise Problem("not-a-report")
    flat = list(chain.from_iterable(values)) if wide else list(values)
    if set(map(type, flat)) != {int} or not -_LARGEST <= min(flat) <= max(flat) <= _LARGEST:
        raise Problem("not-a-report")
    found = np.array(flat, np.int64)
    return found.reshape(len(values), -1) if wide else found


def _rows(wire: npt.NDArray[Any]) -> list[bytes]:
    content, width = wire.tobytes(), wire.shape[1] * wire.itemsize
    return [content[start : start + width] for start in range(0, len(content), width)]
