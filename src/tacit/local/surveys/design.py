"""Plans of surveys: what each design will give for declared goals, before anybody is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom, norm

from tacit.local.surveys import forecast, grammar
from tacit.local.surveys.forecast import Law
from tacit.local.surveys.measures import question_of
from tacit.local.surveys.moments import Found, stated
from tacit.local.surveys.questions import HOW, SeveralOf
from tacit.privacy import errors
from tacit.privacy.accounting.readers import DELTA, Readers, of_event

_MOST_LEVELS = 4096
"""Symbols of a sheet that is worth considering; more say too little each."""
_CHANCE = 1e-3
"""How likely a sheet may get fewer people than those that the readers' guarantee is stated for."""
ASSUMES = (
    "Answers to different questions are taken as independent, options as equally likely and "
    "numbers as evenly spread between their bounds, unless something else is expected; people as a "
    "simple random sample. Standard errors are for sheets with equal numbers of people. Sheets are "
    "drawn at random, so readers are promised what holds for the fewest people that any sheet gets "
    "with a probability of at least 99.9 %."
)
CURATOR = (
    "A trusted curator, who holds everybody's answers to all questions, adds Laplace noise to the "
    "sums that each goal needs, with ε divided evenly between goals."
)


@dataclass(frozen=True)
class Number:
    """One number of an answer, with the standard error and the interval width to expect."""

    label: str
    standard_error: float
    width: float


@dataclass(frozen=True)
class Goal:
    """A question, and what to expect of its answer."""

    question: str
    numbers: tuple[Number, ...]

    @property
    def standard_error(self) -> float:
        """The largest standard error of the answer's numbers."""
        return max(one.standard_error for one in self.numbers)

    @property
    def width(self) -> float:
        """The width of the widest interval."""
        return max(one.width for one in self.numbers)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values; what the reports would not tell is null."""
        numbers = {
            one.label: {
                "standard_error": _plain(one.standard_error),
                "interval_width": _plain(one.width),
            }
            for one in self.numbers
        }
        return {"goal": self.question, "numbers": numbers}


@dataclass(frozen=True, repr=False)
class Design:
    """A survey with certain sheets, and what to expect of it."""

    name: str
    survey: Any
    goals: tuple[Goal, ...]
    readers: Readers

    @property
    def score(self) -> float:
        """The mean logarithm of the standard errors of all goals."""
        return float(np.mean([math.log(max(one.standard_error, 1e-300)) for one in self.goals]))

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "name": self.name,
            "sheets": [list(one) for one in self.survey.sheets],
            "divided": self.survey.divided,
            "goals": [one.to_plain() for one in self.goals],
            "readers": self.readers.to_plain(),
        }


@dataclass(frozen=True)
class SurveyPlan:
    """What designs will give, best first; and what a trusted curator would."""

    people: int
    confidence: float
    designs: tuple[Design, ...]
    curator: tuple[Goal, ...]
    """At the ε that each person is promised."""
    curator_of_readers: tuple[Goal, ...]
    """At the ε that readers of the best design's results are promised."""
    assumes: str = ASSUMES

    def __str__(self) -> str:
        """Write the best sheets, and one line per goal: its standard error and a curator's."""
        sheets = "; ".join(" with ".join(one) for one in self.best.survey.sheets)
        lines = [
            f"  {one.question}: standard error {one.standard_error:.3g}, "
            f"of a trusted curator {curator.standard_error:.3g}"
            for one, curator in zip(self.best.goals, self.curator, strict=True)
        ]
        return "\n".join([f"{self.best.name}: {sheets}", *lines])

    @property
    def best(self) -> Design:
        """The design with the smallest standard errors (geometric mean over goals)."""
        return self.designs[0]

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "people": self.people,
            "confidence": self.confidence,
            "guarantee": str(self.best.survey.guarantee),
            "best": self.best.name,
            "designs": [one.to_plain() for one in self.designs],
            "curator": [one.to_plain() for one in self.curator],
            "curator_of_readers": [one.to_plain() for one in self.curator_of_readers],
            "assumes": f"{self.assumes} {CURATOR}",
        }


