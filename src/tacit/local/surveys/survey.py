"""A survey: declared questions, who is asked what, and one report a person."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.outcomes import STEPS
from tacit.local.persons import ASSUMED_ONE, PerPerson, chosen
from tacit.local.reports import Reports, certify
from tacit.local.surveys import answers, assignment, design, questions, trends
from tacit.local.surveys.channel import SurveyChannel
from tacit.local.surveys.measures import Measure
from tacit.local.surveys.parts import Base, Part, part_of, solved_base
from tacit.local.surveys.questions import Question, SeveralOf, YesNo, must_be_named
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness, source

FORMAT = "tacit-survey/1"
_MOST_JOINT = 2**16
"""Joint answers of a sheet; beyond, a report is long and says next to nothing about each."""


class Survey:
    r"""A schema of questions that people answer through randomness, with one report a person.

    Parameters
    ----------
    questions : dict of str to question
        `YesNo`, `OneOf`, `SeveralOf`, `Number` or `Date`, by name.
    epsilon : float
        Local privacy parameter of a person's whole report.
    sheets : list, optional
        What a person is asked: a name, or several names that are reported as one joint symbol.
        "income:moments" measures a number for variances, correlations and regressions,
        "income:bins" for quantiles, "income:mean" (the default) for means. One sheet per question
        unless given. Everybody gets one sheet, drawn uniformly.
    divided : bool
        Whether ε is divided between the names of a sheet, each reported by itself.
    bases : list, optional
        The laws of numbers, as stored with an earlier survey: ε, number of groups, and base of
        each `GroupedMean`. By default they are computed.

    Notes
    -----
    ε-DP for any two sets of answers of a person. The sheet does not depend on answers, and a symbol
    is released by subset selection or by `GroupedMean`, which are ε-DP; rounding at random
    beforehand cannot increase a ratio of probabilities. A sheet with divided ε composes parts whose
    ε sum to the whole.

    A number that is measured for its mean, alone or with options, has the least variance of the
    laws in question (`tacit.local.surveys.parts`): on [−1, 1], 3.99 / 0.87 / 0.13 at ε = 1 / 2 / 4.

    Examples
    --------
    >>> survey = Survey({"smoker": YesNo(text="Do you smoke?")}, epsilon=1)
    >>> print(survey.guarantee)
    1-DP (local, any-two-inputs, unit: person)
    """

    kind = "survey"
    classes = None
    not_protected = ("Which questions a person was asked.",)
    refused = "That an answer is not one of those declared: it is refused, and no report is sent."

    def __init__(
        self,
        questions: dict[str, Any],
        *,
        epsilon: Any,
        sheets: Any = None,
        divided: bool = False,
        bases: Any = None,
    ) -> None:
        self.questions = dict(questions)
        if not self.questions:
            errors.refuse("Survey", "questions", "at least one", 0)
        for name, one in self.questions.items():
            must_be_named(name)
            if not isinstance(one, Question):
                wanted = "tacit.YesNo, OneOf, SeveralOf, Number or Date"
                errors.refuse("Survey", f"question {name!r}", wanted, one)
        self.epsilon = errors.epsilon_in_range("Survey", epsilon)
        self.sheets = _sheets(sheets or self.questions)
        self.divided = bool(divided)
        _must_be_kept(self)
        self._bases = None if bases is None else _stored(bases)
        _ = self._channel.event

    def __repr__(self) -> str:
        """Show the questions and the guarantee in one line."""
        return f"Survey({', '.join(self.questions)}): {self.guarantee}"

    @property
    def variables(self) -> dict[str, Any]:
        """What is reported: each question, or each option of one with several answers."""
        named: dict[str, Any] = {}
        for name, one in self.questions.items():
            if isinstance(one, SeveralOf):
                named |= {f"{name}={option}": YesNo(text=option) for option in one.options}
            else:
                named[name] = one
        return named

    @cached_property
    def _channel(self) -> SurveyChannel:
        variables = self.variables
        most = tuple(
            len(one.options) - 1 if hasattr(one, "options") else STEPS for one in variables.values()
        )
        sheets = [one for each in self._by_sheet for one in each]
        return SurveyChannel(variables=tuple(variables), most=most, sheets=tuple(sheets))

    @cached_property
    def _by_sheet(self) -> list[list[tuple[Part, ...]]]:
        """What each declared sheet stands for: one sheet of the channel, or one per option."""
        return [self._expanded(sheet) for sheet in self.sheets]

    def _expanded(self, sheet: tuple[str, ...]) -> list[tuple[Part, ...]]:
        """Return a sheet's parts, once per option of a question with several answers."""
        for place, name in enumerate(sheet):
            if isinstance(self.questions.get(name), SeveralOf):
                options = [f"{name}={one}" for one in self.questions[name].options]
                changed = [(*sheet[:place], one, *sheet[place + 1 :]) for one in options]
                return [one for other in changed for one in self._expanded(other)]
        measures = tuple(self.measure(name) for name in sheet)
        if not measures or len({one.variable for one in measures}) < len(measures):
            errors.refuse("Survey", "sheets", "different questions", sheet)
        bases = solved_base if self._bases is None else self._stored_base
        if not self.divided and math.prod(one.levels for one in measures) > _MOST_JOINT:
            condition = f"with at most {_MOST_JOINT:,} joint answers"
            remedy = "Ask fewer questions on one sheet, or divide ε."
            errors.refuse("Survey", "sheets", condition, sheet, remedy)
        if self.divided:
            own = self.epsilon / len(measures)
            return [tuple(part_of((one,), own, bases) for one in measures)]
        return [(part_of(measures, self.epsilon, bases),)]

    def _stored_base(self, epsilon: Fraction, groups: int) -> Base | None:
        return (self._bases or {}).get((epsilon, groups))

    def measure(self, asked: str) -> Measure:
        """Return how a variable is measured: "income", "income:moments" or "income:bins"."""
        # The name of an option may have a colon of its own.
        name, _, how = (asked, "", "") if asked in self.variables else asked.rpartition(":")
        one = self.variables.get(name)
        if one is None:
            known = ", ".join(dict.fromkeys([*self.questions, *self.variables]))
            errors.refuse("Survey", "sheets", f"made of {known}", asked)
        if hasattr(one, "options"):
            if how:
                errors.refuse("Survey", "sheets", f"with {name} alone: it is no number", asked)
            return Measure(name, "option", len(one.options))
        how = errors.choice("Survey", "measure", how or "mean", ("mean", "moments", "bins"))
        size = (16 if self.epsilon < 3 else 32) if how == "bins" else 2 if self.epsilon < 3 else 3
        return Measure(name, how, size, one.lower, one.upper)

    # --- a mechanism ---------------------------------------------------------------------------

    def channel(self, labelled: bool | None = None) -> SurveyChannel:
        """Return the channel of one person's report."""
        if labelled:
            remedy = "A label is one of the questions."
            errors.refuse("Survey", "labelled", "omitted", labelled, remedy)
        return self._channel

    @property
    def schema(self) -> Survey:
        """What people's answers look like: a survey is its own schema."""
        return self

    def shared(self, application: str = "collection", level: str = "latent") -> Survey:
        """Return what people get: all of it, because nothing in it was learned from anybody."""
        return self

    @property
    def event(self) -> Event:
        return self._channel.event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report, towards the person who sends it."""
        return self._channel.guarantee

    @property
    def about(self) -> tuple[str, ...]:
        """What people are asked: a sentence per question, for certificates."""
        return tuple(one.words(name) for name, one in self.questions.items())

    @property
    def certificate(self) -> Certificate:
        """The certificate of one person's report."""
        return certify(self, self._channel)

    def encode(self, rows: Any) -> Any:
        """Encode answers, a mapping of columns (or a frame), as the integers of the channel."""
        columns = []
        for name, one in self.questions.items():
            if name not in rows:
                errors.refuse("Survey.release", "rows", f"with a column {name!r}", "none")
            coded = one.encode(f"survey: {name}", rows[name])
            columns.append(coded if coded.ndim == 2 else coded[:, None])
        if len({len(one) for one in columns}) != 1:
            raise errors.InvalidData("survey: columns must be of equal length.")
        return np.hstack(columns)

    def release(
        self,
        rows: Any,
        rng: Randomness | None = None,
        assigned: Any = None,
        *,
        persons: Any = None,
        most: int = 1,
    ) -> Reports:
        """Release one report per row.

        Parameters
        ----------
        rows : mapping of str to sequence, or DataFrame
            Answers to all questions.
        assigned : sequence of str, of tuple of str, or of int, optional
            The questions of each person's sheet, where sheets are declared and not drawn:
            "smoker", or "region+income" for several; or the place of the sheet in `sheets`. They
            must not depend on answers. Of a question with several answers, the option is drawn.
        persons : sequence, optional
            The name of whoever each row is of. At most `most` rows of a person are reported, chosen
            at random; rows without a name are not (`tacit.local.persons`). Without names, the
            certificate assumes that each row is another person.
        """
        encoded, stream = self.encode(rows), source(rng)
        if assigned is not None:
            sizes = list(map(len, self._by_sheet))
            assigned = assignment.drawn(self.sheets, sizes, assigned, stream)
            if len(assigned) != len(encoded):
                raise errors.InvalidData("Survey.release: assigned must be one sheet per row.")
        per_person = ASSUMED_ONE
        if persons is not None:
            per_person = PerPerson(most, enforced=True)
            kept = chosen(persons, most, stream, where="Survey.release")
            if len(kept) != len(encoded):
                raise errors.InvalidData("Survey.release: persons must be one per row.")
            encoded, assigned = encoded[kept], assigned if assigned is None else assigned[kept]
        columns = self._channel.release(encoded, stream, assigned)
        return Reports(self, columns, self._channel, not stream.secure, per_person=per_person)

    def answer(self, reports: Any, question: str, **options: Any) -> answers.Answer:
        """Answer a question from reports, or from rows without noise; see `tacit ask`.

        A "trend of …" is answered from a list, of the reports of each round.
        """
        if not isinstance(reports, list):
            if trends.asks(question):
                errors.refuse("answer", "reports", "a list, one of each round, for a trend", "one")
            return answers.answer(self, reports, question, **options)
        if not trends.asks(question):
            remedy = 'Ask for a "trend of …", or concatenate reports.'
            errors.refuse("answer", "question", "about a trend of several rounds", question, remedy)
        return trends.trend(self, reports, question, **options)

    def change(self, before: Any, after: Any, question: str, **options: Any) -> answers.Answer:
        """Answer by how much a number has changed between the reports of two rounds."""
        return answers.change(self, before, after, question, **options)

    def answers(self, reports: Any, **options: Any) -> list[answers.Answer]:
        """Answer, for every question, what the sheets allow: shares, or means and medians."""
        asked = answers.askable(self, reports)
        return [self.answer(reports, one, **options) for one in asked]

    # --- before anybody is asked ---------------------------------------------------------------

    def plan(self, people: int, goals: Any, **options: Any) -> design.SurveyPlan:
        """Compute the standard errors that several designs will have for these goals, best first.

        Parameters
        ----------
        people : int
            How many people are expected to answer.
        goals : list of str
            Questions as `answer` takes them: "mean income by region".
        expected : dict, optional
            What answers are expected: the share of yes, the shares of options in their order, the
            mean and standard deviation of a number.
        confidence : float
            That of the intervals.
        delta : float
            δ of the guarantee towards readers.

        Examples
        --------
        >>> survey = Survey({"smoker": YesNo()}, epsilon=1)
        >>> plan = survey.plan(10_000, ["share of smoker"], expected={"smoker": 0.2})
        >>> for goals in (plan.best.goals, plan.curator):
        ...     print(f"{goals[0].standard_error:.3f}")
        0.010
        0.004
        """
        return design.plan(self, people, goals, **options)

    @classmethod
    def best(
        cls, questions: dict[str, Any], goals: Any, *, epsilon: Any, people: int, **options: Any
    ) -> Survey:
        """Return the survey of these questions whose sheets are best for the goals; see `plan`."""
        made: Survey = cls(questions, epsilon=epsilon).plan(people, goals, **options).best.survey
        return made

    # --- files ---------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        return {
            "format": FORMAT,
            "epsilon": str(self.epsilon),
            "questions": {name: one.to_plain() for name, one in self.questions.items()},
            "sheets": [list(one) for one in self.sheets],
            "divided": self.divided,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Survey:
        """Build a survey from JSON values."""
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            errors.refuse("Survey", "format", FORMAT, getattr(plain, "get", str)("format"))
        asked = plain.get("questions")
        if not isinstance(asked, dict):
            errors.refuse("Survey", "questions", "an object", asked)
        named = {name: questions.from_plain(name, one) for name, one in asked.items()}
        return cls(
            named,
            epsilon=plain.get("epsilon"),
            sheets=plain.get("sheets"),
            divided=plain.get("divided", False),
            bases=plain.get("bases"),
        )

    @classmethod
    def read(cls, path: str | Path) -> Survey:
        """Read a schema file."""
        try:
            return cls.from_plain(json.loads(Path(path).read_text(encoding="utf-8")))
        except json.JSONDecodeError:
            raise errors.InvalidData(f"{path}: it must be JSON.") from None

    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return parameters and arrays, for `tacit.artifact`."""
        plain = self.to_plain()
        # A list, because artifacts sort the names of objects, and questions have an order.
        listed = list(map(list, plain["questions"].items()))
        return {**plain, "questions": listed, "bases": self.bases}, {
            "sheets": np.array([len(self.sheets)])
        }

    @property
    def bases(self) -> list[list[Any]]:
        """The laws of numbers: ε, number of groups, and base of each `GroupedMean`."""
        used = [part for sheet in self._channel.sheets for part in sheet if part.base is not None]
        made = {(one.epsilon, one.groups): one.base for one in used}
        return [
            [str(epsilon), groups, list(base or ())] for (epsilon, groups), base in made.items()
        ]

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: Any) -> Survey:
        """Build a survey from its parts; before there were bases, sets alone were released."""
        named = dict(parameters["questions"])
        return cls.from_plain({"bases": [], **parameters, "questions": named})


def _must_be_kept(survey: Survey) -> None:
    """Refuse texts that no file can hold, which would show when people have answered."""
    try:
        json.dumps(survey.to_plain(), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        condition = "made of texts without half characters (surrogates)"
        errors.refuse("Survey", "questions", condition, "others")


def _sheets(given: Any) -> tuple[tuple[str, ...], ...]:
    """Return each sheet as the names on it."""
    try:
        sheets = tuple((one,) if isinstance(one, str) else tuple(one) for one in given)
        if all(isinstance(name, str) for sheet in sheets for name in sheet):
            return sheets
    except TypeError:
        pass
    errors.refuse("Survey", "sheets", "names, or lists of names", given)


def _stored(bases: Any) -> dict[tuple[Fraction, int], Base]:
    """Read laws as `Survey.bases` lists them; `GroupedMean` refuses what breaks the guarantee."""
    try:
        return {
            (errors.epsilon_in_range("Survey", epsilon), groups): tuple(base)
            for epsilon, groups, base in bases
        }
    except errors.InvalidParameter:
        raise
    except (TypeError, ValueError):
        errors.refuse("Survey", "bases", "triples of epsilon, groups and base", bases)
