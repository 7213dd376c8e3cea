r"""Expectations of functions of answers, estimated from reports or from rows, with covariance.

A report has a score for each function of the answers (`tacit.local.surveys.laws`), whose
expectation given the answers is the function. People are a simple random sample of a large
population, so that the scores are independent and equally distributed: their empirical covariance
holds the noise and the sampling of people. A few scores may be equal by chance, though the law of
noise is known: to those of n people is added that of one more, whose answers are taken as even,

.. math:: \frac{(n - 1)\,\hat\Sigma + \Sigma_0}{n} .
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t

from tacit.local.surveys.measures import Measure
from tacit.local.surveys.parts import Part
from tacit.local.surveys.questions import Integers, Reals
from tacit.privacy import errors
from tacit.privacy.randomness import source

Moment = tuple[tuple[str, tuple[str, int]], ...]
"""A product of functions of variables: (variable, ("is", code) | ("power", k) | ("bin", b))."""


class Found(NamedTuple):
    """Estimated moments, their covariance, and the two values of a single moment's scores."""

    value: Reals
    covariance: Reals
    people: int
    ends: tuple[float, float] | None = None
    degrees: int | None = None
    """Degrees of freedom of an estimated covariance; None where it is known."""

    def quantile(self, z: float) -> float:
        """Return Student's quantile for a normal one, as the covariance was estimated."""
        return z if self.degrees is None else float(t.isf(norm.sf(z), max(self.degrees, 1)))


def from_reports(reports: Any, moments: tuple[Moment, ...], where: str = "answer") -> Found:
    """Estimate moments and their covariance; sheets that state a moment are weighted by people."""
    channel = reports.channel
    people = np.bincount(reports.columns["sheet"], minlength=len(channel.sheets))
    able = np.array([[stated(parts, one) for one in moments] for parts in channel.sheets])
    used = able * (people[:, None] > 1)
    if missing := [one for one, some in zip(moments, used.T, strict=True) if not some.any()]:
        needed = _needed(max(missing, key=len), moments)
        remedy = "Declare such a sheet before people are asked."
        measures = [one for parts in channel.sheets for part in parts for one in part.measures]
        binned = {one.variable for one in measures if one.kind == "bins"}
        if binned & set(needed.split(" and ")):
            remedy += " A number is measured for means by its name alone, not as :bins."
        wanted = f"one sheet must have {needed}, and two reports or more"
        raise errors.InvalidParameter(f"{where}: {wanted}. {remedy}")
    shares = used * people[:, None] / (used * people[:, None]).sum(axis=0)
    value, covariance = np.zeros(len(moments)), np.zeros((len(moments), len(moments)))
    asked = np.flatnonzero(used.any(axis=1)).tolist()
    for number in asked:
        rows = reports.columns["symbols"][reports.columns["sheet"] == number]
        rows, counts = _different(rows.astype(np.int64), channel.forms()["symbols"].most + 2)
        scores = np.zeros((len(rows), len(moments)))
        for place in np.flatnonzero(used[number]):
            scores[:, place] = _scores(channel, number, rows, moments[place])
        scores *= shares[number]
        own = int(counts.sum())
        value += counts @ scores / own
        spread = (own - 1) * np.atleast_2d(np.cov(scores.T, fweights=counts))
        covariance += (
            spread + _of_one(channel.sheets[number], moments, used[number] * shares[number])
        ) / own**2
    ends = (
        _ends(channel.sheets[asked[0]], moments[0])
        if (len(asked), len(moments)) == (1, 1)
        else None
    )
    total = int(people[asked].sum())
    return Found(value, covariance, total, ends, total - len(asked))


def _of_one(parts: tuple[Part, ...], moments: tuple[Moment, ...], weights: Reals) -> Reals:
    """Return the covariance of the weighted scores of somebody with even answers."""
    places = np.flatnonzero(weights)
    whole = np.zeros((len(moments), len(moments)))
    whole[np.ix_(places, places)] = _even(parts, tuple(moments[place] for place in places))
    return np.asarray(whole * np.outer(weights, weights))


@lru_cache(maxsize=256)
def _even(parts: tuple[Part, ...], moments: tuple[Moment, ...]) -> Reals:
    return law_of_scores(parts, moments, lambda one: one.uniform)[1]


