"""Questions in words, and the numbers that answer them as ratios of functions of moments."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.local.surveys.moments import Moment
from tacit.local.surveys.questions import Reals, SeveralOf
from tacit.local.surveys.targets import (
    Expectation,
    Function,
    Logistic,
    Quantile,
    Ratio,
    Target,
)
from tacit.privacy import errors

GRAMMAR = (
    "share of Q [by G]",
    "mean X [by G]",
    "median X [by G]",
    "quantile P of X [by G]",
    "variance of X",
    "difference of X between A and B",
    "table of A and B",
    "correlation of X and Y",
    "regression of Y on X[, Z …]",
    "logistic regression of Y on X[, Z …]",
    "trend of any of these, over several rounds",
)


def targets(survey: Any, question: str) -> list[Target]:
    """Read a question; return what answers it, one target per number."""
    build, groups = _read(survey, question)
    return build(survey, *groups)


def first_date(survey: Any, question: str) -> str | None:
    """Return the first date of the question whose mean or quantile is asked, if it has dates."""
    build, groups = _read(survey, question)
    if build not in (_means, _quantiles):
        return None
    first: str | None = getattr(survey.questions.get(groups[-2]), "first", None)
    return first


def _read(survey: Any, question: str) -> tuple[Callable[..., list[Target]], tuple[Any, ...]]:
    """Find the form of a question, and what stands for the names in it.

    Names may have spaces, and end like a sentence; a word that is no name is told as such.
    """
    words = " ".join(str(question).split())
    texts = [words[: len(words) - cut] for cut in range(len(words) - len(words.rstrip("?.")) + 1)]
    names = {*survey.questions, *survey.variables}
    used = sorted((one for one in names if one in words), key=len, reverse=True)
    known = f"((?-i:{'|'.join(map(re.escape, used))}))"
    for name in (known, r"(\S+)") if used else (r"(\S+)",):
        for text in texts:
            for pattern, build in _FORMS:
                if found := re.fullmatch(pattern.replace(_NAME, name), text, re.IGNORECASE):
                    return build, found.groups()
    errors.refuse("ask", "question", f"one of: {'; '.join(GRAMMAR)}", question)


def _shares(survey: Any, name: str, group: str | None) -> list[Target]:
    question = survey.questions.get(name)
    if isinstance(question, SeveralOf):
        cells = [(one, (f"{name}={one}", ("is", 1))) for one in question.options]
    else:
        options = _options(survey, name)
        wanted = [(1, name)] if options == ("no", "yes") else list(enumerate(options))
        cells = [(label, (name, ("is", code))) for code, label in wanted]
    return [
        one
        for label, cell in cells
        for one in _by(survey, (cell,), label, group, (0.0, 1.0), len(cells) > 1)
    ]


def _means(survey: Any, name: str, group: str | None) -> list[Target]:
    _numeric(survey, name)
    return _by(survey, ((name, ("power", 1)),), name, group, _limits(survey, name), False)


def _by(
    survey: Any,
    cell: Moment,
    label: str,
    group: str | None,
    limits: tuple[float, float],
    named: bool,
) -> list[Target]:
    """Return the expectation of a cell, or its ratio to the share of each group."""
    if group is None:
        return [Expectation(label, (cell,), limits)]
    made: list[Target] = []
    for code, option in enumerate(_options(survey, group)):
        own: Moment = ((group, ("is", code)),)
        label_of = f"{label}, {option}" if named else option
        made.append(Ratio(label_of, (cell + own, own), lambda m, c: (m[0], m[1]), limits))
    return made


def _quantiles(survey: Any, level: str | None, name: str, group: str | None) -> list[Target]:
    wanted = errors.within("ask", "quantile", float(level or 0.5), "(0, 1)")
    if hasattr(_known(survey, name), "options"):
        errors.refuse("ask", name, "a number or a date", "one with options")
    measure = survey.measure(f"{name}:bins")
    edges = tuple(measure.edges.tolist())
    bins: list[Moment] = [((name, ("bin", place)),) for place in range(measure.size)]
    if group is None:
        return [Quantile(name, tuple(bins), name, wanted, edges)]
    made: list[Target] = []
    for code, option in enumerate(_options(survey, group)):
        own: Moment = ((group, ("is", code)),)
        used = (*(one + own for one in bins), own)
        made.append(Quantile(option, used, name, wanted, edges, (group, code)))
    return made


def _variance(survey: Any, name: str) -> list[Target]:
    _numeric(survey, name)
    used = (_power(name, 1), _power(name, 2))
    width = np.ptp(_limits(survey, name))

    def ratio(m: Reals, c: Reals) -> tuple[float, float]:
        return m[1] - m[0] ** 2 + c[0, 0], 1.0  # c: a squared estimate is too large by its variance

    return [Ratio(name, used, ratio, (0.0, float(width**2 / 2)))]


def _difference(survey: Any, name: str, pair: str) -> list[Target]:
    _numeric(survey, name)
    words = pair.split(_AND)
    splits = [(words[:place], words[place:]) for place in range(1, len(words))]
    groups = [
        (group, *ends)
        for group, question in survey.variables.items()
        for split in splits
        for ends in [[_AND.join(part).removeprefix(f"{group}=") for part in split]]
        if set(ends) <= set(getattr(question, "options", ()))
    ]
    if len(groups) != 1 or groups[0][1] == groups[0][2]:
        remedy = "Where several questions have such options, write smoker=yes and smoker=no."
        errors.refuse("ask", "groups", "two options of one question", pair, remedy)
    group, first, second = groups[0]
    options = _options(survey, group)
    used: tuple[Moment, ...] = ()
    for option in (first, second):
        own: Moment = ((group, ("is", options.index(option))),)
        used += (_power(name, 1) + own, own)

    def ratio(m: Reals, c: Reals) -> tuple[float, float]:
        return m[0] * m[3] - m[2] * m[1], m[1] * m[3]

    width = float(np.ptp(_limits(survey, name)))
    return [Ratio(f"{first} − {second}", used, ratio, (-width, width))]


def _table(survey: Any, first: str, second: str) -> list[Target]:
    if first == second:
        errors.refuse("ask", "questions", "different", (first, second))
    return [
        Expectation(f"{a}, {b}", (((first, ("is", i)), (second, ("is", j))),), (0.0, 1.0))
        for i, a in enumerate(_options(survey, first))
        for j, b in enumerate(_options(survey, second))
    ]


def _correlation(survey: Any, first: str, second: str) -> list[Target]:
    used = _second_moments(survey, [first, second])

    def ratio(m: Reals, c: Reals) -> tuple[float, float]:
        matrix = _covariance(m, c, 2)
        spread = matrix[0, 0] * matrix[1, 1]
        return matrix[0, 1], math.sqrt(spread) if spread > 0 else 0.0

    return [Ratio(f"{first}, {second}", used, ratio, (-1.0, 1.0))]


def _regression(survey: Any, outcome: str, listed: str) -> list[Target]:
    """Return the coefficients by Cramer's rule: ratios of determinants."""
    predictors = _names(survey, listed)
    used, count = _second_moments(survey, [*predictors, outcome]), len(predictors)

    def slope(place: int) -> Function:
        def ratio(m: Reals, c: Reals) -> tuple[float, float]:
            matrix = _covariance(m, c, count + 1)
            inner = matrix[:count, :count]
            changed = inner.copy()
            changed[:, place] = matrix[:count, count]
            return float(np.linalg.det(changed)), float(np.linalg.det(inner))

        return ratio

    def intercept(m: Reals, c: Reals) -> tuple[float, float]:
        pairs = [slope(place)(m, c) for place in range(count)]
        whole = pairs[0][1]
        return m[count] * whole - sum(m[i] * a for i, (a, _) in enumerate(pairs)), whole

    slopes = [Ratio(name, used, slope(place)) for place, name in enumerate(predictors)]
    return [Ratio("intercept", used, intercept), *slopes]