def plan(
    survey: Any,
    people: int,
    goals: Sequence[str],
    *,
    expected: dict[str, Any] | None = None,
    confidence: float = 0.95,
    delta: float = DELTA,
) -> SurveyPlan:
    """Compute what each design gives for the goals; see `Survey.plan`."""
    people = errors.whole("plan", "people", people, least=2, most=10**9)
    confidence = errors.within("plan", "confidence", confidence, "(0, 1)")
    listed = [goals] if isinstance(goals, str) else list(goals)
    if not listed:
        errors.refuse("plan", "goals", "at least one question", 0)
    assumed, z = forecast.laws(survey, expected), float(norm.ppf((1 + confidence) / 2))
    named = {goal: grammar.targets(survey, goal) for goal in listed}
    designs = []
    for name, other in _candidates(survey, list(named.values())):
        expectations = _expected(other, named, assumed, people, z)
        if expectations is not None:
            designs.append(Design(name, other, expectations, _readers(other, people, delta)))
    designs.sort(key=lambda one: one.score)
    if not designs or not math.isfinite(designs[0].score):
        errors.refuse("plan", "people", "enough for the goals", people, "Ask for less.")
    towards = getattr(designs[0].readers.guarantee, "epsilon", math.inf)
    curators = [
        tuple(
            _goal(
                goal,
                targets,
                z,
                lambda m, own=own: forecast.central(survey, m, assumed, people, own),
            )
            for goal, targets in named.items()
        )
        for own in (float(survey.epsilon) / len(named), towards / len(named))
    ]
    return SurveyPlan(people, confidence, tuple(designs), curators[0], curators[1])


def _expected(
    survey: Any, named: dict[str, Any], assumed: dict[str, Law], people: int, z: float
) -> tuple[Goal, ...] | None:
    """Return what to expect of each goal; None where the sheets do not state all of them."""
    channel = survey.channel()
    for targets in named.values():
        moments = {one for target in targets for one in target.moments}
        if not all(any(stated(s, one) for s in channel.sheets) for one in moments):
            return None
    return tuple(
        _goal(goal, targets, z, lambda m: forecast.local(channel, m, assumed, people))
        for goal, targets in named.items()
    )


def _goal(question: str, targets: Any, z: float, found: Any) -> Goal:
    moments = tuple(dict.fromkeys(one for target in targets for one in target.moments))
    place = {one: number for number, one in enumerate(moments)}
    whole: Found = found(moments)
    numbers = []
    for target in targets:
        own = [place[one] for one in target.moments]
        part = Found(whole.value[own], whole.covariance[np.ix_(own, own)], whole.people)
        one = target.estimate(part, z)
        numbers.append(Number(one.label, one.standard_error, one.interval[1] - one.interval[0]))
    return Goal(question, tuple(numbers))


def _readers(survey: Any, people: int, delta: float) -> Readers:
    """Return what readers learn from the fewest people of a sheet, but for a small chance."""
    channel = survey.channel()
    each = fewest(people, len(channel.sheets))
    if not each:
        wanted = f"enough for {len(channel.sheets)} sheets, each of which somebody must get"
        errors.refuse("plan", "people", wanted, people)
    parts = set(channel.sheet_events())
    each_kind = [of_event(event, each, delta) for event in parts]
    return Readers(max(each_kind, key=lambda one: getattr(one, "epsilon", math.inf)), each)


def fewest(people: int, sheets: int, chance: float = _CHANCE) -> int:
    """Return a number of people that every sheet gets, but for this chance.

    Each person's sheet is drawn uniformly. By the union bound, some sheet gets fewer than k people
    with a probability of at most `sheets` times that of a binomial number below k.
    """
    if sheets == 1:
        return people
    return max(int(binom.ppf(chance / sheets, people, 1 / sheets)), 0)