def law_of_scores(
    parts: tuple[Part, ...], moments: Sequence[Moment], levels: Callable[[Measure], Reals]
) -> tuple[Reals, Reals]:
    """Return expectations and covariances of the scores of one report: a product over parts.

    `levels` gives the law of the levels of a measure; different measures are independent.
    """
    mean, second = np.ones(len(moments)), np.ones((len(moments), len(moments)))
    for part in parts:
        names = {one.variable for one in part.measures}
        held = np.array([any(name in names for name, _ in one) for one in moments])
        if not held.any():
            continue
        law = reduce(lambda a, b: np.outer(a, b).ravel(), map(levels, part.measures))
        values = np.array([part_values(part, one) for one in moments])
        own, squares = part.sent.seconds(values, law)
        own = np.where(held, own, 1.0)
        both = held[:, None] & held
        mean *= own
        second *= np.where(both, squares, np.outer(own, own))
    return mean, second - np.outer(mean, mean)


def _different(rows: Integers, most: int) -> tuple[Integers, Integers]:
    """Return each different row, in order, and how often it occurs; numbers are −1 to `most` − 2.

    So answers are functions of the multiset of reports, to the last digit.
    """
    if most ** rows.shape[1] >= 2**63:
        return np.unique(rows, axis=0, return_counts=True)
    marks = np.zeros(len(rows), np.int64)
    for column in rows.T:
        marks = marks * most + column + 1
    _, first, counts = np.unique(marks, return_index=True, return_counts=True)
    return rows[first], counts


def from_rows(survey: Any, rows: Any, moments: tuple[Moment, ...]) -> Found:
    """Compute moments of rows without noise, and the covariance that sampling people gives."""
    coded = dict(zip(survey.variables, survey.encode(rows).T, strict=True))
    if len(next(iter(coded.values()))) < 2:
        raise errors.InvalidData("answer: there must be two rows or more.")

    def column(variable: str, function: tuple[str, int]) -> Reals:
        name, place = function
        if name == "is":
            return np.asarray(coded[variable] == place, np.float64)
        if name == "bin":
            measure = survey.measure(f"{variable}:bins")
            return np.asarray(measure.draw(coded[variable], source(None)) == place, np.float64)
        one = survey.variables[variable]
        exact = coded[variable] if hasattr(one, "options") else one.values("answer", rows[variable])
        return np.asarray(exact, np.float64) ** place

    products = [reduce(np.multiply, [column(*one) for one in moment]) for moment in moments]
    scores = np.stack(products, axis=1)
    shares = len(moments) == 1 and all(function[0] == "is" for _, function in moments[0])
    covariance = np.atleast_2d(np.cov(scores.T)) / len(scores)
    ends = (0.0, 1.0) if shares else None
    return Found(scores.mean(axis=0), covariance, len(scores), ends, len(scores) - 1)


def _needed(moment: Moment, among: tuple[Moment, ...]) -> str:
    """Name what a sheet must have for a moment, as sheets are declared, for what is asked."""
    functions = {pair for one in among for pair in one}
    measures = {"bin": ":bins", "power": ":moments"}
    needed = {variable: "" for variable, _ in moment}
    for variable in needed:
        used = {f for name, f in functions if name == variable and f != ("power", 1)}
        kinds = sorted({kind for kind, _ in used} & set(measures))
        needed[variable] = measures[kinds[0]] if kinds else ""
    return " and ".join(f"{variable}{how}" for variable, how in needed.items())


def stated(parts: tuple[Part, ...], moment: Moment) -> bool:
    """Return whether a sheet with these parts states a moment."""
    able = {
        (one.variable, f)
        for part in parts
        for one in part.measures
        for _, f in moment
        if one.states(f)
    }
    return all(factor in able for factor in moment)


def _scores(channel: Any, number: int, rows: Any, moment: Moment) -> Reals:
    """Multiply the scores of the parts: given the answers, their noises are independent."""
    score = np.ones(len(rows))
    for part, place in zip(channel.sheets[number], channel.places(number), strict=True):
        held = {one.variable for one in part.measures}
        if any(variable in held for variable, _ in moment):
            score *= part.sent.scores(rows[:, place], part_values(part, moment))
    return score


def part_values(part: Part, moment: Moment) -> Reals:
    """Return the moment's function at each symbol of the part."""
    value = np.ones(1)
    for one in part.measures:
        tables = [one.table(function) for name, function in moment if name == one.variable]
        own = reduce(np.multiply, tables, np.ones(one.levels))
        value = np.outer(value, own).ravel()
    return value


def _ends(parts: tuple[Part, ...], moment: Moment) -> tuple[float, float] | None:
    """Return the two values of the scores of a moment; None where there may be more."""
    variables = {name for name, _ in moment}
    held = [one for one in parts if variables & {m.variable for m in one.measures}]
    if len(held) != 1:
        return None
    return held[0].sent.ends(part_values(held[0], moment))
