r"""Standard errors that a survey will have, from the exact variances of its channel.

Given the law of a symbol, that of what is released is known, and so is the covariance of the scores
of two functions of it (`tacit.local.surveys.laws`). Answers are unknown before
anybody is asked: options are taken as equally likely, numbers as evenly spread, and answers to
different questions as independent, unless something else is expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import beta

from tacit.data.outcomes import STEPS
from tacit.local.surveys.moments import Found, Moment, law_of_scores, stated
from tacit.local.surveys.questions import Integers, Reals, SeveralOf
from tacit.privacy import errors
from tacit.privacy.randomness import source

_POINTS = 513
"""Points of the assumed law of a number."""
_CORNERS, _MOST_RECORDS = 9, 2048
"""Values of a number, and records, between which the sensitivity of a curator's sums is sought."""


@dataclass(frozen=True)
class Law:
    """The assumed law of one variable: encoded answers, and how likely each is."""

    answers: Integers
    weights: Reals


def laws(survey: Any, expected: dict[str, Any] | None) -> dict[str, Law]:
    """Return the assumed law of each variable, from what is expected of its question.

    Expected is the share of yes; the shares of the options, in their order; or the mean and the
    standard deviation of a number.
    """
    given = dict(expected or {})
    for name in given:
        errors.choice("plan", "expected", name, tuple(survey.questions))
    made: dict[str, Law] = {}
    for name, question in survey.questions.items():
        value = given.get(name)
        if isinstance(question, SeveralOf):
            each = np.broadcast_to(0.5 if value is None else value, len(question.options))
            for option, share in zip(question.options, each.tolist(), strict=True):
                made[f"{name}={option}"] = _of_options(name, ("no", "yes"), share)
        elif hasattr(question, "options"):
            made[name] = _of_options(name, question.options, value)
        else:
            made[name] = _of_number(name, question, value)
    return made


def _of_options(name: str, options: tuple[str, ...], shares: Any) -> Law:
    count = len(options)
    given = (
        np.full(count, 1 / count) if shares is None else np.atleast_1d(np.asarray(shares, float))
    )
    if given.size == 1 and count == 2:
        given = np.array([1 - given[0], given[0]])
    if given.shape != (count,) or bool(np.any(given < 0)) or not abs(given.sum() - 1) < 1e-6:
        wanted = "a share of yes" if count == 2 else f"{count} shares that sum to 1"
        errors.refuse("plan", f"what is expected of {name}", wanted, shares)
    return Law(np.arange(count), given / given.sum())


def _of_number(name: str, question: Any, expected: Any) -> Law:
    edges = np.linspace(0, 1, _POINTS + 1)
    answers = np.rint((edges[1:] + edges[:-1]) / 2 * STEPS).astype(np.int64)
    if expected is None:
        return Law(answers, np.full(_POINTS, 1 / _POINTS))
    both = np.asarray(expected, float).ravel()
    mean, deviation = both.tolist() if both.size == 2 else (math.nan, math.nan)
    width = question.upper - question.lower
    middle, spread = (mean - question.lower) / width, (deviation / width) ** 2
    if not 0 < middle < 1 or not 0 < spread < middle * (1 - middle):
        wanted = "a mean within its bounds, and a standard deviation that these allow"
        errors.refuse("plan", f"what is expected of {name}", wanted, expected)
    size = middle * (1 - middle) / spread - 1
    weights = np.diff(beta.cdf(edges, middle * size, (1 - middle) * size))
    return Law(answers, weights / weights.sum())