def _candidates(survey: Any, goals: list[Any]) -> Iterator[tuple[str, Any]]:
    """Make surveys with the same questions and ε; each set of sheets once."""
    apart = _sheets([[target.moments for target in targets] for targets in goals])
    shared = _measured_once(apart)
    whole = [tuple(sorted({name for sheet in shared for name in sheet}))]
    pairs = _sheets([[(one,) for target in targets for one in target.moments] for targets in goals])
    single = [(name,) for name in whole[0]]
    tried = [
        ("as declared", survey.sheets, survey.divided),
        ("one sheet per goal", apart, False),
        ("one sheet per goal, numbers measured once", shared, False),
        ("one sheet per pair", _without_parts(pairs), False),
        ("one sheet per question", single, False),
        ("one joint sheet", whole, False),
        ("one sheet, ε divided between questions", whole, True),
        ("one sheet per goal, ε divided", shared, True),
    ]
    known = set()
    for name, sheets, divided in tried:
        sheets = [_of_questions(survey, sheet) for sheet in sheets]
        sheets = list(dict.fromkeys(sheets))
        mark = (frozenset(sheets), divided and any(len(one) > 1 for one in sheets))
        if mark in known or not all(map(_of_different, sheets)):
            continue
        if not divided and _levels(survey, sheets) > _MOST_LEVELS:
            continue
        known.add(mark)
        yield (
            name,
            type(survey)(survey.questions, epsilon=survey.epsilon, sheets=sheets, divided=divided),
        )


def _sheets(goals: list[Any]) -> list[tuple[str, ...]]:
    """Return the measures that each set of moments needs together."""
    made = []
    for sets in goals:
        for moments in sets:
            functions: dict[str, set[tuple[str, int]]] = {}
            for name, function in (factor for one in moments for factor in one):
                functions.setdefault(name, set()).add(function)
            made.append(tuple(sorted(_measured(name, own) for name, own in functions.items())))
    return _without_parts(made)


def _measured(name: str, functions: set[tuple[str, int]]) -> str:
    kinds = {kind for kind, _ in functions}
    if "bin" in kinds:
        return f"{name}:bins"
    return f"{name}:moments" if ("power", 2) in functions else name


def _without_parts(sheets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Leave out sheets that a larger one holds."""
    once = list(dict.fromkeys(sheets))
    return [one for one in once if not any(set(one) < set(other) for other in once)]


def _measured_once(sheets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Measure a number by its moments in all sheets if some sheet needs these: they hold means."""
    needed = {name for sheet in sheets for name in sheet if name.endswith(":moments")}
    return _without_parts(
        [
            tuple(sorted(f"{n}:moments" if f"{n}:moments" in needed else n for n in sheet))
            for sheet in sheets
        ]
    )


def _of_questions(survey: Any, sheet: Sequence[str]) -> tuple[str, ...]:
    """Spell a sheet in questions: an option of several becomes its question; plain measures."""
    spelled = []
    for name in sheet:
        base, how = name, ""
        if name.endswith(HOW):
            base, _, how = name.rpartition(":")
        question = base.partition("=")[0]
        if isinstance(survey.questions.get(question), SeveralOf):
            base = question
        options = hasattr(survey.variables.get(base), "options")
        spelled.append(base if options or not how else f"{base}:{how}")
    return tuple(dict.fromkeys(spelled))


def _of_different(sheet: tuple[str, ...]) -> bool:
    """Return whether no question is measured twice."""
    names = list(map(question_of, sheet))
    return len(set(names)) == len(names)


def _levels(survey: Any, sheets: list[tuple[str, ...]]) -> int:
    """Return the symbols of the largest sheet."""
    sizes: list[int] = [
        math.prod(
            2 if isinstance(survey.questions.get(name), SeveralOf) else survey.measure(name).levels
            for name in sheet
        )
        for sheet in sheets
    ]
    return max(sizes)


def _plain(number: float) -> float | None:
    return number if math.isfinite(number) else None
