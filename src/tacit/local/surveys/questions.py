"""Questions of a survey: frozen values with their text, help and unit.

An answer becomes an integer by arithmetic that sees that answer alone: the code of an option, or a
position between the bounds in steps of 2^-20.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime, timedelta
from typing import Any, ClassVar
from unicodedata import category

import numpy as np
import numpy.typing as npt

from tacit.data.outcomes import STEPS, bounds, column, positions
from tacit.privacy import errors

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
_MOST_LISTED = 64
"""Options of a question that are listed in words."""
HOW = (":mean", ":moments", ":bins")
"""How a number is measured, behind its name on a sheet."""
_LONGEST_NAME = 120
"""Characters of a question's name: a question about several of them fits into one line."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Base of all questions. Abstract: use one of the concrete kinds."""

    text: str = ""
    help: str = ""
    unit: str = ""
    kind: ClassVar[str]

    def to_plain(self) -> dict[str, Any]:
        """Return the question as JSON values, without texts that are empty."""
        given = {name: value for name, value in asdict(self).items() if value != ""}
        return {"kind": self.kind, **{name: _plain(value) for name, value in given.items()}}

    @property
    def answers(self) -> str:
        """What can be answered, in words: the options, or the bounds with their unit."""
        if hasattr(self, "options"):
            several = "any of: " if self.kind == "several-of" else ""
            return several + _listed(self.options)
        own: Any = self
        ends = (own.first, own.last) if self.kind == "date" else (own.lower, own.upper)
        return " to ".join(one if isinstance(one, str) else f"{one:g}" for one in ends)

    def words(self, name: str) -> str:
        """Return the question with its help, and what can be answered, in one line."""
        told = f"{name}: {self.text or name} ({' '.join(filter(None, [self.answers, self.unit]))})."
        return _one_line(f"{told} {self.help}")


@dataclass(frozen=True)
class YesNo(Question):
    """A question that is answered with yes or no (True or False, 1 or 0)."""

    kind: ClassVar[str] = "yes-no"

    @property
    def options(self) -> tuple[str, ...]:
        return ("no", "yes")

    def encode(self, where: str, values: Any) -> Integers:
        return _codes(where, values, {"no": 0, "yes": 1, False: 0, True: 1})


@dataclass(frozen=True)
class OneOf(Question):
    """A question with several options, of which a person chooses one."""

    options: tuple[str, ...]
    kind: ClassVar[str] = "one-of"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _options("OneOf", self.options))

    def encode(self, where: str, values: Any) -> Integers:
        return _codes(where, values, {name: code for code, name in enumerate(self.options)})


@dataclass(frozen=True)
class SeveralOf(Question):
    """A question with several options, of which a person chooses any number.

    A person is asked about one option, drawn publicly at random, as a yes/no question: for the
    shares of the options this has less variance than one report about all of them.
    """

    options: tuple[str, ...]
    kind: ClassVar[str] = "several-of"

    def __post_init__(self) -> None:
        listed = _options("SeveralOf", self.options)
        # An answer in a file is "a;b": another option could not be chosen there, which would show.
        if any(";" in one or one != one.strip() for one in listed):
            condition = "without semicolons, and without spaces at their ends"
            errors.refuse("SeveralOf", "options", condition, listed)
        if any(one.endswith(HOW) for one in listed):  # a sheet would name something else
            errors.refuse("SeveralOf", "options", f"without {', '.join(HOW)} at their ends", listed)
        object.__setattr__(self, "options", listed)

    def encode(self, where: str, values: Any) -> Integers:
        """Return one column of 0 and 1 per option; an answer is a list of options, or "a;b".

        A missing value is an answer without options: an empty field of a CSV file is read as one.
        """
        known = set(self.options)
        try:
            rows = [_chosen(one) for one in values]
            if any(not row <= known for row in rows):
                raise TypeError
        except TypeError:  # one message: which of the two it was is about the answer
            condition = 'answers must be lists of declared options, or texts like "a;b"'
            raise errors.InvalidData(f"{where}: {condition}.") from None
        return np.array([[name in row for name in self.options] for row in rows], np.int64)


@dataclass(frozen=True)
class Number(Question):
    """A question for a number between two bounds; an answer beyond them counts as the bound."""

    lower: float
    upper: float
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        low, high = bounds("Number", self.lower, self.upper)
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)

    def values(self, where: str, values: Any) -> Reals:
        """Return the answers as numbers within the bounds."""
        return np.clip(column(where, values, "answers"), self.lower, self.upper)

    def encode(self, where: str, values: Any) -> Integers:
        return positions(self.values(where, values), self.lower, self.upper)


