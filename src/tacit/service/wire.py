"""The form of reports and votes: JSON on their way, a fixed number of bytes in storage.

What cannot have come from the mechanism has no such form. The bytes of a report are the same
however its JSON was written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit import errors
from tacit.inference.votes import Ballot, Votes
from tacit.mechanisms import SubsetSelection
from tacit.reports import Columns, Reports
from tacit.service.problems import Problem

_LARGEST = 2**62
_FLAT = "<i8"
_COMPACT = (",", ":")


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

    def __init__(self, mechanism: Any, labelled: bool) -> None:
        self.mechanism, self.labelled = mechanism, labelled
        channel = mechanism.channel(labelled)
        self._sets = channel if isinstance(channel, SubsetSelection) else None

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        if self._sets is not None:
            symbols = _column([_only(answer, "symbols") for answer in answers])
            try:
                return _rows(self._sets.to_bytes(symbols))
            except errors.TacitError:
                raise Problem(self.refusal) from None
        columns = _columns(answers)
        try:
            self.mechanism.check(columns, self.labelled)
        except errors.TacitError:
            raise Problem(self.refusal) from None
        return [json.dumps(one, sort_keys=True, separators=_COMPACT).encode() for one in answers]

    def reports(self, contents: Sequence[bytes]) -> Reports:
        """All reports, of at least one person."""
        if self._sets is not None:
            wire = np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), -1)
            columns: Columns = {"symbols": self._sets.from_bytes(wire)}
        else:
            columns = _columns([json.loads(content) for content in contents])
        return Reports(self.mechanism, columns, self.labelled)


class VoteForm:
    """Votes on one ballot."""

    refusal = "not-a-vote"

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        symbols = _column(answers)
        try:
            Votes(self.ballot, symbols)
        except errors.TacitError:
            raise Problem(self.refusal) from None
        return _rows(symbols.reshape(len(answers), -1).astype(_FLAT))

    def votes(self, contents: Sequence[bytes], about: str) -> Votes:
        """All votes."""
        flat = np.frombuffer(b"".join(contents), _FLAT).astype(np.int64)
        wide = self.ballot.law.size > 1
        return Votes(self.ballot, flat.reshape(len(contents), -1) if wide else flat, about=about)


def _only(answer: Any, name: str) -> Any:
    """The one column of an answer that has no other."""
    if type(answer) is not dict or len(answer) != 1 or name not in answer:
        raise Problem("not-a-report")
    return answer[name]


def _columns(answers: Sequence[Any]) -> Columns:
    """Answers with the same names, by name."""
    names = sorted(answers[0]) if type(answers[0]) is dict else []
    if any(type(answer) is not dict or sorted(answer) != names for answer in answers):
        raise Problem("not-a-report")
    return {name: _column([answer[name] for answer in answers]) for name in names}


def _column(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Whole numbers, or lists of equally many; True is no number, and neither is 1.0."""
    wide = type(values[0]) is list
    width = len(values[0]) if wide else 0
    for value in values:
        given = value if wide else [value]
        if type(given) is not list or (wide and len(given) != width):
            raise Problem("not-a-report")
        if set(map(type, given)) != {int}:
            raise Problem("not-a-report")
        if not -_LARGEST <= min(given) <= max(given) <= _LARGEST:
            raise Problem("not-a-report")
    return np.array(values, np.int64)


def _rows(wire: npt.NDArray[Any]) -> list[bytes]:
    content, width = wire.tobytes(), wire.shape[1] * wire.itemsize
    return [content[start : start + width] for start in range(0, len(content), width)]