def _logistic(survey: Any, outcome: str, listed: str) -> list[Target]:
    """Return the coefficients of a yes/no outcome on options (the first is the base) and bins."""
    if _options(survey, outcome) != ("no", "yes"):
        errors.refuse("ask", outcome, "a yes/no question", "one with options")
    names = _names(survey, listed)
    if len({outcome, *names}) <= len(names):
        errors.refuse("ask", "questions", "different", [outcome, *names])
    levels = [_levels(survey, name) for name in names]
    labels = ["intercept", *(label for of, _ in levels for label in of)]
    cells = list(itertools.product(*(rows for _, rows in levels)))
    design = tuple((1.0, *(x for _, row in cell for x in row)) for cell in cells)
    used = tuple(
        (
            (outcome, ("is", code)),
            *((name, own) for name, (own, _) in zip(names, cell, strict=True)),
        )
        for code in (0, 1)
        for cell in cells
    )
    return [Logistic(label, used, design, place) for place, label in enumerate(labels)]


def _levels(survey: Any, name: str) -> tuple[list[str], list[tuple[tuple[str, int], Any]]]:
    """Return the labels of a predictor's columns, and their values at each of its levels."""
    options = getattr(_known(survey, name), "options", None)
    if options is None:
        edges = survey.measure(f"{name}:bins").edges
        middles = (edges[1:] + edges[:-1]) / 2
        return [name], [(("bin", place), (float(x),)) for place, x in enumerate(middles)]
    rows = np.eye(len(options))[:, 1:].tolist()
    labels = [name] if options == ("no", "yes") else [f"{name}={one}" for one in options[1:]]
    return labels, [(("is", code), tuple(row)) for code, row in enumerate(rows)]