def local(channel: Any, moments: tuple[Moment, ...], assumed: dict[str, Law], people: int) -> Found:
    """Return the moments and the covariance of their estimates from this many people's reports."""
    used = np.array([[stated(parts, one) for one in moments] for parts in channel.sheets])
    each = people / len(channel.sheets)
    shares = used / np.maximum(used.sum(axis=0), 1)
    value, covariance = np.zeros(len(moments)), np.zeros((len(moments), len(moments)))
    for parts, able, share in zip(channel.sheets, used, shares, strict=True):
        if not able.any():
            continue
        places = np.flatnonzero(able)
        own_moments = [moments[place] for place in places]
        mean, spread = law_of_scores(
            parts,
            own_moments,
            lambda one: assumed[one.variable].weights @ one.law(assumed[one.variable].answers),
        )
        own = share[places]
        value[places] += own * mean
        covariance[np.ix_(places, places)] += np.outer(own, own) * spread / each
    return Found(value, covariance, people)


def central(
    survey: Any, moments: tuple[Moment, ...], assumed: dict[str, Law], people: int, epsilon: float
) -> Found:
    """Return the same for a trusted curator, who adds Laplace noise to the sums over all people."""
    names = list(dict.fromkeys(name for one in moments for name, _ in one))
    mean, second = np.ones(len(moments)), np.ones((len(moments), len(moments)))
    for name in names:
        values = _functions(survey, name, moments, assumed[name].answers)
        mean *= values @ assumed[name].weights
        second *= (values * assumed[name].weights) @ values.T
    noise = _curator_noise(survey, names, moments) / (epsilon * people) ** 2
    return Found(mean, (second - np.outer(mean, mean)) / people + noise, people)


def _functions(
    survey: Any, name: str, moments: tuple[Moment, ...], answers: Integers, centred: bool = False
) -> Reals:
    """Return what each moment (rows) makes of each encoded answer to one question."""
    question = survey.variables[name]
    exact = answers.astype(float)
    if not hasattr(question, "options"):
        exact = question.lower + answers / STEPS * (question.upper - question.lower)
        if centred:
            exact = 2 * answers / STEPS - 1

    def value(function: tuple[str, int]) -> Reals:
        kind, place = function
        if kind == "power":
            return np.asarray(exact**place)
        levels = answers
        if kind == "bin":
            levels = survey.measure(f"{name}:bins").draw(answers, source(None))
        return np.asarray(levels == place, float)

    rows = [
        reduce(np.multiply, [value(f) for own, f in one if own == name], np.ones(answers.size))
        for one in moments
    ]
    return np.array(rows)


def _curator_noise(survey: Any, names: list[str], moments: tuple[Moment, ...]) -> Reals:
    """Return the covariance of Laplace noise on the sums, at ε = 1.

    The curator adds noise to the moments of numbers that are scaled to [−1, 1], in proportion to
    the range of each, and computes the others from them. The sensitivity is the most that replacing
    one person changes all sums together (L1).
    """
    records, scaled = (_records(survey, names, moments, centred) for centred in (False, True))
    ranges = np.maximum(np.ptp(scaled, axis=0), 1e-12)
    sensitivity = float(cdist(scaled / ranges, scaled / ranges, "cityblock").max())
    if np.array_equal(records, scaled):
        return np.diag(2 * (ranges * sensitivity) ** 2)
    known = np.hstack([scaled, np.ones((len(scaled), 1))])
    solved = np.linalg.lstsq(known, records, rcond=None)[0][:-1]
    return np.asarray((solved.T * (ranges * sensitivity) ** 2 * 2) @ solved)


def _records(survey: Any, names: list[str], moments: tuple[Moment, ...], centred: bool) -> Reals:
    """List what the moments are for a grid of people."""
    records = np.ones((1, len(moments)))
    for name in names:
        options = getattr(survey.variables[name], "options", None)
        bins = any(kind == "bin" for one in moments for own, (kind, _) in one if own == name)
        points = survey.measure(f"{name}:bins").size if bins else _CORNERS
        share = (np.arange(points) + 0.5) / points if bins else np.linspace(0, 1, points)
        answers = np.arange(len(options)) if options else np.rint(share * STEPS).astype(np.int64)
        own = _functions(survey, name, moments, answers, centred).T
        records = (records[:, None] * own).reshape(-1, len(moments))
    step = -(-len(records) // _MOST_RECORDS)
    return np.asarray(records[::step])