@dataclass(frozen=True)
class Date(Question):
    """A question for a date (ISO 8601) between two; answers are counted in days from the first."""

    first: str
    last: str
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        try:
            ends = [date.fromisoformat(str(one)) for one in (self.first, self.last)]
        except ValueError:
            errors.refuse("Date", "first and last", "dates like 2026-01-31", self.first)
        if not ends[0] < ends[1]:
            errors.refuse("Date", "first", "before last", (self.first, self.last))
        object.__setattr__(self, "first", ends[0].isoformat())
        object.__setattr__(self, "last", ends[1].isoformat())

    @property
    def lower(self) -> float:
        return 0.0

    @property
    def upper(self) -> float:
        """The number of days between the two."""
        return float((date.fromisoformat(self.last) - date.fromisoformat(self.first)).days)

    def date(self, days: float) -> str:
        """Return the date that is this many days after the first."""
        return (date.fromisoformat(self.first) + timedelta(days=days)).isoformat()

    def values(self, where: str, values: Any) -> Reals:
        """Return the answers as days from the first date; each is read by itself."""
        first = date.fromisoformat(self.first).toordinal()
        try:
            days = np.array([_day(one) - first for one in values], np.float64)
        except ValueError:
            condition = "answers must be dates like 2026-01-31, and none may be missing"
            remedy = "Leave out people without one."
            raise errors.InvalidData(f"{where}: {condition}. {remedy}") from None
        return np.clip(days, 0.0, self.upper)

    def encode(self, where: str, values: Any) -> Integers:
        return np.rint(self.values(where, values) / self.upper * STEPS).astype(np.int64)


KINDS: dict[str, type[Any]] = {one.kind: one for one in (YesNo, OneOf, SeveralOf, Number, Date)}


def must_be_named(name: Any) -> None:
    """Refuse a name of a question that nobody could write in a sheet or in "mean NAME"."""
    told = isinstance(name, str) and bool(name) and name == _one_line(name)
    if not told or len(name) > _LONGEST_NAME or set(":=") & set(name):
        condition = f"at most {_LONGEST_NAME} printed characters without : and ="
        remedy = "Single spaces may be inside. The text of a question may be anything."
        errors.refuse("Survey", "the name of a question", condition, name, remedy)


def from_plain(name: str, plain: Any) -> Any:
    """Build a question from JSON values."""
    where = f"survey: question {name!r}"
    if not isinstance(plain, dict) or plain.get("kind") not in KINDS:
        errors.refuse(where, "kind", f"one of {', '.join(KINDS)}", plain)
    kind, given = KINDS[plain["kind"]], {k: v for k, v in plain.items() if k != "kind"}
    known = [one.name for one in fields(kind)]
    if not set(given) <= set(known):
        errors.refuse(where, "fields", f"among {', '.join(known)}", sorted(given))
    try:
        return kind(**given)
    except TypeError:
        errors.refuse(where, "fields", "complete", sorted(given), "Give options or bounds.")


def _options(where: str, options: Any) -> tuple[str, ...]:
    listed = tuple(options) if not isinstance(options, str) else ()
    texts = all(isinstance(one, str) and one.strip() for one in listed)
    if not texts or not 2 <= len(set(listed)) == len(listed) <= 4096:
        errors.refuse(where, "options", "2 to 4096 different texts", options)
    if any(category(sign) in ("Cc", "Cs") for one in listed for sign in one):
        errors.refuse(where, "options", "texts without control characters", listed)
    return listed


def _listed(options: tuple[str, ...]) -> str:
    """List options, of very many only the first."""
    if len(options) <= _MOST_LISTED:
        return ", ".join(options)
    shown = ", ".join(options[: _MOST_LISTED // 2])
    return f"{shown} and {len(options) - _MOST_LISTED // 2:,} more"


def _one_line(text: str) -> str:
    """Return a text without line breaks and other signs that are not printed."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def _chosen(answer: Any) -> set[Any]:
    """Return the options of one answer."""
    if isinstance(answer, str):
        return set(filter(None, map(str.strip, answer.split(";"))))
    missing = answer is None or (isinstance(answer, float) and math.isnan(answer))
    return set() if missing else set(answer)


def _day(answer: Any) -> int:
    """Number the day of one date: converted as a list, one answer changes how all are read."""
    if isinstance(answer, np.datetime64) and not np.isnat(answer):
        since_1970 = int(answer.astype("datetime64[D]").astype(np.int64))
        return since_1970 + date(1970, 1, 1).toordinal()
    if isinstance(answer, str):
        answer = datetime.fromisoformat(answer.strip())
    if not isinstance(answer, date) or answer != answer:
        raise ValueError
    return answer.toordinal()


def _codes(where: str, values: Any, code: dict[Any, int]) -> Integers:
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    try:
        return np.array([code[one] for one in listed], np.int64)
    except (KeyError, TypeError):
        remedy = "Declare an option for no answer, or leave out people without one."
        condition = "answers must be among the declared options"
        raise errors.InvalidData(f"{where}: {condition}. {remedy}") from None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