def _names(survey: Any, listed: str) -> list[str]:
    """Split names at commas that are in no name."""
    rest, names = listed.split(","), []
    while rest:
        joined = [",".join(rest[:count]).strip() for count in range(len(rest), 0, -1)]
        name = next((one for one in joined if one in survey.variables), joined[-1])
        names.append(name)
        rest = rest[len(joined) - joined.index(name) :]
    return names


def _second_moments(survey: Any, names: list[str]) -> tuple[Moment, ...]:
    """List first moments, then the upper triangle of second moments."""
    for name in names:
        _numeric(survey, name)
    if len(set(names)) < len(names) or len(names) < 2:
        errors.refuse("ask", "questions", "different", names)
    firsts = [_power(name, 1) for name in names]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
    seconds = [_power(a, 2) if a == b else _power(a, 1) + _power(b, 1) for a, b in pairs]
    return (*firsts, *seconds)


def _covariance(m: Reals, c: Reals, size: int) -> Reals:
    """Return the covariance matrix; products of two estimates are corrected by their covariance."""
    upper = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[upper] = m[size:] - m[upper[0]] * m[upper[1]] + c[upper]
    return np.asarray(matrix + np.triu(matrix, 1).T)


def _power(name: str, power: int) -> Moment:
    return ((name, ("power", power)),)


def _known(survey: Any, name: str) -> Any:
    if name not in survey.variables:
        errors.refuse("ask", "question", f"about one of {', '.join(survey.variables)}", name)
    return survey.variables[name]


def _options(survey: Any, name: str) -> tuple[str, ...]:
    options = getattr(_known(survey, name), "options", None)
    if options is None:
        errors.refuse("ask", name, "a question with options", "a number", "Ask for its mean.")
    return tuple(options)


def _numeric(survey: Any, name: str) -> None:
    question = _known(survey, name)
    if getattr(question, "options", ("no", "yes")) != ("no", "yes"):
        errors.refuse("ask", name, "a number, a date or yes/no", "one with options")


def _limits(survey: Any, name: str) -> tuple[float, float]:
    question = survey.variables[name]
    return getattr(question, "lower", 0.0), getattr(question, "upper", 1.0)


_NAME, _AND = "(NAME)", " and "
_FORMS: tuple[tuple[str, Callable[..., list[Target]]], ...] = (
    (rf"shares? (?:of )?{_NAME}(?: by {_NAME})?", _shares),
    (rf"means? (?:of )?{_NAME}(?: by {_NAME})?", _means),
    (rf"median()(?: of)? {_NAME}(?: by {_NAME})?", _quantiles),
    (rf"quantile (0?\.\d+) (?:of )?{_NAME}(?: by {_NAME})?", _quantiles),
    (rf"variance (?:of )?{_NAME}", _variance),
    (rf"difference (?:of |in )?{_NAME} between (.+)", _difference),
    (rf"table of {_NAME} and {_NAME}", _table),
    (rf"correlation of {_NAME} and {_NAME}", _correlation),
    (rf"regression of {_NAME} on (.+)", _regression),
    (rf"logistic regression of {_NAME} on (.+)", _logistic),
)
